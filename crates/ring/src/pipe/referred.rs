//! Bytes that lie in no ring: their sender has told elsewhere where they are ([`shunt_segment::channel::references`]).
//!
//! For the borders and positions of a stream they are bytes in a ring of one more class, [`REFERRED`], which no process has mapped. So a
//! receiver comes to them as to a window that it has not mapped ([`Trouble::Unmapped`]), and its caller copies them from where they are.
//! All that counts bytes (what waits, what is acknowledged, ends, marks) needs to know nothing of them.
//!
//! A stream of them stays in that class; the next byte in a ring leaves it ([`Pipe::leave_referred`]). So that changes of class can be told
//! apart, which are numbered modulo 8, there are at most [`UNNOTICED`] that the receiver has not noticed when one begins.

use super::room::ahead;
use super::{class_of, distance, switch_of, Pipe, Trouble, POSITION};
use shunt_segment::area::{FIRST_IN_WINDOW, REFERRED};
use shunt_segment::channel::references::{place, HELD};
use shunt_segment::channel::word;
use shunt_segment::sync::Ordering::{Acquire, Relaxed, Release};

/// Changes of class that a receiver need not have noticed when bytes are referred to. With the one that enters the class, the one that
/// leaves it for [`LEAST`] or more, and those by which a ring grows from there to the largest class, they are seven.
const UNNOTICED: u32 = 2;
/// The smallest class behind bytes that are referred to.
const LEAST: usize = 2;

impl Pipe<'_> {
    /// The position at which bytes that are referred to would begin now; `None`: bytes are held back, the receiver has not noticed the last
    /// changes of class, or writes nonsense. The caller holds the sending lock.
    pub fn may_refer(&self) -> Option<u64> {
        let current = self.current();
        if ahead(current, self.refresh_ack()) || self.held() > 0 || self.limit_now() < LEAST {
            return None;
        }
        let unnoticed = switch_of(current).wrapping_sub(self.peer.receive.switch.load(Relaxed)) & 7;
        (class_of(current) == REFERRED || unnoticed <= UNNOTICED).then_some(current & POSITION)
    }

    /// Announces `length` bytes from where [`Pipe::may_refer`] said, whose record is written. The caller has kept the sending lock.
    pub fn refer(&self, length: usize) {
        let current = self.current();
        let changed = match class_of(current) {
            REFERRED => current,
            _ => self.switch_class(current, REFERRED),
        };
        let next = (changed & POSITION).wrapping_add(length as u64) & POSITION;
        self.publish(changed & !(POSITION | 63 << word::INLINE_SHIFT) | next);
    }

    /// The word to go on from with `left` bytes in a ring, behind bytes that are referred to.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_referred(&self, current: u64, ack: u64, left: usize) -> u64 {
        self.switch_class(current, self.class_behind(current, ack, left))
    }

    /// The class for `left` bytes behind those: the first that fits and holds none that wait.
    fn class_behind(&self, current: u64, ack: u64, left: usize) -> usize {
        let limit = self.limit_now().max(LEAST);
        let fits = self.class_for(left).clamp(LEAST, limit);
        let is_there = |class: usize| class < FIRST_IN_WINDOW || self.window.get().is_some();
        let free = |class: &usize| is_there(*class) && !self.is_class_unread(*class, current, ack);
        (fits..=limit).chain(LEAST..fits).find(free).unwrap_or(fits.min(FIRST_IN_WINDOW - 1))
    }

    /// [`Pipe::writable`] behind bytes that are referred to.
    #[cold]
    #[inline(never)]
    pub(super) fn writable_behind(&self, current: u64, ack: u64) -> (usize, usize) {
        let class = self.class_behind(current, ack, 1);
        let used = if self.is_class_unread(class, current, ack) { self.unread(current, ack) as usize } else { 0 };
        let size = self.room_of(Self::size(class));
        let free = Self::size(class).saturating_sub(used);
        let free = if self.own.transmit.send_buffer.load(Relaxed) == 0 { free } else { self.allowed(free, current, ack) };
        (free.min(size), size)
    }

    /// Whether the ring behind bytes that are referred to could still grow.
    #[cold]
    #[inline(never)]
    pub(super) fn can_grow_behind(&self, current: u64) -> bool {
        self.class_behind(current, self.refresh_ack(), 1) < self.growth_limit()
    }

    /// The position behind `skip` bytes that wait, and how many from there on are referred to; `None`: the next one is not. What was known of
    /// the next bytes to receive is forgotten if that is not true any more.
    pub fn referred(&self, skip: usize) -> Result<Option<(u64, usize)>, Trouble> {
        let (word, waiting) = self.look();
        if skip < waiting && self.beside(word, waiting).is_none() {
            let position = self.own.receive.position.load(Relaxed).wrapping_add(skip as u64) & POSITION;
            let (class, available) = self.readable(position, word, waiting - skip)?;
            if class == REFERRED {
                return Ok(Some((position, available)));
            }
        }
        if self.own.receive.class.load(Relaxed) & super::KNOWN_CLASS == REFERRED as u32 {
            self.own.receive.class.store(0, Relaxed);
        }
        Ok(None)
    }

    /// How many bytes wait that lie in rings, before the next one that is referred to.
    pub fn before_referred(&self) -> Result<usize, Trouble> {
        let (word, waiting) = self.look();
        if waiting == 0 || self.beside(word, waiting).is_some() {
            return Ok(waiting);
        }
        let mut position = self.own.receive.position.load(Relaxed) & POSITION;
        let mut before = 0;
        // Eight borders at most, whatever the peer makes of them meanwhile.
        for _ in 0..9 {
            match self.readable(position, word, waiting - before)? {
                (REFERRED, _) => break,
                (_, available) => {
                    before += available;
                    position = position.wrapping_add(available as u64) & POSITION;
                }
            }
            if before == waiting {
                break;
            }
        }
        Ok(before)
    }

    /// Bytes from position `oldest` on are in use where they lie, by process `holder`, though they are or will be passed; `None`: none are any
    /// more. The caller holds the receiving lock, and says so before it passes the first of them. The Release pairs with the Acquire in
    /// [`Pipe::released`]: what was read of them was read before.
    pub fn hold_from(&self, oldest: Option<u64>, holder: u32) {
        let receive = &self.own.receive;
        receive.holder.store(if oldest.is_some() { holder } else { 0 }, Relaxed);
        receive.held.store(oldest.map_or(0, |oldest| oldest & POSITION | HELD), Release);
    }

    /// The position up to which the peer has taken what was sent and uses it no more. It only grows with an honest peer; another can only say
    /// more than is so, or less, of what it alone reads.
    pub fn released(&self) -> u64 {
        // In this order: what was passed before it was held would be missed in the other.
        let taken = self.taken();
        let held = self.peer.receive.held.load(Acquire);
        let behind = distance(held & POSITION, taken);
        if held & HELD != 0 && behind < 1 << 47 {
            held & POSITION
        } else {
            taken
        }
    }

    /// Whether a receiver that was given less than it asked for came to bytes that are referred to.
    #[inline(always)]
    pub fn stands_at_referred(&self) -> bool {
        self.own.receive.class.load(Relaxed) & super::KNOWN_CLASS == REFERRED as u32
    }

    /// Bytes that SO_SNDBUF leaves to be sent.
    pub fn room_by_limit(&self) -> u64 {
        match self.own.transmit.send_buffer.load(Relaxed) {
            0 => u64::MAX,
            set => (self.room_for(set) as u64).saturating_sub(self.unacknowledged()),
        }
    }
}

/// Most bytes that a receiver believes to be referred to in one piece of its stream: records of them follow each other.
pub(super) const MOST: usize = 8 * place::LONGEST;
