//! The data calls on datagram sockets: each becomes a message header, and keeps the C library's own call at hand.

use crate::errno::answer;
use crate::{locals, real};
use core::ffi::{c_int, c_uint, c_void};
use shunt_calls::libc::{self, iovec, mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use shunt_inbox::datagram::send::Answer;
use shunt_inbox::datagram::{receive, send, Datagram};
use shunt_sys::{clock, user, Errno, Result};
use shunt_table::memory::pieces::Pieces;

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

/// The program's vector, copied while `act` works with it; `kernel` if there is anything wrong with it, or nothing in it.
unsafe fn with_vector(
    vector: *const iovec,
    count: usize,
    kernel: impl FnOnce() -> isize,
    act: impl FnOnce(&[iovec]) -> isize,
) -> isize {
    // SAFETY: any address; what faults is found by copying.
    match unsafe { Pieces::with(vector, count, |pieces| Ok(act(pieces.list()))) } {
        Ok(result) => result,
        Err(_) => kernel(),
    }
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
    // SAFETY: promised by the caller.
    settle(unsafe {
        into_one(data, length, address, address_length, |message| receive::receive(fd, socket, message, flags, kernel))
    })
}

/// A receive into one buffer that tells where the bytes come from. What is wrong with the room for the name is found when they
/// have been taken (`move_addr_to_user`).
///
/// # Safety
/// As recvfrom(2).
#[inline]
pub(crate) unsafe fn into_one(
    data: *mut c_void,
    length: usize,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
    receive: impl FnOnce(&mut msghdr) -> Answer,
) -> Answer {
    let mut piece = iovec { iov_base: data, iov_len: length };
    // SAFETY: what faults is found by copying.
    unsafe {
        let room = if address.is_null() { Ok(0) } else { user::read(address_length) };
        let wrong = match room {
            Err(error) => Some(error),
            Ok(room) if (room as i32) < 0 => Some(Errno(libc::EINVAL)),
            Ok(_) => None,
        };
        let name = if wrong.is_none() { address } else { core::ptr::null_mut() };
        let mut message = header(&mut piece, 1, name, room.unwrap_or(0));
        let given = receive(&mut message);
        match (&given, wrong) {
            (Answer::Done(Ok(_)), Some(error)) => return Answer::Done(Err(error)),
            (Answer::Done(Ok(_)), None) if !address.is_null() => {
                if let Err(error) = user::write(address_length, message.msg_namelen) {
                    return Answer::Done(Err(error));
                }
            }
            _ => {}
        }
        given
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
        with_vector(vector, count as usize, kernel, |list| {
            // A vector without room reads nothing and takes no datagram.
            if list.iter().all(|piece| piece.iov_len == 0) {
                return kernel();
            }
            let mut message = header(list.as_ptr().cast_mut(), list.len(), core::ptr::null_mut(), 0);
            settle(receive::receive(fd, socket, &mut message, 0, kernel))
        })
    }
}

/// Whether the length of a message's name makes sense; without a name none does harm (`__copy_msghdr`).
pub(crate) fn has_sound_name(message: &mut msghdr) -> bool {
    if message.msg_name.is_null() {
        message.msg_namelen = 0;
    }
    (message.msg_namelen as i32) >= 0
}

/// Writes what recvmsg tells into the program's header. Errors: EFAULT, when what was received is gone (`____sys_recvmsg`).
///
/// # Safety
/// `message` may be any address that is not ours.
pub(crate) unsafe fn tell(message: *mut msghdr, told: &msghdr) -> Result<()> {
    // SAFETY: as above.
    unsafe {
        if !told.msg_name.is_null() {
            user::write(&raw mut (*message).msg_namelen, told.msg_namelen)?;
        }
        user::write(&raw mut (*message).msg_flags, told.msg_flags)?;
        user::write(&raw mut (*message).msg_controllen, told.msg_controllen)
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
        let Ok(mut given) = user::read(message) else { return kernel() };
        if !has_sound_name(&mut given) {
            return kernel(); // EINVAL, before anything is taken
        }
        with_vector(given.msg_iov, given.msg_iovlen, kernel, |list| {
            let mut copy = msghdr { msg_iov: list.as_ptr().cast_mut(), ..given };
            let given = receive::receive(fd, socket, &mut copy, flags, kernel);
            if let Answer::Done(Ok(_)) = &given {
                if let Err(error) = tell(message, &copy) {
                    return answer(Err(error));
                }
            }
            settle(given)
        })
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
        let Ok(given) = (if timeout.is_null() { Ok(None) } else { user::read(timeout).map(Some) }) else {
            return real::recvmmsg(fd, messages, count, flags, timeout);
        };
        let odd = given.is_some_and(|t| t.tv_sec < 0 || !(0..1_000_000_000).contains(&t.tv_nsec));
        // No time at all is time for one message.
        let limit = match &given {
            None => u64::MAX,
            Some(t) => (t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64),
        };
        if socket.is_local() && socket.inbox().is_none() {
            return crate::passing::receive_several(fd, messages, count, flags, timeout);
        }
        if socket.inbox().is_none() || (messages as usize) < 4096 || odd || flags & libc::MSG_ERRQUEUE != 0 {
            return real::recvmmsg(fd, messages, count, flags, timeout);
        }
        let begun = clock::monotonic_ns();
        let mut flags_now = flags & !libc::MSG_WAITFORONE;
        let mut done = 0;
        while done < count.min(1024) {
            let message = messages.wrapping_add(done as usize);
            let got = receive_message(fd, socket, &raw mut (*message).msg_hdr, flags_now);
            if got < 0 {
                // An error after the first datagram is the next call's; the kernel keeps it in the socket, and so do we
                // when it is one that lasts.
                return if done > 0 { done as c_int } else { got as c_int };
            }
            if let Err(error) = user::write(&raw mut (*message).msg_len, got as c_uint) {
                return if done > 0 { done as c_int } else { answer(Err(error)) as c_int };
            }
            done += 1;
            if flags & libc::MSG_WAITFORONE != 0 {
                flags_now |= libc::MSG_DONTWAIT;
            }
            if limit != u64::MAX {
                let left = limit.saturating_sub(clock::monotonic_ns() - begun);
                let left_time = timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
                if let Err(error) = user::write(timeout, left_time) {
                    return answer(Err(error)) as c_int;
                }
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
        with_vector(vector, count as usize, kernel, |list| {
            // A vector of no bytes sends nothing.
            if list.iter().all(|piece| piece.iov_len == 0) {
                return kernel();
            }
            let message = header(list.as_ptr().cast_mut(), list.len(), core::ptr::null_mut(), 0);
            settle(send::send(fd, socket, &message, 0, kernel))
        })
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
        let Ok(given) = user::read(message) else { return kernel() };
        with_vector(given.msg_iov, given.msg_iovlen, kernel, |list| {
            let message = msghdr { msg_iov: list.as_ptr().cast_mut(), ..given };
            settle(send::send(fd, socket, &message, flags, kernel))
        })
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
            let message = messages.wrapping_add(done as usize);
            let sent = send_message(fd, socket, &raw const (*message).msg_hdr, flags);
            if sent < 0 {
                return if done > 0 { done as c_int } else { -1 };
            }
            if let Err(error) = user::write(&raw mut (*message).msg_len, sent as c_uint) {
                return if done > 0 { done as c_int } else { answer(Err(error)) as c_int };
            }
            done += 1;
        }
        done as c_int
    }
}
