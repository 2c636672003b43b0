//! MSG_WAITALL: what stands in the kernel's queue behind bytes that came by the ring.

use super::Call;
use crate::datagram::flag;
use shunt_sys::libc::{self, msghdr, MSG_DONTWAIT, MSG_WAITALL};
use shunt_sys::{calls, clock, stops, Errno};
use shunt_table::memory::pieces::Pieces;

/// What became of a call that wants more than the ring had.
pub(super) enum Behind {
    Took(usize),
    /// It ends behind these.
    Last(usize),
    /// Bytes of others' come next, with their credentials.
    Others,
}

impl Call {
    /// When a call that waits from now on ends (SO_RCVTIMEO), CLOCK_MONOTONIC in ns.
    pub(super) fn deadline(&self) -> u64 {
        if self.socket.has(flag::NO_TIME) {
            return 0;
        }
        let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let mut length = core::mem::size_of_val(&limit) as libc::socklen_t;
        let told = calls::getsockopt(self.fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw mut limit).cast(), &mut length);
        match limit.tv_sec as u64 * 1_000_000_000 + limit.tv_usec as u64 * 1000 {
            ns if told.is_ok() && ns > 0 => clock::monotonic_ns().saturating_add(ns),
            _ => u64::MAX,
        }
    }

    /// Waits in a call that wants all for what comes behind the first `done` bytes, and takes it from the kernel's queue, while nothing comes
    /// into the ring. The kernel's own call knows of no bytes before: it would pass over what ends this one.
    pub(super) unsafe fn go_on(&self, message: &mut msghdr, pieces: &Pieces, done: usize, deadline: u64, looked: u64) -> Behind {
        let mut set = [libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 }];
        let slept = stops::ppoll_until(&mut set, deadline, core::ptr::null(), looked);
        if slept.is_ok_and(|ready| ready > 0) && self.socket.has(flag::CREDENTIALS) {
            return Behind::Others;
        }
        let room = core::mem::replace(&mut message.msg_controllen, 0);
        message.msg_flags = self.flags & libc::MSG_CMSG_CLOEXEC;
        // In this order: what comes behind the first bytes that wait there is not at their place.
        if !slept.is_ok_and(|ready| ready > 0) || self.at_mark() {
            return Behind::Last(0);
        }
        message.msg_controllen = room;
        // SAFETY: the program's buffers.
        let got = unsafe { self.rest(message, pieces, done, self.flags & !MSG_WAITALL | MSG_DONTWAIT) };
        let told = message.msg_controllen > 0 || message.msg_flags & libc::MSG_CTRUNC != 0;
        match got {
            // What comes with descriptors is the last (unix_stream_read_generic).
            Ok(got) if got > 0 && told => Behind::Last(got as usize),
            // Another thread was quicker.
            Err(Errno(libc::EAGAIN)) => {
                message.msg_controllen = room;
                Behind::Took(0)
            }
            Ok(got) if got > 0 => {
                message.msg_controllen = room;
                Behind::Took(got as usize)
            }
            _ => {
                message.msg_controllen = 0;
                Behind::Last(0)
            }
        }
    }
}
