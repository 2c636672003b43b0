//! The process, or a thread of it, goes into another network namespace (unshare(2), setns(2)).
//!
//! What is remembered of the one that was left must not lead back there: pairs that are kept, answers about listeners, sockets
//! that ask the kernel, spare sockets, reserved ports. Connections and listeners stay what they are, as on Linux.

use core::sync::atomic::Ordering;
use shunt_stream::socket::Socket;
use shunt_table::global::SETUP;
use shunt_table::table::Kind;
use shunt_table::{global, table};

/// The calling thread may be about to go into another network namespace.
pub fn changing() {
    if global::ready() && listeners().next().is_some() {
        if let Some(_setup) = SETUP.lock() {
            shunt_table::route::leaving();
        }
    }
}

fn listeners() -> impl Iterator<Item = &'static Socket> {
    table::numbers().map(table::get).filter(|word| word.kind() == Kind::Listener).filter_map(|word| word.object::<Socket>())
}

/// The calling thread is in another network namespace now.
pub fn changed() {
    if !global::ready() {
        return;
    }
    if !global::single_threaded() {
        shunt_table::process::identity::note_differing_namespaces();
    }
    let Some(_setup) = SETUP.lock() else { return };
    shunt_link::namespace_changed();
    // The kernel would be asked here for the receiver of what a socket sends there.
    shunt_inbox::datagram::all(|_, socket| {
        if !socket.is_local() {
            shunt_inbox::datagram::options::plain(socket, shunt_inbox::datagram::pin::ELSEWHERE);
        }
    });
    if listeners().next().is_some() {
        let left = shunt_table::route::left();
        for listener in listeners() {
            let _ = listener.listening.namespace.compare_exchange(0, left, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    shunt_rendezvous::answers::forget_answers();
    shunt_rendezvous::socket_cache::forked();
    shunt_link::ports::forked();
    shunt_table::diag::forked();
    shunt_table::route::forget();
    shunt_rendezvous::carriers::all().for_each(|carrier| (carrier.left_namespace)());
}
