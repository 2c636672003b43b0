//! What lies in a ring goes back to the kernel's queue when another program is about to get the end.
//!
//! Only the other end can write there, so this is for pairs of which this process has both: what it sent to itself before
//! it made the child that reads. The next owner of the end, with the library or without, then finds it where any program does.

use super::{peer_inbox, send};
use crate::datagram::{all, Datagram};
use core::ptr;
use shunt_ring::inbox::Inbox;
use shunt_segment::inbox::LONGEST;
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{calls, mapping, Errno};
use shunt_table::diag;
use shunt_table::global::SETUP;

/// Empties the ring of the end at `fd`, whose gate is shut, if that is possible. Not under the set-up lock.
pub fn put_back(fd: i32, socket: &'static Datagram) {
    let Some(inbox) = socket.inbox().filter(|inbox| !inbox.is_empty()) else { return };
    let Some((peer_fd, peer)) = own_peer(fd) else { return };
    // What the kernel holds comes behind the ring; and a peer that has sent its end sends nothing any more.
    let ended = calls::poll_one(fd, libc::POLLRDHUP, 0).map_or(true, |events| events & (libc::POLLRDHUP | libc::POLLHUP) != 0);
    if ended || peer_inbox::unread(peer_fd) != Some(0) {
        return;
    }
    let Ok(buffer) = mapping::reserve(LONGEST + 1) else { return };
    let mut sender = Sender { fd: peer_fd, limit: None };
    send::through_kernel(peer, || {
        while move_one(inbox, buffer, socket.local.packets(), &mut sender) {}
        0
    });
    sender.narrow();
    let _ = calls::munmap(buffer.cast(), LONGEST + 1);
}

/// The other end of the end at `fd`, if it is this process's, too.
fn own_peer(fd: i32) -> Option<(i32, &'static Datagram)> {
    let inode = SETUP.lock().and_then(|_setup| diag::unix_peer(fd).ok())?;
    let mut found = None;
    all(|other, socket| {
        if socket.is_local() && calls::status_of(other).is_ok_and(|status| status.st_ino == inode as u64) {
            found = Some((other, socket));
        }
    });
    found
}

/// The end whose bytes go back.
struct Sender {
    fd: i32,
    /// Its SO_SNDBUF, if another one is set for the moment.
    limit: Option<i32>,
}

impl Sender {
    /// Sends a packet, or bytes of a stream. False: the kernel has no memory for them.
    fn send(&mut self, bytes: *const u8, length: usize) -> bool {
        let mut sent = 0;
        loop {
            let (rest, flags) = (bytes.wrapping_add(sent), MSG_DONTWAIT | MSG_NOSIGNAL);
            match calls::sendto(self.fd, rest.cast(), length - sent, flags, ptr::null(), 0) {
                Ok(now) => sent += now,
                Err(Errno(libc::EAGAIN)) if self.widen() => continue,
                Err(_) => return false,
            }
            if sent >= length {
                return true;
            }
        }
    }

    /// A ring holds a quarter of what the kernel's queue would; but SO_SNDBUF may have become less since.
    fn widen(&mut self) -> bool {
        if self.limit.is_some() {
            return false;
        }
        self.limit = calls::getsockopt_int(self.fd, libc::SOL_SOCKET, libc::SO_SNDBUF).ok();
        // The kernel takes of it what it allows any process.
        self.limit.is_some() && self.set(i32::MAX)
    }

    fn narrow(self) {
        if let Some(limit) = self.limit {
            self.set(limit / 2); // which the kernel doubles
        }
    }

    fn set(&self, limit: i32) -> bool {
        calls::setsockopt_int(self.fd, libc::SOL_SOCKET, libc::SO_SNDBUF, limit).is_ok()
    }
}

/// Moves a packet, or bytes of a stream. False: the ring is empty, or the kernel has no memory.
fn move_one(inbox: Inbox, buffer: *mut u8, packets: bool, sender: &mut Sender) -> bool {
    // SAFETY: `most` bytes behind `from` lie in the buffer.
    let pieces = |from: usize, most: usize| core::iter::once((unsafe { buffer.add(from) }, most));
    // SAFETY: the buffer has LONGEST bytes, of which no more are asked for.
    let seen = unsafe {
        if packets {
            inbox.see_packet(LONGEST, pieces)
        } else {
            inbox.see_bytes(LONGEST, pieces)
        }
    };
    let Some(seen) = seen else { return false };
    // Taken first: another thread that reads at this moment must not get the same bytes.
    if inbox.take_seen(&seen) && !sender.send(buffer, seen.copied) {
        // What is missing no reader may overlook: nothing comes behind it.
        let _ = calls::shutdown(sender.fd, libc::SHUT_WR);
        return false;
    }
    true
}
