//! What the processes of a family tell each other about their users, in memory that forks share: that one has become another user, and
//! as which user each shared listener's connections are accepted.
//!
//! Who becomes another user says so while it is trusted, and loses the memory with that: nothing of what is written here is a lie of
//! his later.

use crate::process::user;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use shunt_segment::area::PAGE;
use shunt_sys::mapping;

/// Listeners that are remembered.
const LISTENERS: usize = PAGE / 8 - 2;

#[repr(C)]
struct Told {
    /// How often a process has become another user.
    changes: AtomicU64,
    /// Listeners that were forgotten for want of room.
    forgotten: AtomicU64,
    /// Inode, and who accepts plus one.
    listeners: [AtomicU64; LISTENERS],
}

const _: () = assert!(core::mem::size_of::<Told>() == PAGE);

static TOLD: AtomicPtr<Told> = AtomicPtr::new(core::ptr::null_mut());

/// Changes since which this process cannot read what others tell.
static OWN_CHANGES: AtomicU64 = AtomicU64::new(0);

/// At start-up.
pub(super) fn start() {
    if let Ok(page) = mapping::reserve_for_children(PAGE) {
        TOLD.store(page.cast(), Ordering::Release);
    }
}

fn told() -> Option<&'static Told> {
    // SAFETY: null, or a page of zeros that is never unmapped.
    unsafe { TOLD.load(Ordering::Acquire).as_ref() }
}

/// How often processes of the family have become another user, as far as it is known here.
pub fn changes() -> u64 {
    OWN_CHANGES.load(Ordering::Relaxed) + told().map_or(1, |told| told.changes.load(Ordering::SeqCst))
}

/// This process has become another user, and what it needed to say is said.
pub(super) fn leave() {
    OWN_CHANGES.fetch_add(1, Ordering::Relaxed);
    let Some(told) = told() else { return };
    told.changes.fetch_add(1, Ordering::SeqCst);
    TOLD.store(core::ptr::null_mut(), Ordering::Release);
    // SAFETY: who reads it still finds zeros.
    unsafe { mapping::blank_at_any_price((told as *const Told).cast_mut().cast(), PAGE) };
}

/// When a claim is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// By who accepts, or has accepted.
    Accepts,
    /// By who has become another user, and may accept.
    Changed,
    /// The same, and nobody else has the listener.
    Alone,
}

/// This process accepts, under its user, from the listener of that inode, which it may share. False: others do as another user, and what
/// one accepts the others could see.
pub fn claim(listener: u64, claim: Claim) -> bool {
    let Some(told) = told().filter(|_| listener != 0) else { return true };
    let entry = (listener << 32) | (u64::from(user::own()) + 1);
    loop {
        let is_for_it =
            |place: &&AtomicU64| matches!(place.load(Ordering::SeqCst) >> 32, known if known == listener || known == 0);
        let Some(place) = told.listeners.iter().find(is_for_it) else {
            // Room for others: while nobody changes his user they are all the same.
            told.forgotten.fetch_add(1, Ordering::SeqCst);
            told.listeners.iter().for_each(|place| place.store(0, Ordering::SeqCst));
            continue;
        };
        let known = place.load(Ordering::SeqCst);
        if known == 0 && claim == Claim::Changed && told.forgotten.load(Ordering::SeqCst) > 0 {
            return false;
        }
        if known >> 32 == listener && claim != Claim::Alone {
            return known == entry;
        }
        let free = known == 0 || known >> 32 == listener;
        if free && place.compare_exchange(known, entry, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_one_user_s_and_what_is_forgotten_is_nobody_s() {
        start();
        assert!(claim(7, Claim::Changed) && claim(7, Claim::Accepts));
        let told = told().unwrap();
        let place = told.listeners.iter().find(|place| place.load(Ordering::Relaxed) >> 32 == 7).unwrap();
        place.fetch_add(1, Ordering::Relaxed);
        assert!(!claim(7, Claim::Accepts) && !claim(7, Claim::Changed));
        assert!(claim(7, Claim::Alone) && claim(7, Claim::Accepts));
        for listener in 100..100 + LISTENERS as u64 {
            assert!(claim(listener, Claim::Accepts));
        }
        assert!(!claim(7, Claim::Changed), "it may have been another's");
        assert!(claim(7, Claim::Accepts));
    }
}
