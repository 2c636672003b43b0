//! The order of steps between members of a barrier that sleep and those that see that all have come.
//!
//! ```text
//! sleeper                                  member that arrives
//!   sleepers += 1                            number := the barrier's
//!   membarrier (all processors)              ...
//!   seen := turn                             all numbers are there: sleepers = 0? then nothing
//!   look at all numbers again                otherwise turn := the barrier's, and wake, unless another member did
//!   futex wait while turn = seen
//! ```
//! After the barrier either a member's number is seen by the second look, or its load of `sleepers` comes after it and sees the sleeper. Each
//! member that sees all numbers releases the others, a sleeper, too: so it does not matter which of two that arrive at once sees the other.

use super::atomics::AtomicU32;
use super::atomics::Ordering::{AcqRel, Acquire, SeqCst};

/// Whether a member with this word has arrived at the barrier of this number; it may be in the next one already.
pub fn is_here(word: &AtomicU32, number: u32) -> bool {
    word.load(Acquire).wrapping_sub(number) as i32 >= 0
}

/// To be called by each member that has seen all numbers.
pub fn release(turn: &AtomicU32, sleepers: &AtomicU32, number: u32, wake: impl FnOnce()) {
    if sleepers.load(Acquire) != 0 && turn.swap(number, AcqRel) != number {
        wake();
    }
}

/// The value of `turn` to sleep on, if another look at all numbers says so.
pub fn lie_down(turn: &AtomicU32, sleepers: &AtomicU32, barrier_everywhere: impl FnOnce()) -> u32 {
    sleepers.fetch_add(1, SeqCst);
    barrier_everywhere();
    turn.load(Acquire)
}

/// After the sleep, or instead of it.
pub fn rise(sleepers: &AtomicU32) {
    sleepers.fetch_sub(1, SeqCst);
}
