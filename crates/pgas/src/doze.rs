//! The order of steps between a rank that sleeps until a value changes and those that store values.
//!
//! ```text
//! sleeper                                  putter
//!   sleepers += 1, what it waits for         store the value
//!   asleep := 1                              (order of the compiler alone)
//!   membarrier (all processors)              load asleep: 1, and is the value waited for?
//!   look at the value again                  then asleep := 0, and wake if it was 1
//!   futex wait while asleep = 1
//! ```
//! After the barrier either the putter's store is seen by the second look, or its load of `asleep` comes after it and sees 1. Threads of one rank share the
//! word: a wake-up wakes them all, and each looks for itself.

use super::atomics::Ordering::SeqCst;
use super::atomics::{AtomicU32, AtomicUsize};

/// Before the last look. `publish` says what is waited for; its argument tells whether no other thread of this rank sleeps.
pub fn lie_down(
    asleep: &AtomicU32,
    sleepers: &AtomicUsize,
    publish: impl Fn(bool),
    barrier_everywhere: impl FnOnce(),
    wake: impl FnOnce(),
) {
    let alone = sleepers.fetch_add(1, SeqCst) == 0;
    publish(alone);
    asleep.store(1, SeqCst);
    barrier_everywhere();
    // Another thread may have lain down, and published, between this one's count and its publishing. A putter has perhaps passed it over since.
    if alone && sleepers.load(SeqCst) != 1 {
        publish(false);
        rouse(asleep, wake);
    }
}

/// After the sleep, or instead of it.
pub fn rise(asleep: &AtomicU32, sleepers: &AtomicUsize, wake: impl FnOnce()) {
    if sleepers.fetch_sub(1, SeqCst) == 1 {
        asleep.swap(0, SeqCst);
        // A thread that lay down meanwhile has lost its word then, which the swap has read: it looks again.
        if sleepers.load(SeqCst) != 0 {
            wake();
        }
    }
}

/// By a putter whose load of `asleep` was not 0.
pub fn rouse(asleep: &AtomicU32, wake: impl FnOnce()) {
    if asleep.swap(0, SeqCst) != 0 {
        wake();
    }
}
