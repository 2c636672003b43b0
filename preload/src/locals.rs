//! The data calls on AF_UNIX sockets: each becomes a message header, and keeps the C library's own call at hand.

use crate::datagrams::{has_sound_name, header, into_one, settle, tell};
use crate::errno::{answer, errno};
use crate::passing;
use core::ffi::{c_int, c_ulong, c_void};
use shunt_calls::libc::{self, iovec, msghdr, sockaddr, socklen_t};
use shunt_inbox::datagram::send::Answer;
use shunt_inbox::datagram::Datagram;
use shunt_inbox::local::{end_of_stream, receive, send};
use shunt_sys::{user, Errno, Result};

fn result(got: isize) -> Result<isize> {
    if got < 0 {
        Err(Errno(errno()))
    } else {
        Ok(got)
    }
}

/// As [`settle`]; a reset that the kernel told is not told again.
fn settled(socket: &Datagram, given: Answer) -> isize {
    let told_by_kernel = matches!(given, Answer::Raw(-1));
    let result = settle(given);
    if told_by_kernel && errno() == libc::ECONNRESET {
        end_of_stream::note_reset(socket);
    }
    result
}

pub(crate) unsafe fn receive_more(fd: c_int, message: *mut msghdr, flags: c_int) -> Result<isize> {
    // SAFETY: passed on.
    result(unsafe { passing::receive(fd, message, flags) })
}

unsafe fn send_more(fd: c_int, message: *const msghdr, flags: c_int) -> Result<isize> {
    // SAFETY: passed on.
    result(unsafe { passing::send(fd, message, flags) })
}

/// recv, recvfrom and read: one buffer.
///
/// # Safety
/// As recvfrom(2).
#[inline]
pub unsafe fn receive_from(
    fd: c_int,
    socket: &'static Datagram,
    data: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
    kernel: impl FnOnce() -> isize,
) -> isize {
    // SAFETY: promised by the caller.
    let given = unsafe {
        into_one(data, length, address, address_length, |message| {
            receive::receive(fd, socket, message, flags, kernel, receive_more)
        })
    };
    settled(socket, given)
}

/// readv.
///
/// # Safety
/// As readv(2).
pub unsafe fn receive_vector(
    fd: c_int,
    socket: &'static Datagram,
    vector: *const iovec,
    count: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    // SAFETY: any address; what faults is the kernel's to find.
    let empty = |i: usize| unsafe { user::read(vector.wrapping_add(i)) }.is_ok_and(|piece| piece.iov_len == 0);
    // A vector without room reads nothing, and takes no packet.
    if !(1..=1024).contains(&count) || (0..count as usize).all(empty) {
        return kernel();
    }
    let mut message = header(vector.cast_mut(), count as usize, core::ptr::null_mut(), 0);
    // SAFETY: what faults is found by copying.
    settled(socket, unsafe { receive::receive(fd, socket, &mut message, 0, kernel, receive_more) })
}

/// recvmsg.
///
/// # Safety
/// As recvmsg(2).
pub unsafe fn receive_message(fd: c_int, socket: &'static Datagram, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: what faults is found by copying, or by the kernel.
    unsafe {
        let kernel = || passing::receive(fd, message, flags);
        let Ok(mut copy) = user::read(message) else { return kernel() };
        if !has_sound_name(&mut copy) {
            return kernel(); // EINVAL, before anything is taken
        }
        let given = receive::receive(fd, socket, &mut copy, flags, kernel, receive_more);
        if let Answer::Done(Ok(_)) = &given {
            if let Err(error) = tell(message, &copy) {
                return answer(Err(error));
            }
        }
        settled(socket, given)
    }
}

/// send, sendto and write: one buffer.
///
/// # Safety
/// As sendto(2).
#[inline]
pub unsafe fn send_to(
    fd: c_int,
    socket: &'static Datagram,
    piece: &mut iovec,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let message = header(piece, 1, address.cast_mut(), address_length);
    // SAFETY: what faults is found by copying.
    settled(socket, unsafe { send::send(fd, socket, &message, flags, kernel, send_more) })
}

/// writev.
///
/// # Safety
/// As writev(2).
pub unsafe fn send_vector(
    fd: c_int,
    socket: &'static Datagram,
    vector: *const iovec,
    count: c_int,
    kernel: impl FnOnce() -> isize,
) -> isize {
    if !(1..=1024).contains(&count) {
        return kernel();
    }
    let message = header(vector.cast_mut(), count as usize, core::ptr::null_mut(), 0);
    // SAFETY: what faults is found by copying.
    settled(socket, unsafe { send::send(fd, socket, &message, 0, kernel, send_more) })
}

/// sendmsg.
///
/// # Safety
/// As sendmsg(2).
pub unsafe fn send_message(fd: c_int, socket: &'static Datagram, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: what faults is found by copying, or by the kernel.
    unsafe {
        let kernel = || passing::send(fd, message, flags);
        match user::read(message) {
            Ok(copy) => settled(socket, send::send(fd, socket, &copy, flags, kernel, send_more)),
            Err(_) => kernel(),
        }
    }
}

/// SO_ERROR was asked, and the kernel knew of none.
///
/// # Safety
/// As getsockopt(2).
pub unsafe fn error_option(fd: c_int, socket: &'static Datagram, data: *mut c_void, length: *mut socklen_t) {
    // SAFETY: the kernel has just written there.
    unsafe {
        let whole = user::read(length).is_ok_and(|length| length == 4);
        if whole && user::read(data.cast::<c_int>()) == Ok(libc::ECONNRESET) {
            return end_of_stream::note_reset(socket);
        }
        if whole && user::read(data.cast::<c_int>()) == Ok(0) && end_of_stream::reset(fd, socket, true) {
            let _ = user::write(data.cast::<c_int>(), libc::ECONNRESET);
        }
    }
}

const SIOCATMARK: c_ulong = 0x8905;

/// ioctl has given `result`: what rings add to it. False: nothing of ours.
///
/// # Safety
/// As ioctl(2).
pub unsafe fn ioctl(socket: &'static Datagram, request: c_ulong, argument: usize, result: c_int) -> bool {
    let integer = argument as *mut c_int;
    // SAFETY: the kernel has just written there.
    let kernel = || unsafe { user::read(integer) }.unwrap_or(0).max(0) as usize;
    let value = match request {
        libc::FIONREAD if result == 0 => end_of_stream::readable(socket, kernel()),
        libc::TIOCOUTQ if result == 0 => kernel() + end_of_stream::outgoing_charge(socket) as usize,
        SIOCATMARK if result == 0 && end_of_stream::has_waiting(socket) => 0,
        libc::FIONREAD | libc::TIOCOUTQ | SIOCATMARK => return true,
        _ => return false,
    };
    // SAFETY: as above.
    let _ = unsafe { user::write(integer, value.min(c_int::MAX as usize) as c_int) };
    true
}
