//! What the processes of a family tell each other about their users, in memory that forks share: that one has become another user, and
//! whose connections each listener's rendezvous gives.
//!
//! A process that becomes another user says so while it is trusted, and loses the memory with that: nothing of what is written here is
//! a later lie of that user. Programs that a process becomes by exec have memory of their own, so what a listener was claimed as also lies in its
//! rendezvous: as SO_RCVLOWAT, which means nothing to a socket that listens, and which all processes that have it share.

use super::PROCESS;
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_segment::area::PAGE;
use shunt_sys::{calls, libc, mapping};

/// Listeners that are remembered.
const LISTENERS: usize = PAGE / 8 - 1;

#[repr(C)]
pub(super) struct Told {
    /// How often a process has become another user.
    changes: AtomicU64,
    /// Each one's inode, and in the low half whose it is, plus one; 0: unused.
    listeners: [AtomicU64; LISTENERS],
}

const _: () = assert!(core::mem::size_of::<Told>() == PAGE);

/// At start-up.
pub fn start() {
    if let Ok(page) = mapping::reserve_for_children(PAGE) {
        PROCESS.identity.told.store(page.cast(), Ordering::Release);
    }
}

fn told() -> Option<&'static Told> {
    // SAFETY: null, or a page of zeros that is never unmapped.
    unsafe { PROCESS.identity.told.load(Ordering::Acquire).as_ref() }
}

/// How often processes of the family have become another user, as far as it is known here.
pub fn changes() -> u64 {
    PROCESS.identity.own_changes.load(Ordering::Relaxed) + told().map_or(1, |told| told.changes.load(Ordering::SeqCst))
}

/// This process has become another user, and what it needed to say is said.
pub fn leave() {
    PROCESS.identity.own_changes.fetch_add(1, Ordering::Relaxed);
    let Some(told) = told() else { return };
    told.changes.fetch_add(1, Ordering::SeqCst);
    PROCESS.identity.told.store(core::ptr::null_mut(), Ordering::Release);
    // SAFETY: a thread that reads it still finds zeros.
    unsafe { mapping::blank_at_any_price(core::ptr::from_ref(told).cast_mut().cast(), PAGE) };
}

/// Connections that the listener of this inode takes at its `rendezvous` are `user`'s from now on, as they are whose they were first.
///
/// Errors: the user whose they are.
pub fn claim(listener: u64, rendezvous: i32, user: u32) -> Result<(), u32> {
    let first = kernel_knows(rendezvous).unwrap_or(user);
    let whose = match told() {
        Some(told) => enter(&told.listeners, listener as u32, first),
        None => first,
    };
    if whose != user {
        return Err(whose);
    }
    let _ = calls::setsockopt_int(rendezvous, libc::SOL_SOCKET, libc::SO_RCVLOWAT, low_water_of(user));
    Ok(())
}

/// The user whose they are, if that is known yet.
pub fn whose(listener: u64, rendezvous: i32) -> Option<u32> {
    let is_its = |place: &&AtomicU64| place.load(Ordering::SeqCst) >> 32 == listener & 0xffff_ffff;
    let entry = told().and_then(|told| told.listeners.iter().find(is_its)).map_or(0, |place| place.load(Ordering::SeqCst));
    (entry as u32).checked_sub(1).or_else(|| kernel_knows(rendezvous))
}

/// Whose the listener is, if it was `first`'s unless it was another's before.
fn enter(places: &[AtomicU64], listener: u32, first: u32) -> u32 {
    let entry = u64::from(listener) << 32 | (u64::from(first) + 1) & 0xffff_ffff;
    loop {
        let is_for_it =
            |place: &&AtomicU64| matches!(place.load(Ordering::SeqCst), known if known == 0 || known >> 32 == entry >> 32);
        // Where all are taken the rendezvous remembers those that give way.
        let place = places.iter().find(is_for_it).unwrap_or(&places[listener as usize % places.len()]);
        let known = place.load(Ordering::SeqCst);
        if known != 0 && known >> 32 == entry >> 32 {
            return (known as u32).wrapping_sub(1);
        }
        if place.compare_exchange(known, entry, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return first;
        }
    }
}

/// A fresh socket has 1.
const FIRST: u32 = 2;

fn low_water_of(user: u32) -> i32 {
    i32::try_from(user.saturating_add(FIRST)).unwrap_or(i32::MAX)
}

fn kernel_knows(rendezvous: i32) -> Option<u32> {
    let word = calls::getsockopt_int(rendezvous, libc::SOL_SOCKET, libc::SO_RCVLOWAT).ok()?;
    (word as u32).checked_sub(FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> i32 {
        calls::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).unwrap()
    }

    #[test]
    fn a_listener_is_whose_it_was_first() {
        start();
        let (one, other) = (socket(), socket());
        assert_eq!(whose(7, one), None);
        assert_eq!(claim(7, one, 0), Ok(()));
        assert_eq!(whose(7, one), Some(0));
        assert_eq!(claim(7, one, 33), Err(0));
        assert_eq!(claim(7, one, 0), Ok(()));
        assert_eq!(claim(8, other, 33), Ok(()));
        assert_eq!(claim(8, other, 0), Err(33));
        // Another program's memory knows nothing.
        PROCESS.identity.told.store(core::ptr::null_mut(), Ordering::Release);
        assert_eq!(claim(8, other, 34), Err(33));
        assert_eq!(whose(8, other), Some(33));
        start();
        assert_eq!(claim(8, other, 34), Err(33));
        assert_eq!(claim(9, socket(), u32::MAX - 1), Ok(()));
        for fd in [one, other] {
            calls::close(fd).unwrap();
        }
    }

    #[test]
    fn what_finds_no_place_takes_one() {
        let places = [const { AtomicU64::new(0) }; 3];
        for listener in 10..20 {
            assert_eq!(enter(&places, listener, listener + 1), listener + 1);
            assert_eq!(enter(&places, listener, 99), listener + 1);
        }
    }
}
