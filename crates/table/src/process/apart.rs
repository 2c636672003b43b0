//! One memory and several tables of descriptors: a thread has descriptors of its own (unshare(2), close_range(2)), or a child that
//! shares this memory has (clone(2)).
//!
//! A number is two things then, and our table could say for one of the two alone what it is. So sockets and sets are the
//! kernel's from there on. Who parts counts first and looks at the table then; who enters something in the table looks at the count
//! behind that: one of the two sees the other.

use crate::process::PROCESS;
use crate::table;
use crate::upcalls::operations;
use core::sync::atomic::{fence, Ordering};

/// Whether a number may be two things.
#[inline]
pub fn apart() -> bool {
    PROCESS.identity.partings.load(Ordering::SeqCst) != 0
}

/// A parting that is tried; it has not happened unless that is said ([`Parting::done`]).
pub struct Parting(());

/// Somebody is about to have descriptors of his own. `None`: he cannot, because some are ours.
pub fn part() -> Option<Parting> {
    PROCESS.identity.partings.fetch_add(1, Ordering::SeqCst);
    let parting = Parting(());
    fence(Ordering::SeqCst);
    (!table::any_ours()).then_some(parting)
}

impl Parting {
    /// He has them.
    pub fn done(self) {
        core::mem::forget(self);
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        PROCESS.identity.partings.fetch_sub(1, Ordering::SeqCst);
    }
}

/// In the child after a fork: the table and the descriptors are its own.
pub fn forked() {
    PROCESS.identity.partings.store(0, Ordering::SeqCst);
}

/// What has just been entered at `fd` is the kernel's after all, if somebody parts meanwhile. Whether it is.
pub fn withdraw(fd: i32) -> bool {
    let parting = apart();
    if parting {
        operations::release(table::take(fd), fd);
    }
    parting
}
