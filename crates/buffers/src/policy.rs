//! Which way a message takes, where the semantics leave a choice: by measured costs, and by what has happened to the buffer.

use crate::costs::Costs;
use crate::learned::{Against, Learned, Turn};
use shunt_region::Limit;

/// How an output with strong integrity, of an application's buffer, is realised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Realisation {
    /// Copied; with the reason.
    Copy(Limit),
    /// Pulled by the receiver while the call lasts.
    Waiting,
    /// By reference, with writing taken away.
    Tcow,
}

/// The thresholds that follow from costs, and what is remembered of buffers.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Shorter ones are copied.
    pub waiting_from: usize,
    /// From here on writing is taken away, if the program asked for calls that return at once.
    pub tcow_from: usize,
    /// From here on a shared region is passed by reference.
    pub share_from: usize,
    /// Which of two ways is cheaper is learned from what messages take; the thresholds say what is likely. Else they decide.
    pub learns: bool,
    learned: Learned,
    restraint: [Restraint; BUFFERS],
}

/// Shorter messages are always copied: that is over before anything could be gained.
const LEAST: usize = 2 << 10;
/// Buffers that are remembered, by their region.
const BUFFERS: usize = 64;
/// How often a buffer is copied after its first fault.
const FIRST: u16 = 16;
const MOST: u16 = 1 << 14;

#[derive(Clone, Copy, Debug, Default)]
struct Restraint {
    region: u32,
    generation: u32,
    left: u16,
    last: u16,
}

impl Policy {
    /// By `costs`.
    pub fn new(costs: &Costs) -> Policy {
        let sizes = || (10..24).map(|power| 1usize << power);
        let from = |better: &dyn Fn(usize) -> bool| {
            sizes().find(|size| sizes().all(|other| other < *size || better(other))).unwrap_or(usize::MAX)
        };
        // Two copies that overlap take as long as one and a chunk of 16 KiB; one copy by two has a hand-shake on top.
        let overlapped = |size: usize| costs.copying(size) + costs.copying(size.min(16 << 10));
        let waiting_from = costs
            .waiting_from
            .unwrap_or_else(|| from(&|size| costs.copying(size) * 0.6 + 2.0 * costs.base.at(0) < overlapped(size)));
        let tcow_from =
            from(&|size| costs.read_only.at(size) + costs.reference.at(size) + costs.fault.at(size) < costs.copying(size));
        Policy {
            waiting_from,
            tcow_from,
            share_from: from(&|size| costs.reference.at(size) < costs.copying(size)),
            learns: false,
            learned: Learned::new(|against, length| length >= if against == Against::Waiting { waiting_from } else { tcow_from }),
            restraint: [Restraint::default(); BUFFERS],
        }
    }

    /// As [`Policy::choose`], by what messages like this have cost; and whether this one is to be timed, for [`Policy::note`].
    pub fn choose_learning(&mut self, region: usize, generation: u32, length: usize, against: Against) -> (Realisation, bool) {
        let defer = against != Against::Waiting;
        if !self.learns {
            return (self.choose(region, generation, length, defer), false);
        }
        if length < LEAST {
            return (Realisation::Copy(Limit::Short), false);
        }
        if defer && self.is_restrained(region, generation) {
            return (Realisation::Copy(Limit::Rewritten), false);
        }
        let Turn { other, timed } = self.learned.next(against, length);
        let realisation = match (other, defer) {
            (false, _) => Realisation::Copy(Limit::Short),
            (true, false) => Realisation::Waiting,
            (true, true) => Realisation::Tcow,
        };
        (realisation, timed)
    }

    /// What a message took that was to be timed, in nanoseconds: copied, or by the `other` way.
    pub fn note(&mut self, against: Against, length: usize, other: bool, nanoseconds: f32) {
        self.learned.note(against, length, other, nanoseconds);
    }

    /// What copying such a message takes, as far as it is known: else 0.
    pub fn copied(&self, against: Against, length: usize) -> f32 {
        self.learned.copied(against, length)
    }

    /// Whether the buffer is copied for a while; counts that down.
    fn is_restrained(&mut self, region: usize, generation: u32) -> bool {
        let entry = &mut self.restraint[region % BUFFERS];
        let is = (entry.region, entry.generation) == (region as u32, generation) && entry.left > 0;
        entry.left -= is as u16;
        is
    }

    /// For `length` bytes of a region, by the thresholds. `defer`: the call is to return at once.
    pub fn choose(&mut self, region: usize, generation: u32, length: usize, defer: bool) -> Realisation {
        if length < self.waiting_from.min(self.tcow_from) {
            return Realisation::Copy(Limit::Short);
        }
        if defer && length >= self.tcow_from {
            return match self.is_restrained(region, generation) {
                true => Realisation::Copy(Limit::Rewritten),
                false => Realisation::Tcow,
            };
        }
        match length >= self.waiting_from && !defer {
            true => Realisation::Waiting,
            false => Realisation::Copy(Limit::Short),
        }
    }

    /// The buffer was written while its output was under way: the next are copied, each time twice as many.
    pub fn rewritten(&mut self, region: usize, generation: u32) {
        let entry = &mut self.restraint[region % BUFFERS];
        let known = (entry.region, entry.generation) == (region as u32, generation);
        let next = if known && entry.last > 0 { (entry.last * 2).min(MOST) } else { FIRST };
        *entry = Restraint { region: region as u32, generation, left: next, last: next };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewritten_buffer_is_copied_for_a_while_and_then_twice_as_long() {
        let mut policy = Policy::new(&Costs::USUAL);
        policy.tcow_from = 1;
        assert_eq!(policy.choose(3, 1, 1 << 20, true), Realisation::Tcow);
        for times in [16, 32] {
            policy.rewritten(3, 1);
            for _ in 0..times {
                assert_eq!(policy.choose(3, 1, 1 << 20, true), Realisation::Copy(Limit::Rewritten));
            }
            assert_eq!(policy.choose(3, 1, 1 << 20, true), Realisation::Tcow);
        }
        assert_eq!(policy.choose(3, 2, 1 << 20, true), Realisation::Tcow);
    }

    #[test]
    fn thresholds_are_where_costs_cross() {
        let policy = Policy::new(&Costs::USUAL);
        assert!(policy.share_from <= 4096 && policy.waiting_from <= 64 << 10 && policy.tcow_from > policy.waiting_from);
    }
}
