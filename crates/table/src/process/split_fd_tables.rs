//! One memory and several tables of descriptors: a thread has descriptors of its own (unshare(2), close_range(2)), or a child that
//! shares this memory has (clone(2)).
//!
//! A number is two things then, and our table could say of one of the two alone what it is. So sockets and sets are the kernel's from
//! there on. A store-load pair with [`withdraw`]: the thread that splits the tables counts, then looks at our table; a thread that
//! enters something writes our table, then reads the count. At least one of the two sees the other.

use crate::process::PROCESS;
use crate::table;
use crate::upcalls::operations;
use core::sync::atomic::{fence, Ordering};

/// Whether a number may be two things.
#[inline]
pub fn are_split() -> bool {
    PROCESS.identity.splits.load(Ordering::SeqCst) != 0
}

/// A split that is tried; it has not happened unless that is said ([`Split::done`]).
pub struct Split(());

/// A thread or a child is about to have descriptors of its own. `None`: it cannot, because some are ours.
pub fn begin() -> Option<Split> {
    PROCESS.identity.splits.fetch_add(1, Ordering::SeqCst);
    let split = Split(());
    fence(Ordering::SeqCst);
    (!table::any_ours()).then_some(split)
}

impl Split {
    /// It has them.
    pub fn done(self) {
        core::mem::forget(self);
    }
}

impl Drop for Split {
    fn drop(&mut self) {
        PROCESS.identity.splits.fetch_sub(1, Ordering::SeqCst);
    }
}

/// In the child after a fork: the table and the descriptors are its own.
pub fn forked() {
    PROCESS.identity.splits.store(0, Ordering::SeqCst);
}

/// What has just been entered at `fd` is the kernel's after all, if the tables are split meanwhile. Whether it is.
pub fn withdraw(fd: i32) -> bool {
    let split = are_split();
    if split {
        operations::release(table::take(fd), fd);
    }
    split
}
