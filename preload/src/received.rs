//! Receiving from sockets that only the kernel has: the call that looks, beside the C library's own.

use crate::errno::answer;
use core::ffi::{c_int, c_void};
use shunt_calls::libc::{iovec, msghdr, sockaddr, socklen_t};
use shunt_stream::waiting::kernel_sockets::{receive, Answer};
use shunt_sys::{calls, cancel, user};

/// MAX_RW_COUNT of Linux: bytes that one call moves at most.
const MOST_AT_ONCE: usize = 0x7fff_f000;

pub(crate) fn settle(given: Answer) -> isize {
    match given {
        Answer::Done(result) => answer(result),
        Answer::Raw(result) => result,
    }
}

/// The C library's call, which the thread may be cancelled in; it is unwound from the end of the hook then.
pub(crate) fn guarded(kernel: impl FnOnce() -> isize) -> impl FnOnce() -> isize {
    || cancel::guarded(kernel).unwrap_or(-1)
}

/// recv(2), or read(2).
///
/// # Safety
/// As the function.
#[inline]
pub unsafe fn into_buffer(fd: c_int, data: *mut c_void, length: usize, flags: c_int, kernel: impl FnOnce() -> isize) -> isize {
    let nobody = core::ptr::null_mut();
    // SAFETY: promised by the caller.
    unsafe { from(fd, data, length, flags, nobody, nobody.cast(), kernel) }
}

/// recvfrom(2).
///
/// # Safety
/// As the function.
pub unsafe fn from(
    fd: c_int,
    data: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
    kernel: impl FnOnce() -> isize,
) -> isize {
    // A longer buffer is cut by recvfrom(2), where read(2) looks whether all of it can be memory.
    if !(1..=MOST_AT_ONCE).contains(&length) {
        return kernel();
    }
    let look = |flags| calls::recvfrom(fd, data, length, flags, address, address_length);
    settle(receive(fd, flags, look, guarded(kernel)))
}

/// readv(2).
///
/// # Safety
/// As the function.
pub unsafe fn into_vector(fd: c_int, vector: *const iovec, count: c_int, kernel: impl FnOnce() -> isize) -> isize {
    // A vector without room reads nothing.
    // SAFETY: any address; what faults is the kernel's to find.
    let has_room = |at: c_int| unsafe { user::read(vector.wrapping_add(at as usize)) }.is_ok_and(|piece| piece.iov_len > 0);
    if !(1..=1024).contains(&count) || !has_room(0) {
        return kernel();
    }
    let look = |flags| {
        let mut message = crate::datagrams::header(vector.cast_mut(), count as usize, core::ptr::null_mut(), 0);
        calls::recvmsg(fd, &mut message, flags)
    };
    settle(receive(fd, 0, look, guarded(kernel)))
}

/// recvmsg(2).
///
/// # Safety
/// As the function.
pub unsafe fn message(fd: c_int, message: *mut msghdr, flags: c_int, kernel: impl FnOnce() -> isize) -> isize {
    let look = |flags| calls::recvmsg(fd, message, flags);
    settle(receive(fd, flags, look, guarded(kernel)))
}
