//! What the rooms above have in a link, which the link does not know: one table, which start-up fills in.

use core::sync::atomic::{AtomicPtr, Ordering};

/// The questions and orders.
pub struct Users {
    /// The channels of the link that begins there in which this process has connections, one bit each.
    pub connections: fn(*mut u8) -> u64,
    /// The channels of the link of this index whose clients wait here to be accepted, one bit each.
    pub deferred: fn(usize) -> u64,
    /// This process's connections of the link that begins there end.
    pub shut: fn(*mut u8),
    /// The link of this index offers no connections in memory any more. Under the set-up lock.
    pub offers_end: fn(usize),
}

static USERS: AtomicPtr<Users> = AtomicPtr::new(core::ptr::null_mut());

/// Fills the table in, before there is a link.
pub fn fill(users: &'static Users) {
    USERS.store(core::ptr::from_ref(users).cast_mut(), Ordering::Release);
}

/// The table, once it is filled in.
pub(super) fn users() -> Option<&'static Users> {
    // SAFETY: null, or the static that `fill` was given.
    unsafe { USERS.load(Ordering::Acquire).as_ref() }
}
