//! Short messages: one attempt that does everything or nothing.
//!
//! What a round trip waits for is what a sender does before its announcement and what a receiver does behind it. So the
//! order of stores is part of the design. The peer watches the post's line: all stores to it come together, the
//! announcement last. Bytes that stand beside the word follow into the ring *after* that, while the line is on its way.
//! No receiver misses them there: as long as the word tells of inline bytes, these are all that wait ([`Pipe::beside`]), and
//! the next word is stored behind them.

use crate::copy::Ring;
use crate::pace;
use crate::pipe::{class_of, distance, switch_of, Pipe, COPIED, KNOWN_CLASS, KNOWN_SHIFT, POSITION};
use crate::streamed::{LENGTH, TIMED};
use shunt_segment::area::{FIRST_IN_WINDOW, RING_SIZE};
use shunt_segment::channel::{word, INLINE};
use shunt_segment::sync::Ordering::{Acquire, Relaxed, Release};
use shunt_sys::clock;
#[cfg(not(loom))]
use shunt_sys::user;

/// Bytes of the longest message that is short: its copy is a loop of vectors, and no call that spoils registers. The general way
/// costs twice the instructions.
#[cfg(not(loom))]
pub const SHORT: usize = user::LONG - 1;
/// Bytes of the longest message that is short: few, so that models see the general way as well.
#[cfg(loom)]
pub const SHORT: usize = RING_SIZE[0] as usize;

/// What became of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// So many bytes went, or came.
    Moved(usize),
    /// Nothing was done: this is for the general way.
    Declined,
    /// Nothing was done: the same without `LEAN` is to be tried.
    NotLean,
    /// All is announced, and nothing is to be sent before [`Pipe::put_again`].
    Torn,
}

/// Longer messages do not count towards making an empty ring smaller ([`Pipe::send`]).
pub(crate) const SMALL: usize = RING_SIZE[0] as usize / 2;

const ENDED: u64 = word::FIN | word::CLOSED | word::RST;
const INLINE_COUNT: u64 = 63 << word::INLINE_SHIFT;

impl Pipe<'_> {
    /// Sends a message that is short and known to fit. Declined after an end, and where the source faults.
    ///
    /// `LEAN`: only where nothing is to be called for it, so that the compiler keeps nothing in memory for what may come.
    ///
    /// `sole`: no other process owns the side. Others would have to go on where this one was killed, so they need the
    /// bytes in the ring before they are announced.
    ///
    /// # Safety
    /// As for [`Pipe::send`].
    #[inline(always)]
    pub unsafe fn send_short<const LEAN: bool>(&self, source: *const u8, length: usize, sole: bool) -> Attempt {
        let transmit = &self.own.transmit;
        let current = transmit.word.load(Relaxed);
        if length.wrapping_sub(1) >= SHORT || transmit.small.load(Relaxed) & COPIED == 0 || current & ENDED != 0 {
            return Attempt::Declined;
        }
        let (tail, class) = (current & POSITION, class_of(current));
        let ack = self.known_ack();
        let next = || (current.wrapping_add(length as u64) & POSITION) | (current & !(POSITION | INLINE_COUNT));
        if ack == tail && class == 0 && length <= INLINE {
            let ring = self.smallest();
            // SAFETY: as promised by the caller; INLINE bytes fit the smallest ring.
            unsafe {
                if !(sole || ring.put_short(tail, source, length)) || !self.put_inline(source, length) {
                    return Attempt::Declined;
                }
                self.publish(next() | (length as u64) << word::INLINE_SHIFT);
                if sole && !ring.put_short(tail, source, length) {
                    return Attempt::Torn;
                }
            }
            return Attempt::Moved(length);
        }
        if ack == tail && class != 0 && (length <= SMALL || transmit.small.load(Relaxed) != COPIED) {
            return Attempt::Declined; // an empty ring may shrink, or a count towards that begins anew
        }
        if class != 0 && transmit.switch.load(Relaxed) & word::SETTLED == 0 {
            return Attempt::Declined;
        }
        let Some(ring) = self.ring(class) else { return Attempt::Declined };
        let behind = distance(ack, tail);
        if behind + length as u64 > self.room_of(ring.size as usize) as u64 {
            return Attempt::Declined;
        }
        if behind != 0 && length >= pace::PREPARED {
            if length >= TIMED && self.window.streamed.past_caches() {
                if LEAN {
                    return Attempt::NotLean;
                }
                // SAFETY: as below.
                return unsafe { self.send_past(ring, tail, source, length, next()) };
            }
            let ahead = pace::AHEAD_OF_STORES;
            if class <= FIRST_IN_WINDOW && behind + ahead + length as u64 <= ring.size as u64 {
                ring.prepare(tail.wrapping_add(ahead), length);
            }
        }
        // SAFETY: as promised by the caller; there is room for them in the ring.
        if !unsafe { ring.put_short(tail, source, length) } {
            return Attempt::Declined;
        }
        self.publish(next());
        Attempt::Moved(length)
    }

    /// Whether this part of a stream goes past the caches ([`crate::streamed`]).
    #[inline(always)]
    pub(crate) fn goes_past(&self, tail: u64, length: usize) -> bool {
        let streamed = &self.window.streamed;
        if tail & (LENGTH - 1) < length as u64 {
            streamed.length_ended(tail, clock::ticks());
        }
        streamed.past_caches()
    }

    /// Behind a short message of `length` bytes: where one length of a stream of such ends, its time is taken. No thread waits
    /// for that any more.
    pub fn take_time(&self, length: usize) {
        let position = self.announced() & POSITION;
        let ends = length >= TIMED && position & (LENGTH - 1) < length as u64;
        if ends && self.unacknowledged_at_most() > length as u64 && self.reader_is_elsewhere() {
            self.window.streamed.length_ended(position, clock::ticks());
        }
    }

    /// The end of [`Pipe::send_short`], past the caches.
    ///
    /// # Safety
    /// As for [`Pipe::send`], and there is room.
    #[inline(never)]
    unsafe fn send_past(self, ring: Ring, tail: u64, source: *const u8, length: usize, next: u64) -> Attempt {
        // SAFETY: passed on.
        if !unsafe { ring.put_away(tail, source, length) } {
            return Attempt::Declined;
        }
        self.publish(next);
        Attempt::Moved(length)
    }

    /// The source went away between the two copies ([`Attempt::Torn`]): the `length` bytes that were announced are put into the
    /// ring.
    #[cold]
    pub fn put_again(&self, length: usize) {
        let length = length.min(INLINE);
        let tail = (self.own.transmit.word.load(Relaxed) & POSITION).wrapping_sub(length as u64) & POSITION;
        let words = self.own.post.inline.each_ref().map(|word| word.load(Relaxed));
        // SAFETY: INLINE bytes are there and fit the smallest ring.
        unsafe { self.smallest().put(tail, words.as_ptr().cast(), length) };
    }

    /// Takes up to `length` bytes if that is simple: those known to wait, the ones beside the peer's word, or some of those
    /// in the ring that we know. Declined, too, where the target faults. `LEAN` as for [`Pipe::send_short`].
    ///
    /// # Safety
    /// As for [`Pipe::receive`].
    #[inline(always)]
    pub unsafe fn receive_short<const LEAN: bool>(&self, target: *mut u8, length: usize) -> Attempt {
        let receive = &self.own.receive;
        let known = receive.class.load(Relaxed);
        let position = receive.position.load(Relaxed);
        if known >> KNOWN_SHIFT == 0 {
            if self.window.pace.is_ahead(length) {
                if LEAN {
                    return Attempt::NotLean;
                }
                self.window.pace.forget();
                pace::hold_off(&self.own.wait, &self.peer.wait);
            }
            let word = self.peer.post.word.load(Acquire);
            let waiting = distance(position, word & POSITION) as usize;
            // A mark among the bytes is visible with them: then the caller says how far it may go ([`Pipe::receive_within`]).
            if waiting == 0 || self.peer.urgent.load(Acquire) != 0 {
                return Attempt::Declined;
            }
            let inline = (word >> word::INLINE_SHIFT) as usize & 63;
            if inline != 0 {
                // SAFETY: passed on; checked.
                if waiting != inline || inline > INLINE.min(length) || !unsafe { self.get_inline(0, target, inline) } {
                    return Attempt::Declined;
                }
                self.note_switch(word, true);
                receive.position.store(position.wrapping_add(inline as u64), Release);
                return Attempt::Moved(inline);
            }
            let class = class_of(word);
            let Some(ring) = self.ring(class) else { return Attempt::Declined };
            let part = waiting.min(length);
            if receive.switch.load(Relaxed) != switch_of(word) || waiting > ring.size as usize || part.wrapping_sub(1) >= SHORT {
                return Attempt::Declined;
            }
            // SAFETY: as promised by the caller; part <= waiting, which fits the ring.
            if !unsafe { ring.get_short(position, target, part) } {
                return Attempt::Declined;
            }
            self.consume(part, ((waiting - part) as u32) << KNOWN_SHIFT | class as u32);
            self.window.pace.found(waiting, part);
            return Attempt::Moved(part);
        }
        if length.wrapping_sub(1) >= SHORT || length > (known >> KNOWN_SHIFT) as usize || self.peer.urgent.load(Acquire) != 0 {
            return Attempt::Declined;
        }
        let Some(ring) = self.ring((known & KNOWN_CLASS) as usize) else { return Attempt::Declined };
        // What is known lies in shared memory from one call to the next.
        if length > ring.size as usize {
            return Attempt::Declined;
        }
        // SAFETY: as promised by the caller; checked.
        if !unsafe { ring.get_short(position, target, length) } {
            return Attempt::Declined;
        }
        let left = known - ((length as u32) << KNOWN_SHIFT);
        self.consume(length, left);
        if left >> KNOWN_SHIFT > pace::AHEAD {
            ring.fetch(position.wrapping_add(length as u64 + pace::AHEAD as u64), length);
        } else if left >> KNOWN_SHIFT == 0 {
            self.window.pace.emptied(length);
        }
        Attempt::Moved(length)
    }

    /// Where the `waiting` bytes begin among those beside the peer's word, if that is where they are to be taken from: their
    /// sender may not have put them into the ring yet.
    #[inline(always)]
    pub(crate) fn beside(&self, word: u64, waiting: usize) -> Option<usize> {
        let inline = (word >> word::INLINE_SHIFT) as usize & 63;
        (inline <= INLINE && waiting <= inline).then(|| inline - waiting)
    }

    /// Puts a small message beside the word; false if the source faults. The peer does not read there: it has received
    /// everything (ack == tail).
    ///
    /// # Safety
    /// `length <= INLINE`; `source` may be any address that is not ours.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn put_inline(&self, source: *const u8, length: usize) -> bool {
        // SAFETY: INLINE bytes have room; this side alone writes there.
        unsafe { user::copy(source, self.own.post.inline.as_ptr().cast_mut().cast(), length) }
    }

    /// Takes `length` bytes from beside the word, from byte `from` on; false if the target faults.
    ///
    /// # Safety
    /// `from + length <= INLINE`; `target` may be any address that is not ours.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn get_inline(&self, from: usize, target: *mut u8, length: usize) -> bool {
        // SAFETY: inside the inline bytes; a peer that writes there meanwhile garbles its own message.
        unsafe { user::copy(self.peer.post.inline.as_ptr().cast::<u8>().add(from), target, length) }
    }

    /// As the real one: the only word of a model.
    #[cfg(loom)]
    pub(crate) unsafe fn put_inline(&self, source: *const u8, length: usize) -> bool {
        let mut bytes = [0u8; INLINE];
        // SAFETY: promised by the caller.
        unsafe { source.copy_to(bytes.as_mut_ptr(), length) };
        self.own.post.inline[0].store(u64::from_ne_bytes(bytes), Relaxed);
        true
    }

    /// As the real one: the only word of a model.
    #[cfg(loom)]
    pub(crate) unsafe fn get_inline(&self, from: usize, target: *mut u8, length: usize) -> bool {
        let bytes = self.peer.post.inline[0].load(Relaxed).to_ne_bytes();
        // SAFETY: promised by the caller.
        unsafe { bytes[from..from + length].as_ptr().copy_to(target, length) };
        true
    }
}
