//! The process, or a thread of it, goes into another network namespace (unshare(2), setns(2)).
//!
//! What is remembered of the one that was left must not lead back there: pairs that are kept, answers of who listens, sockets
//! that ask the kernel, spare sockets, reserved ports. Connections and listeners stay what they are, as on Linux.

use crate::global::{self, SETUP};
use core::sync::atomic::{AtomicBool, Ordering};

/// Threads may live in different namespaces.
static DIFFER: AtomicBool = AtomicBool::new(false);

/// Whether threads of this process may live in different namespaces: then new connections are the kernel's.
pub(crate) fn differ() -> bool {
    DIFFER.load(Ordering::Relaxed)
}

/// The calling thread is in another network namespace now.
pub fn changed() {
    if !global::ready() {
        return;
    }
    if !global::single_threaded() {
        DIFFER.store(true, Ordering::Relaxed);
    }
    let Some(_setup) = SETUP.lock() else { return };
    // Clients of the namespace that was left go on: what they have offered in memory moves to the rendezvous.
    crate::parcel::before_sharing();
    crate::link::forked();
    crate::connect::forget_answers();
    crate::spare::forked();
    crate::ports::forked();
    crate::diag::forked();
    crate::route::forked();
}
