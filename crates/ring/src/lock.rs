//! A lock in shared memory that survives its owner's death.
//!
//! It keeps the order of bytes among the threads and processes that own one side of a connection; the peer has a lock
//! of its own and never takes this one. The word is the owner's thread id, so a waiter can ask the kernel whether the
//! owner still lives and take the lock from a dead one. Holders never sleep and never enter the kernel.

use shunt_segment::sync::{AtomicU32, Ordering};

/// Proof that the lock is held; released on drop.
pub struct Held<'a> {
    word: &'a AtomicU32,
}

/// Takes `word` for thread `me`.
///
/// `alone` says that no other thread or process can hold it: then plain loads and stores suffice. Gives `None` when
/// this very thread holds it already: a signal handler interrupted the holder. `pause` gets the owner, and returns when it
/// is worth trying again.
#[inline(always)]
pub fn acquire<'a>(word: &'a AtomicU32, me: u32, alone: bool, pause: impl FnMut(u32)) -> Option<Held<'a>> {
    if alone {
        let owner = word.load(Ordering::Relaxed);
        if owner == 0 {
            word.store(me, Ordering::Relaxed);
            return Some(Held { word });
        }
    } else if word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return Some(Held { word });
    }
    contended(word, me, pause)
}

/// Takes `word` for thread `me` if no thread holds it.
pub fn try_acquire(word: &AtomicU32, me: u32) -> Option<Held<'_>> {
    word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).ok().map(|_| Held { word })
}

#[cold]
#[inline(never)]
fn contended<'a>(word: &'a AtomicU32, me: u32, mut pause: impl FnMut(u32)) -> Option<Held<'a>> {
    loop {
        match word.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(Held { word }),
            Err(owner) if owner == me => return None,
            Err(owner) => pause(owner),
        }
    }
}

/// Takes the lock away from `owner`, which the caller knows to be dead.
pub fn revoke(word: &AtomicU32, owner: u32) {
    let _ = word.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed);
}

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.word.store(0, Ordering::Release);
    }
}
