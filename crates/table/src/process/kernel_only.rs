//! Processes that keep to the kernel: the program could make calls on whatever it has, past the library, of which the kernel cannot
//! tell; or it is about to have those forbidden that the library needs (`confinement::before_filter`).
//!
//! The first is found where a socket is entered, under any lock, or a library's constructor runs; what the process has by then is handed
//! over where no lock is held ([`carry`]): before it connects, listens or makes a thread, and when it has accepted.

use crate::process::{status_page, PROCESS};
use crate::table;
use crate::upcalls::operations;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use shunt_segment::reason::Reason;

/// What is known of that.
pub(super) struct KernelOnly {
    /// Why the process keeps to the kernel: a [`Reason`]'s code. 0: it does not.
    keeps: AtomicU32,
    /// There may be connections from before.
    older: AtomicBool,
    /// Filters have been looked for.
    looked: AtomicBool,
}

impl KernelOnly {
    pub(super) const fn new() -> KernelOnly {
        KernelOnly { keeps: AtomicU32::new(0), older: AtomicBool::new(false), looked: AtomicBool::new(false) }
    }
}

/// From here on the process keeps to the kernel.
pub fn keep() {
    if begin(Reason::RawInstructions) {
        PROCESS.kernel_only.older.store(true, Ordering::Relaxed);
    }
}

/// The same, for this reason; of what the process had before, the caller sees to it. Whether it did not keep to the kernel yet.
pub fn begin(reason: Reason) -> bool {
    let first = PROCESS.kernel_only.keeps.compare_exchange(0, reason as u32, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if first {
        status_page::count(reason);
    }
    first
}

/// Whether it does.
#[inline]
pub fn keeps() -> bool {
    PROCESS.kernel_only.keeps.load(Ordering::Relaxed) != 0
}

/// Whether it does because a filter refuses what the library needs: then no call is made that the program does not make.
#[inline]
pub fn confined() -> bool {
    PROCESS.kernel_only.keeps.load(Ordering::Relaxed) == Reason::SystemCallFilter as u32
}

/// Why it does.
pub fn reason() -> Reason {
    if confined() {
        Reason::SystemCallFilter
    } else {
        Reason::RawInstructions
    }
}

/// Makes the kernel's what the process had before. No lock may be held.
#[inline]
pub fn carry() {
    if PROCESS.kernel_only.older.load(Ordering::Relaxed) {
        carry_older();
    }
}

#[cold]
fn carry_older() {
    if PROCESS.kernel_only.older.swap(false, Ordering::Relaxed) {
        for fd in table::numbers() {
            settle(fd);
        }
    }
}

/// Makes the kernel's what `fd` is.
pub fn settle(fd: i32) {
    if operations::to_kernel(fd).is_err() {
        status_page::count(Reason::NotCarried);
    }
}

/// Whether filters of system calls have been looked for ([`super::filtered`]).
#[inline]
pub(super) fn has_looked() -> bool {
    PROCESS.kernel_only.looked.load(Ordering::Relaxed)
}

/// They have.
pub(super) fn note_look() {
    PROCESS.kernel_only.looked.store(true, Ordering::Relaxed);
}
