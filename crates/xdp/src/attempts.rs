//! Attempts that are made again when they failed, after pauses that double.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The shortest and the longest pause (ns).
const PAUSES: [u64; 2] = [1_000_000_000, 30_000_000_000];

/// Zeros: none was made.
#[derive(Default)]
pub struct Attempts {
    /// Where one has failed the next is not made before then (ns); for how long that was said, and why.
    not_before: AtomicU64,
    pause: AtomicU64,
    reason: AtomicU32,
}

impl Attempts {
    /// As of a process that made none.
    pub const fn none() -> Attempts {
        Attempts { not_before: AtomicU64::new(0), pause: AtomicU64::new(0), reason: AtomicU32::new(0) }
    }

    /// Whether one may be made now.
    ///
    /// # Errors
    /// Why the last one failed.
    pub fn may(&self, now: u64) -> Result<(), u32> {
        match now < self.not_before.load(Relaxed) {
            true => Err(self.reason.load(Relaxed)),
            false => Ok(()),
        }
    }

    /// One was made; it failed for that reason, or not.
    pub fn made(&self, failed: Option<u32>, now: u64) {
        let pause = failed.map_or(0, |_| (2 * self.pause.load(Relaxed)).clamp(PAUSES[0], PAUSES[1]));
        self.pause.store(pause, Relaxed);
        self.reason.store(failed.unwrap_or(0), Relaxed);
        self.not_before.store(if pause > 0 { now + pause } else { 0 }, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_one_does_not_fail() {
        let attempts = Attempts::default();
        let mut now = 5;
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(attempts.may(now), Ok(()));
            attempts.made(Some(7), now);
            now += seconds * 1_000_000_000;
            assert_eq!((attempts.may(now - 1), attempts.may(now)), (Err(7), Ok(())));
        }
        attempts.made(None, now);
        assert_eq!(attempts.may(now), Ok(()));
        attempts.made(Some(8), now);
        assert_eq!((attempts.may(now + 999_999_999), attempts.may(now + 1_000_000_000)), (Err(8), Ok(())));
    }
}
