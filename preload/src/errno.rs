//! The C convention for results: -1, and errno.

use core::ffi::c_int;
use shunt_sys::{Errno, Result};

extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// This thread's errno.
pub fn errno() -> i32 {
    // SAFETY: the C library's errno of this thread.
    unsafe { *__errno_location() }
}

/// Sets errno.
pub fn set_errno(errno: i32) {
    // SAFETY: the C library's errno of this thread.
    unsafe { *__errno_location() = errno };
}

/// Does something after a call whose errno the program is to see.
pub fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    let before = errno();
    let result = work();
    set_errno(before);
    result
}

/// The C convention: -1 and errno.
#[inline(always)]
pub fn answer(result: Result<isize>) -> isize {
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
