//! A TCP sender as RFC 5681 has it, and its receiver: what a stream may have to share a link with.
//!
//! Each transmission has a number of its own and each packet is acknowledged by its number, as in QUIC (RFC 9002, appendix B). So
//! there is no question of which one arrived, and a loss event ends as NewReno's does (RFC 6582): when something sent after it
//! began arrives.

use super::{Nanoseconds, MILLISECOND};
use std::collections::BTreeMap;

/// Linux's least retransmission time-out.
const LEAST_TIMEOUT: Nanoseconds = 200 * MILLISECOND;
/// Packets that must arrive before an earlier one counts as lost.
const THRESHOLD: u64 = 3;

/// The flow.
pub struct Reno {
    /// Bytes of a packet, with all headers.
    pub packet: usize,
    /// Packets that have arrived.
    pub delivered: u64,
    /// Loss events, and time-outs.
    pub events: u64,
    pub timeouts: u64,
    window: f64,
    threshold: f64,
    next: u64,
    flight: BTreeMap<u64, Nanoseconds>,
    /// Packets before this are of the last loss event.
    recovery: u64,
    smoothed: Nanoseconds,
    variation: Nanoseconds,
    backoff: u32,
    pub timer: Option<Nanoseconds>,
}

impl Reno {
    pub fn new(packet: usize) -> Self {
        Self {
            packet,
            delivered: 0,
            events: 0,
            timeouts: 0,
            window: 10.0,
            threshold: f64::MAX,
            next: 0,
            flight: BTreeMap::new(),
            recovery: 0,
            smoothed: 0,
            variation: 0,
            backoff: 0,
            timer: None,
        }
    }

    /// The number of a packet that may leave now.
    pub fn send(&mut self, now: Nanoseconds) -> Option<u64> {
        if self.flight.len() as f64 + 1.0 > self.window {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.flight.insert(number, now);
        if self.timer.is_none() {
            self.restart(now);
        }
        Some(number)
    }

    /// Packet `number` has arrived.
    pub fn acknowledged(&mut self, now: Nanoseconds, number: u64) {
        let Some(sent_at) = self.flight.remove(&number) else { return };
        let sample = now - sent_at;
        if self.smoothed == 0 {
            (self.smoothed, self.variation) = (sample, sample / 2);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(sample)) / 4;
            self.smoothed = (7 * self.smoothed + sample) / 8;
        }
        self.backoff = 0;
        if number >= self.recovery {
            self.window += if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
        }
        let kept = self.flight.split_off(&(number + 1).saturating_sub(THRESHOLD));
        let lost = std::mem::replace(&mut self.flight, kept);
        if lost.keys().any(|&lost| lost >= self.recovery) {
            self.recovery = self.next;
            self.window = (self.window / 2.0).max(2.0);
            self.threshold = self.window;
            self.events += 1;
        }
        self.restart(now);
    }

    /// The timer has run out.
    pub fn time_out(&mut self, now: Nanoseconds) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.window = 1.0;
        self.recovery = self.next;
        self.flight.clear();
        self.backoff += 1;
        self.timeouts += 1;
        self.timer = None;
        self.restart(now);
    }

    fn restart(&mut self, now: Nanoseconds) {
        let timeout = (self.smoothed + 4 * self.variation).max(LEAST_TIMEOUT) << self.backoff.min(6);
        self.timer = (!self.flight.is_empty()).then_some(now + timeout);
    }
}
