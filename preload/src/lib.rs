//! libshunt.so: the symbols that a program finds instead of the C library's, and nothing else.
//!
//! Each symbol looks its descriptor up and either asks the engine (`shunt-sockets`) or calls the C library's own
//! function, found by dlsym(RTLD_NEXT), so that other preloaded libraries keep their place in the chain. There is no
//! logic here. The list of symbols is `shunt-calls`; a check after the build makes sure that nothing in this library
//! calls one of them.
#![no_std]

mod aio;
mod cancel;
mod copies;
mod datagrams;
mod direct;
mod end;
mod exec;
mod files;
mod general;
mod hooks;
mod locals;
mod memory;
mod passing;
mod pipes;
mod real;
mod shell;
mod signals;
mod slots;
mod spawn;
mod splices;
mod start;
mod stdio;
mod symbols;
mod timed;
mod trap;
mod uring;

use core::ffi::c_int;
use shunt_sys::{Errno, Result};

extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Sets errno.
pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the C library's errno of this thread.
    unsafe { *__errno_location() = errno };
}

/// Does something after a call whose errno the program is to see.
pub(crate) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the C library's errno of this thread.
    let errno = unsafe { *__errno_location() };
    let result = work();
    set_errno(errno);
    result
}

/// The C convention: -1 and errno.
#[inline(always)]
pub(crate) fn answer(result: Result<isize>) -> isize {
    match result {
        Ok(value) => value,
        Err(Errno(errno)) => fail(errno),
    }
}

#[cold]
fn fail(errno: i32) -> isize {
    set_errno(errno);
    -1
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    start::complain(info);
    // SAFETY: a plain system call; the program's own handler for SIGABRT may run.
    unsafe {
        let pid = shunt_sys::calls::getpid() as i32;
        let _ = shunt_sys::calls::kill(pid, 6);
        shunt_sys::raw::call6(231, 134, 0, 0, 0, 0, 0);
    }
    loop {
        core::hint::spin_loop();
    }
}
