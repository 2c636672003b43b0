//! The data calls on datagram sockets: each becomes a message header, and keeps the C library's own call at hand.

use crate::{answer, locals, real};
use core::ffi::{c_int, c_uint, c_void};
use shunt_calls::libc::{self, iovec, mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use shunt_sockets::datagram::send::Answer;
use shunt_sockets::datagram::{receive, send, Datagram};
use shunt_sockets::sys::clock;

pub(crate) fn settle(given: Answer) -> isize {
    match given {
        Answer::Done(result) => answer(result),
        Answer::Raw(result) => result,
    }
}

pub(crate) fn header(vector: *mut iovec, count: usize, name: *mut sockaddr, name_length: socklen_t) -> msghdr {
    // SAFETY: all-zero is a valid header.
    let mut message: msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = vector;
    message.msg_iovlen = count;
    message.msg_name = name.cast();
    message.msg_namelen = name_length;
    message
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
    if socket.is_local() {
        // SAFETY: promised by the caller.
        return unsafe { locals::receive_from(fd, socket, data, length, flags, address, address_length, kernel) };
    }
    let named = !address.is_null();
    if (length > 0 && (data as usize) < 4096) || (named && (address_length as usize) < 4096) {
        return kernel(); // EFAULT is the kernel's to find
    }
    let mut piece = iovec { iov_base: data, iov_len: length };
    // SAFETY: checked above; the rest is promised by the caller.
    unsafe {
        let room = if named { *address_length } else { 0 };
        if room > i32::MAX as socklen_t {
            return kernel();
        }
        let mut message = header(&mut piece, 1, address, room);
        let given = receive::receive(fd, socket, &mut message, flags, kernel);
        if let (true, Answer::Done(Ok(_))) = (named, &given) {
            *address_length = message.msg_namelen;
        }
        settle(given)
    }
}

/// readv.
///
/// # Safety
/// As readv(2).
pub unsafe fn receive_vector(fd: c_int, socket: &'static Datagram, vector: *const iovec, count: c_int) -> isize {
    // SAFETY: promised by the caller.
    unsafe {
        let kernel = || real::readv(fd, vector, count);
        if socket.is_local() {
            return locals::receive_vector(fd, socket, vector, count, kernel);
        }
        let sound = (1..=1024).contains(&count) && vector as usize >= 4096;
        // A vector without room reads nothing and takes no datagram.
        if !sound || core::slice::from_raw_parts(vector, count as usize).iter().all(|piece| piece.iov_len == 0) {
            return kernel();
        }
        let mut message = header(vector.cast_mut(), count as usize, core::ptr::null_mut(), 0);
        settle(receive::receive(fd, socket, &mut message, 0, kernel))
    }
}

/// recvmsg.
///
/// # Safety
/// As recvmsg(2).
pub unsafe fn receive_message(fd: c_int, socket: &'static Datagram, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: promised by the caller.
    unsafe {
        if socket.is_local() {
            return locals::receive_message(fd, socket, message, flags);
        }
        let kernel = || real::recvmsg(fd, message, flags);
        if (message as usize) < 4096 || (*message).msg_namelen > i32::MAX as socklen_t {
            return kernel();
        }
        let mut copy = *message;
        let given = receive::receive(fd, socket, &mut copy, flags, kernel);
        if let Answer::Done(Ok(_)) = &given {
            (*message).msg_namelen = copy.msg_namelen;
            (*message).msg_controllen = copy.msg_controllen;
            (*message).msg_flags = copy.msg_flags;
        }
        settle(given)
    }
}

/// recvmmsg: one message after the other. The time limit is looked at after each datagram, as the kernel does.
///
/// # Safety
/// As recvmmsg(2).
pub unsafe fn receive_messages(
    fd: c_int,
    socket: &'static Datagram,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        let limit = match timeout.as_ref() {
            None => u64::MAX,
            Some(t) if t.tv_sec < 0 || !(0..1_000_000_000).contains(&t.tv_nsec) => 0,
            Some(t) => (t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64),
        };
        if socket.is_local() && socket.inbox().is_none() {
            return crate::passing::receive_several(fd, messages, count, flags, timeout);
        }
        // No time at all is time for one message.
        let none = limit == 0 && !(socket.is_local() && timeout.as_ref().is_some_and(|t| (t.tv_sec, t.tv_nsec) == (0, 0)));
        if socket.inbox().is_none() || (messages as usize) < 4096 || none || flags & libc::MSG_ERRQUEUE != 0 {
            return real::recvmmsg(fd, messages, count, flags, timeout);
        }
        let begun = clock::monotonic_ns();
        let mut flags_now = flags & !libc::MSG_WAITFORONE;
        let mut done = 0;
        while done < count.min(1024) {
            let message = &mut *messages.add(done as usize);
            let got = receive_message(fd, socket, &mut message.msg_hdr, flags_now);
            if got < 0 {
                // An error after the first datagram is the next call's; the kernel keeps it in the socket, and so do we
                // when it is one that lasts.
                return if done > 0 { done as c_int } else { got as c_int };
            }
            message.msg_len = got as c_uint;
            done += 1;
            if flags & libc::MSG_WAITFORONE != 0 {
                flags_now |= libc::MSG_DONTWAIT;
            }
            if limit != u64::MAX {
                let left = limit.saturating_sub(clock::monotonic_ns() - begun);
                (*timeout).tv_sec = (left / 1_000_000_000) as i64;
                (*timeout).tv_nsec = (left % 1_000_000_000) as i64;
                if left == 0 {
                    break;
                }
            }
        }
        done as c_int
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
    data: *const c_void,
    length: usize,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
    kernel: impl FnOnce() -> isize,
) -> isize {
    let mut piece = iovec { iov_base: data.cast_mut(), iov_len: length };
    if socket.is_local() {
        // SAFETY: promised by the caller.
        return unsafe { locals::send_to(fd, socket, &mut piece, flags, address, address_length, kernel) };
    }
    let message = header(&mut piece, 1, address.cast_mut(), address_length);
    // SAFETY: promised by the caller.
    settle(unsafe { send::send(fd, socket, &message, flags, kernel) })
}

/// writev.
///
/// # Safety
/// As writev(2).
pub unsafe fn send_vector(fd: c_int, socket: &'static Datagram, vector: *const iovec, count: c_int) -> isize {
    // SAFETY: promised by the caller.
    unsafe {
        let kernel = || real::writev(fd, vector, count);
        if socket.is_local() {
            return locals::send_vector(fd, socket, vector, count, kernel);
        }
        let sound = (1..=1024).contains(&count) && vector as usize >= 4096;
        // A vector of no bytes sends nothing.
        if !sound || core::slice::from_raw_parts(vector, count as usize).iter().all(|piece| piece.iov_len == 0) {
            return kernel();
        }
        let message = header(vector.cast_mut(), count as usize, core::ptr::null_mut(), 0);
        settle(send::send(fd, socket, &message, 0, kernel))
    }
}

/// sendmsg.
///
/// # Safety
/// As sendmsg(2).
pub unsafe fn send_message(fd: c_int, socket: &'static Datagram, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: promised by the caller.
    unsafe {
        if socket.is_local() {
            return locals::send_message(fd, socket, message, flags);
        }
        let kernel = || real::sendmsg(fd, message, flags);
        match message as usize {
            0..4096 => kernel(),
            _ => settle(send::send(fd, socket, &*message, flags, kernel)),
        }
    }
}

/// sendmmsg: one message after the other.
///
/// # Safety
/// As sendmmsg(2).
pub unsafe fn send_messages(fd: c_int, socket: &'static Datagram, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        if (messages as usize) < 4096 {
            return real::sendmmsg(fd, messages, count, flags);
        }
        let mut done = 0;
        while done < count.min(1024) {
            let message = &mut *messages.add(done as usize);
            let sent = send_message(fd, socket, &message.msg_hdr, flags);
            if sent < 0 {
                return if done > 0 { done as c_int } else { -1 };
            }
            message.msg_len = sent as c_uint;
            done += 1;
        }
        done as c_int
    }
}
