//! Which stores bring long messages and streams to a reader on another processor soonest.
//!
//! A plain store asks for the line that the reader still has. Between near processors that is the cheapest way, as the
//! line stays in a cache they share; between distant ones it is what a copy takes its time for, and stores that go past the
//! caches ask no other one. How far apart two processors are a program is not told, and in a virtual machine it changes while it
//! runs: so a sender times its chunks.
//!
//! Plain stores show what they can do only when the lines of a whole ring are in the caches again, so they are tried for
//! two laps, of which the second counts. Tries that fail become rare.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What a chunk of a long message costs its sender, either way, in rings of one kind of one direction: private memory. Several
/// owners of the direction may each have their own.
pub struct Distance {
    /// Ticks for a chunk, an average of some; 0: not measured. Through the caches, and past them.
    cost: [AtomicU32; 2],
    phase: AtomicU32,
    /// Chunks to the end of the phase.
    left: AtomicU32,
    /// Length of the next rest from trying.
    rest: AtomicU32,
}

/// Past the caches, until plain stores are tried again.
const PAST: u32 = 0;
/// Plain stores are tried.
const TRIAL: u32 = 1;
/// Plain stores, while they cost no more.
const THROUGH: u32 = 2;

/// Chunks by which the cost past the caches is known, behind as many that touch a ring's pages for the first time.
const FIRST: u32 = 8;
/// Chunks of a lap of the largest ring.
const LAP: u32 = 128;
/// Chunks between two tries: 16 MiB, then twice as many each time, up to 512 MiB.
const REST: u32 = 4 * LAP;
const LONGEST_REST: u32 = 128 * LAP;

impl Distance {
    /// Nothing known.
    pub const fn new() -> Distance {
        Distance {
            cost: [AtomicU32::new(0), AtomicU32::new(0)],
            phase: AtomicU32::new(PAST),
            left: AtomicU32::new(2 * FIRST),
            rest: AtomicU32::new(REST),
        }
    }

    /// Nothing is known any more: the ring is for another reader.
    pub fn forget(&self) {
        if self.left.load(Relaxed) == 2 * FIRST && self.cost[1].load(Relaxed) == 0 {
            return;
        }
        let [through, past] = &self.cost;
        through.store(0, Relaxed);
        past.store(0, Relaxed);
        self.rest.store(REST, Relaxed);
        self.enter(PAST, 2 * FIRST);
    }

    /// Whether the next chunk goes past the caches.
    pub fn past_caches(&self) -> bool {
        self.phase.load(Relaxed) == PAST
    }

    /// A chunk took `ticks` of the time stamp counter. A chunk during which the sender lost its processor says little.
    pub fn note(&self, past_caches: bool, ticks: u64) {
        let [through, past] = &self.cost;
        average(if past_caches { past } else { through }, ticks);
        let left = self.left.load(Relaxed).saturating_sub(1);
        self.left.store(left, Relaxed);
        let (through_cost, past_cost) = (through.load(Relaxed), past.load(Relaxed));
        match self.phase.load(Relaxed) {
            PAST if left == 0 => {
                through.store(0, Relaxed);
                self.enter(TRIAL, 2 * LAP);
            }
            PAST if left == FIRST => past.store(0, Relaxed),
            PAST => {}
            TRIAL => {
                let hopeless = left < 2 * LAP - FIRST && through_cost > past_cost.saturating_mul(3);
                if hopeless || (left == 0 && through_cost > past_cost) {
                    self.give_up();
                } else if left == LAP {
                    through.store(0, Relaxed);
                } else if left == 0 {
                    self.rest.store(REST, Relaxed);
                    self.enter(THROUGH, 0);
                }
            }
            _ if through_cost > past_cost.saturating_add(past_cost / 4) => self.give_up(),
            _ => {}
        }
    }

    fn give_up(&self) {
        let rest = self.rest.load(Relaxed);
        self.rest.store((2 * rest).min(LONGEST_REST), Relaxed);
        self.enter(PAST, rest);
    }

    fn enter(&self, phase: u32, chunks: u32) {
        self.left.store(chunks, Relaxed);
        self.phase.store(phase, Relaxed);
    }
}

/// One slow chunk moves it by an eighth at most.
fn average(cost: &AtomicU32, ticks: u64) {
    let ticks = ticks.clamp(1, 1 << 24) as u32;
    let new = match cost.load(Relaxed) {
        0 => ticks,
        old => (7 * old + ticks.min(2 * old)) / 8,
    };
    cost.store(new.max(1), Relaxed);
}

impl Default for Distance {
    fn default() -> Self {
        Distance::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `chunks`, each of which takes what `cost` says; gives how many went past the caches.
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
    fn the_cheaper_way_is_taken() {
        assert_eq!(send(&Distance::new(), 10_000, [700, 2800]), 2 * FIRST);
        let through = 10_000 - send(&Distance::new(), 10_000, [12_000, 2800]);
        assert!(through < 5 * 2 * FIRST, "{through} chunks were tried in vain");
        let through = 100_000 - send(&Distance::new(), 100_000, [4000, 2800]);
        assert!(through < 100_000 / 20, "{through} chunks were tried in vain");
    }

    #[test]
    fn the_second_lap_counts() {
        let distance = Distance::new();
        send(&distance, 2 * FIRST, [6000, 2800]);
        assert_eq!(send(&distance, LAP, [6000, 2800]), 0);
        assert_eq!(send(&distance, 10_000, [700, 2800]), 0);
    }

    #[test]
    fn a_change_of_distance_is_noticed() {
        let distance = Distance::new();
        send(&distance, 1000, [700, 2800]);
        assert!(send(&distance, 100, [7800, 2800]) > 50);
        send(&distance, 2 * LONGEST_REST, [7800, 2800]);
        send(&distance, LONGEST_REST + 2 * LAP, [700, 2800]);
        assert_eq!(send(&distance, 1000, [700, 2800]), 0);
    }

    #[test]
    fn one_slow_chunk_changes_nothing() {
        let distance = Distance::new();
        send(&distance, 1000, [2700, 2800]);
        distance.note(false, u64::MAX);
        assert_eq!(send(&distance, 1000, [2700, 2800]), 0);
    }
}
