//! How streams are best stored, and in which ring, by what their bytes cost all told. Messages that find the ring empty are
//! [`crate::distance`]'s.
//!
//! *Stores.* A message of some KiB says little of itself: its stores wait in a buffer, and it is the next one that waits for them.
//! So from one 32 KiB of a stream to the next the clock is read once, and what passed is taken for both ends. Plain stores are the
//! rule. Now and then a few lengths are sent past the caches, which between distant processors is six times as fast, and slower
//! between others; if they took less time it stays so, until plain ones are tried in turn.
//!
//! *The ring.* A reader close behind its sender takes each line from the sender's own cache. Where that is smaller than the ring of
//! 1 MiB, and what leaves it lies in a cache that both share, a reader far behind is five times as fast. A sender does not get
//! that far ahead by itself: in a small ring it waits for lines that the reader still has. So one that has streamed for a while
//! has the largest ring.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use shunt_sys::processor;

/// Shorter messages of a stream are not timed: past the caches they would wait for their fences.
pub const TIMED: usize = 1024;
/// Bytes between two readings of the clock, a power of two.
pub const LENGTH: u64 = 32 << 10;

/// Ticks of a length above which something else was waited for: 0.25 GB/s or so.
const LONGEST: u64 = 10 * LENGTH;
/// Lengths that plain stores take to show what they can do, of which the second half counts: two laps of the largest ring.
const PLAIN: u32 = 256;
/// The same past the caches.
const PAST: u32 = 16;
/// Lengths between two tries: 16 MiB, then twice as many each time, up to 512 MiB.
const REST: u32 = 512;
const LONGEST_REST: u32 = 16_384;

/// Of one direction: private memory.
pub struct Streamed {
    /// Ticks of a length, an average of some; 0: not known. Plain, and past the caches.
    cost: [AtomicU32; 2],
    past: AtomicU32,
    /// The way of now is a try.
    is_try: AtomicU32,
    /// Lengths until another way is taken.
    left: AtomicU32,
    /// Length of the next rest from trying.
    rest: AtomicU32,
    /// Where and when the clock was read last.
    position: AtomicU64,
    ticks: AtomicU64,
    /// The same of the last look at how far the reader is, and the bytes that have gone fast since the last pause.
    looked_at: AtomicU64,
    looked: AtomicU64,
    fast: AtomicU64,
}

impl Streamed {
    /// Nothing known.
    pub const fn new() -> Streamed {
        Streamed {
            cost: [AtomicU32::new(0), AtomicU32::new(0)],
            past: AtomicU32::new(0),
            is_try: AtomicU32::new(0),
            left: AtomicU32::new(PLAIN),
            rest: AtomicU32::new(REST),
            position: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            fast: AtomicU64::new(0),
        }
    }

    /// Nothing is known any more: the ring is for another reader.
    pub fn forget(&self) {
        self.cost.iter().for_each(|cost| cost.store(0, Relaxed));
        self.enter(0, false, PLAIN);
        self.rest.store(REST, Relaxed);
        self.fast.store(0, Relaxed);
        // Positions begin anew.
        self.looked_at.store(0, Relaxed);
        self.looked.store(0, Relaxed);
    }

    /// Whether messages go past the caches now.
    #[inline(always)]
    pub fn past_caches(&self) -> bool {
        self.past.load(Relaxed) != 0
    }

    /// A length of the stream ends at `position`, `now`.
    pub fn length_ended(&self, position: u64, now: u64) {
        let bytes = position.wrapping_sub(self.position.load(Relaxed));
        let ticks = now.wrapping_sub(self.ticks.load(Relaxed));
        self.position.store(position, Relaxed);
        self.ticks.store(now, Relaxed);
        if (LENGTH / 2..2 * LENGTH).contains(&bytes) && ticks < LONGEST {
            self.note(ticks * LENGTH / bytes);
        }
    }

    fn note(&self, ticks: u64) {
        let (past, trying) = (self.past.load(Relaxed), self.is_try.load(Relaxed) != 0);
        let cost = &self.cost[past as usize];
        let new = match cost.load(Relaxed) {
            0 => ticks as u32,
            old => (7 * old + (ticks as u32).min(2 * old)) / 8,
        };
        cost.store(new.max(1), Relaxed);
        let left = self.left.load(Relaxed).saturating_sub(1);
        self.left.store(left, Relaxed);
        let whole = if past != 0 { PAST } else { PLAIN };
        if trying && left == whole / 2 {
            cost.store(0, Relaxed);
        } else if left == 0 {
            match trying {
                true => self.decide(past),
                false => self.try_other(past),
            }
        }
    }

    fn try_other(&self, past: u32) {
        self.cost[1 - past as usize].store(0, Relaxed);
        self.enter(1 - past, true, if past != 0 { PLAIN } else { PAST });
    }

    /// Past the caches only for an eighth or more.
    fn decide(&self, past: u32) {
        let [plain_cost, past_cost] = self.cost.each_ref().map(|cost| cost.load(Relaxed) as u64);
        let best = (past_cost * 8 < plain_cost * 7) as u32;
        let rest = if best == past { REST } else { (2 * self.rest.load(Relaxed)).min(LONGEST_REST) };
        self.rest.store(rest, Relaxed);
        self.enter(best, false, rest);
    }

    fn enter(&self, past: u32, trying: bool, lengths: u32) {
        self.left.store(lengths, Relaxed);
        self.is_try.store(trying as u32, Relaxed);
        self.past.store(past, Relaxed);
    }

    /// A sender at `position` has looked how far its reader is, since it knew of no room, `now`: whether it has streamed for more
    /// than `most` bytes, the processor's own cache being smaller.
    pub fn is_for_largest(&self, position: u64, now: u64, most: usize) -> bool {
        let bytes = position.wrapping_sub(self.looked_at.swap(position, Relaxed));
        let ticks = now.wrapping_sub(self.looked.swap(now, Relaxed));
        let fast = if ticks / 10 < bytes { self.fast.load(Relaxed).saturating_add(bytes) } else { 0 };
        self.fast.store(fast, Relaxed);
        fast > most as u64 && processor::cache_is_smaller_than(most)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Streams `lengths`, each of which takes what `cost` says, plain and past; gives how many went past the caches.
    fn stream(streamed: &Streamed, lengths: u32, cost: [u64; 2]) -> u32 {
        let mut past = 0;
        for _ in 0..lengths {
            let way = streamed.past_caches();
            past += u32::from(way);
            let (position, ticks) = (streamed.position.load(Relaxed), streamed.ticks.load(Relaxed));
            streamed.length_ended(position + LENGTH, ticks + cost[usize::from(way)]);
        }
        past
    }

    #[test]
    fn the_cheaper_way_is_taken() {
        let streamed = Streamed::new();
        assert_eq!(stream(&streamed, PLAIN, [8000, 40_000]), 0, "plain is the rule");
        let past = stream(&streamed, 100_000, [8000, 40_000]);
        assert!(past > 0 && past < 12 * PAST, "{past} were tried in vain");
        let plain = 100_000 - stream(&Streamed::new(), 100_000, [40_000, 8000]);
        assert!(plain < 14 * PLAIN, "{plain} were plain");
        assert!(stream(&Streamed::new(), 100_000, [8000, 7900]) < 12 * PAST, "no gain");
    }

    #[test]
    fn a_change_of_distance_is_noticed() {
        let streamed = Streamed::new();
        stream(&streamed, 100_000, [8000, 20_000]);
        assert!(stream(&streamed, 2 * LONGEST_REST, [60_000, 20_000]) > LONGEST_REST / 2);
        stream(&streamed, 2 * LONGEST_REST, [8000, 20_000]);
        assert!(stream(&streamed, LONGEST_REST, [8000, 20_000]) <= 2 * PAST);
    }

    #[test]
    fn pauses_say_nothing() {
        let streamed = Streamed::new();
        assert_eq!(stream(&streamed, 100_000, [LONGEST, 1]), 0);
    }

    #[test]
    fn only_what_is_fast_for_long_has_the_largest_ring() {
        let streamed = Streamed::new();
        let ring = 1 << 22;
        let laps = |from: u64, laps: u64, ticks: u64| {
            (0..laps).filter(|lap| streamed.is_for_largest((from + lap) * 65536, (from + lap) * ticks, ring)).count()
        };
        assert_eq!(laps(1, 100, 100 * 65536), 0, "slow");
        assert_eq!(laps(101, 64, 65536), 0, "not for long");
        assert_eq!(laps(165, 10, 65536) > 0, processor::cache_is_smaller_than(ring));
        // The next connection in the same memory has no part in that.
        streamed.forget();
        assert!(!streamed.is_for_largest(1024, 176 * 65536, ring));
    }
}
