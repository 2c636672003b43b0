//! Which units are free, and which come next: the ones that have not been used for the longest time.
//!
//! A cursor goes round. Each unit says whether it is taken; a run is taken unit by unit, and let go again if one of them is not
//! free. No thread waits: one that finds a unit taken goes on behind it.

use core::sync::atomic::{AtomicU32, Ordering};

/// The units of a pool.
#[derive(Clone, Copy)]
pub struct Fifo<'a> {
    /// For each unit 1 + the first unit of the run it belongs to, or 0.
    pub taken: &'a [AtomicU32],
    /// Where the next search begins.
    pub cursor: &'a AtomicU32,
}

impl Fifo<'_> {
    /// Takes a run of `count` units; gives its first.
    pub fn take(&self, count: usize) -> Option<usize> {
        let units = self.taken.len();
        if count == 0 || count > units {
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
                    looked += blocked + 1 - at;
                    at = blocked + 1;
                }
            }
        }
        None
    }

    fn take_at(&self, first: usize, count: usize) -> Result<(), usize> {
        let mark = first as u32 + 1;
        for unit in first..first + count {
            if self.taken[unit].compare_exchange(0, mark, Ordering::Acquire, Ordering::Relaxed).is_err() {
                self.give(first, unit - first);
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
        let (taken, cursor) = (std::array::from_fn::<_, 8, _>(|_| AtomicU32::new(0)), AtomicU32::new(0));
        let fifo = Fifo { taken: &taken, cursor: &cursor };
        for first in [0, 2, 4, 6, 0] {
            assert_eq!(fifo.take(2), Some(first));
            fifo.give(first, 2);
        }
        assert_eq!((fifo.take(5), fifo.take(3), fifo.take(1)), (Some(2), None, Some(7)));
        assert_eq!((fifo.take(2), fifo.take(1), fifo.take(0), fifo.take(9)), (Some(0), None, None, None));
        assert_eq!((fifo.first(4), fifo.first(8), fifo.free()), (Some(2), None, 0));
    }

    proptest! {
        #[test]
        fn runs_never_overlap_and_room_is_found(steps in prop::collection::vec((1usize..5, any::<bool>()), 1..80)) {
            let (taken, cursor) = (std::array::from_fn::<_, 16, _>(|_| AtomicU32::new(0)), AtomicU32::new(0));
            let fifo = Fifo { taken: &taken, cursor: &cursor };
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
