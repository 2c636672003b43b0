//! Threads that sleep on one companion, and the one of them that takes the bells off it.
//!
//! All of them are woken by one bell, but each looks at the companion again before it goes: bells must not vanish before it has,
//! nor a bell that was rung for it meanwhile. So a sleeper is counted; a thread that takes bells does so when no other one is,
//! and keeps others from falling asleep.
//!
//! ```text
//! sleeper                                 taker, counted as well
//!   count += 1                              taking = 1, or leave
//!   taking? leave, and come again           count > own? leave, and come again
//!   arm, barrier, look, sleep               take the bells
//!   count -= 1                              taking = 0
//! ```
//!
//! Either the sleeper sees that bells are taken, or the taker sees the sleeper (Dekker): what is taken was rung for no thread
//! that sleeps. One that leaves is not counted while it waits for its next attempt. Those that were woken leave as soon as they
//! get a processor; until the bells are taken none sleeps on, so the taker comes to its turn.

use shunt_segment::sync::{AtomicU32, Ordering};

/// Of one socket in one process. All-zero is a fresh one.
#[derive(Default)]
pub struct BellConsumer {
    sleepers: AtomicU32,
    taking: AtomicU32,
}

/// Looks in which a thread that came while bells are taken is gone again.
#[cfg(not(loom))]
const LOOKS: u32 = 64;
/// The same; a model has patience enough.
#[cfg(loom)]
const LOOKS: u32 = 1;

impl BellConsumer {
    /// The caller is about to sleep.
    pub fn enter(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// The caller is awake. The gate may have been reset since it came.
    pub fn leave(&self) {
        let _ = self.sleepers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }

    /// Those who may be asleep, or are about to be.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.load(Ordering::SeqCst)
    }

    /// Whether a thread takes bells: then one that has entered must leave.
    pub fn is_taking(&self) -> bool {
        self.taking.load(Ordering::SeqCst) != 0
    }

    /// Calls `take`, which takes bells, if no thread may be asleep but the caller, which has entered `mine` times. False: the
    /// caller is to leave.
    pub fn when_all_heard(&self, mine: u32, take: impl FnOnce()) -> bool {
        if self.taking.swap(1, Ordering::SeqCst) != 0 {
            return false;
        }
        let alone = (0..LOOKS).any(|_| {
            core::hint::spin_loop();
            self.sleepers() <= mine
        });
        if alone {
            take();
        }
        self.taking.store(0, Ordering::SeqCst);
        alone
    }

    /// In the child after fork: no thread sleeps.
    pub fn reset(&self) {
        self.sleepers.store(0, Ordering::SeqCst);
        self.taking.store(0, Ordering::SeqCst);
    }
}
