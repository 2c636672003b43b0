//! Calls that the program could make on whatever it has, past the library, and of which the kernel cannot tell: the process keeps to
//! the kernel.
//!
//! That is found where a socket is entered, under any lock, or a library's constructor runs; what the process has by then is handed
//! over where no lock is held ([`carry`]): before it connects, listens or makes a thread, and when it has accepted.

use crate::handover::uring;
use crate::process::report;
use crate::table;
use core::sync::atomic::{AtomicBool, Ordering};
use shunt_segment::reason::Reason;

static KEEPS: AtomicBool = AtomicBool::new(false);
/// There may be connections from before.
static OLDER: AtomicBool = AtomicBool::new(false);

/// From here on the process keeps to the kernel.
pub fn keep() {
    if !KEEPS.swap(true, Ordering::Relaxed) {
        report::count(Reason::RawInstructions);
        OLDER.store(true, Ordering::Relaxed);
    }
}

/// Whether it does.
#[inline]
pub fn keeps() -> bool {
    KEEPS.load(Ordering::Relaxed)
}

/// Makes the kernel's what the process had before. No lock may be held.
#[inline]
pub fn carry() {
    if OLDER.load(Ordering::Relaxed) {
        carry_older();
    }
}

#[cold]
fn carry_older() {
    if OLDER.swap(false, Ordering::Relaxed) {
        for fd in 0..table::high_water() {
            if uring::settle(fd).is_err() {
                report::count(Reason::NotCarried);
            }
        }
    }
}
