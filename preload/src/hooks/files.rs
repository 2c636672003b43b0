//! Files that are opened by a name, which may be that of a pipe in /proc whose bytes lie in memory.
//!
//! What was opened is looked at, and not the name: there are many ways to say it.

use crate::real;
use core::ffi::{c_char, c_int, c_uint, c_void};
use shunt_stream::kept_pipes;

fn opened(fd: c_int) -> c_int {
    if fd >= 0 {
        kept_pipes::opened(fd);
    }
    fd
}

macro_rules! opening {
    ($($name:ident ( $($arg:ident : $ty:ty),* );)*) => {
        hook! {
            $(fn $name($($arg: $ty),*) -> c_int {
                opened(real::$name($($arg),*))
            })*
        }
    };
}

// The mode is in a register, as if it were always given.
opening! {
    open(path: *const c_char, flags: c_int, mode: c_uint);
    open64(path: *const c_char, flags: c_int, mode: c_uint);
    __open(path: *const c_char, flags: c_int, mode: c_uint);
    __open64(path: *const c_char, flags: c_int, mode: c_uint);
    __open_2(path: *const c_char, flags: c_int);
    __open64_2(path: *const c_char, flags: c_int);
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint);
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint);
    __openat_2(directory: c_int, path: *const c_char, flags: c_int);
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int);
    creat(path: *const c_char, mode: c_uint);
    creat64(path: *const c_char, mode: c_uint);
}

unsafe fn opened_stream(stream: *mut c_void) -> *mut c_void {
    if !stream.is_null() && kept_pipes::are_any() {
        // SAFETY: a FILE that the C library has just made.
        opened(unsafe { real::fileno(stream) });
    }
    stream
}

hook! {
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
        opened_stream(real::fopen(path, mode))
    }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
        opened_stream(real::fopen64(path, mode))
    }
}
