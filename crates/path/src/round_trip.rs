//! The smoothed round-trip time and the retransmission time-out: RFC 6298, in nanoseconds.

use crate::{Nanoseconds, MICROSECOND, MILLISECOND};
use bytemuck::{Pod, Zeroable};

/// Between what a time-out lies, and what it is before the first measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// None is shorter: the receiver's delay of acknowledgements and its scheduler.
    pub least: Nanoseconds,
    /// None is longer, however often it was doubled (RFC 6298, 2.5), but for `least`.
    pub most: Nanoseconds,
    /// Before the first measurement (RFC 6298, 2.1).
    pub initial: Nanoseconds,
}

/// What is known of the path's delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RoundTrip {
    /// SRTT; 0 before the first measurement.
    pub smoothed: Nanoseconds,
    /// RTTVAR.
    pub variation: Nanoseconds,
    /// The least measured.
    pub least: Nanoseconds,
}

impl RoundTrip {
    /// One measurement. Frames carry time stamps, so retransmitted packets measure too (RFC 7323 section 4, instead of
    /// Karn's rule).
    pub fn measure(&mut self, sample: Nanoseconds) {
        let sample = sample.max(MICROSECOND);
        if self.smoothed == 0 {
            *self = Self { smoothed: sample, variation: sample / 2, least: sample };
            return;
        }
        self.variation = (self.variation * 3 + self.smoothed.abs_diff(sample)) / 4;
        self.smoothed = (self.smoothed * 7 + sample) / 8;
        self.least = self.least.min(sample);
    }

    /// RTO, doubled `backoff` times (section 5.5).
    #[must_use]
    pub fn timeout(&self, bounds: Bounds, backoff: u32) -> Nanoseconds {
        let base = if self.smoothed == 0 { bounds.initial } else { self.smoothed + self.variation * 4 };
        (base.max(bounds.least) << backoff.min(16)).min(bounds.most.max(bounds.least))
    }

    /// SRTT, or what stands for it before the first measurement.
    #[must_use]
    pub fn estimate(&self) -> Nanoseconds {
        if self.smoothed == 0 {
            MILLISECOND
        } else {
            self.smoothed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_samples_as_in_the_rfc() {
        let bounds = |least| Bounds { least, most: 2_000 * MILLISECOND, initial: 100 * MILLISECOND };
        let mut path = RoundTrip::default();
        assert_eq!(path.timeout(bounds(MILLISECOND), 0), 100 * MILLISECOND);
        path.measure(80 * MICROSECOND);
        assert_eq!((path.smoothed, path.variation), (80 * MICROSECOND, 40 * MICROSECOND));
        path.measure(160 * MICROSECOND);
        assert_eq!(path.smoothed, 90 * MICROSECOND);
        assert_eq!(path.variation, 50 * MICROSECOND);
        assert_eq!(path.timeout(bounds(MICROSECOND), 0), 290 * MICROSECOND);
        assert_eq!(path.timeout(bounds(MICROSECOND), 2), 1160 * MICROSECOND);
        assert_eq!(path.timeout(bounds(MILLISECOND), 60), 2_000 * MILLISECOND);
    }
}
