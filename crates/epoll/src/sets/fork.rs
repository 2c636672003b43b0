//! Around a fork: the kernel's set is shared, and the terms of its entries; all else here is a copy.

use super::set::{forget_free_sets, Set, SETS};
use super::{datagrams, entry, frames};
use core::sync::atomic::Ordering;
use shunt_inbox::datagram::fork_sharing;
use shunt_table::table;

pub(super) fn each_set(mut act: impl FnMut(&'static Set)) {
    for fd in table::programs() {
        if let Some(set) = table::get(fd).object::<Set>() {
            act(set);
        }
    }
}

/// A fork is about to be made: others may change what is in the sets, and be told of it. Each set's lock is taken: a thread that tells of
/// an edge without asking whether others were quicker ([`super::fast_path`]) is done, or sees that it has to. Not under the set-up lock.
pub fn share() {
    each_set(|set| {
        let _held = set.lock.lock();
        frames::part(set);
        set.share();
    });
}

/// Whether one came in between.
pub fn any_unshared() -> bool {
    table::programs().any(|fd| table::get(fd).object::<Set>().is_some_and(|set| !set.shared.load(Ordering::Relaxed)))
}

/// Before a fork, in the parent. All sets are [`share`]d.
pub fn before_fork() {
    if table::any_ours() {
        entry::make_room();
    }
    entry::before_fork();
    let fork = fork_sharing::current();
    each_set(|set| {
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
    SETS.watchers.reset();
    entry::forked();
    forget_free_sets();
    each_set(|set| {
        set.lock.reset();
        set.hold().forked();
        [&set.hearing, &set.silent].into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
        datagrams::forked(set);
        set.inherited.store(true, Ordering::Relaxed);
        set.joint.store(fork_sharing::FOR_EVER, Ordering::Relaxed); // the parent has it
    });
}
