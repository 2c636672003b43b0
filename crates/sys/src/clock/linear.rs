//! Time as a straight line over the time stamp counter, from one reading of the kernel's clock to the next.
//!
//! A rate that was measured once is wrong by some millionths, and the kernel corrects its own by more (NTP): a process that lives
//! for a day would be a second off, and off from the processes that it shares times with. So every [`INTERVAL_NS`] the kernel is
//! asked again. What the line was wrong by then is made good over the next interval, so that time never runs backwards.

use core::ops::RangeInclusive;

/// How long a line is believed.
pub(super) const INTERVAL_NS: u64 = 1_000_000_000;

/// More is not made good bit by bit, nor is what has come together between two readings that lie far apart: the machine was asleep, or its clock was
/// not kept.
const FAR_NS: u64 = 1_000_000;

/// Over a shorter time no rate is measured well: the two clocks are not read at one moment.
const SHORT_NS: u64 = 50_000_000;

/// The processor reads its counter out of order with memory: a look at it may lie this far before a line that was there already.
const BEFORE: i64 = 1 << 20;

/// Nanoseconds for each 2^32 ticks, at 10 GHz and at 0.4 GHz: no counter runs faster or slower.
const RATES: RangeInclusive<u64> = (1 << 32) / 10..=(5 << 32) / 2;

/// Nanoseconds for each 2^32 ticks. `None`: no counter has such a rate, so one of the clocks stood still or jumped.
pub(super) fn measured(ns: u64, ticks: u64) -> Option<u64> {
    let rate = u64::try_from(((ns as u128) << 32) / ticks.max(1) as u128).ok()?;
    RATES.contains(&rate).then_some(rate)
}

/// What the time between two readings says about the counter's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    Measured(u64),
    /// The time was too short, or the counter began anew.
    Unknown,
    /// Far from the last one: the machine was asleep, or the counter is none to rely on.
    Far,
}

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
        if passed <= INTERVAL_NS {
            return Some(self.told + passed);
        }
        (-BEFORE..0).contains(&self.gone(ticks)).then_some(self.told)
    }

    /// The latest time that any thread may have been told by this line until `ticks`. None, 0, if it ended long ago: the kernel's
    /// clock has passed its end since, or stood still, and then no thread was told it.
    pub(super) fn told_until(&self, ticks: u64) -> u64 {
        let passed = if self.gone(ticks) > 0 { self.passed(ticks) } else { 0 };
        if passed < 2 * INTERVAL_NS {
            self.told + passed.min(INTERVAL_NS)
        } else {
            0
        }
    }

    fn gone(&self, ticks: u64) -> i64 {
        ticks.wrapping_sub(self.ticks) as i64
    }

    fn passed(&self, ticks: u64) -> u64 {
        ((ticks.wrapping_sub(self.ticks) as u128 * self.rate as u128) >> 32) as u64
    }

    /// The line that goes on at `ticks`, when the kernel's clock says `now`; and what rate was measured meanwhile.
    pub(super) fn renewed(&self, ticks: u64, now: u64) -> (Line, Rate) {
        let passed = ticks.wrapping_sub(self.ticks);
        let elapsed = now.saturating_sub(self.asked);
        if (passed as i64) <= 0 || elapsed == 0 {
            return (Line { ticks, told: now, asked: now, ..*self }, Rate::Unknown);
        }
        let measured = match measured(elapsed, passed) {
            _ if elapsed < SHORT_NS => Rate::Unknown,
            Some(rate) if rate.abs_diff(self.rate) <= self.rate / 8 => Rate::Measured(rate),
            _ => Rate::Far,
        };
        let rate = if let Rate::Measured(rate) = measured { rate } else { self.rate };
        let told = self.told + self.passed(ticks);
        let ahead = told.wrapping_sub(now) as i64;
        // Nothing was told behind the end of this line.
        let unheard = now >= self.told + INTERVAL_NS && self.passed(ticks) >= 2 * INTERVAL_NS;
        if unheard || ahead.unsigned_abs() > FAR_NS {
            return (Line { ticks, told: now, asked: now, rate }, measured);
        }
        let made_good = (rate as i64).saturating_mul(ahead) / INTERVAL_NS as i64;
        (Line { ticks, told, asked: now, rate: rate.wrapping_sub(made_good as u64) }, measured)
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
    fn a_clock_that_was_not_read_for_hours_tells_the_kernels_time() {
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
        let woken = (1 << 40) + 1000 * GHZ;
        let (next, measured) = line.renewed(woken, 5_000 + 2_000_000_000);
        assert_eq!(next.told, 5_000 + 2_000_000_000);
        assert_eq!((next.rate, measured), (line.rate, Rate::Far));
        assert!(next.at(woken + GHZ / 2).is_some_and(|told| told.abs_diff(next.told + 500_000_000) < 10));
        assert_eq!(line.told_until(woken), 0, "no thread was told the end of a line that was slept over");
        // It fell asleep right after a reading.
        let (next, measured) = line.renewed(woken, 5_000 + 1_000_000);
        assert_eq!((next.told, next.rate, measured), (5_000 + 1_000_000, line.rate, Rate::Unknown));
        assert_eq!(line.at(7), None);
        let (next, _) = line.renewed(7, 900_000);
        assert_eq!((next.ticks, next.told, next.rate), (7, 900_000, line.rate));
    }

    #[test]
    fn a_look_from_just_before_the_line_is_told_its_beginning() {
        let line = Line { ticks: 1 << 40, told: 5_000, asked: 5_000, rate: rate(GHZ) };
        for early in [1, 4_318, 1 << 20] {
            assert_eq!(line.at((1 << 40) - early), Some(5_000));
            assert_eq!(line.told_until((1 << 40) - early), 5_000);
        }
        assert_eq!(line.at((1 << 40) - (1 << 20) - 1), None);
        // A slow counter's rate, with which times from before the line do not fit into 64 bits.
        let slow = Line { rate: rate(GHZ / 5), ..line };
        assert_eq!(slow.at((1 << 40) - 3), Some(5_000));
    }

    #[test]
    fn a_line_is_believed_to_its_end_only_when_it_has_ended() {
        let line = Line { ticks: 1 << 40, told: 5_000, asked: 5_000, rate: rate(GHZ) };
        let half = line.told_until((1 << 40) + GHZ / 2);
        assert_eq!(Some(half), line.at((1 << 40) + GHZ / 2));
        assert_eq!(line.told_until((1 << 40) + GHZ + GHZ / 10), 5_000 + INTERVAL_NS);
        assert_eq!(line.told_until(7), 5_000);
    }

    #[test]
    fn a_rate_is_not_measured_over_a_moment() {
        let line = Line { ticks: 1 << 40, told: 5_000, asked: 5_000, rate: rate(GHZ) };
        let (next, measured) = line.renewed((1 << 40) + 750, 5_000 + 360);
        assert_eq!(measured, Rate::Unknown);
        assert!(next.rate.abs_diff(line.rate) <= line.rate / 1_000_000);
    }

    #[test]
    fn no_counter_has_any_rate() {
        assert_eq!(measured(1_000_000_000, GHZ), Some(rate(GHZ)));
        assert_eq!(measured(1_000_000_000, 600 * GHZ), None);
        assert_eq!(measured(1_000_000_000, 0), None);
        assert_eq!(measured(60_000_000_000, 2 * GHZ), None);
    }
}
