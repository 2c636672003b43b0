//! Files that are opened by a name, which may be that of a pipe in /proc whose bytes lie in memory.
//!
//! What was opened is looked at, and not the name: there are many ways to say it.

use crate::real;
use core::ffi::{c_char, c_int, c_uint, c_void};
use shunt_pipes::kept_pipes;

fn opened(fd: c_int) -> c_int {
    if fd >= 0 {
        kept_pipes::opened(fd);
    }
    fd
}

// The mode is in a register, as if it were always given.
hook! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(real::open(path, flags, mode))
    }
    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(real::open64(path, flags, mode))
    }
    fn __open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(real::__open(path, flags, mode))
    }
    fn __open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(real::__open64(path, flags, mode))
    }
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        opened(real::__open_2(path, flags))
    }
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        opened(real::__open64_2(path, flags))
    }
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(real::openat(directory, path, flags, mode))
    }
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        opened(real::openat64(directory, path, flags, mode))
    }
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        opened(real::__openat_2(directory, path, flags))
    }
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        opened(real::__openat64_2(directory, path, flags))
    }
    fn creat(path: *const c_char, mode: c_uint) -> c_int {
        opened(real::creat(path, mode))
    }
    fn creat64(path: *const c_char, mode: c_uint) -> c_int {
        opened(real::creat64(path, mode))
    }
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
