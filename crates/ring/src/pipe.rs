//! One direction of a channel.

use crate::copy::Ring;
use crate::window::Window;
use shunt_segment::area::{base_ring_offset, offset_in_window, ring_offset, CLASSES, FIRST_IN_WINDOW, RING_SIZE};
use shunt_segment::channel::{word, Side, INLINE};
use shunt_segment::sync::Ordering::{Acquire, Relaxed, Release};
use shunt_sys::{clock, thread};

/// Why bytes that wait cannot be received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The peer wrote something that no honest peer writes. The connection is to be reset.
    Violation,
    /// They lie in a window that this process has not mapped.
    Unmapped,
}

/// Bytes copied between two publications: long enough to stream, short enough that both ends copy at the same time.
#[cfg(not(loom))]
pub const CHUNK: usize = 32 << 10;
/// Bytes copied between two publications: few, so that a model sees several chunks.
#[cfg(loom)]
pub const CHUNK: usize = 8;

/// From this many bytes on a copy for a distant reader goes past the caches.
#[cfg(not(loom))]
const AWAY: usize = 8 << 10;
/// From this many bytes on a copy for a distant reader goes past the caches.
#[cfg(loom)]
const AWAY: usize = 4;

pub(crate) const POSITION: u64 = word::POSITION;

/// Window that Linux offers with the default SO_RCVBUF of 131,072 (tcp_rmem, tcp_adv_win_scale).
const WINDOW: usize = 64 << 10;

/// In [`Transmit::small`]: [`Transmit::word`] is a copy of the post's word.
///
/// [`Transmit::small`]: shunt_segment::channel::Transmit::small
/// [`Transmit::word`]: shunt_segment::channel::Transmit::word
pub(crate) const COPIED: u32 = 1 << 31;
/// The same word counts small messages below this, and signs of a stream above.
const STREAM: u32 = 1 << 16;

/// [`Receive::class`] holds a class and above it the number of bytes that are known to wait in its ring.
///
/// [`Receive::class`]: shunt_segment::channel::Receive::class
pub(crate) const KNOWN_SHIFT: u32 = 3;
pub(crate) const KNOWN_CLASS: u32 = (1 << KNOWN_SHIFT) - 1;

/// The direction that `own` sends in when seen from the sender, and that `own` receives in when seen from the receiver.
///
/// All calls of one kind (send or receive) on one side are made under that side's lock for it.
#[derive(Clone, Copy)]
pub struct Pipe<'a> {
    /// The caller's side.
    pub own: &'a Side,
    /// The other side.
    pub peer: &'a Side,
    /// First byte of the link.
    pub link: *mut u8,
    /// Channel in the link.
    pub channel: usize,
    /// Number of the side that sends in this direction.
    pub sender: usize,
    /// Where this process has the direction's window.
    pub window: &'a Window,
}

#[inline(always)]
pub(crate) fn class_of(word: u64) -> usize {
    (word >> word::CLASS_SHIFT) as usize & 7
}

#[inline(always)]
pub(crate) fn switch_of(word: u64) -> u32 {
    (word >> word::SWITCH_SHIFT) as u32 & 7
}

/// `to - from` on the circle of positions.
#[inline(always)]
pub(crate) fn distance(from: u64, to: u64) -> u64 {
    to.wrapping_sub(from) & POSITION
}

/// Whether `ack` acknowledges bytes behind the position of `current`. Under the sending lock only a peer that writes
/// nonsense does: it would make an endless send succeed for ever, even to a peer that is dead.
#[inline(always)]
fn ahead(current: u64, ack: u64) -> bool {
    distance(ack, current & POSITION) >= 1 << 47
}

impl Pipe<'_> {
    /// The ring of `class`; `None` if it lies in a window that is not mapped.
    #[inline(always)]
    pub(crate) fn ring(&self, class: usize) -> Option<Ring> {
        if class < FIRST_IN_WINDOW {
            return Some(Ring::at(self.link, base_ring_offset(self.channel, self.sender, class), RING_SIZE[class]));
        }
        let class = class.min(CLASSES - 1);
        self.window.get().map(|window| Ring::at(window, offset_in_window(class), RING_SIZE[class]))
    }

    /// The ring of class 0.
    #[inline(always)]
    pub(crate) fn smallest(&self) -> Ring {
        Ring::at(self.link, base_ring_offset(self.channel, self.sender, 0), RING_SIZE[0])
    }

    /// Bytes in the ring of `class`.
    #[inline(always)]
    fn size(class: usize) -> usize {
        RING_SIZE[class.min(CLASSES - 1)] as usize
    }

    /// Bytes that may be under way in the ring of `class`: all that fit, or fewer if the program set SO_SNDBUF.
    #[inline(always)]
    pub(crate) fn room(&self, class: usize) -> usize {
        match self.own.transmit.send_buffer.load(Relaxed) {
            0 => Self::size(class),
            set => Self::size(class).min(self.room_for(set)),
        }
    }

    /// Of the `free` bytes of the current ring those that SO_SNDBUF allows: unread ones in smaller rings count, too.
    #[cold]
    fn allowed(&self, free: usize, current: u64, ack: u64) -> usize {
        let room = self.room_for(self.own.transmit.send_buffer.load(Relaxed)) as u64;
        free.min(room.saturating_sub(self.unread(current, ack)) as usize)
    }

    /// What the kernel would hold: three quarters of SO_SNDBUF (the rest goes to its structures), and the peer's window.
    #[cold]
    fn room_for(&self, send_buffer: u32) -> usize {
        send_buffer as usize / 4 * 3 + self.window_of_peer()
    }

    /// Bytes that the peer's kernel would hold for it: half of SO_RCVBUF.
    pub fn window_of_peer(&self) -> usize {
        match self.peer.receive_buffer.load(Relaxed) {
            0 => WINDOW,
            set => set as usize / 2,
        }
    }

    // ---- sending -------------------------------------------------------------------------------------------------

    /// The word that this side announced last: position, class and ends ([`word`]).
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

    /// The newest position up to which the peer has received, as far as known without touching its receiving line.
    /// Acquire pairs with the Release of the peer's [`Pipe::publish`]: what it acknowledges it has finished reading.
    ///
    /// Acknowledgements are counted without wrap, so the larger one is the newer one, however old the other is: a peer
    /// that only receives never posts any. A hostile peer can only make us believe in a wrong position; that is harmless
    /// to us because offsets are masked and lengths bounded by the ring.
    #[inline(always)]
    pub(crate) fn known_ack(&self) -> u64 {
        let cached = self.own.transmit.acked.load(Relaxed);
        let posted = self.peer.post.ack.load(Acquire);
        cached.max(posted) & POSITION
    }

    /// Reads the peer's receiving position itself: one line transfer. Pairs with the Release in [`Pipe::consume`].
    ///
    /// Never less than [`Pipe::known_ack`], whatever the peer writes: else a poll could promise space, by the one, that a
    /// send does not find, by the other, and a sender would turn round for ever.
    #[inline(never)]
    fn refresh_ack(&self) -> u64 {
        let cached = self.own.transmit.acked.load(Relaxed).max(self.peer.post.ack.load(Acquire));
        let position = self.peer.receive.position.load(Acquire);
        if position > cached {
            self.own.transmit.acked.store(position, Relaxed);
        }
        position.max(cached) & POSITION
    }

    /// Bytes up to the position of `current` that the peer has not received when it has received up to `ack`. A caller
    /// without the sending lock may hold a word that is older than the acknowledgement: then none.
    #[inline(always)]
    fn unread(&self, current: u64, ack: u64) -> u64 {
        let unread = distance(ack, current & POSITION);
        if unread < 1 << 47 {
            unread
        } else {
            0
        }
    }

    /// How many bytes were sent since the last change of class if the peer has not yet received all from before it.
    ///
    /// The border is a position on the circle, which the stream passes again after 2^48 bytes: once passed it is marked
    /// ([`word::SETTLED`]), and class 0 needs none because only an empty ring returns to it. The number tells a change
    /// that took effect from one that a killed sender prepared and never announced.
    #[inline(always)]
    fn since_border(&self, current: u64, ack: u64) -> Option<u64> {
        let switch = self.own.transmit.switch.load(Relaxed);
        if class_of(current) == 0 || switch & word::SETTLED != 0 || switch_of(switch) != switch_of(current) {
            return None;
        }
        let since = distance(switch & POSITION, current & POSITION);
        (since < self.unread(current, ack)).then_some(since)
    }

    /// Marks the last border as passed when it is; the caller holds the sending lock.
    #[inline(always)]
    fn settle(&self, current: u64, ack: u64) {
        let switch = self.own.transmit.switch.load(Relaxed);
        if switch & word::SETTLED == 0 && self.since_border(current, ack).is_none() {
            self.own.transmit.switch.store(switch | word::SETTLED, Relaxed);
        }
    }

    /// Bytes that fit now into the current class when the peer has received up to `ack`: never more than the ring.
    #[inline(always)]
    fn space(&self, current: u64, ack: u64) -> usize {
        let used = self.since_border(current, ack).unwrap_or_else(|| self.unread(current, ack));
        let free = (Self::size(class_of(current)) as u64).saturating_sub(used) as usize;
        if self.own.transmit.send_buffer.load(Relaxed) == 0 {
            free
        } else {
            self.allowed(free, current, ack)
        }
    }

    /// Free space as poll(2) sees it, without growing: (free bytes, size of the ring).
    pub fn writable(&self) -> (usize, usize) {
        let current = self.announced();
        let size = self.room(class_of(current));
        let mut free = self.space(current, self.known_ack());
        if free * 3 < size {
            free = self.space(current, self.refresh_ack());
        }
        // The limit lies in shared memory, and may be another one by now.
        (free.min(size), size)
    }

    /// Whether the ring could still change to a larger class: then a sender that finds it full is not blocked.
    pub fn can_grow(&self) -> bool {
        let current = self.announced();
        class_of(current) < self.growth_limit()
    }

    /// Whether this side sends into a ring of the window now.
    pub fn is_in_window(&self) -> bool {
        class_of(self.announced()) >= FIRST_IN_WINDOW
    }

    /// Bytes sent that the peer did not receive yet.
    pub fn unacknowledged(&self) -> u64 {
        let current = self.announced();
        self.unread(current, self.refresh_ack())
    }

    /// As [`Pipe::unacknowledged`], as far as known without touching the peer's receiving line: perhaps too many.
    pub fn unacknowledged_at_most(&self) -> u64 {
        self.unread(self.announced(), self.known_ack())
    }

    /// Whether the peer acknowledges what was never sent; the caller holds the sending lock.
    #[cold]
    pub fn deceived(&self) -> bool {
        ahead(self.announced(), self.refresh_ack())
    }

    #[inline(always)]
    fn class_limit(&self) -> usize {
        let limit = (self.own.transmit.class_limit.load(Relaxed) as usize).min(CLASSES - 1);
        match self.own.transmit.send_buffer.load(Relaxed) {
            0 => limit,
            set => limit.min(self.class_for(self.room_for(set))),
        }
    }

    /// The largest class to grow to: one in a window only while that can be mapped.
    #[inline(always)]
    fn growth_limit(&self) -> usize {
        let limit = self.class_limit();
        if self.window.is_refused() {
            limit.min(FIRST_IN_WINDOW - 1)
        } else {
            limit
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
    fn current(&self) -> u64 {
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
            if self.send_short(source, length, false) {
                return length;
            }
            self.send_ring(source, length, self.current(), self.known_ack())
        }
    }

    /// The general case of [`Pipe::send`].
    #[inline(never)]
    unsafe fn send_ring(&self, mut source: *const u8, length: usize, mut current: u64, mut ack: u64) -> usize {
        let mut left = length;
        while left > 0 && !ahead(current, ack) {
            let tail = current & POSITION;
            let mut free = self.space(current, ack);
            if ack != tail && free < left.min(CHUNK) {
                ack = self.refresh_ack();
                if ahead(current, ack) {
                    break;
                }
                free = self.space(current, ack);
            }
            self.settle(current, ack);
            if ack == tail {
                let fit = self.class_for_empty(class_of(current), left);
                if fit != class_of(current) {
                    current = self.switch_class(current, fit);
                }
                free = self.space(current, ack);
            }
            if free < left.min(CHUNK) && (free < left || self.is_stream(current, ack)) {
                if let Some(class) = self.larger_class(current, left, free < left) {
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
            let part = free.min(left).min(CHUNK);
            if part == 0 {
                break;
            }
            // SAFETY: part <= left bytes of the caller's buffer, part <= size of the ring.
            let mut copied = unsafe {
                match part >= AWAY && self.reader_is_elsewhere() {
                    true if class_of(current) < FIRST_IN_WINDOW => ring.put_away(tail, source, part),
                    true => self.put_timed(ring, tail, source, part),
                    false => ring.put(tail, source, part),
                }
            };
            let mut inline = 0;
            if ack == tail && part <= INLINE {
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
            self.publish(current);
            source = source.wrapping_add(part);
            left -= part;
            if left > 0 {
                ack = self.known_ack();
            }
        }
        length - left
    }

    /// Whether the reader is on another processor. Then it has the lines of a ring of the base in caches that are not ours,
    /// and stores that ask for no line are faster: 64 KiB to and fro took 14 us instead of 65 between processors far apart, 13 to 14
    /// instead of 17 between nearer ones; 8 KiB 2.5 instead of 8.6, or 2.3 instead of 2.1.
    ///
    /// In a window, which is larger than the caches of one processor, it depends on the distance
    /// ([`Distance`](crate::distance::Distance)).
    #[inline(always)]
    fn reader_is_elsewhere(&self) -> bool {
        let (here, there) = (self.own.wait.processor.load(Relaxed), self.peer.wait.processor.load(Relaxed));
        here != 0 && there != 0 && here != there
    }

    /// As [`Ring::put`], the way that is faster between these two processors.
    ///
    /// # Safety
    /// As for [`Ring::put`].
    #[inline(never)]
    unsafe fn put_timed(&self, ring: Ring, tail: u64, source: *const u8, part: usize) -> bool {
        let distance = &self.window.distance;
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
        if part == CHUNK {
            distance.note(past, clock::ticks().wrapping_sub(start));
        }
        copied
    }

    /// Which class an empty ring should have for a message of `length` bytes.
    #[inline(always)]
    fn class_for_empty(&self, class: usize, length: usize) -> usize {
        if length > Self::size(class) {
            let wanted = self.class_for(length).clamp(class, self.growth_limit().max(class));
            return if self.may_use(wanted) { wanted } else { class };
        }
        if class > 0 {
            let small = &self.own.transmit.small;
            // Counting to many before shrinking keeps a mixed load in its large ring.
            let count = if length > RING_SIZE[0] as usize / 2 { 0 } else { small.load(Relaxed) % STREAM + 1 };
            let shrink = count >= 256;
            small.store(COPIED | if shrink { 0 } else { count }, Relaxed);
            if shrink {
                return 0;
            }
        }
        class
    }

    /// Whether the sender streams: each of the last few times it ran out of space that it knew of, the receiver was busy
    /// with what it had got. A stream is faster in a ring larger than the caches of one processor, because lines that
    /// both processors keep must be asked for, those that went to memory or the shared cache need not.
    #[inline(always)]
    fn is_stream(&self, current: u64, ack: u64) -> bool {
        let enough = (Self::size(class_of(current)) as u64 / 8).min(16 << 10);
        if class_of(current) >= self.growth_limit() || self.unread(current, ack) < enough {
            return false;
        }
        let small = &self.own.transmit.small;
        let count = (small.load(Relaxed) & !COPIED) / STREAM + 1;
        small.store(COPIED | if count < 4 { count * STREAM } else { 0 }, Relaxed);
        count >= 4
    }

    /// The class to change to when `left` bytes do not fit.
    ///
    /// Rings grow step by step, so a burst of small messages does not run through megabytes of memory. A peer that does
    /// not read for long leaves bytes in each of them, 5 MiB together: the kernel takes as many before a sender waits.
    #[inline(always)]
    fn larger_class(&self, current: u64, left: usize, full: bool) -> Option<usize> {
        // Loaded once: the peer can change it, and a range that is the wrong way round would panic.
        let (class, limit) = (class_of(current), self.growth_limit());
        if class >= limit {
            return None;
        }
        let wanted = self.class_for(if full { left } else { left.saturating_mul(2) });
        let wanted = wanted.clamp(class + 1, limit);
        self.may_use(wanted).then_some(wanted)
    }

    /// Whether the ring of `class` can be written; if not, its window is asked for: the caller of [`Pipe::send`] maps it.
    #[inline(always)]
    fn may_use(&self, class: usize) -> bool {
        if class < FIRST_IN_WINDOW || self.window.get().is_some() {
            return true;
        }
        self.window.ask();
        false
    }

    fn class_for(&self, length: usize) -> usize {
        (0..CLASSES).find(|&k| RING_SIZE[k] as usize >= length).unwrap_or(CLASSES - 1)
    }

    /// Changes to `class` from the current position on; gives the new word (not yet published).
    ///
    /// The number counts modulo 8, which suffices: at most five changes grow the ring without the receiver noticing
    /// any, and a change back to class 0 happens when it has received, and so noticed, everything.
    #[inline(never)]
    fn switch_class(&self, current: u64, class: usize) -> u64 {
        let old = class_of(current) as u64;
        let number = (switch_of(current) as u64 + 1) & 7;
        let border = (current & POSITION) | old << word::CLASS_SHIFT | number << word::SWITCH_SHIFT;
        self.own.borders[number as usize & 7].store(border, Release);
        self.own.transmit.switch.store(border, Relaxed);
        let kept = current & !(7 << word::CLASS_SHIFT | 7 << word::SWITCH_SHIFT);
        kept | (class as u64) << word::CLASS_SHIFT | number << word::SWITCH_SHIFT
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

    /// Sets end flags ([`word::FIN`], [`word::CLOSED`], [`word::RST`]); the caller holds the sending lock.
    pub fn end(&self, flags: u64) {
        let current = self.current();
        self.publish(current | flags);
    }

    // ---- receiving -----------------------------------------------------------------------------------------------

    /// The peer's word, and how many bytes wait. The caller looks at the flags when no byte is left.
    #[inline(always)]
    pub fn look(&self) -> (u64, usize) {
        let word = self.peer.post.word.load(Acquire);
        let position = self.own.receive.position.load(Relaxed);
        (word, distance(position, word & POSITION) as usize)
    }

    /// Takes up to `length` bytes into `target`; gives their number, 0 when none wait.
    ///
    /// Bytes that were announced when we last looked are taken without looking again: a sender that is ahead keeps its
    /// line to itself. Bytes whose target faults stay; 0 bytes may mean a fault ([`thread::take_fault`]).
    ///
    /// # Safety
    /// The caller holds the side's receiving lock. `target` may be any address that is not ours.
    #[inline(always)]
    pub unsafe fn receive(&self, target: *mut u8, length: usize) -> Result<usize, Trouble> {
        // SAFETY: passed on.
        unsafe {
            match self.receive_short(target, length) {
                0 => self.receive_ring(target, length, self.own.receive.class.load(Relaxed), true),
                taken => Ok(taken),
            }
        }
    }

    /// As [`Pipe::receive`], for a caller who knows that `length` bytes wait, and that the peer's urgent byte is none of
    /// them.
    ///
    /// # Safety
    /// As for [`Pipe::receive`].
    pub unsafe fn receive_within(&self, target: *mut u8, length: usize) -> Result<usize, Trouble> {
        let known = self.own.receive.class.load(Relaxed);
        // SAFETY: passed on.
        unsafe { self.receive_ring(target, length, known, false) }
    }

    /// Leaves out the byte that is next, if one waits; the caller holds the side's receiving lock.
    pub fn skip(&self) {
        if self.look().1 > 0 {
            self.pass(1);
        }
    }

    #[inline(never)]
    unsafe fn receive_ring(
        &self,
        mut target: *mut u8,
        length: usize,
        mut known: u32,
        heed_marks: bool,
    ) -> Result<usize, Trouble> {
        let mut left = length;
        while left > 0 {
            let position = self.own.receive.position.load(Relaxed) & POSITION;
            if known >> KNOWN_SHIFT == 0 {
                let (word, waiting) = self.look();
                if waiting == 0 || (heed_marks && self.peer.urgent.load(Acquire) != 0) {
                    break;
                }
                if let Some(from) = self.beside(word, waiting) {
                    let part = waiting.min(left);
                    // SAFETY: part fits the caller's buffer, and from + waiting <= INLINE.
                    if !unsafe { self.get_inline(from, target, part) } {
                        if left == length {
                            thread::note_fault();
                        }
                        break;
                    }
                    self.note_switch(word, true);
                    self.consume(part, 0);
                    target = target.wrapping_add(part);
                    left -= part;
                    continue;
                }
                let (class, available) = self.readable(position, word, waiting)?;
                self.note_switch(word, available == waiting);
                known = (available as u32) << KNOWN_SHIFT | class as u32;
            }
            let Some(ring) = self.ring((known & KNOWN_CLASS) as usize) else {
                if left == length {
                    return Err(Trouble::Unmapped);
                }
                // The caller may map it and come for the rest.
                self.window.ask();
                break;
            };
            // The bound is checked again because the word lies in shared memory from one call to the next.
            let available = ((known >> KNOWN_SHIFT) as usize).min(ring.size as usize);
            let part = available.min(left).min(CHUNK);
            // SAFETY: part fits the caller's buffer and the ring.
            if !unsafe { ring.get(position, target, part) } {
                if left == length {
                    thread::note_fault();
                }
                // What is known was perhaps only now learnt, and is not yet noted: it will be learnt again.
                break;
            }
            target = target.wrapping_add(part);
            known -= (part as u32) << KNOWN_SHIFT;
            self.consume(part, known);
            left -= part;
        }
        Ok(length - left)
    }

    /// Copies up to `length` waiting bytes, `skip` bytes from the front, without taking them (MSG_PEEK). 0 bytes may mean
    /// a fault ([`thread::take_fault`]).
    ///
    /// # Safety
    /// As for [`Pipe::receive`].
    pub unsafe fn peek(&self, mut skip: usize, mut target: *mut u8, length: usize) -> Result<usize, Trouble> {
        let (word, waiting) = self.look();
        let mut position = self.own.receive.position.load(Relaxed) & POSITION;
        let mut waiting = waiting;
        let mut left = length;
        if let Some(from) = self.beside(word, waiting) {
            let part = waiting.saturating_sub(skip).min(length);
            // SAFETY: part fits the caller's buffer; with bytes left, from + skip + part <= INLINE.
            if part > 0 && !unsafe { self.get_inline(from + skip, target, part) } {
                thread::note_fault();
                return Ok(0);
            }
            return Ok(part);
        }
        while left > 0 && waiting > 0 {
            let (class, available) = self.readable(position, word, waiting)?;
            let Some(ring) = self.ring(class) else {
                if left == length {
                    return Err(Trouble::Unmapped);
                }
                self.window.ask();
                break;
            };
            let available = available.min(ring.size as usize);
            let jump = skip.min(available);
            let part = (available - jump).min(left);
            // SAFETY: part fits the caller's buffer and the ring.
            if !unsafe { ring.get(position.wrapping_add(jump as u64), target, part) } {
                if left == length {
                    thread::note_fault();
                }
                break;
            }
            target = target.wrapping_add(part);
            skip -= jump;
            left -= part;
            position = position.wrapping_add((jump + part) as u64) & POSITION;
            waiting -= jump + part;
        }
        Ok(length - left)
    }

    /// The class of ring that holds the bytes at `position`, and how many of the `waiting` ones lie in it.
    ///
    /// Each change between the newest that we are known to have passed and the one that `word` tells of has a border; the
    /// first that lies before us counts. Behind the last of them lies the ring of `word`.
    #[inline(always)]
    fn readable(&self, position: u64, word: u64, waiting: usize) -> Result<(usize, usize), Trouble> {
        let mut class = class_of(word);
        let mut available = waiting;
        let mut number = self.own.receive.switch.load(Relaxed) & 7;
        while number != switch_of(word) {
            number = (number + 1) & 7;
            let border = self.peer.borders[number as usize].load(Acquire);
            let ahead = distance(position, border & POSITION) as usize;
            if switch_of(border) == number && 0 < ahead && ahead < waiting {
                class = class_of(border);
                available = ahead;
                break;
            }
        }
        if class >= CLASSES || available > RING_SIZE[class] as usize {
            return Err(Trouble::Violation);
        }
        Ok((class, available))
    }

    /// Remembers that all bytes from our position on lie in the class that `word` tells, if they do: then the border
    /// need not be read again.
    #[inline(always)]
    pub(crate) fn note_switch(&self, word: u64, passed: bool) {
        let number = switch_of(word);
        if passed && self.own.receive.switch.load(Relaxed) != number {
            self.own.receive.switch.store(number, Relaxed);
        }
    }

    /// Gives `part` bytes of space back, and remembers what is known of those behind them. The Release pairs with the
    /// Acquire in [`Pipe::refresh_ack`]. What is known goes first: a receiver that is killed in between leaves too
    /// little of it, which does no harm.
    #[inline(always)]
    pub(crate) fn consume(&self, part: usize, known: u32) {
        let receive = &self.own.receive;
        receive.class.store(known, Relaxed);
        receive.position.store(receive.position.load(Relaxed).wrapping_add(part as u64), Release);
    }

    /// Where the next bytes to receive lie in the link's file, behind `skip` of them: offset and length, in one piece. For
    /// a process that cannot map their window.
    pub fn next_in_file(&self, skip: usize) -> Result<(usize, usize), Trouble> {
        let (word, waiting) = self.look();
        if waiting <= skip {
            return Ok((0, 0));
        }
        let position = (self.own.receive.position.load(Relaxed) + skip as u64) & POSITION;
        let (class, available) = self.readable(position, word, waiting - skip)?;
        let at = position as usize & (Self::size(class) - 1);
        Ok((ring_offset(self.channel, self.sender, class) + at, available.min(Self::size(class) - at)))
    }

    /// Takes `length` of the bytes that [`Pipe::peek`] gave or [`Pipe::next_in_file`] told of; the caller holds the side's
    /// receiving lock.
    pub fn pass(&self, length: usize) {
        self.consume(length, 0);
        self.note_passed();
    }

    /// Remembers which changes of class lie behind us. Numbers of changes come again after eight: who never did so would
    /// look for the wrong ones.
    fn note_passed(&self) {
        let receive = &self.own.receive;
        let (word, _) = self.look();
        let position = receive.position.load(Relaxed) & POSITION;
        let known = receive.switch.load(Relaxed) & 7;
        let mut number = known;
        while number != switch_of(word) {
            let next = (number + 1) & 7;
            let border = self.peer.borders[next as usize].load(Acquire);
            let ahead = distance(position, border & POSITION);
            if switch_of(border) != next || (0 < ahead && ahead < 1 << 47) {
                break;
            }
            number = next;
        }
        if number != known {
            receive.switch.store(number, Relaxed);
        }
    }
}
