//! What has arrived behind gaps: up to 16 ranges, the last one that grew first (RFC 2018, section 4).

use crate::header::Blocks;
use crate::sequence::Seq;

/// Ranges that are kept. A segment tells of four at the most, and a queue that overflows makes more gaps than that: with four kept, what
/// lay behind the fourth was thrown away, and a flight that lost 14 packets waited for time-outs.
const MOST: usize = 16;

/// Ranges of bytes behind a gap. They neither touch nor overlap each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ranges {
    /// The one that grew last is the first.
    ranges: [(Seq, Seq); MOST],
    count: usize,
}

impl Ranges {
    /// Whether nothing is kept.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a range; false if there is no room for one that touches none of the others.
    #[must_use]
    pub fn add(&mut self, mut start: Seq, mut end: Seq) -> bool {
        let mut kept = [(Seq(0), Seq(0)); MOST];
        let mut count = 0;
        for &(from, to) in &self.ranges[..self.count] {
            if from.after(end) || to.before(start) {
                kept[count] = (from, to);
                count += 1;
            } else {
                start = start.earliest(from);
                end = end.latest(to);
            }
        }
        if count == MOST {
            return false;
        }
        self.ranges[0] = (start, end);
        self.ranges[1..=count].copy_from_slice(&kept[..count]);
        self.count = count + 1;
        true
    }

    /// The place up to which all has come, if it has up to `next`; what lies before that is forgotten.
    pub fn advance(&mut self, mut next: Seq) -> Seq {
        // They do not touch each other, so one at the most begins before `next` and ends behind it.
        for &(from, to) in &self.ranges[..self.count] {
            if !from.after(next) && to.after(next) {
                next = to;
                break;
            }
        }
        let mut count = 0;
        for index in 0..self.count {
            if self.ranges[index].0.after(next) {
                self.ranges[count] = self.ranges[index];
                count += 1;
            }
        }
        self.count = count;
        next
    }

    /// Whether all of a range has come already.
    pub fn holds(&self, start: Seq, end: Seq) -> bool {
        self.ranges[..self.count].iter().any(|&(from, to)| !from.after(start) && !to.before(end))
    }

    /// Adds them to a segment's, the last one that grew first.
    pub fn tell(&self, blocks: &mut Blocks) {
        for &(start, end) in &self.ranges[..self.count] {
            blocks.push(start, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// More than twelve adds of eleven places each reach, from the last place at which one may start.
    const PLACES: usize = 60 + 12 * 11;

    proptest! {
        /// Held against a set of single places, across the end of the numbers.
        #[test]
        fn as_a_set_of_places(adds in proptest::collection::vec((0u32..60, 1u32..12), 0..12)) {
            let origin = Seq(u32::MAX - 20);
            let mut ranges = Ranges::default();
            let mut places = [false; PLACES];
            let mut next = 0usize;
            for (start, length) in adds {
                let (start, end) = (start.max(next as u32), start.max(next as u32) + length);
                let (from, to) = (origin.plus(start), origin.plus(end));
                let held = (start..end).all(|place| places[place as usize]);
                prop_assert_eq!(ranges.holds(from, to), held);
                if ranges.add(from, to) {
                    places[start as usize..end as usize].fill(true);
                }
                next += places[next..].iter().take_while(|&&place| place).count();
                prop_assert_eq!(ranges.advance(origin.plus(next as u32)), origin.plus(next as u32));
                let mut told = [false; PLACES];
                for (from, to) in &ranges.ranges[..ranges.count] {
                    told[from.since(origin) as usize..to.since(origin) as usize].fill(true);
                }
                prop_assert_eq!(&told[next..], &places[next..]);
                let mut blocks = Blocks::default();
                ranges.tell(&mut blocks);
                prop_assert_eq!(blocks.as_slice(), &ranges.ranges[..ranges.count.min(4)]);
            }
        }
    }
}
