//! Putting bytes into a ring, and announcing them.

use super::fill::HEADING;
use super::room::ahead;
use super::{class_of, Pipe, CHUNK, COPIED, POSITION};
use crate::copy::Ring;
use crate::short::{Attempt, SHORT};
use shunt_segment::area::{CLASSES, FIRST_IN_WINDOW, REFERRED};
use shunt_segment::channel::{word, INLINE};
use shunt_segment::sync::Ordering::{Acquire, Relaxed, Release};
use shunt_sys::{clock, processor, thread};

/// From this many bytes on a copy for a reader elsewhere is timed, and may go past the caches.
#[cfg(not(loom))]
const AWAY: usize = 8 << 10;
/// From this many bytes on a copy for a reader elsewhere is timed, and may go past the caches.
#[cfg(loom)]
const AWAY: usize = 4;

/// Bytes under way at which a stream of short messages leaves the largest ring again for one that the caches hold.
const NEAR: u64 = 256 << 10;
/// A reader is close behind its sender where that many bytes are what the sender's cache holds, or less.
const LAGGED: usize = 2 << 20;
/// Pauses between two looks at how far the reader is.
const LOOKS_APART: u32 = 16;
/// Ticks in which a reader who is at work takes something: about a microsecond.
const IDLE: u64 = 3000;
/// Ticks for which a sender waits for room rather than take a larger ring: about 10 us, in which a busy reader takes 128 KiB.
const LONGEST_WAIT: u64 = 25_000;

impl Pipe<'_> {
    /// The word behind the newest byte in the ring: position, class and ends ([`word`]). It is the one that was announced last,
    /// unless bytes are held back ([`Pipe::hold`]).
    ///
    /// It is read from a copy. The peer watches the post's line; loading from it would fetch the line back to be read,
    /// and the store that follows once more to be written: twice the latency of a message.
    #[inline(always)]
    pub fn announced(&self) -> u64 {
        let transmit = &self.own.transmit;
        if transmit.small.load(Relaxed) & COPIED != 0 {
            transmit.word.load(Relaxed)
        } else {
            self.own.post.word.load(Relaxed)
        }
    }

    /// The copy begins with the connection's first announcement.
    #[cold]
    #[inline(never)]
    fn begin_copy(&self) {
        self.own.transmit.word.store(self.own.post.word.load(Relaxed), Relaxed);
        self.own.transmit.small.store(COPIED, Release);
    }

    /// The word to continue from; the caller holds the sending lock.
    #[inline(always)]
    pub(super) fn current(&self) -> u64 {
        if self.own.transmit.small.load(Relaxed) & COPIED == 0 {
            self.begin_copy();
        }
        self.own.transmit.word.load(Relaxed)
    }

    /// Copies as many of the `length` bytes at `source` as fit and announces them; gives their number, 0 when full.
    /// Long messages are announced in chunks so that the peer copies out while we copy in. Where the source faults, what
    /// was announced before counts; 0 bytes may mean a fault ([`thread::take_fault`]).
    ///
    /// # Safety
    /// The caller holds the side's sending lock. `source` may be any address that is not ours.
    #[inline(always)]
    pub unsafe fn send(&self, source: *const u8, length: usize) -> usize {
        // SAFETY: passed on.
        unsafe {
            if let Attempt::Moved(length) = self.send_short::<false>(source, length, false) {
                return length;
            }
            self.send_ring::<false>(source, length)
        }
    }

    /// The general case of [`Pipe::send`]; with `HOLD` that of [`Pipe::hold`].
    #[inline(never)]
    pub(super) unsafe fn send_ring<const HOLD: bool>(&self, mut source: *const u8, length: usize) -> usize {
        let (mut current, mut ack) = (self.current(), self.known_ack());
        let mut left = length;
        if class_of(current) == REFERRED {
            current = self.leave_referred(current, ack, left);
        }
        let streams = ack != current & POSITION && self.reader_is_elsewhere();
        while left > 0 && !ahead(current, ack) {
            let tail = current & POSITION;
            let mut free = self.space(current, ack);
            if ack != tail && free < left.min(CHUNK) {
                ack = self.refresh_ack();
                if ahead(current, ack) {
                    break;
                }
                free = self.space(current, ack);
                if streams && self.is_for_largest(current) {
                    current = self.switch_class(current, CLASSES - 1);
                    free = self.space(current, ack);
                }
            }
            self.settle(current, ack);
            if class_of(current) >= FIRST_IN_WINDOW && self.window.is_held() && self.may_leave(current, ack, HEADING) {
                current = self.switch_class(current, FIRST_IN_WINDOW - 1);
                free = self.space(current, ack);
            }
            if class_of(current) > FIRST_IN_WINDOW
                && length <= SHORT
                && ack != tail
                && self.may_leave(current, ack, NEAR)
                && !processor::cache_is_smaller_than(LAGGED)
            {
                current = self.switch_class(current, FIRST_IN_WINDOW);
                free = self.space(current, ack);
            }
            if ack == tail {
                let fit = self.class_for_empty(class_of(current), left);
                if fit != class_of(current) {
                    current = self.switch_class(current, fit);
                }
                free = self.space(current, ack);
            }
            if free < left.min(CHUNK) {
                if let Some(class) = self.larger_class(current, left) {
                    if class_of(current) == FIRST_IN_WINDOW && length <= SHORT && !processor::cache_is_smaller_than(LAGGED) {
                        if let Some(newer) = self.await_reader(current) {
                            ack = newer;
                            continue;
                        }
                    }
                    current = self.switch_class(current, class);
                    free = self.space(current, ack);
                } else if self.window.is_wanted() {
                    // The caller maps the window and comes again: a message is not torn for that.
                    break;
                }
            }
            let Some(ring) = self.ring(class_of(current)) else {
                // Another owner of this side has grown the ring.
                self.window.ask();
                break;
            };
            let mut part = free.min(left).min(CHUNK);
            if HOLD {
                part = part.min(self.left_of_segment());
            }
            if part == 0 {
                break;
            }
            // SAFETY: part <= left bytes of the caller's buffer, part <= size of the ring.
            let mut copied = unsafe {
                if part >= AWAY && streams {
                    match self.goes_past(tail, part) {
                        true => ring.put_away(tail, source, part),
                        false => ring.put(tail, source, part),
                    }
                } else if part >= AWAY && self.reader_is_elsewhere() {
                    self.put_timed(ring, class_of(current), tail, source, part)
                } else {
                    ring.put(tail, source, part)
                }
            };
            let mut inline = 0;
            if !HOLD && ack == tail && part <= INLINE {
                // SAFETY: as above.
                copied &= unsafe { self.put_inline(source, part) };
                inline = part as u64;
            }
            if !copied {
                if left == length {
                    thread::note_fault();
                }
                break;
            }
            let next = tail.wrapping_add(part as u64) & POSITION;
            current = (current & !(POSITION | 63 << word::INLINE_SHIFT)) | next | inline << word::INLINE_SHIFT;
            if HOLD && part < self.left_of_segment() {
                self.keep(current);
            } else {
                self.publish(current);
            }
            source = source.wrapping_add(part);
            left -= part;
            if left > 0 {
                ack = self.known_ack();
            }
        }
        length - left
    }

    /// Whether a stream of short messages is better off in the largest ring ([`crate::streamed`]), and can have it.
    #[cold]
    #[inline(never)]
    fn is_for_largest(self, current: u64) -> bool {
        let streamed = self.window.streamed.is_for_largest(current & POSITION, clock::ticks(), LAGGED);
        // Where its window has to be mapped first, the caller does that when this is sent.
        streamed && class_of(current) < CLASSES - 1 && self.larger_class(current, Self::size(CLASSES - 1)) == Some(CLASSES - 1)
    }

    /// A stream of short messages has filled a ring that the caches hold. Where its reader is at work on another processor, it waits
    /// for room: behind a larger ring's bytes each line comes from memory. Gives how far the reader has come, once a part of
    /// the ring is free; `None`: it does not take enough.
    #[cold]
    #[inline(never)]
    fn await_reader(self, current: u64) -> Option<u64> {
        if !self.reader_is_elsewhere() {
            return None;
        }
        let enough = Self::size(class_of(current)) / 8;
        let start = clock::ticks();
        let (mut ack, mut moved) = (self.refresh_ack(), start);
        while self.space(current, ack) < enough {
            // Each look takes the line from the reader.
            for _ in 0..LOOKS_APART {
                core::hint::spin_loop();
            }
            let (newer, now) = (self.refresh_ack(), clock::ticks());
            if newer != ack {
                (ack, moved) = (newer, now);
            }
            if now.wrapping_sub(moved) > IDLE || now.wrapping_sub(start) > LONGEST_WAIT {
                return None;
            }
        }
        Some(ack)
    }

    /// Whether the reader is on another processor. Then it has the lines of a ring of the base in caches that are not ours, and which
    /// stores are faster depends on the distance and on the machine ([`Distance`](crate::distance::Distance)): 64 KiB to and fro took
    /// 14 us past the caches instead of 65 between processors far apart, 13 to 14 instead of 17 between nearer ones, and 24
    /// instead of 19 on another machine.
    #[inline(always)]
    pub fn reader_is_elsewhere(&self) -> bool {
        let (here, there) = (self.own.wait.processor.load(Relaxed), self.peer.wait.processor.load(Relaxed));
        here != 0 && there != 0 && here != there
    }

    /// As [`Ring::put`], the way that is faster between these two processors.
    ///
    /// # Safety
    /// As for [`Ring::put`].
    #[inline(never)]
    unsafe fn put_timed(&self, ring: Ring, class: usize, tail: u64, source: *const u8, part: usize) -> bool {
        let distance = if class < FIRST_IN_WINDOW { &self.window.in_base } else { &self.window.in_window };
        let past = distance.past_caches();
        let start = clock::ticks();
        // SAFETY: passed on.
        let copied = unsafe {
            if past {
                ring.put_away(tail, source, part)
            } else {
                ring.put(tail, source, part)
            }
        };
        distance.note(past, clock::ticks().wrapping_sub(start).wrapping_mul(CHUNK as u64) / part as u64);
        copied
    }

    /// Announces `next`. The Release pairs with the Acquire in [`Pipe::look`]; the acknowledgement rides along and
    /// pairs with [`Pipe::known_ack`]. The copy comes first: a sender that is killed in between has put the bytes, and
    /// the next owner of the lock announces them with its own.
    #[inline(always)]
    pub(crate) fn publish(&self, next: u64) {
        self.own.transmit.word.store(next, Relaxed);
        let received = self.own.receive.position.load(Acquire);
        self.own.post.ack.store(received, Release);
        self.own.post.word.store(next, Release);
    }

    /// Chooses the ring for `length` bytes that are put piece by piece: where they find it empty they lie in one, and a receive
    /// whose buffer faults leaves all of them. The caller holds the side's sending lock.
    pub fn choose_ring(&self, length: usize) {
        let (current, ack) = (self.current(), self.refresh_ack());
        if ack != current & POSITION {
            return;
        }
        let class = self.class_for_empty(class_of(current), length);
        if class != class_of(current) {
            self.publish(self.switch_class(current, class));
        }
    }

    /// Announces `length` bytes that went past the ring, into their receiver's buffer: nothing else waits, and it passes them
    /// before it lets another thread look. The caller holds the side's sending lock and the other side's receiving lock.
    pub fn hand_over(&self, length: usize) {
        let current = self.current();
        let next = (current & POSITION).wrapping_add(length as u64) & POSITION;
        self.publish(current & !(POSITION | 63 << word::INLINE_SHIFT) | next);
    }

    /// Sets end flags ([`word::FIN`], [`word::CLOSED`], [`word::RST`]); the caller holds the sending lock.
    pub fn end(&self, flags: u64) {
        let current = self.current();
        if flags & word::RST != 0 && self.held() > 0 {
            return self.end_without_held(flags);
        }
        self.publish(current | flags);
    }
}
