//! The thread that makes something for all threads. It may leave in the middle, by a handler that jumps out of its call, and no other
//! thread hears of that.

use core::sync::atomic::{AtomicU64, Ordering};

/// How long a thread is believed to be at it (s): longer than an agent is waited for, and a keeper's birth.
const BELIEVED: u32 = 10;

const SECOND: u64 = 1_000_000_000;

/// The thread that makes it, and since when, in seconds; 0: none does.
pub struct Making(AtomicU64);

fn word(me: u32, now: u64) -> u64 {
    u64::from(me) << 32 | u64::from((now / SECOND) as u32)
}

impl Making {
    pub const fn new() -> Making {
        Making(AtomicU64::new(0))
    }

    /// Thread `me` begins: false, another one is at it. One that has begun and comes again has jumped, or was interrupted by a handler
    /// that needs it now; then it is made twice.
    pub fn begin(&self, me: u32, now: u64) -> bool {
        let known = self.0.load(Ordering::Acquire);
        let (by, age) = ((known >> 32) as u32, ((now / SECOND) as u32).wrapping_sub(known as u32));
        // A clock that was read before the other thread began gives a negative age: that thread is young.
        let another = by != 0 && by != me && (age as i32) < BELIEVED as i32;
        !another && self.0.compare_exchange(known, word(me, now), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Thread `me` has ended, unless it is another one's turn by now.
    pub fn end(&self, me: u32) {
        let known = self.0.load(Ordering::Relaxed);
        if (known >> 32) as u32 == me {
            let _ = self.0.compare_exchange(known, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// In the child after fork: no thread does.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        let making = Making::new();
        assert!(making.begin(7, 5 * SECOND));
        assert!(!making.begin(8, 5 * SECOND + 1));
        making.end(8);
        assert!(!making.begin(8, 6 * SECOND), "not its to end");
        making.end(7);
        assert!(making.begin(8, 6 * SECOND));
    }

    #[test]
    fn one_that_began_since_the_clock_was_read_is_young() {
        let making = Making::new();
        assert!(making.begin(7, 5 * SECOND));
        assert!(!making.begin(8, 5 * SECOND - 1));
    }

    #[test]
    fn who_has_jumped_begins_anew() {
        let making = Making::new();
        assert!(making.begin(7, 5 * SECOND));
        assert!(making.begin(7, 6 * SECOND), "at once");
        assert!(!making.begin(8, 15 * SECOND));
        assert!(making.begin(8, 16 * SECOND), "others later");
        making.end(7);
        assert!(!making.begin(9, 17 * SECOND), "nobody ends it for another");
    }
}
