//! Handlers of signals.

use crate::{masks, real};
use core::ffi::{c_int, c_void};
use shunt_calls::libc::{self, sigset_t};

hook! {
    fn sigaction(number: c_int, action: *const c_void, old: *mut c_void) -> c_int {
        crate::signals::install(number, action, old)
    }
    fn __sigaction(number: c_int, action: *const c_void, old: *mut c_void) -> c_int {
        crate::signals::install(number, action, old)
    }
    fn signal(number: c_int, handler: usize) -> usize {
        crate::signals::set(number, handler, crate::signals::Style::Bsd)
    }
    fn bsd_signal(number: c_int, handler: usize) -> usize {
        signal(number, handler)
    }
    fn ssignal(number: c_int, handler: usize) -> usize {
        signal(number, handler)
    }
    fn sysv_signal(number: c_int, handler: usize) -> usize {
        crate::signals::set(number, handler, crate::signals::Style::SystemV)
    }
    fn __sysv_signal(number: c_int, handler: usize) -> usize {
        sysv_signal(number, handler)
    }
    fn sigset(number: c_int, handler: usize) -> usize {
        let old = crate::signals::set_and_unblock(number, handler);
        masks::open();
        old
    }
    fn sigignore(number: c_int) -> c_int {
        let result = crate::signals::set(number, libc::SIG_IGN, crate::signals::Style::Plain);
        if result == libc::SIG_ERR { -1 } else { 0 }
    }
    fn siginterrupt(number: c_int, interrupts: c_int) -> c_int {
        crate::signals::interrupts(number, interrupts != 0)
    }
    fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        masks::change(how, set, old, real::sigprocmask)
    }
    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        masks::change(how, set, old, real::pthread_sigmask)
    }
    fn sighold(number: c_int) -> c_int {
        let result = real::sighold(number);
        masks::open();
        result
    }
    fn sigblock(mask: c_int) -> c_int {
        let old = real::sigblock(mask);
        masks::open();
        old
    }
    fn sigsetmask(mask: c_int) -> c_int {
        let old = real::sigsetmask(mask);
        masks::open();
        old
    }
}
