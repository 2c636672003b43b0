//! What the processes of a family tell each other about their users, in memory that forks share: that one has become another user.
//!
//! Who does says so while it is trusted, and loses the memory with that: nothing of what is written here is a lie of his later.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use shunt_segment::area::PAGE;
use shunt_sys::mapping;

/// How often a process has become another user, at the head of a page.
static TOLD: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Changes since which this process cannot read what others tell.
static OWN_CHANGES: AtomicU64 = AtomicU64::new(0);

/// At start-up.
pub(super) fn start() {
    if let Ok(page) = mapping::reserve_for_children(PAGE) {
        TOLD.store(page.cast(), Ordering::Release);
    }
}

fn told() -> Option<&'static AtomicU64> {
    // SAFETY: null, or a page of zeros that is never unmapped.
    unsafe { TOLD.load(Ordering::Acquire).as_ref() }
}

/// How often processes of the family have become another user, as far as it is known here.
pub fn changes() -> u64 {
    OWN_CHANGES.load(Ordering::Relaxed) + told().map_or(1, |told| told.load(Ordering::SeqCst))
}

/// This process has become another user, and what it needed to say is said.
pub(super) fn leave() {
    OWN_CHANGES.fetch_add(1, Ordering::Relaxed);
    let Some(told) = told() else { return };
    told.fetch_add(1, Ordering::SeqCst);
    TOLD.store(core::ptr::null_mut(), Ordering::Release);
    // SAFETY: who reads it still finds zeros.
    unsafe { mapping::blank_at_any_price(core::ptr::from_ref(told).cast_mut().cast(), PAGE) };
}
