//! When bytes of a stream last moved, as far as questions tell.

use core::sync::atomic::{AtomicU64, Ordering};
use shunt_sys::clock;

/// When a stream was last seen to have moved, in one direction: no time is taken when bytes move, so it is found out by
/// asking, and "since the last question" is the best that is known.
pub struct Seen {
    /// Bytes moved, plus one; 0: not asked yet.
    moved: AtomicU64,
    /// CLOCK_MONOTONIC in ms.
    at: AtomicU64,
}

impl Seen {
    /// Milliseconds since the direction moved, as far as is known; `begin` is when the connection began, in ms.
    pub fn idle(&self, moved: u64, begin: u64) -> u32 {
        let now = clock::monotonic_ns() / 1_000_000;
        let before = self.moved.swap(moved + 1, Ordering::Relaxed);
        if before == 0 && moved == 0 {
            self.at.store(begin, Ordering::Relaxed);
        } else if before != moved + 1 {
            self.at.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.at.load(Ordering::Relaxed)) as u32
    }

    /// For a new connection.
    pub fn reset(&self) {
        self.moved.store(0, Ordering::Relaxed);
    }
}
