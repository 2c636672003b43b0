//! The count of doorbells, by which bells are told from bytes that were written past the library, and from those read past it.
//!
//! ```text
//! waker                 companion        taker, or who only looks
//!   rung += 1                              known = taken            before = written
//!   one byte     ->     waiting      ->    waiting: how many?       takes some
//!   written += 1                           known + waiting > rung?  taken += what it took > rung?
//! ```
//!
//! `written <= taken + waiting <= rung`, but for what is in a taker's hands. A waker counts before it writes, and a taker after
//! it took, so threads that are stopped or killed between two steps, however many they are, leave that sum too small: *more than
//! were rung* is never an honest side's doing. This asks three things of all others:
//!
//! - Only the thread that took raises `taken`. Bells that were counted and will never come ([`Tally::owed`] stays high) are each
//!   process's own affair: set to what lies there, the count would take those for foreign that are on their way.
//! - The count is read before the companion is looked at, and `rung` behind that.
//! - A waker counts and writes while the channel is its connection's ([`crate::passage`]): a late step would be the next one's.
//!
//! *Fewer than were written* is certain only where no thread takes at the same time.

use shunt_segment::channel::Side;
use shunt_segment::sync::{AtomicU32, Ordering};

/// The bells of one direction.
#[derive(Clone, Copy)]
pub struct Tally<'a> {
    rung: &'a AtomicU32,
    written: &'a AtomicU32,
    taken: &'a AtomicU32,
}

/// What the waker had counted before a thread looked at the companion.
#[derive(Clone, Copy)]
pub struct Before {
    written: u32,
    owed: u32,
}

impl<'a> Tally<'a> {
    /// Bells that `waker` rings for `taker`.
    pub fn new(waker: &'a Side, taker: &'a Side) -> Tally<'a> {
        Tally { rung: &waker.transmit.rung, written: &waker.transmit.written, taken: &taker.receive.taken }
    }

    /// The waker rings by `write`, which says whether a byte was written.
    pub fn ring(self, write: impl FnOnce() -> bool) -> bool {
        let rang = self.ring_urgent(write);
        if rang {
            self.written.fetch_add(1, Ordering::Release);
        }
        rang
    }

    /// The same by an urgent byte, which the kernel may drop before a thread takes it.
    pub fn ring_urgent(self, write: impl FnOnce() -> bool) -> bool {
        self.rung.fetch_add(1, Ordering::Release);
        let rang = write();
        if !rang {
            self.rung.fetch_sub(1, Ordering::Release);
        }
        rang
    }

    /// Bells that were rung and not taken: they lie on the companion, are on their way, or will never come.
    pub fn owed(self) -> u32 {
        self.rung.load(Ordering::Relaxed).wrapping_sub(self.taken.load(Ordering::Relaxed))
    }

    /// To be asked before a look that may find the companion empty.
    pub fn before(self) -> Before {
        Before { written: self.written.load(Ordering::Acquire), owed: self.owed() }
    }

    /// `count` bytes were taken. False: more than were rung.
    #[must_use]
    pub fn took(self, count: u32) -> bool {
        let taken = self.taken.fetch_add(count, Ordering::Release).wrapping_add(count);
        self.allows(taken)
    }

    /// Whether more lie on the companion than were rung and not taken, by what `waiting` finds there.
    pub fn exceeded_by(self, waiting: impl FnOnce() -> u32) -> bool {
        let taken = self.taken.load(Ordering::Acquire);
        !self.allows(taken.wrapping_add(waiting()))
    }

    fn allows(self, count: u32) -> bool {
        count.wrapping_sub(self.rung.load(Ordering::Acquire)) as i32 <= 0
    }

    /// Bells that had been written before, and are not there: the companion was found empty, and no thread takes at the same
    /// time.
    pub fn missing(self, before: Before) -> u32 {
        positive(before.written.wrapping_sub(self.taken.load(Ordering::Relaxed)))
    }
}

impl Before {
    /// Of the bells that were owed before, how many are none of the `waiting` ones: on their way, or never to come.
    pub fn astray(self, waiting: u32) -> u32 {
        positive(self.owed.wrapping_sub(waiting))
    }
}

fn positive(difference: u32) -> u32 {
    (difference as i32).max(0) as u32
}
