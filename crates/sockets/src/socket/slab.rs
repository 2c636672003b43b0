//! Where socket objects come from, and how a fresh one looks.

use super::Socket;
use crate::global::SETUP;
use crate::memory::slab::{Slab, Slabbed};
use crate::table::Kind;
use core::sync::atomic::{AtomicPtr, Ordering};

static SOCKETS: Slab<Socket> = Slab::new();

// SAFETY: atomics and what is made of them.
unsafe impl Slabbed for Socket {
    const AT_ONCE: usize = 256;

    fn next_free(&self) -> &AtomicPtr<Socket> {
        &self.next_free
    }
}

/// A fresh socket object; `None` when memory is short.
pub fn allocate(family: i32) -> Option<&'static Socket> {
    let _setup = SETUP.lock()?;
    allocate_locked(family)
}

/// The same, under the set-up lock.
pub fn allocate_locked(family: i32) -> Option<&'static Socket> {
    let socket = SOCKETS.take()?;
    socket.flags.store(0, Ordering::Relaxed);
    socket.last_check.store(0, Ordering::Relaxed);
    socket.receive_timeout.store(0, Ordering::Relaxed);
    socket.send_timeout.store(0, Ordering::Relaxed);
    socket.references.store(1, Ordering::Relaxed);
    socket.hold.reset();
    socket.ear.reset();
    socket.family.store(family, Ordering::Relaxed);
    socket.protocol.store(0, Ordering::Relaxed);
    socket.kind.store(Kind::Tcp as u32, Ordering::Relaxed);
    socket.private_fd.store(-1, Ordering::Relaxed);
    socket.bells_fd.store(-1, Ordering::Relaxed);
    socket.timer_fd.store(-1, Ordering::Relaxed);
    socket.accepting_fd.store(-1, Ordering::Relaxed);
    socket.defers.store(0, Ordering::Relaxed);
    socket.spare.store(0, Ordering::Relaxed);
    socket.left_port.store(0, Ordering::Relaxed);
    socket.backlog.store(0, Ordering::Relaxed);
    socket.offering.store(0, Ordering::Relaxed);
    socket.only_forked.store(0, Ordering::Relaxed);
    socket.port.store(0, Ordering::Relaxed);
    socket.at_address.store(0, Ordering::Relaxed);
    socket.namespace.store(0, Ordering::Relaxed);
    socket.link_index.store(u32::MAX, Ordering::Relaxed);
    socket.inode.store(0, Ordering::Relaxed);
    socket.watchers.store(core::ptr::null_mut(), Ordering::Relaxed);
    socket.stands_for.store(core::ptr::null_mut(), Ordering::Relaxed);
    socket.accepts.store(0, Ordering::Relaxed);
    socket.changes.store(0, Ordering::Relaxed);
    socket.enough.store(0, Ordering::Relaxed);
    socket.changed_at.store(0, Ordering::Relaxed);
    socket.sleeps.store(0, Ordering::Relaxed);
    socket.spins.store(0, Ordering::Relaxed);
    socket.low_water.store(1, Ordering::Relaxed);
    socket.peek_offset.store(-1, Ordering::Relaxed);
    socket.seen_sending.reset();
    socket.seen_receiving.reset();
    socket.stalled.reset();
    socket.restraint.reset();
    for word in [&socket.control, &socket.zero_copies, &socket.zero_copies_reported] {
        word.store(0, Ordering::Relaxed);
    }
    crate::rendezvous::earlier::forget(socket);
    socket.stored.clear();
    Some(socket)
}

/// Gives a socket object back. Its link pointers stay valid memory for late readers.
pub fn free(socket: &'static Socket) {
    socket.ear.close();
    socket.generation.fetch_add(1, Ordering::Release);
    SOCKETS.give(socket);
}
