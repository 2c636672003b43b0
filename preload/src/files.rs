//! What a descriptor is (fstat and its kin): shunt's own descriptors do not exist for the program.
//!
//! Programs look for the descriptors that they have by asking for each number, Python's subprocess tests among them. A
//! socket of ours needs no help here: its companion is a socket, too.

use crate::errno::set_errno;
use crate::real;
use core::ffi::{c_char, c_int, c_uint, c_void};
use shunt_calls::libc;
use shunt_table::table;
use shunt_table::table::Kind;

/// -1 with EBADF for a descriptor of shunt's own, else what the C library says.
fn unless_private(fd: c_int, ask: impl FnOnce() -> c_int) -> c_int {
    if table::get(fd).kind() == Kind::Private {
        set_errno(libc::EBADF);
        return -1;
    }
    ask()
}

/// The descriptor that a call with a path is about, or -1 for a file (AT_EMPTY_PATH, see open(2)).
///
/// # Safety
/// If the flag is set, `path` is null or ends with a zero byte.
unsafe fn about(fd: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: promised by the caller.
    if flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0) {
        fd
    } else {
        -1
    }
}

macro_rules! hooks {
    ($(fn $name:ident ( $($arg:ident : $ty:ty),* ) $body:block)*) => {
        $(
            #[no_mangle]
            unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
                // SAFETY: the caller gives what the C function of this name asks for.
                unsafe { $body }
            }
        )*
    };
}

hooks! {
    fn fstat(fd: c_int, state: *mut c_void) {
        unless_private(fd, || real::fstat(fd, state))
    }
    fn fstat64(fd: c_int, state: *mut c_void) {
        unless_private(fd, || real::fstat64(fd, state))
    }
    fn __fxstat(version: c_int, fd: c_int, state: *mut c_void) {
        unless_private(fd, || real::__fxstat(version, fd, state))
    }
    fn __fxstat64(version: c_int, fd: c_int, state: *mut c_void) {
        unless_private(fd, || real::__fxstat64(version, fd, state))
    }
    fn fstatat(fd: c_int, path: *const c_char, state: *mut c_void, flags: c_int) {
        unless_private(about(fd, path, flags), || real::fstatat(fd, path, state, flags))
    }
    fn fstatat64(fd: c_int, path: *const c_char, state: *mut c_void, flags: c_int) {
        unless_private(about(fd, path, flags), || real::fstatat64(fd, path, state, flags))
    }
    fn statx(fd: c_int, path: *const c_char, flags: c_int, mask: c_uint, state: *mut c_void) {
        unless_private(about(fd, path, flags), || real::statx(fd, path, flags, mask, state))
    }
}
