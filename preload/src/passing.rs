//! Messages on sockets that are not ours: descriptors that they pass may be.

use crate::errno::set_errno;
use crate::real;
use core::ffi::{c_int, c_uint};
use shunt_calls::libc::{self, mmsghdr, msghdr, timespec};
use shunt_handover::rights;
use shunt_sys::{clock, user};
use shunt_table::global;

/// sendmsg on a socket that is not ours: descriptors that it passes may be.
///
/// # Safety
/// As the function itself.
pub unsafe fn send(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: as sendmsg(2).
    unsafe {
        let Ok(mut copy) = user::read(message) else { return real::sendmsg(fd, message, flags) };
        let control = copy.msg_control.cast::<u8>();
        let last = control.wrapping_add(copy.msg_controllen.wrapping_sub(1));
        let faults = copy.msg_controllen > 0 && (user::read(control).is_err() || user::read(last).is_err());
        if copy.msg_controllen == 0 || faults || !global::ready() || !rights::are_in(&copy) {
            return real::sendmsg(fd, message, flags);
        }
        let Ok(mut control) = rights::Control::in_room() else {
            set_errno(libc::ENOMEM);
            return -1;
        };
        if !rights::extend(fd, &mut copy, &mut control) {
            return real::sendmsg(fd, message, flags);
        }
        let result = real::sendmsg(fd, &copy, flags);
        let errno = crate::errno::errno();
        rights::sent(&mut control, result >= 0);
        set_errno(errno);
        result
    }
}

/// recvmsg on a socket that is not ours: descriptors that it receives may be.
///
/// # Safety
/// As the function itself.
pub unsafe fn receive(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: as recvmsg(2).
    unsafe {
        let Ok(mut copy) = user::read(message) else { return real::recvmsg(fd, message, flags) };
        if copy.msg_controllen == 0 || !global::ready() {
            return real::recvmsg(fd, message, flags);
        }
        let mut wider = rights::Wider::new();
        if !rights::widen(fd, &mut copy, &mut wider) {
            return real::recvmsg(fd, message, flags);
        }
        let got = real::recvmsg(fd, &mut copy, flags);
        if got >= 0 {
            rights::narrow(&mut copy, &mut *message, flags);
        }
        got
    }
}

/// Whether any of the messages has control messages.
unsafe fn any_control(messages: *const mmsghdr, count: c_uint) -> bool {
    // SAFETY: any bytes are a message header.
    let message = |i: usize| unsafe { user::read(messages.wrapping_add(i)) };
    // The kernel looks at 1,024 entries at most; one that cannot be read is its to refuse.
    global::ready() && (0..count.min(1024) as usize).map_while(|i| message(i).ok()).any(|m| m.msg_hdr.msg_controllen != 0)
}

/// sendmmsg(2): one message after the other, because each may grow.
///
/// # Safety
/// As the function itself.
pub unsafe fn send_several(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: as sendmmsg(2).
    unsafe {
        if !any_control(messages, count) {
            return real::sendmmsg(fd, messages, count, flags);
        }
        for i in 0..count.min(1024) {
            if user::read(messages.wrapping_add(i as usize)).is_err() {
                set_errno(libc::EFAULT);
                return if i > 0 { i as c_int } else { -1 };
            }
            let entry = &mut *messages.add(i as usize);
            let sent = send(fd, &entry.msg_hdr, flags);
            if sent < 0 {
                return if i > 0 { i as c_int } else { -1 };
            }
            entry.msg_len = sent as c_uint;
        }
        count.min(1024) as c_int
    }
}

/// recvmmsg(2): one message after the other; the time limit is looked at behind each, as the kernel does.
///
/// # Safety
/// As the function itself.
pub unsafe fn receive_several(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
    // SAFETY: as recvmmsg(2).
    unsafe {
        if !timeout.is_null() && user::read(timeout).is_err() {
            return real::recvmmsg(fd, messages, count, flags, timeout);
        }
        let limit = timeout.as_ref().map(|t| (t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64));
        let odd = timeout.as_ref().is_some_and(|t| t.tv_sec < 0 || !(0..1_000_000_000).contains(&t.tv_nsec));
        if odd || !any_control(messages, count) {
            return real::recvmmsg(fd, messages, count, flags, timeout);
        }
        let deadline = limit.map(|ns| clock::monotonic_ns().saturating_add(ns));
        let mut flags = flags;
        let mut done = 0;
        while done < count.min(1024) {
            if user::read(messages.wrapping_add(done as usize)).is_err() {
                set_errno(libc::EFAULT);
                break;
            }
            let entry = &mut *messages.add(done as usize);
            let got = receive(fd, &mut entry.msg_hdr, flags & !libc::MSG_WAITFORONE);
            if got < 0 {
                break;
            }
            entry.msg_len = got as c_uint;
            done += 1;
            if flags & libc::MSG_WAITFORONE != 0 {
                flags |= libc::MSG_DONTWAIT;
            }
            if let Some(deadline) = deadline {
                let left = deadline.saturating_sub(clock::monotonic_ns());
                *timeout = timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
                if left == 0 {
                    break;
                }
            }
        }
        if done > 0 {
            done as c_int
        } else {
            -1
        }
    }
}
