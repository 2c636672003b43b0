//! Calls of one turn, each timed.

use std::time::{Duration, Instant};

/// Calls at a turn's begin that are not counted: a server that slept wakes meanwhile.
const WARM: Duration = Duration::from_millis(20);

/// A turn under way.
pub struct Turn {
    counted: Instant,
    end: Instant,
    last: Instant,
    nanoseconds: Vec<f64>,
}

impl Turn {
    pub fn new(length: Duration) -> Self {
        let counted = Instant::now() + WARM;
        Self { counted, end: counted + length, last: counted, nanoseconds: Vec::with_capacity(1 << 20) }
    }

    /// Whether there is another call to make.
    pub fn goes_on(&self) -> bool {
        self.last < self.end
    }

    /// A call that began then has ended.
    pub fn note(&mut self, begun: Instant) {
        self.last = Instant::now();
        if begun >= self.counted {
            self.nanoseconds.push((self.last - begun).as_nanos() as f64);
        }
    }

    /// Nanoseconds of the call in the middle.
    pub fn p50(self) -> f64 {
        spread(&self.nanoseconds).0
    }
}

/// Nanoseconds of a call that does nothing: what the clock adds to each.
pub fn clock() -> f64 {
    let mut turn = Turn::new(Duration::from_millis(5));
    while turn.goes_on() {
        turn.note(Instant::now());
    }
    turn.p50()
}

/// The median, the least and the largest; not numbers where there are none.
pub fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    (at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1)))
}
