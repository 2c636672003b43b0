//! Time as a straight line over the time stamp counter, from one reading of the kernel's clock to the next.
//!
//! A rate that was measured once is wrong by some millionths, and the kernel corrects its own by more (NTP): a process that lives for
//! a day would be a second off, and off from the processes that it shares times with. So every [`INTERVAL_NS`] the kernel is asked
//! again. What the line was wrong by then is made good over the next interval, so that time never runs backwards.

/// How long a line is believed.
pub(super) const INTERVAL_NS: u64 = 1_000_000_000;

/// More is not made good bit by bit, nor is what has come together while nobody asked: the machine was asleep, or its clock was not kept.
const FAR_NS: u64 = 1_000_000;

/// Ticks and what time it was then.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) ticks: u64,
    /// What was told then.
    pub(super) told: u64,
    /// What the kernel's clock said then.
    pub(super) asked: u64,
    /// Nanoseconds for each 2^32 ticks, by which this line goes on.
    pub(super) rate: u64,
}

impl Line {
    /// The time at `ticks`. `None`: the line is too old, or the counter began anew.
    #[inline]
    pub(super) fn at(&self, ticks: u64) -> Option<u64> {
        let passed = self.passed(ticks);
        (passed <= INTERVAL_NS).then(|| self.told + passed)
    }

    fn passed(&self, ticks: u64) -> u64 {
        ((ticks.wrapping_sub(self.ticks) as u128 * self.rate as u128) >> 32) as u64
    }

    /// The line that goes on at `ticks`, when the kernel's clock says `now`; and the rate that was measured meanwhile.
    pub(super) fn renewed(&self, ticks: u64, now: u64) -> (Line, u64) {
        let passed = ticks.wrapping_sub(self.ticks);
        let elapsed = now.saturating_sub(self.asked);
        if (passed as i64) <= 0 || elapsed == 0 {
            return (Line { ticks, told: now, asked: now, ..*self }, self.rate);
        }
        let rate = (((elapsed as u128) << 32) / passed as u128) as u64;
        let told = self.told + self.passed(ticks);
        let ahead = told.wrapping_sub(now) as i64;
        // Nothing was told behind the end of this line.
        let unheard = now >= self.told + INTERVAL_NS && self.passed(ticks) >= 2 * INTERVAL_NS;
        if unheard || ahead.unsigned_abs() > FAR_NS {
            return (Line { ticks, told: now, asked: now, rate }, rate);
        }
        let made_good = (rate as i64).saturating_mul(ahead) / INTERVAL_NS as i64;
        (Line { ticks, told, asked: now, rate: rate.wrapping_sub(made_good as u64) }, rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GHZ: u64 = 2_500_000_000;

    fn rate(hertz: u64) -> u64 {
        ((1_000_000_000u128 << 32) / hertz as u128) as u64
    }

    /// Asks every 10 ms for `seconds`, of a counter of `hertz` ticks in each second of the kernel's; gives the worst error.
    fn live(line: &mut Line, hertz: u64, seconds: u64) -> u64 {
        let (mut worst, mut last) = (0, 0);
        for step in 0..seconds * 100 {
            let (ticks, now) = (line_ticks(hertz, step), line_now(step));
            let told = match line.at(ticks) {
                Some(told) => told,
                None => {
                    *line = line.renewed(ticks, now).0;
                    line.told
                }
            };
            assert!(told >= last, "time ran backwards");
            last = told;
            if step > 1000 {
                worst = worst.max(told.abs_diff(now));
            }
        }
        worst
    }

    fn line_now(step: u64) -> u64 {
        1_000_000_000_000 + step * 10_000_000
    }

    fn line_ticks(hertz: u64, step: u64) -> u64 {
        77_000 + (hertz as u128 * step as u128 / 100) as u64
    }

    #[test]
    fn a_rate_that_is_wrong_by_twenty_millionths_does_not_add_up() {
        for wrong in [GHZ - GHZ / 50_000, GHZ + GHZ / 50_000] {
            let mut line = Line { ticks: line_ticks(GHZ, 0), told: line_now(0), asked: line_now(0), rate: rate(wrong) };
            let worst = live(&mut line, GHZ, 3600);
            assert!(worst < 1_000, "{worst} ns after an hour");
        }
    }

    #[test]
    fn who_was_not_asked_for_hours_tells_the_kernels_time() {
        let line = Line { ticks: 0, told: 5_000, asked: 5_000, rate: rate(GHZ + GHZ / 50_000) };
        let hours = 3 * 3600;
        assert_eq!(line.at(hours * GHZ), None);
        let (next, _) = line.renewed(hours * GHZ, 5_000 + hours * 1_000_000_000);
        assert_eq!(next.told, 5_000 + hours * 1_000_000_000);
        assert!(next.rate.abs_diff(rate(GHZ)) <= 1);
    }

    #[test]
    fn a_machine_that_slept_and_a_counter_that_began_anew_are_told() {
        let line = Line { ticks: 1 << 40, told: 5_000, asked: 5_000, rate: rate(GHZ) };
        // The counter ran on while CLOCK_MONOTONIC stood still.
        let (next, _) = line.renewed((1 << 40) + 1000 * GHZ, 5_000 + 2_000_000_000);
        assert_eq!(next.told, 5_000 + 2_000_000_000);
        assert_eq!(line.at(7), None);
        let (next, _) = line.renewed(7, 900_000);
        assert_eq!((next.ticks, next.told), (7, 900_000));
    }
}
