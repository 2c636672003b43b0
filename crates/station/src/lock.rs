//! The lock of those who drive: it survives its owner.
//!
//! The word names process and thread. No thread waits for it on the hot path: one that finds it taken leaves a mark, and its
//! holder looks once more. It is taken from a holder only when that no longer exists; one that was stopped keeps it, because it
//! would go on where it stopped.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use shunt_sys::{process, thread};

/// How the lock was got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Got {
    /// From no holder.
    Free,
    /// From a holder that died with it: what it guards may be half-done.
    Inherited,
}

/// The calling thread, as the word names it.
pub(crate) fn me() -> u64 {
    u64::from(thread::process()) << 32 | u64::from(thread::id())
}

/// Takes the lock, or leaves the mark.
#[inline]
pub(crate) fn try_take(word: &AtomicU64, again: &AtomicU32) -> Option<Got> {
    let me = me();
    if word.compare_exchange(0, me, SeqCst, Relaxed).is_ok() {
        return Some(Got::Free);
    }
    // Either the holder sees the mark when it has given the lock back, or we find it free.
    again.store(1, SeqCst);
    match word.compare_exchange(0, me, SeqCst, Relaxed) {
        Ok(_) => Some(Got::Free),
        Err(_) => None,
    }
}

/// Takes the lock if it is free, and leaves no mark: for a thread that comes back, or can do without.
#[inline]
pub(crate) fn take_if_free(word: &AtomicU64) -> Option<Got> {
    let free = word.load(Relaxed) == 0 && word.compare_exchange(0, me(), SeqCst, Relaxed).is_ok();
    free.then_some(Got::Free)
}

/// Takes the lock away from a holder that no longer exists. Enters the kernel.
#[cold]
pub(crate) fn take_from_dead(word: &AtomicU64) -> Option<Got> {
    let owner = word.load(Relaxed);
    if owner == 0 || owner == me() || !is_dead(owner) {
        return None;
    }
    word.compare_exchange(owner, me(), SeqCst, Relaxed).ok().map(|_| Got::Inherited)
}

/// Gives the lock back.
#[inline]
pub(crate) fn give(word: &AtomicU64) {
    // An exchange, so that a look at the mark comes after it.
    word.swap(0, SeqCst);
}

/// A holder that has ended: no process has this number (PID_MAX_LIMIT).
const ENDED: u64 = (i32::MAX as u64) << 32 | i32::MAX as u64;

/// Gives the lock back as it was got: what it guards was not looked at.
#[cold]
pub(crate) fn decline(word: &AtomicU64, got: Got) {
    word.swap(if got == Got::Inherited { ENDED } else { 0 }, SeqCst);
}

/// Gives the lock back for `holder`, if that still has it, as one that has ended with it.
#[cold]
pub(crate) fn abandon(word: &AtomicU64, holder: u64) {
    let _ = word.compare_exchange(holder, ENDED, SeqCst, Relaxed);
}

/// Takes the mark away, after the lock was given back; true: another thread had left one. No other takes it away, so none is
/// lost: one that was meant for a holder before costs a turn.
#[inline]
pub(crate) fn take_mark(again: &AtomicU32) -> bool {
    again.load(SeqCst) != 0 && again.swap(0, SeqCst) != 0
}

fn is_dead(owner: u64) -> bool {
    process::thread_has_ended(owner as u32) || process::has_ended((owner >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::{calls, libc};

    #[test]
    fn the_dead_hold_nothing() {
        let (word, again) = (AtomicU64::new(0), AtomicU32::new(0));
        assert_eq!(try_take(&word, &again), Some(Got::Free));
        assert_eq!(try_take(&word, &again), None);
        assert_eq!(take_from_dead(&word), None);
        give(&word);
        assert!(take_mark(&again) && !take_mark(&again));
        // A mark that was left with the last holder is not lost with the next.
        again.store(1, Relaxed);
        assert_eq!(try_take(&word, &again), Some(Got::Free));
        give(&word);
        assert!(take_mark(&again));
        // A child that has ended, and that was not waited for.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let number = u64::from(child.id());
        let fd = calls::pidfd_open(child.id() as i32, 0).unwrap();
        calls::poll_one(fd, libc::POLLIN, -1).unwrap();
        word.store(number << 32 | number, Relaxed);
        assert_eq!(take_from_dead(&word), Some(Got::Inherited));
        child.wait().unwrap();
        word.store(number << 32 | number, Relaxed);
        assert_eq!(take_from_dead(&word), Some(Got::Inherited));
        // A holder that did not look at what was left half-done leaves it to the next.
        decline(&word, Got::Inherited);
        assert_eq!((take_if_free(&word), take_from_dead(&word)), (None, Some(Got::Inherited)));
        decline(&word, Got::Free);
        assert_eq!(take_if_free(&word), Some(Got::Free));
        // A holder that gave another word back.
        abandon(&word, me() + 1);
        assert_eq!(word.load(Relaxed), me());
        abandon(&word, me());
        assert_eq!((take_if_free(&word), take_from_dead(&word)), (None, Some(Got::Inherited)));
        // A holder that lives: this test's parent.
        // SAFETY: no preconditions.
        let parent = unsafe { libc::getppid() } as u64;
        word.store(parent << 32 | parent, Relaxed);
        assert_eq!(take_from_dead(&word), None);
        let _ = calls::close(fd);
    }
}
