//! The end of the process by its own doing: the last moment at which sockets can say so (`shunt_sockets::process::ending`).
//!
//! exit(3), and the return from main, end inside the C library. Handlers run in the reverse order of their registration,
//! and destructors of libraries are run by one that the C library registers itself; the constructor of a preloaded
//! library comes before both, so ours is the last. Behind it the C library only flushes stdio, which is done here for
//! what is a socket's: it could not be sent any more.

use crate::{real, standard};
use core::ffi::{c_int, c_void};
use shunt_calls::libc;
use shunt_sockets::process::ending;
use shunt_sys::syscall;

extern "C" {
    fn __cxa_atexit(handler: extern "C" fn(*mut c_void), argument: *mut c_void, library: *mut c_void) -> c_int;
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// Registers for the end. Without a library's handle, or unloading would be taken for the end.
pub fn start() {
    // SAFETY: the handlers live as long as the process: the library is never unloaded.
    unsafe {
        __cxa_atexit(at_exit, core::ptr::null_mut(), core::ptr::null_mut());
        __cxa_at_quick_exit(at_quick_exit, core::ptr::null_mut());
    }
}

extern "C" fn at_exit(_argument: *mut c_void) {
    standard::flush();
    ending::end();
}

extern "C" fn at_quick_exit(_argument: *mut c_void) {
    ending::end();
}

/// _exit(2): does not return.
pub fn now(status: c_int) -> ! {
    ending::end();
    loop {
        // SAFETY: ends the process.
        unsafe { syscall!(libc::SYS_exit_group, status) };
    }
}

/// Before abort(3): it ends the process unless a handler of the program's leaves it.
fn aborting() {
    // SAFETY: structures of our own.
    unsafe {
        let mut now = core::mem::zeroed::<libc::sigaction>();
        let told = real::sigaction(libc::SIGABRT, core::ptr::null(), (&raw mut now).cast());
        if told == 0 && now.sa_sigaction <= libc::SIG_IGN {
            ending::end();
        }
    }
}

hook! {
    fn _exit(status: c_int) -> () {
        now(status)
    }
    fn _Exit(status: c_int) -> () {
        now(status)
    }
    fn abort() -> () {
        aborting();
        real::abort()
    }
}
