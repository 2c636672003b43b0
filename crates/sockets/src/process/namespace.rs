//! The process, or a thread of it, goes into another network namespace (unshare(2), setns(2)).
//!
//! What is remembered of the one that was left must not lead back there: pairs that are kept, answers of who listens, sockets
//! that ask the kernel, spare sockets, reserved ports. Connections and listeners stay what they are, as on Linux.

use crate::global::{self, SETUP};
use crate::socket::Socket;
use crate::table::{self, Kind};
use core::sync::atomic::Ordering;

/// The calling thread may be about to go into another network namespace.
pub fn changing() {
    if global::ready() && listeners().next().is_some() {
        if let Some(_setup) = SETUP.lock() {
            crate::rendezvous::route::leaving();
        }
    }
}

fn listeners() -> impl Iterator<Item = &'static Socket> {
    (0..table::high_water())
        .map(table::get)
        .filter(|word| word.kind() == Kind::Listener)
        .filter_map(|word| word.object::<Socket>())
}

/// The calling thread is in another network namespace now.
pub fn changed() {
    if !global::ready() {
        return;
    }
    if !global::single_threaded() {
        crate::process::identity::note_differing_namespaces();
    }
    let Some(_setup) = SETUP.lock() else { return };
    crate::link::namespace_changed();
    // The kernel would be asked here who gets what a socket sends there.
    crate::datagram::all(|_, socket| {
        if !socket.is_local() {
            crate::datagram::options::plain(socket, crate::datagram::pin::ELSEWHERE);
        }
    });
    if listeners().next().is_some() {
        let left = crate::rendezvous::route::left();
        for listener in listeners() {
            let _ = listener.namespace.compare_exchange(0, left, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    crate::rendezvous::connect::forget_answers();
    crate::rendezvous::spare::forked();
    crate::rendezvous::ports::forked();
    crate::rendezvous::diag::forked();
    crate::rendezvous::route::forget();
    crate::remote::left_namespace();
}
