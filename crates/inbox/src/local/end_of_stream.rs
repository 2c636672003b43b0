//! What the kernel cannot know of an end: bytes in rings, and the reset that unread ones mean.

use super::peer_inbox;
use crate::datagram::{flag, Datagram};
use core::sync::atomic::Ordering;
use shunt_ring::inbox::Inbox;
use shunt_sys::{calls, libc};
use shunt_table::diag;
use shunt_table::global::SETUP;

/// The peer's inbox.
fn outgoing(socket: &'static Datagram) -> Option<Inbox> {
    let _held = socket.lock_send()?;
    // SAFETY: the lock is held.
    unsafe { (*socket.local.peer_inbox.get()).inbox() }
}

/// What a sender is charged for what the peer has not read from the ring.
pub fn outgoing_charge(socket: &'static Datagram) -> u64 {
    outgoing(socket).map_or(0, |inbox| inbox.waiting_charge())
}

/// SIOCINQ: the kernel's answer, and the bytes of the ring, which it lacks. (Linux counts all packets, not the next one.)
pub fn readable(socket: &Datagram, kernel: usize) -> usize {
    kernel + socket.inbox().map_or(0, |inbox| inbox.waiting_bytes())
}

/// Whether something of ours lies before the kernel's queue.
pub fn has_waiting(socket: &Datagram) -> bool {
    socket.inbox().is_some_and(|inbox| !inbox.is_empty())
}

/// Whether the peer was closed while bytes of ours lay unread in its ring: ECONNRESET, once (`unix_release_sock`).
/// `take`: it is told now.
#[cold]
pub fn reset(fd: i32, socket: &'static Datagram, take: bool) -> bool {
    if socket.local.told.load(Ordering::Relaxed) != 0 || !socket.has(flag::CONNECTED) {
        return false;
    }
    let Some(inbox) = outgoing(socket) else { return false };
    if inbox.is_empty() || calls::poll_one(fd, 0, 0).is_ok_and(|events| events & libc::POLLHUP == 0) {
        return false;
    }
    // Both directions are shut; is the peer gone, too?
    let gone = inbox.is_retired() || SETUP.lock().is_some_and(|_setup| diag::unix_peer(fd).is_err());
    gone && (!take || socket.local.told.swap(1, Ordering::AcqRel) == 0)
}

/// The kernel has told ECONNRESET: it is not told again for what lay in the ring.
#[cold]
pub fn note_reset(socket: &Datagram) {
    socket.local.told.store(1, Ordering::Release);
}

/// SIOCOUTQ: what the peer has not read, as the kernel charges it.
pub fn unread(fd: i32, socket: &'static Datagram) -> u64 {
    peer_inbox::unread(fd).unwrap_or(0) + outgoing_charge(socket)
}
