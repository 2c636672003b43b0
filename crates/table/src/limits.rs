//! The limit of descriptors (RLIMIT_NOFILE): how many poll(2) takes, and where private numbers lie below it.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use shunt_sys::{calls, libc, Errno};

/// What is known of the limit.
pub(crate) struct Limits {
    /// As many entries as poll is known to take.
    taken: AtomicU64,
    /// How often the limit was changed. (What another process changes, by prlimit, is not noticed if it is less.)
    changes: AtomicU32,
    /// Where private numbers start ([`crate::private`]); -1: not known yet, or no longer.
    pub(crate) private_base: AtomicI32,
    /// They ran out when one was last asked for.
    pub(crate) private_short: AtomicBool,
}

pub(crate) static LIMITS: Limits = Limits {
    taken: AtomicU64::new(0),
    changes: AtomicU32::new(0),
    private_base: AtomicI32::new(-1),
    private_short: AtomicBool::new(false),
};

/// Whether poll takes so many entries.
#[inline]
pub fn takes(count: u64) -> bool {
    count <= LIMITS.taken.load(Ordering::Relaxed) || takes_now(count)
}

/// Asked by a poll of nothing that is there, which sees the number first: a filter that lets the program poll may kill for
/// getrlimit, as sshd's does.
#[cold]
fn takes_now(count: u64) -> bool {
    let changes = LIMITS.changes.load(Ordering::SeqCst);
    let nowhere = core::ptr::without_provenance_mut(usize::MAX & !7);
    let asked = calls::ppoll(nowhere, count as usize, core::ptr::null_mut(), core::ptr::null(), 0);
    if count > u32::MAX.into() || asked != Err(Errno(libc::EFAULT)) {
        return false;
    }
    LIMITS.taken.fetch_max(count, Ordering::SeqCst);
    if LIMITS.changes.load(Ordering::SeqCst) != changes {
        LIMITS.taken.store(0, Ordering::SeqCst); // what was asked may be what was before
    }
    true
}

/// A limit of this process may have been changed.
pub fn limit_changed(resource: i32) {
    if resource == libc::RLIMIT_NOFILE as i32 {
        LIMITS.changes.fetch_add(1, Ordering::SeqCst);
        LIMITS.taken.store(0, Ordering::SeqCst);
    }
}
