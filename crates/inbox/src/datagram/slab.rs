//! Where datagram sockets' objects come from, and how a fresh one looks.

use super::route::Routes;
use super::{Datagram, COMMON};
use core::sync::atomic::{AtomicPtr, Ordering};
use shunt_table::global::SETUP;
use shunt_table::memory::slab::Slabbed;
use shunt_table::table::{Kind, Object};

// SAFETY: atomics and what is made of them; routes are written before they are read.
unsafe impl Slabbed for Datagram {
    const AT_ONCE: usize = 32;

    fn next_free(&self) -> &AtomicPtr<Datagram> {
        &self.next_free
    }
}

/// A fresh one; `None` when memory is short.
pub fn allocate(family: i32) -> Option<&'static Datagram> {
    let _setup = SETUP.lock()?;
    let socket = COMMON.slab.take()?;
    socket.base.store(core::ptr::null_mut(), Ordering::Relaxed);
    for word in [
        &socket.flags,
        &socket.pins,
        &socket.peer_processor,
        &socket.received,
        &socket.resting,
        &socket.rest,
        &socket.sending,
        &socket.through_kernel,
        &socket.sleeping,
        &socket.cold,
        &socket.interrupted,
        &socket.segment,
        &socket.forks,
        &socket.watched_at,
    ] {
        word.store(0, Ordering::Relaxed);
    }
    socket.asked.store(0, Ordering::Relaxed);
    socket.visited.store(0, Ordering::Relaxed);
    socket.turn.store(0, Ordering::Relaxed);
    socket.outgoing.forget();
    socket.family.store(family, Ordering::Relaxed);
    socket.references.store(1, Ordering::Relaxed);
    for fd in &socket.private {
        fd.store(-1, Ordering::Relaxed);
    }
    socket.watchers.clear();
    socket.peer.forget();
    socket.local.reset();
    // SAFETY: no other thread uses the object.
    unsafe { *socket.routes.get() = Routes::new() };
    Some(socket)
}

/// Gives one back.
pub fn free(socket: &'static Datagram) {
    COMMON.slab.give(socket);
}

// SAFETY: they live in this slab, which is never unmapped, and nothing else is entered under this kind.
unsafe impl Object for Datagram {
    #[inline(always)]
    fn is(kind: Kind) -> bool {
        kind == Kind::Datagram
    }
}
