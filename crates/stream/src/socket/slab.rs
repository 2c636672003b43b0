//! Where socket objects come from, and how a fresh one looks.

use super::Socket;
use core::sync::atomic::{AtomicPtr, Ordering};
use shunt_table::global::SETUP;
use shunt_table::memory::slab::{Slab, Slabbed};
use shunt_table::table::Kind;

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
    socket.descriptor_flags.store(0, Ordering::Relaxed);
    socket.last_check.store(0, Ordering::Relaxed);
    socket.receive_timeout.store(0, Ordering::Relaxed);
    socket.send_timeout.store(0, Ordering::Relaxed);
    socket.references.store(1, Ordering::Relaxed);
    socket.hold.reset();
    socket.bell_listener.reset();
    socket.family.store(family, Ordering::Relaxed);
    socket.protocol.store(0, Ordering::Relaxed);
    socket.kind.store(Kind::Tcp as u32, Ordering::Relaxed);
    socket.private_fd.store(-1, Ordering::Relaxed);
    socket.spare.store(0, Ordering::Relaxed);
    socket.left_port.store(0, Ordering::Relaxed);
    socket.watchers.clear();
    socket.looks.store(0, Ordering::Relaxed);
    socket.low_water.store(1, Ordering::Relaxed);
    socket.peek_offset.store(-1, Ordering::Relaxed);
    socket.control.store(0, Ordering::Relaxed);
    socket.listening.reset();
    socket.connected.reset();
    socket.connected.calls.reset(socket.generation.load(Ordering::Relaxed));
    crate::socket::option_history::forget(socket);
    socket.stored.clear();
    Some(socket)
}

/// Gives a socket object back. Its link pointers stay valid memory for late readers.
pub fn free(socket: &'static Socket) {
    socket.bell_listener.close();
    crate::pools::release(&socket.connected.loans.views);
    socket.connected.loans.unmap();
    socket.generation.fetch_add(1, Ordering::Release);
    SOCKETS.give(socket);
}
