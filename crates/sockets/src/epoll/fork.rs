//! After a fork: the kernel's set is shared, this half of it is a copy.

use super::entry::SLABS;
use super::set::WATCHERS;
use crate::table;
use core::sync::atomic::Ordering;

/// In the child after fork: no other thread exists, so no lock is held and nobody sleeps.
pub fn forked() {
    WATCHERS.reset();
    SLABS.reset();
    for fd in 0..table::high_water() {
        if let Some(set) = table::get(fd).set() {
            set.lock.reset();
            set.sleepers.store(0, Ordering::Relaxed);
            set.inherited.store(true, Ordering::Relaxed);
        }
    }
}
