//! Which units are free, and which come next: the ones that have not been used for the longest time.
//!
//! A cursor goes round. Each unit says whether it is taken; a run is taken unit by unit, and let go again if one of them is not
//! free. No thread waits: one that finds a unit taken goes on behind it. A search in vain is remembered until something is given back: a
//! sender that waits for room asks often, and there may be 65,536 units to look at.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of a count of units: 65,536 at most.
const COUNT_BITS: u32 = 17;
const EPOCH: u64 = u64::MAX >> COUNT_BITS;

/// The last search in vain.
#[derive(Default)]
pub struct Vain {
    /// How often units were given back.
    gives: AtomicU64,
    /// That number when the search began, and the length of the shortest run that was not found. 0: there was no such search.
    last: AtomicU64,
}

impl Vain {
    fn epoch(&self) -> u64 {
        // Pairs with the Release of `given`: what was given back before is seen as free.
        self.gives.load(Ordering::Acquire) & EPOCH
    }

    fn given(&self) {
        self.gives.fetch_add(1, Ordering::Release);
    }

    /// The run that was sought in vain since the units were as they are.
    fn sought(&self, epoch: u64) -> Option<usize> {
        let last = self.last.load(Ordering::Relaxed);
        let count = (last & ((1 << COUNT_BITS) - 1)) as usize;
        (count > 0 && last >> COUNT_BITS == epoch).then_some(count)
    }

    /// A search that began at `epoch`, and gave back nothing but its own, has found no run of `count` units.
    fn note(&self, epoch: u64, count: usize) {
        if self.epoch() == epoch && self.sought(epoch).is_none_or(|other| count < other) {
            self.last.store(epoch << COUNT_BITS | count as u64, Ordering::Relaxed);
        }
    }
}

/// The units of a pool.
#[derive(Clone, Copy)]
pub struct Fifo<'a> {
    /// For each unit 1 + the first unit of the run it belongs to, or 0.
    pub taken: &'a [AtomicU32],
    /// Where the next search begins.
    pub cursor: &'a AtomicU32,
    /// What needs no second look.
    pub vain: &'a Vain,
}

impl Fifo<'_> {
    /// Takes a run of `count` units; gives its first.
    pub fn take(&self, count: usize) -> Option<usize> {
        let units = self.taken.len();
        if count == 0 || count > units {
            return None;
        }
        let (epoch, mut own) = (self.vain.epoch(), 0);
        if self.vain.sought(epoch).is_some_and(|sought| sought <= count) {
            return None;
        }
        let mut at = self.cursor.load(Ordering::Relaxed) as usize;
        // Each unit is looked at as a first one once, and those in front of the end as followers again.
        let mut looked = 0;
        while looked < 2 * units {
            if at + count > units {
                looked += units.saturating_sub(at);
                at = 0;
            }
            match self.take_at(at, count) {
                Ok(()) => {
                    self.cursor.store(((at + count) % units) as u32, Ordering::Relaxed);
                    return Some(at);
                }
                Err(blocked) => {
                    own += u64::from(blocked > at);
                    looked += blocked + 1 - at;
                    at = blocked + 1;
                }
            }
        }
        self.vain.note(epoch.wrapping_add(own) & EPOCH, count);
        None
    }

    fn take_at(&self, first: usize, count: usize) -> Result<(), usize> {
        let mark = first as u32 + 1;
        for unit in first..first + count {
            if self.taken[unit].compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed).is_err() {
                if unit > first {
                    // Another thread may have found them taken.
                    self.give(first, unit - first);
                }
                return Err(unit);
            }
        }
        Ok(())
    }

    /// The run is free.
    pub fn give(&self, first: usize, count: usize) {
        for unit in &self.taken[first..first + count] {
            unit.store(0, Ordering::Release);
        }
        self.vain.given();
    }

    /// The first unit of the run that `unit` belongs to.
    pub fn first(&self, unit: usize) -> Option<usize> {
        (self.taken.get(unit)?.load(Ordering::Acquire) as usize).checked_sub(1)
    }

    /// Units that are not taken.
    pub fn free(&self) -> usize {
        self.taken.iter().filter(|unit| unit.load(Ordering::Relaxed) == 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_used_last_comes_last() {
        let (taken, cursor, vain) = (std::array::from_fn::<_, 8, _>(|_| AtomicU32::new(0)), AtomicU32::new(0), Vain::default());
        let fifo = Fifo { taken: &taken, cursor: &cursor, vain: &vain };
        for first in [0, 2, 4, 6, 0] {
            assert_eq!(fifo.take(2), Some(first));
            fifo.give(first, 2);
        }
        assert_eq!((fifo.take(5), fifo.take(3), fifo.take(1)), (Some(2), None, Some(7)));
        assert_eq!((fifo.take(2), fifo.take(1), fifo.take(0), fifo.take(9)), (Some(0), None, None, None));
        assert_eq!((fifo.first(4), fifo.first(8), fifo.free()), (Some(2), None, 0));
    }

    /// Units that are free behind its back are not seen: it does not look.
    #[test]
    fn what_was_sought_in_vain_is_sought_again_when_something_was_given_back() {
        let (taken, cursor, vain) = (std::array::from_fn::<_, 8, _>(|_| AtomicU32::new(0)), AtomicU32::new(0), Vain::default());
        let fifo = Fifo { taken: &taken, cursor: &cursor, vain: &vain };
        assert_eq!((fifo.take(3), fifo.take(3)), (Some(0), Some(3)));
        assert_eq!(fifo.take(3), None, "two are left, which it takes and lets go");
        taken[0..6].iter().for_each(|unit| unit.store(0, Ordering::Relaxed));
        assert_eq!((fifo.take(3), fifo.take(4)), (None, None));
        assert_eq!(fifo.take(2), Some(6), "that was not sought");
        fifo.give(6, 2);
        assert_eq!(fifo.take(3), Some(0));
    }

    /// Whatever other threads do, a run that is free is found by who looks when they have ended.
    #[test]
    fn what_others_let_go_is_found() {
        let (taken, cursor, vain) = (std::array::from_fn::<_, 8, _>(|_| AtomicU32::new(0)), AtomicU32::new(0), Vain::default());
        let fifo = Fifo { taken: &taken, cursor: &cursor, vain: &vain };
        for _ in 0..200 {
            std::thread::scope(|scope| {
                for count in [3, 5, 6, 8] {
                    scope.spawn(move || {
                        for _ in 0..20 {
                            fifo.take(count).into_iter().for_each(|first| fifo.give(first, count));
                        }
                    });
                }
            });
            let all = fifo.take(8);
            assert_eq!(all, Some(0));
            fifo.give(0, 8);
        }
    }

    proptest! {
        #[test]
        fn runs_never_overlap_and_room_is_found(steps in prop::collection::vec((1usize..5, any::<bool>()), 1..80)) {
            let (taken, cursor, vain) = (std::array::from_fn::<_, 16, _>(|_| AtomicU32::new(0)), AtomicU32::new(0), Vain::default());
            let fifo = Fifo { taken: &taken, cursor: &cursor, vain: &vain };
            let mut held: Vec<(usize, usize)> = Vec::new();
            for (count, take) in steps {
                if take {
                    let used = |unit: usize| held.iter().any(|(first, count)| (*first..first + count).contains(&unit));
                    let room = (0..=16 - count).any(|first| (first..first + count).all(|unit| !used(unit)));
                    let taken = fifo.take(count);
                    prop_assert_eq!(taken.is_some(), room);
                    if let Some(first) = taken {
                        prop_assert!((first..first + count).all(|unit| !used(unit)));
                        held.push((first, count));
                    }
                } else if !held.is_empty() {
                    let (first, count) = held.remove(0);
                    fifo.give(first, count);
                }
            }
            prop_assert_eq!(fifo.free(), 16 - held.iter().map(|run| run.1).sum::<usize>());
        }
    }
}
