//! Wall time by the processor's counter of ticks, of which notes in memory are made.

use std::time::Instant;

use shunt_sys::clock::{realtime_ns, ticks};

/// Ticks and wall time at one moment, and how fast ticks are.
pub struct Clock {
    began: (Instant, u64),
    /// The last look.
    ticks: u64,
    time: u64,
    ns_per_tick: f64,
}

/// Readings of both clocks, of which the closest counts: a thread can be preempted between two.
const READINGS: usize = 4;

impl Clock {
    /// Begins; waits some milliseconds, so that the rate is known.
    pub fn start() -> Clock {
        let mut clock = Clock { began: (Instant::now(), ticks()), ticks: 0, time: 0, ns_per_tick: 0.4 };
        std::thread::sleep(std::time::Duration::from_millis(5));
        clock.look();
        clock
    }

    /// Looks at both clocks: the nearer a look, the better is what is told of a moment, also where the wall's time is set.
    pub fn look(&mut self) {
        let mut best = u64::MAX;
        for _ in 0..READINGS {
            let (before, now) = (ticks(), realtime_ns());
            let between = ticks().wrapping_sub(before);
            if between < best {
                (best, self.ticks, self.time) = (between, before.wrapping_add(between / 2), now);
            }
        }
        let passed = ticks().wrapping_sub(self.began.1);
        if passed > 0 {
            self.ns_per_tick = self.began.0.elapsed().as_nanos() as f64 / passed as f64;
        }
    }

    /// Nanoseconds since 1970 at a moment near the last look.
    pub fn time(&self, at: u64) -> u64 {
        let passed = (at.wrapping_sub(self.ticks) as i64 as f64 * self.ns_per_tick) as i64;
        self.time.saturating_add_signed(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_in_wall_time() {
        let mut clock = Clock::start();
        for _ in 0..20 {
            let (low, at, high) = (realtime_ns(), ticks(), realtime_ns());
            clock.look();
            let told = clock.time(at);
            assert!(low.saturating_sub(100_000) < told && told < high + 100_000, "{low} {told} {high}");
        }
    }
}
