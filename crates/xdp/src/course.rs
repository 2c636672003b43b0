//! The course of a connection that is taken: how often something moved, how much, and whether the kernel does it better.

use crate::cause::Cause;

/// A connection at which nothing has moved for so long is given back (ns): the kernel asks for its peer, and keeps its place for longer.
const IDLE: u64 = 10_000_000_000;
/// Bytes of a turn that are much, and of which the kernel carries the rest.
const MUCH: u32 = 16 << 10;
const BULK: u64 = 1 << 20;
/// A round trip is long (ns) where what is saved at its ends is little, and the ten packets of the engine's window are few.
const LONG: u64 = 1_000_000;

/// Of one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Course {
    /// When something moved last (ns).
    moved: u64,
    /// Turns in which something did.
    pub turns: u32,
    /// Bytes moved in turns that found much, less what others found.
    bulk: u64,
    /// When the round trip began that is looked at, and bytes that have moved in it.
    round: (u64, u32),
    is_held_up: bool,
    /// Turns after which it is over, in tests.
    most: u32,
}

/// Powers of two below which [`drawn`] draws.
const POWERS: u32 = 8;

/// After how many turns a connection of a test is given back, 0 to 127 and few more often: by a seed, and a number that tells it from others. Without a seed, never.
pub fn drawn(seed: u32, number: u32) -> u32 {
    if seed == 0 {
        return u32::MAX;
    }
    let mixed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0xc2b2_ae35);
    (mixed >> 12) % (1 << ((mixed >> 4) % POWERS))
}

impl Course {
    /// One that begins now.
    pub fn new(now: u64) -> Course {
        Course { moved: now, turns: 0, bulk: 0, round: (now, 0), is_held_up: false, most: u32::MAX }
    }

    /// The same, over after `most` turns.
    pub fn at_most(self, most: u32) -> Course {
        Course { most, ..self }
    }

    /// A turn. `moved`: bytes that the program sent or took; `held`: those that stand ahead of the peer, or of the program; `any`: something else moved.
    pub fn turn(&mut self, moved: u32, held: u32, any: bool, round_trip: u64, now: u64) {
        if any || moved > 0 {
            self.moved = now;
            self.turns += 1;
        }
        // Where much stands the kernel has fewer calls for it.
        self.bulk = match held {
            much if much >= MUCH => self.bulk + u64::from(moved),
            _ => self.bulk.saturating_sub(u64::from(MUCH)),
        };
        // Windows that grow are the kernel's affair: on a long way those here hold bulk up.
        if now >= self.round.0 + round_trip {
            self.round = (now, 0);
        }
        self.round.1 = self.round.1.saturating_add(moved);
        self.is_held_up |= round_trip >= LONG && self.round.1 >= MUCH;
    }

    /// Why the kernel does better from now on, if it does.
    pub fn over(&self, now: u64) -> Option<Cause> {
        match () {
            () if self.bulk > BULK || self.is_held_up => Some(Cause::Bulk),
            () if self.turns >= self.most => Some(Cause::Drawn),
            () if now >= self.idle() => Some(Cause::Idle),
            () => None,
        }
    }

    /// When it is over if nothing moves (ns).
    pub fn idle(&self) -> u64 {
        self.moved + IDLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_is_much_near_by_and_little_far_away() {
        let (mut near, mut far) = (Course::new(0), Course::new(0));
        for turn in 0..4 {
            near.turn(10_000, 20_000, false, 20_000, turn * 1000);
            far.turn(5_000, 100, false, LONG, turn * 1000);
            assert_eq!((near.over(turn * 1000), far.over(turn * 1000)), (None, (turn == 3).then_some(Cause::Bulk)));
        }
        (4..120).for_each(|turn| near.turn(10_000, 20_000, false, 20_000, turn * 1000));
        assert_eq!(near.over(120_000), Some(Cause::Bulk));
    }

    #[test]
    fn requests_and_answers_are_no_bulk_and_an_idle_one_is_over() {
        let mut course = Course::new(0);
        for turn in 0..10_000 {
            course.turn(4_000, 4_000, true, LONG, turn * LONG);
            assert_eq!(course.over(turn * LONG), None);
        }
        assert_eq!((course.turns, course.over(course.idle() - 1), course.over(course.idle())), (10_000, None, Some(Cause::Idle)));
    }

    #[test]
    fn tests_have_connections_given_back_after_turns_that_a_seed_draws() {
        assert_eq!((drawn(0, 0), drawn(0, 7)), (u32::MAX, u32::MAX));
        let all: Vec<u32> = (1..1000).map(|seed| drawn(seed, seed % 5)).collect();
        assert!(all.iter().all(|turns| *turns < 1 << (POWERS - 1)) && (0..8).all(|turns| all.contains(&turns)));
        assert!(all.iter().any(|turns| *turns > 100));
        let mut course = Course::new(0).at_most(2);
        course.turn(1, 1, true, LONG, 0);
        assert_eq!(course.over(0), None);
        course.turn(1, 1, true, LONG, 0);
        assert_eq!(course.over(0), Some(Cause::Drawn));
    }
}
