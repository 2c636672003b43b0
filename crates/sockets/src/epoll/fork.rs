//! Around a fork: the kernel's set is shared, and the terms of its entries; all else here is a copy.

use super::set::{forget_free_sets, WATCHERS};
use super::{datagrams, entry, set::Set};
use crate::datagram::witness;
use crate::table;
use core::sync::atomic::Ordering;

fn each_set(mut act: impl FnMut(&'static Set)) {
    for fd in table::programs() {
        if let Some(set) = table::get(fd).set() {
            act(set);
        }
    }
}

/// Before a fork, in the parent: from now on others may change what is in the sets.
pub fn before_fork() {
    if table::any_ours() {
        entry::make_room();
    }
    entry::before_fork();
    let fork = witness::current();
    each_set(|set| {
        set.share();
        set.joint.fetch_or(fork, Ordering::Relaxed);
    });
}

/// The children of these forks have ended or exec'd: they do not sleep in sets of this process any more.
pub fn children_gone(forks: u32) {
    each_set(|set| {
        set.joint.fetch_and(!forks, Ordering::Relaxed);
    });
}

/// In the child after fork: no other thread exists, so no lock is held here. The parent's threads may sleep in the sets.
pub fn forked() {
    WATCHERS.reset();
    entry::forked();
    forget_free_sets();
    each_set(|set| {
        set.lock.reset();
        datagrams::forked(set);
        set.inherited.store(true, Ordering::Relaxed);
        set.joint.store(witness::FOR_EVER, Ordering::Relaxed); // the parent has it
    });
}
