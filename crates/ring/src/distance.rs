//! Which stores bring long messages and streams to a reader on another processor soonest.
//!
//! A plain store asks for the line that the reader still has. Between near processors that is the cheapest way, as the
//! line stays in a cache they share; between distant ones it is what a copy takes its time for, and stores that go
//! past the caches ask nobody. How far apart two processors are nobody tells a program, and in a virtual machine it
//! changes while it runs: so each way is timed, and from time to time the one that is not in use.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What a chunk of a long message costs its sender, either way, in one direction: private memory. Several owners of the
/// direction may each have their own.
pub struct Distance {
    /// Ticks for a chunk, an average of some; 0: not measured. Through the caches, and past them.
    cost: [AtomicU32; 2],
    chunks: AtomicU32,
}

/// The way not in use is tried for one chunk of these: 4 MiB.
const TRIED_EVERY: u32 = 128;

impl Distance {
    /// Nothing known.
    pub const fn new() -> Distance {
        Distance { cost: [AtomicU32::new(0), AtomicU32::new(0)], chunks: AtomicU32::new(0) }
    }

    /// Whether the next chunk goes past the caches.
    pub fn past_caches(&self) -> bool {
        let [through, past] = [self.cost[0].load(Relaxed), self.cost[1].load(Relaxed)];
        if through == 0 || past == 0 {
            return through != 0;
        }
        (past < through) != self.chunks.load(Relaxed).is_multiple_of(TRIED_EVERY)
    }

    /// A chunk took `ticks` of the time stamp counter. A chunk during which the sender lost its processor says little.
    pub fn note(&self, past_caches: bool, ticks: u64) {
        let cost = &self.cost[usize::from(past_caches)];
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX).clamp(1, 1 << 24);
        let average = match cost.load(Relaxed) {
            0 => ticks,
            old => (3 * old + ticks.min(4 * old)) / 4,
        };
        cost.store(average.max(1), Relaxed);
        self.chunks.store(self.chunks.load(Relaxed).wrapping_add(1), Relaxed);
    }
}

impl Default for Distance {
    fn default() -> Self {
        Distance::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `chunks` of a message, each of which takes what `cost` says; gives how many went past the caches.
    fn send(distance: &Distance, chunks: u32, cost: [u64; 2]) -> u32 {
        let mut past = 0;
        for _ in 0..chunks {
            let way = distance.past_caches();
            past += u32::from(way);
            distance.note(way, cost[usize::from(way)]);
        }
        past
    }

    #[test]
    fn the_cheaper_way_is_taken_and_the_other_one_tried() {
        let near = Distance::new();
        assert!((8..=9).contains(&send(&near, 1024, [700, 2800])));
        let far = Distance::new();
        assert!((1015..=1016).contains(&send(&far, 1024, [7800, 2800])));
    }

    #[test]
    fn a_change_of_distance_is_noticed() {
        let distance = Distance::new();
        send(&distance, 1024, [7800, 2800]);
        send(&distance, 1024, [700, 2800]);
        assert!(send(&distance, 1024, [700, 2800]) <= 9);
        send(&distance, 16, [7800, 2800]);
        assert!(send(&distance, 1024, [7800, 2800]) >= 1015);
    }

    #[test]
    fn one_slow_chunk_changes_nothing_for_long() {
        let distance = Distance::new();
        send(&distance, 1000, [1000, 2800]);
        distance.note(false, u64::MAX);
        assert!(send(&distance, 1000, [1000, 2800]) <= 9);
    }
}
