//! The receiving half: what is wanted of a segment, what is promised, and when an acknowledgement is due.
//!
//! Bytes lie in the caller's ring, of which this half knows the room behind [`Receiver::next`]. A byte that arrives ahead of
//! a gap has its place in the ring, too, so nothing is ever moved.

use crate::header::Blocks;
use crate::ranges::Ranges;
use crate::sequence::Seq;
use shunt_path::{Nanoseconds, MILLISECOND};

/// An acknowledgement waits this long for something to ride on: Linux's least, and far below the 500 ms of RFC 1122, 4.2.3.2.
pub const DELAY: Nanoseconds = 40 * MILLISECOND;

/// What becomes of a segment's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes of the payload to skip: they have come already.
    pub skip: u32,
    /// Where the first wanted byte lies, counted from the place that was expected.
    pub at: u32,
    /// Bytes that are wanted.
    pub length: u32,
    /// Bytes that are in order now, from the place that was expected.
    pub ready: u32,
}

/// A peer that is not answered yet may be at its start, where it waits for each acknowledgement: as many of its segments are acknowledged at once (Linux's
/// TCP_MAX_QUICKACKS).
pub const QUICK: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Not,
    At(Nanoseconds),
    Now,
}

/// State of the receiving half.
#[derive(Clone, Copy, Debug)]
pub struct Receiver {
    /// RCV.NXT.
    pub(crate) next: Seq,
    /// The place behind the last byte that was ever promised room. It never moves back.
    pub(crate) promised: Seq,
    /// Last.ACK.sent (RFC 7323, section 4.3).
    pub(crate) acknowledged: Seq,
    scale: u8,
    room: u32,
    ahead: Ranges,
    /// Segments that are acknowledged at once still.
    quick: u32,
    /// A range that came twice, to be told once (RFC 2883).
    twice: Option<(Seq, Seq)>,
    due: Due,
}

impl Receiver {
    /// Begins at `next`; room up to `promised` has been promised already.
    pub fn new(next: Seq, promised: Seq, scale: u8) -> Receiver {
        let room = promised.since(next);
        Receiver {
            next,
            promised,
            acknowledged: next,
            scale: scale.min(14),
            room,
            ahead: Ranges::default(),
            quick: QUICK,
            twice: None,
            due: Due::Not,
        }
    }

    /// Whether a segment has a place in the window (RFC 9293, section 3.10.7.4, first check), as Linux sees it: its end may touch
    /// the last acknowledged place. A probe of a peer that may be gone ends before that, and is answered as what is not acceptable.
    pub fn acceptable(&self, start: Seq, end: Seq) -> bool {
        !end.before(self.acknowledged) && !start.after(self.promised)
    }

    /// Whether bytes before this segment are missing.
    pub fn is_ahead(&self, start: Seq) -> bool {
        start.after(self.next)
    }

    /// Whether some bytes are here that an earlier gap keeps from being ready.
    pub fn has_gap(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Takes a segment that is acceptable, with `length` bytes. `segment`: bytes of a full one.
    pub fn take(&mut self, start: Seq, length: u32, segment: u32, now: Nanoseconds) -> Wanted {
        if length == 0 {
            return Wanted::default();
        }
        let from = start.latest(self.next);
        let to = start.plus(length).earliest(self.promised);
        if !from.before(to) || self.ahead.holds(from, to) {
            self.twice = Some((start, start.plus(length)));
            self.due = Due::Now;
            return Wanted::default();
        }
        let (skip, at, length) = (from.since(start), from.since(self.next), to.since(from));
        if at > 0 {
            self.due = Due::Now;
            let kept = self.ahead.add(from, to);
            return if kept { Wanted { skip, at, length, ready: 0 } } else { Wanted::default() };
        }
        let gap = self.has_gap();
        let next = if gap { self.ahead.advance(to) } else { to };
        let ready = next.since(self.next);
        self.next = next;
        self.room -= ready;
        // RFC 5681, section 4.2: at once if a gap was filled, wholly or in part; else each second full segment.
        let unacknowledged = next.since(self.acknowledged);
        let quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        self.due = match self.due {
            _ if gap || quick || unacknowledged >= 2 * segment => Due::Now,
            Due::Not => Due::At(now + DELAY),
            due => due,
        };
        Wanted { skip, at, length, ready }
    }

    /// An acknowledgement is to leave at once.
    pub fn answer(&mut self) {
        self.due = Due::Now;
    }

    /// The ring has room for so many bytes behind what is in order; `segment` as above, `ring` the ring's size. A window that has
    /// opened by enough is told (RFC 1122, section 4.2.3.3).
    pub fn set_room(&mut self, room: u32, segment: u32, ring: u32) {
        // What was promised has room: a ring that says less is not believed.
        self.room = room.max(self.promised.since(self.next));
        let opened = self.next.plus(self.room).since(self.promised);
        if opened >= (2 * segment).min(ring / 2).max(1) && self.promised.since(self.next) <= self.room / 2 {
            self.due = Due::Now;
        }
    }

    /// When an acknowledgement leaves by itself.
    pub fn deadline(&self) -> Option<Nanoseconds> {
        match self.due {
            Due::Not => None,
            Due::At(time) => Some(time),
            Due::Now => Some(0),
        }
    }

    /// Whether one is due.
    pub fn is_due(&self, now: Nanoseconds) -> bool {
        self.deadline().is_some_and(|at| at <= now)
    }

    /// The window that a segment tells which leaves now. What it promises is kept.
    pub fn window(&mut self) -> u16 {
        let unit = 1u32 << self.scale;
        let mut units = self.room >> self.scale;
        // Rounded down, the window's end would move back by less than a unit; where there is room, it is rounded up instead.
        let promised = self.promised.since(self.next);
        if units << self.scale < promised && promised.div_ceil(unit) << self.scale <= self.room {
            units = promised.div_ceil(unit);
        }
        let units = units.min(0xffff);
        self.promised = self.promised.latest(self.next.plus(units << self.scale));
        units as u16
    }

    /// What a segment tells of ranges that came ahead; `most` fit.
    pub fn blocks(&mut self, most: usize) -> Blocks {
        let mut blocks = Blocks::default();
        if let Some((start, end)) = self.twice.take() {
            blocks.push(start, end);
        }
        self.ahead.tell(&mut blocks);
        blocks.truncate(most);
        blocks
    }

    /// A segment with this half's acknowledgement has left; `with_bytes`: it is an answer, and so will the next ones be.
    pub fn sent(&mut self, with_bytes: bool) {
        if with_bytes {
            self.quick = 0;
        }
        self.acknowledged = self.next;
        self.due = Due::Not;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u32 = 1000;

    fn receiver(room: u32) -> Receiver {
        let mut receiver = Receiver::new(Seq(100), Seq(100 + room), 0);
        receiver.set_room(room, SEGMENT, room);
        receiver.sent(true);
        receiver
    }

    #[test]
    fn each_second_segment_is_acknowledged_and_a_lone_one_late() {
        let mut receiver = receiver(10_000);
        assert_eq!(receiver.take(Seq(100), 1000, SEGMENT, 5), Wanted { skip: 0, at: 0, length: 1000, ready: 1000 });
        assert_eq!(receiver.deadline(), Some(5 + DELAY));
        receiver.take(Seq(1100), 1000, SEGMENT, 9);
        assert!(receiver.is_due(9));
        assert_eq!(receiver.window(), 8000);
        receiver.sent(false);
        assert_eq!(receiver.deadline(), None);
    }

    #[test]
    fn the_first_are_acknowledged_at_once_until_one_is_answered() {
        let mut receiver = Receiver::new(Seq(100), Seq(10_100), 0);
        for segment in 0..3 {
            receiver.take(Seq(100 + segment * 10), 10, SEGMENT, 5);
            assert!(receiver.is_due(5));
            receiver.sent(segment == 2);
        }
        receiver.take(Seq(130), 10, SEGMENT, 5);
        assert_eq!(receiver.deadline(), Some(5 + DELAY));
    }

    #[test]
    fn a_gap_is_told_and_filled() {
        let mut receiver = receiver(10_000);
        assert_eq!(receiver.take(Seq(1100), 500, SEGMENT, 0), Wanted { skip: 0, at: 1000, length: 500, ready: 0 });
        assert!(receiver.is_due(0));
        assert_eq!(receiver.blocks(3).as_slice(), [(Seq(1100), Seq(1600))]);
        receiver.sent(false);
        // The same again is told as such (RFC 2883), once.
        assert_eq!(receiver.take(Seq(1200), 100, SEGMENT, 0), Wanted::default());
        assert_eq!(receiver.blocks(3).as_slice(), [(Seq(1200), Seq(1300)), (Seq(1100), Seq(1600))]);
        assert_eq!(receiver.blocks(3).as_slice(), [(Seq(1100), Seq(1600))]);
        assert_eq!(receiver.take(Seq(50), 1050, SEGMENT, 0), Wanted { skip: 50, at: 0, length: 1000, ready: 1500 });
        assert!(receiver.is_due(0) && !receiver.has_gap());
    }

    #[test]
    fn no_more_than_was_promised_is_taken() {
        let mut receiver = receiver(1000);
        assert!(receiver.acceptable(Seq(1100), Seq(1200)) && !receiver.acceptable(Seq(1101), Seq(1201)));
        assert_eq!(receiver.take(Seq(100), 1200, SEGMENT, 0).ready, 1000);
        assert_eq!(receiver.window(), 0);
        receiver.sent(false);
        assert_eq!(receiver.take(Seq(1100), 10, SEGMENT, 0), Wanted::default());
        assert!(receiver.is_due(0), "a probe of a closed window is answered");
        receiver.sent(false);
        receiver.set_room(10, SEGMENT, 1000);
        assert!(!receiver.is_due(0), "a window that opened by little is not told");
        receiver.set_room(600, SEGMENT, 1000);
        assert!(receiver.is_due(0));
        assert_eq!(receiver.window(), 600);
    }

    #[test]
    fn a_scaled_window_does_not_move_back() {
        let mut receiver = Receiver::new(Seq(0), Seq(0), 10);
        receiver.set_room(8192, SEGMENT, 8192);
        assert_eq!(receiver.window(), 8);
        receiver.take(Seq(0), 100, SEGMENT, 0);
        // 8092 bytes are left, which is 7 units and a part: rounded down, 924 promised bytes would be taken back.
        assert_eq!(receiver.window(), 7, "no room to round up");
        assert_eq!(receiver.promised, Seq(8192));
        receiver.set_room(9000, SEGMENT, 10_000);
        assert_eq!(receiver.window(), 8);
        assert_eq!(receiver.promised, Seq(100 + 8192));
    }
}
