//! How much may be under way: CUBIC (RFC 9438) or NewReno (RFC 5681), with HyStart++ (RFC 9406) to leave slow start, and pacing.
//!
//! Why CUBIC: a link is shared with kernel TCP flows, whose default it is. On the short paths of a site its window is the
//! "Reno-friendly" one (RFC 9438 section 4.3): such a path's recovery takes less than a second, where the cubic curve is
//! still flat. So it takes what a Reno flow would take there, and on long fat paths what the kernel's CUBIC takes.
//! A model of the bottleneck (BBR) would do better at random loss, but BBR's share beside loss-based flows depends on the
//! bottleneck's buffer.
//!
//! Windows are counted in packets, as in Linux, in 1024ths.

use crate::{Nanoseconds, MILLISECOND};
use bytemuck::{Pod, Zeroable};

const ONE: u64 = 1024;
/// Least window after a loss, in packets.
const LEAST: u64 = 2 * ONE;
/// Round trips shorter than this are not paced: timers are too coarse for it.
const PACED_FROM: Nanoseconds = MILLISECOND;
/// Packets that may leave back to back in a paced flow. A sender that does not have its processor all the time looks seldom: with
/// 10 it had 17 % of a link beside TCP where it has 29 % with this, and on queues of 8 to 83 packets both fill the link as before
/// (docs/decisions/0057-a-link-shared-with-tcp.md).
const BURST: u64 = 20;

/// How a window grows once slow start is over, and by how much a loss shrinks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// RFC 9438: to seven tenths, and along a cubic curve back.
    Cubic,
    /// RFC 5681, section 3.1: to a half, and one packet more a round trip.
    NewReno,
}

/// State of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Congestion {
    /// Packets under way that are allowed, in 1024ths.
    window: u64,
    threshold: u64,
    /// Window before the last reduction, and when the curve began.
    maximum: u64,
    epoch: Nanoseconds,
    /// When the curve reaches `maximum` again, in milliseconds after `epoch`.
    plateau: u64,
    /// What Reno would have.
    reno: u64,
    /// Packets sent before this are of the last loss event.
    recovery: Nanoseconds,
    /// For a time-out that proves spurious.
    saved_window: u64,
    saved_threshold: u64,
    /// HyStart++: the round ends when this packet is acknowledged; least delays of this round and the last.
    round_ends: u64,
    round_least: Nanoseconds,
    last_least: Nanoseconds,
    samples: u64,
    /// 0: `Law::Cubic`; 1: `Law::NewReno`.
    law: u64,
}

fn cube_root(value: u64) -> u64 {
    let (mut low, mut high) = (0u64, 2_642_245);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if middle * middle * middle <= value {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

impl Congestion {
    /// Begins with `initial` packets.
    #[must_use]
    pub fn new(initial: u32, law: Law) -> Self {
        Self {
            window: u64::from(initial) * ONE,
            threshold: u64::MAX / 2,
            round_least: Nanoseconds::MAX,
            last_least: Nanoseconds::MAX,
            law: u64::from(law == Law::NewReno),
            ..Self::default()
        }
    }

    /// Packets that may be under way.
    #[must_use]
    pub fn packets(&self) -> u32 {
        (self.window / ONE).min(u64::from(u32::MAX)) as u32
    }

    /// Whether the window doubles each round trip.
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// A measured delay, for HyStart++: `oldest` is the first packet not acknowledged, `next` the next to be sent.
    pub fn delay(&mut self, sample: Nanoseconds, oldest: u64, next: u64) {
        if !self.in_slow_start() {
            return;
        }
        if oldest >= self.round_ends {
            self.round_ends = next;
            self.last_least = self.round_least;
            self.round_least = Nanoseconds::MAX;
            self.samples = 0;
        }
        self.round_least = self.round_least.min(sample);
        self.samples += 1;
        if self.samples >= 8 && self.last_least != Nanoseconds::MAX {
            let margin = (self.last_least / 8).clamp(4 * MILLISECOND, 16 * MILLISECOND);
            if self.round_least >= self.last_least + margin {
                self.threshold = self.window;
            }
        }
    }

    /// `packets` were acknowledged. `limited`: the window was in use; one that is not used does not grow (RFC 9438, 4.2).
    pub fn acknowledged(&mut self, now: Nanoseconds, packets: u32, limited: bool, round_trip: Nanoseconds, largest: u32) {
        if !limited {
            return;
        }
        let packets = u64::from(packets);
        if self.in_slow_start() {
            self.window = (self.window + packets * ONE).min(self.threshold.max(self.window));
        } else if self.law != 0 {
            self.window += packets * ONE * ONE / self.window.max(1);
        } else {
            if self.epoch == 0 {
                self.epoch = now.max(1);
                self.reno = self.window;
                if self.maximum < self.window {
                    self.maximum = self.window;
                }
                // K = cubic root of ((W_max - cwnd) / C), C = 0.4: in milliseconds.
                let gap = (self.maximum - self.window).min(1 << 40);
                self.plateau = cube_root(gap.saturating_mul(2_500_000_000 / ONE));
            }
            // W_est grows by 3 (1 - beta) / (1 + beta) = 0.529 a round trip, by 1 once it passed the last maximum.
            let step = if self.reno >= self.maximum { 1000 } else { 529 };
            self.reno += packets * ONE * ONE * step / 1000 / self.window.max(1);
            let elapsed = (now.saturating_sub(self.epoch) + round_trip) / MILLISECOND;
            let distance = elapsed.abs_diff(self.plateau).min(100_000);
            let change = distance * distance * distance / 1000 * 4096 / 10_000_000;
            let target = if elapsed < self.plateau { self.maximum.saturating_sub(change) } else { self.maximum + change };
            if target > self.window {
                let step = (target.min(self.window * 3 / 2) - self.window) * packets * ONE / self.window;
                self.window += step;
            }
            self.window = self.window.max(self.reno);
        }
        self.window = self.window.min(u64::from(largest) * ONE);
    }

    /// A packet sent at `sent_at` was lost. One reduction for all packets of a flight. True if it was reduced.
    pub fn lost(&mut self, now: Nanoseconds, sent_at: Nanoseconds) -> bool {
        if sent_at <= self.recovery && self.recovery != 0 {
            return false;
        }
        self.recovery = now;
        self.reduce();
        self.window = self.threshold;
        true
    }

    fn reduce(&mut self) {
        self.saved_window = self.window;
        self.saved_threshold = self.threshold;
        // Fast convergence (4.7), and beta = 0.7 (4.6).
        self.maximum = if self.window < self.maximum { self.window * 17 / 20 } else { self.window };
        let kept = if self.law == 0 { self.window * 7 / 10 } else { self.window / 2 };
        self.threshold = kept.max(LEAST);
        self.epoch = 0;
    }

    /// A retransmission time-out: `first` of this packet, or again.
    pub fn timed_out(&mut self, now: Nanoseconds, first: bool) {
        self.recovery = now;
        if first {
            self.reduce();
        }
        self.window = ONE;
    }

    /// Nothing was under way for longer than a time-out: no more than `initial` packets leave at once (RFC 5681, section 4.1).
    pub fn idle(&mut self, initial: u32) {
        self.window = self.window.min(u64::from(initial) * ONE);
    }

    /// The time-out was spurious: nothing was lost (RFC 4015).
    pub fn undo(&mut self) {
        self.window = self.window.max(self.saved_window);
        self.threshold = self.saved_threshold;
        self.recovery = 0;
    }

    /// Nanoseconds between packets; 0: not paced. 1.25 times the window a round trip, twice in slow start, so that pacing
    /// never is what limits.
    #[must_use]
    pub fn interval(&self, round_trip: Nanoseconds) -> Nanoseconds {
        if round_trip < PACED_FROM {
            return 0;
        }
        let even = round_trip * ONE / self.window.max(ONE);
        if self.in_slow_start() {
            even / 2
        } else {
            even * 4 / 5
        }
    }

    /// When the next packet may leave, after one left at `now`, given when this one might have.
    #[must_use]
    pub fn paced(&self, allowed: Nanoseconds, now: Nanoseconds, round_trip: Nanoseconds) -> Nanoseconds {
        match self.interval(round_trip) {
            0 => 0,
            interval => allowed.max(now.saturating_sub(interval * BURST)) + interval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots() {
        for (value, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (1_000_000_000, 1000), (u64::MAX, 2_642_245)] {
            assert_eq!(cube_root(value), root);
        }
    }

    /// A loss event each `between` packets, for a long time: the mean window of Reno is sqrt(1.5 * between) (RFC 5348), and on a
    /// short path ours must be that, within a quarter.
    #[test]
    fn on_a_short_path_it_takes_what_reno_takes() {
        for (between, law) in [(200u64, Law::Cubic), (2000, Law::Cubic), (200, Law::NewReno), (2000, Law::NewReno)] {
            let mut control = Congestion::new(10, law);
            let (round_trip, mut now) = (100_000, 1_000_000u64);
            let (mut until_loss, mut sum, mut rounds) = (between, 0u64, 0u64);
            for _ in 0..20_000 {
                now += round_trip;
                let mut window = u64::from(control.packets());
                sum += window;
                rounds += 1;
                if until_loss <= window {
                    control.lost(now, now - round_trip / 2);
                    until_loss += between;
                    window = window.min(until_loss);
                }
                until_loss -= window;
                control.acknowledged(now, window as u32, true, round_trip, 100_000);
            }
            let (mean, reno) = (sum as f64 / rounds as f64, (1.5 * between as f64).sqrt());
            assert!((mean / reno - 1.0).abs() < 0.25, "{law:?}: mean window {mean}, Reno's {reno}");
        }
    }

    /// RFC 5681, section 3.1: a window that is acknowledged whole grows by one packet, and a loss halves it.
    #[test]
    fn reno_grows_by_a_packet_a_round_trip() {
        let mut control = Congestion::new(100, Law::NewReno);
        assert!(control.lost(50, 10));
        assert_eq!(control.packets(), 50);
        for round in 0..10u64 {
            for _ in 0..control.packets() {
                control.acknowledged(1000 + round, 1, true, 100, 1000);
            }
        }
        assert!((58..=60).contains(&control.packets()), "{}", control.packets());
    }

    #[test]
    fn one_reduction_a_flight_and_an_undo() {
        let mut control = Congestion::new(100, Law::Cubic);
        assert!(control.lost(50, 10));
        assert_eq!(control.packets(), 70);
        assert!(!control.lost(60, 20));
        assert_eq!(control.packets(), 70);
        control.timed_out(80, true);
        assert_eq!(control.packets(), 1);
        control.undo();
        assert_eq!(control.packets(), 70);
    }
}
