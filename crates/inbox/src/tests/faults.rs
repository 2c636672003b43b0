//! Faults of a program's memory, as the preload library's handler resolves them.

use shunt_sys::libc::{self, siginfo_t};
use shunt_sys::user;

unsafe extern "C" fn handler(number: i32, information: *mut siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's structures; with the default action in place, a fault that is not ours ends the test.
    unsafe {
        if !user::resolve(information, context.cast()) {
            libc::signal(number, libc::SIG_DFL);
        }
    }
}

/// From now on a call that is given a bad address says so.
pub fn catch() {
    for number in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: installs the handler above.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(number, &action, core::ptr::null_mut()), 0);
        }
    }
}
