//! Datagrams through shared memory: many senders, one total order, any owner of the socket receives.
//!
//! Senders exclude each other by a lock that survives its owner. Receivers hold none: they copy a record and then move
//! the head past it by compare-and-swap; who loses has copied in vain. A sender that finds the gate shut after it has
//! published takes its record back by the same compare-and-swap and uses the kernel instead, so a receiver that shuts
//! the gate, looks once more, and finds nothing may sleep in the kernel: nothing will lie here while it does.
//!
//! The orders that pair: *publish* (a sender's swap of the record's first word) before its *look at the gate*, and a
//! receiver's *shutting of the gate* before its *last look*. All four are sequentially consistent.

use crate::copy::Ring;
use crate::lock;
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_segment::inbox::{charge, gate, mark, InboxHeader, ALIGN, LONGEST, POSITION, RING};

/// Where a datagram comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// True: `ip` is an IPv6 address; false: its last four bytes are an IPv4 address.
    pub v6: bool,
    /// The address, IPv4 in the last four bytes.
    pub ip: [u8; 16],
    /// The port.
    pub port: u16,
    /// The scope of a link-local address.
    pub scope: u32,
    /// The processor that the sender ran on, plus one; 0: unknown.
    pub processor: u16,
}

/// What a datagram tells beside its bytes and its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Details {
    /// The address that it was sent to, as [`Source::ip`].
    pub to: [u8; 16],
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// It stands for datagrams of so many bytes each (UDP_SEGMENT); 0: for itself.
    pub segment: u16,
    /// The interface that it came by; 0: nobody had asked when it was sent.
    pub interface: u32,
    /// When it was sent, in 256 ticks: [`Front::moment`].
    pub moment: u32,
    /// CLOCK_REALTIME of sending in nanoseconds; 0: nobody asked.
    pub stamp: u64,
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// It lies in the ring.
    Done,
    /// No room: the kernel would drop it as well.
    Dropped,
    /// The kernel shall carry it.
    Kernel,
    /// As `Kernel`, and the inbox is not used again.
    Retired,
    /// A piece is not readable: nothing was sent.
    Fault,
}

/// The oldest datagram.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    pub(crate) position: u64,
    pub(crate) next: u64,
    pub(crate) payload: u64,
    marks: u64,
    /// Bytes of the datagram.
    pub length: usize,
    /// Its source.
    pub source: Source,
    /// When it was sent, in 256 ticks of the processors' time stamp counter, modulo 2^32.
    pub moment: u32,
}

impl Front {
    /// Where it lies: no two datagrams of an inbox have the same.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.position
    }
}

/// An inbox in this process's memory.
#[derive(Clone, Copy)]
pub struct Inbox {
    base: *mut u8,
    size: u32,
}

// SAFETY: all of it is atomic words, and bytes that no reader believes before its compare-and-swap succeeds.
unsafe impl Send for Inbox {}
// SAFETY: as above.
unsafe impl Sync for Inbox {}

/// Words before the bytes: position and marks; length, half the moment, processor, port; address or scope, charges; then
/// for IPv4 the destination with the details and the other half, for IPv6 the source, the details with the other half, and
/// the destination if it is another one than the source; then interface and segment; then the stamp.
pub(crate) const V4_HEADER: u64 = 32;
const V6_HEADER: u64 = 48;

#[inline(always)]
fn header_length(marks: u64) -> u64 {
    let fixed = if marks & mark::V6 != 0 { V6_HEADER } else { V4_HEADER };
    let word = |bit| if marks & bit != 0 { 8 } else { 0 };
    fixed + 2 * word(mark::TO) + word(mark::FURTHER) + word(mark::STAMPED)
}

#[inline(always)]
pub(crate) fn record_length(marks: u64, length: usize) -> u64 {
    (header_length(marks) + length as u64).next_multiple_of(ALIGN as u64)
}

/// Beyond this part of what may wait an inbox is crowded.
const CROWDED: u64 = 4;

/// One half of an address.
#[inline(always)]
fn half(ip: &[u8; 16], k: usize) -> u64 {
    let mut bytes = [0u8; 8];
    bytes.copy_from_slice(&ip[8 * k..8 * k + 8]);
    u64::from_le_bytes(bytes)
}

impl Inbox {
    /// The inbox at `base`, whose ring has `size` bytes.
    ///
    /// # Safety
    /// `base` points to `RING + size` bytes that stay mapped and writable as long as the value is used; `size` is a
    /// power of two, larger than twice the longest datagram.
    pub unsafe fn new(base: *mut u8, size: u32) -> Inbox {
        debug_assert!(size.is_power_of_two() && size as usize > 2 * LONGEST);
        Inbox { base, size }
    }

    /// The words before the ring.
    #[inline(always)]
    pub fn header(&self) -> &'static InboxHeader {
        // SAFETY: promised to `new`.
        unsafe { &*self.base.cast::<InboxHeader>() }
    }

    /// Bytes of the ring.
    pub(crate) fn size(&self) -> u64 {
        self.size as u64
    }

    #[inline(always)]
    pub(crate) fn word(&self, position: u64) -> &AtomicU64 {
        let at = position as usize & (self.size as usize - 1) & !7;
        // SAFETY: `at` lies in the ring and is aligned to 8.
        unsafe { &*self.base.add(RING + at).cast::<AtomicU64>() }
    }

    #[inline(always)]
    pub(crate) fn ring(&self) -> Ring {
        Ring::at(self.base, RING, self.size)
    }

    // ---- senders

    /// Puts a datagram into the ring, if the gate is open.
    ///
    /// `me` is the calling thread; `pause` gets the thread that holds the senders' lock, as in [`lock::acquire`].
    ///
    /// # Safety
    /// `pieces` are the program's, and together `length` bytes, at most [`LONGEST`].
    #[inline]
    pub unsafe fn post(
        &self,
        me: u32,
        source: &Source,
        details: &Details,
        pieces: impl Iterator<Item = (*const u8, usize)>,
        length: usize,
        pause: impl FnMut(u32),
    ) -> Posted {
        let header = self.header();
        if length > LONGEST || !self.may_take() {
            return self.refusal();
        }
        let Some(held) = lock::acquire(&header.lock, me, false, pause) else { return Posted::Kernel };
        if !self.may_take() {
            return self.refusal();
        }
        let tail = header.tail.load(Ordering::Relaxed) & !mark::ALL;
        let charged = header.charged.load(Ordering::Relaxed);
        let cost = charge(length, source.v6);
        if !self.has_room(tail, charged, cost) {
            return Posted::Dropped;
        }
        let mut marks = mark::PRESENT;
        let further = details.interface as u64 | (details.segment as u64) << 32;
        if further != 0 {
            marks |= mark::FURTHER;
        }
        if details.stamp != 0 {
            marks |= mark::STAMPED;
        }
        let rest = (details.ttl as u64) << 32 | (details.tos as u64) << 40 | (details.moment as u64 >> 16) << 48;
        let scope = if source.v6 {
            marks |= mark::V6;
            self.word(tail + 24).store(half(&source.ip, 0), Ordering::Relaxed);
            self.word(tail + 32).store(half(&source.ip, 1), Ordering::Relaxed);
            self.word(tail + 40).store(rest, Ordering::Relaxed);
            if details.to != source.ip {
                marks |= mark::TO;
                self.word(tail + 48).store(half(&details.to, 0), Ordering::Relaxed);
                self.word(tail + 56).store(half(&details.to, 1), Ordering::Relaxed);
            }
            source.scope as u64
        } else {
            self.word(tail + 24).store(half(&details.to, 1) >> 32 | rest, Ordering::Relaxed);
            half(&source.ip, 1) >> 32
        };
        let mut at = tail + header_length(marks);
        if further != 0 {
            let before = if details.stamp != 0 { 16 } else { 8 };
            self.word(at - before).store(further, Ordering::Relaxed);
        }
        if details.stamp != 0 {
            self.word(at - 8).store(details.stamp, Ordering::Relaxed);
        }
        let next = tail.wrapping_add(record_length(marks, length));
        self.word(next).store(0, Ordering::Relaxed);
        self.word(tail + 8).store(
            length as u64 | (details.moment as u64 & 0xffff) << 16 | (source.processor as u64) << 32 | (source.port as u64) << 48,
            Ordering::Relaxed,
        );
        self.word(tail + 16).store(scope | charged << 32, Ordering::Relaxed);
        let mut left = length;
        for (data, size) in pieces {
            let size = size.min(left);
            // SAFETY: the piece is readable or faults; all pieces together fit into the ring.
            if !unsafe { self.ring().put(at, data, size) } {
                return Posted::Fault;
            }
            at = at.wrapping_add(size as u64);
            left -= size;
        }
        header.charged.store(charged.wrapping_add(cost), Ordering::Relaxed);
        header.tail.store(next, Ordering::Relaxed);
        self.word(tail).swap(tail | marks, Ordering::SeqCst); // publish
        let after = header.gate.load(Ordering::SeqCst); // look at the gate
        if after & gate::OPEN != 0 {
            drop(held);
            return Posted::Done;
        }
        // Whoever shut the gate looks once more; if nothing older lies here, that look may have come before our datagram.
        let back = header.head.compare_exchange(tail, next, Ordering::SeqCst, Ordering::Acquire).is_ok();
        drop(held);
        if back {
            self.refusal()
        } else {
            Posted::Done
        }
    }

    /// Whether a datagram would be taken now, as far as the gate says.
    #[inline(always)]
    pub fn may_take(&self) -> bool {
        let header = self.header();
        let now = header.gate.load(Ordering::Acquire);
        // Behind older datagrams one may join even while the gate is shut by sleepers: they are bound to look once more.
        let joins = || {
            now & (gate::RETIRED | gate::PINS) == 0 && header.head.load(Ordering::Acquire) != header.tail.load(Ordering::Relaxed)
        };
        header.behind.load(Ordering::Relaxed) == 0 && (now & gate::OPEN != 0 || joins())
    }

    #[cold]
    pub(crate) fn refusal(&self) -> Posted {
        if self.header().gate.load(Ordering::Acquire) & gate::RETIRED != 0 {
            Posted::Retired
        } else {
            Posted::Kernel
        }
    }

    /// Whether a datagram that costs `cost` fits; an empty queue takes any. The senders' lock is held.
    #[inline(always)]
    fn has_room(&self, tail: u64, charged: u64, cost: u64) -> bool {
        let header = self.header();
        let limit = self.limit();
        let waiting = charged.wrapping_sub(header.released.load(Ordering::Relaxed));
        waiting == 0 || waiting.saturating_add(cost) <= limit / CROWDED || self.make_room(tail, charged, cost, limit)
    }

    /// Charges that may wait. Records are smaller than their charges, so this bounds the ring as well.
    #[inline(always)]
    fn limit(&self) -> u64 {
        (self.header().limit.load(Ordering::Relaxed) as u64).min(self.size as u64 - RING as u64)
    }

    #[cold]
    fn make_room(&self, tail: u64, charged: u64, cost: u64, limit: u64) -> bool {
        let waiting = self.waiting(tail, charged);
        self.header().released.store(charged.wrapping_sub(waiting), Ordering::Relaxed);
        waiting == 0 || waiting.saturating_add(cost) <= limit
    }

    /// What the datagrams that wait are charged.
    fn waiting(&self, tail: u64, charged: u64) -> u64 {
        let head = self.header().head.load(Ordering::Acquire);
        if head == tail {
            return 0;
        }
        // What was charged before the oldest record has been released; 32 bits of it tell the rest.
        let before = (self.word(head.wrapping_add(16)).load(Ordering::Relaxed) >> 32) as u32;
        (charged as u32).wrapping_sub(before) as u64
    }

    /// Whether more than a quarter of what may wait does, as far as senders have noticed.
    #[inline(always)]
    pub fn seems_crowded(&self) -> bool {
        let header = self.header();
        let waiting = header.charged.load(Ordering::Relaxed).wrapping_sub(header.released.load(Ordering::Relaxed));
        waiting > self.limit() / CROWDED
    }

    /// The same, looked at.
    pub fn is_crowded(&self) -> bool {
        let header = self.header();
        self.waiting(header.tail.load(Ordering::Relaxed), header.charged.load(Ordering::Relaxed)) > self.limit() / CROWDED
    }

    /// What receivers ask senders for ([`shunt_segment::inbox::ask`]).
    #[inline(always)]
    pub fn asks(&self) -> u32 {
        self.header().asks.load(Ordering::Relaxed)
    }

    /// A sender is about to use the kernel: what lies here now comes first. False: nothing does.
    pub fn before_kernel(&self) -> bool {
        let header = self.header();
        let tail = header.tail.load(Ordering::SeqCst);
        if header.head.load(Ordering::SeqCst) == tail {
            return false;
        }
        header.barrier.fetch_max(tail, Ordering::SeqCst);
        true
    }

    /// A sender has used the kernel: until a look that begins from now on finds the kernel's queue empty, all do.
    pub fn after_kernel(&self) {
        let header = self.header();
        header.behind.fetch_max(header.looks.load(Ordering::SeqCst).wrapping_add(1), Ordering::SeqCst);
    }

    /// Whether senders wait for a look at the kernel's queue.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.header().behind.load(Ordering::Relaxed) != 0
    }

    /// Whether every datagram has been taken.
    pub fn is_drained(&self) -> bool {
        let header = self.header();
        header.head.load(Ordering::SeqCst) == header.tail.load(Ordering::SeqCst)
    }

    /// Whether the kernel's queue may have its turn before `front`: no sender went there while older records lay here.
    pub fn may_yield(&self, front: &Front) -> bool {
        front.position >= self.header().barrier.load(Ordering::SeqCst)
    }

    // ---- receivers

    /// The oldest datagram.
    #[inline(always)]
    pub fn front(&self) -> Option<Front> {
        self.at(self.header().head.load(Ordering::SeqCst) & POSITION)
    }

    /// The datagram at `position`, if one begins there.
    #[inline(always)]
    pub(crate) fn at(&self, position: u64) -> Option<Front> {
        let first = self.word(position).load(Ordering::SeqCst);
        if first & !mark::ALL != position || first & mark::PRESENT == 0 {
            return None;
        }
        Some(self.read(position, first))
    }

    #[inline(always)]
    fn read(&self, position: u64, first: u64) -> Front {
        let second = self.word(position + 8).load(Ordering::Relaxed);
        let detail = self.word(position + 16).load(Ordering::Relaxed) as u32;
        let v6 = first & mark::V6 != 0;
        let length = second as u16 as usize;
        let rest = self.word(position + if v6 { 40 } else { 24 }).load(Ordering::Relaxed);
        let moment = (second >> 16) as u32 & 0xffff | (rest >> 48 << 16) as u32;
        let mut source = Source { v6, ip: [0; 16], port: (second >> 48) as u16, scope: 0, processor: (second >> 32) as u16 };
        if v6 {
            source.ip[..8].copy_from_slice(&self.word(position + 24).load(Ordering::Relaxed).to_le_bytes());
            source.ip[8..].copy_from_slice(&self.word(position + 32).load(Ordering::Relaxed).to_le_bytes());
            source.scope = detail;
        } else {
            source.ip[12..].copy_from_slice(&detail.to_le_bytes());
        }
        Front {
            position,
            next: position.wrapping_add(record_length(first, length)),
            payload: position.wrapping_add(header_length(first)),
            marks: first & mark::ALL,
            length,
            source,
            moment,
        }
    }

    /// What else the datagram tells. To be believed when [`Inbox::take`] or [`Inbox::still`] has succeeded afterwards.
    pub fn details(&self, front: &Front) -> Details {
        let at = |offset: u64| self.word(front.position.wrapping_add(offset)).load(Ordering::Relaxed);
        let v6 = front.marks & mark::V6 != 0;
        let rest = at(if v6 { 40 } else { 24 });
        let mut to = front.source.ip;
        if !v6 {
            to[12..].copy_from_slice(&(rest as u32).to_le_bytes());
        } else if front.marks & mark::TO != 0 {
            to[..8].copy_from_slice(&at(48).to_le_bytes());
            to[8..].copy_from_slice(&at(56).to_le_bytes());
        }
        let stamped = front.marks & mark::STAMPED != 0;
        let before = |offset: u64| self.word(front.payload.wrapping_sub(offset)).load(Ordering::Relaxed);
        let further = if front.marks & mark::FURTHER != 0 { before(if stamped { 16 } else { 8 }) } else { 0 };
        Details {
            to,
            ttl: (rest >> 32) as u8,
            tos: (rest >> 40) as u8,
            segment: (further >> 32) as u16,
            interface: further as u32,
            moment: front.moment,
            stamp: if stamped { before(8) } else { 0 },
        }
    }

    /// Copies the first bytes of the datagram into `pieces`; gives how many were copied, `None` if a piece faults.
    ///
    /// # Safety
    /// The pieces are the program's.
    #[inline(always)]
    pub unsafe fn copy(&self, front: &Front, pieces: impl Iterator<Item = (*mut u8, usize)>) -> Option<usize> {
        let mut done = 0;
        for (data, room) in pieces {
            if done == front.length {
                break;
            }
            let size = room.min(front.length - done);
            // SAFETY: the piece is writable or faults, and no datagram is longer than the ring.
            if !unsafe { self.ring().get(front.payload.wrapping_add(done as u64), data, size) } {
                return None;
            }
            done += size;
        }
        Some(done)
    }

    /// Takes the datagram: false if another receiver, or its sender, took it meanwhile.
    #[inline(always)]
    pub fn take(&self, front: &Front) -> bool {
        self.header().head.compare_exchange(front.position, front.next, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Whether the datagram still is the oldest: what was copied is what it held.
    pub fn still(&self, front: &Front) -> bool {
        self.header().head.load(Ordering::SeqCst) == front.position
    }

    /// A receiver is about to look at the kernel's queue: the number of this look.
    pub fn begin_look(&self) -> u64 {
        self.header().looks.fetch_add(1, Ordering::SeqCst).wrapping_add(1)
    }

    /// Look number `look` found the kernel's queue empty: senders may come back if all that used the kernel did so before.
    pub fn note_drained(&self, look: u64) {
        let behind = &self.header().behind;
        let due = behind.load(Ordering::SeqCst);
        if due != 0 && look >= due {
            let _ = behind.compare_exchange(due, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Position of the newest datagram's end, as senders say: changes with each arrival.
    pub fn arrivals(&self) -> u64 {
        self.header().tail.load(Ordering::Acquire)
    }

    // ---- the gate

    /// Opens the gate, unless somebody sleeps or it is retired. True: senders may write.
    #[inline]
    pub fn open(&self) -> bool {
        let gate = &self.header().gate;
        match gate.load(Ordering::Relaxed) {
            gate::OPEN => true,
            0 => gate.compare_exchange(0, gate::OPEN, Ordering::SeqCst, Ordering::Relaxed).is_ok(),
            _ => false,
        }
    }

    /// Shuts the gate for a sleeper; the caller looks at [`Inbox::front`] once more before it sleeps.
    pub fn enter(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| {
            Some((now & !gate::OPEN) + if now & gate::SLEEPERS == gate::SLEEPERS { 0 } else { 1 })
        });
    }

    /// The sleeper is awake again.
    pub fn leave(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| (now & gate::SLEEPERS != 0).then(|| now - 1));
    }

    /// Shuts the gate for somebody who needs the kernel to see each datagram.
    pub fn pin(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| {
            Some((now & !gate::OPEN) + if now & gate::PINS == gate::PINS { 0 } else { gate::PIN })
        });
    }

    /// Takes one pin back.
    pub fn unpin(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| (now & gate::PINS != 0).then(|| now - gate::PIN));
    }

    /// Shuts the gate for good.
    pub fn retire(&self) {
        let gate = &self.header().gate;
        let _ = gate.fetch_update(Ordering::SeqCst, Ordering::Relaxed, |now| Some((now & !gate::OPEN) | gate::RETIRED));
    }

    /// Whether it is shut for good.
    pub fn is_retired(&self) -> bool {
        self.header().gate.load(Ordering::Relaxed) & gate::RETIRED != 0
    }
}
