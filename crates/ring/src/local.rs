//! AF_UNIX sockets' bytes in an inbox: pieces of a stream, of which a receiver may take a part, or whole packets.
//!
//! The head's upper bits count the bytes of the oldest record that were taken. As in [`crate::inbox`], a receiver copies
//! first and then moves the head by compare-and-swap, so no lock is held while bytes are read; one step may go past
//! several records. A record is what an sk_buff is in the kernel's queue.
//!
//! What makes the order exact is kept by the callers: none writes here while the kernel's queue holds anything of the same
//! direction, and none reads the kernel's queue before the gate is shut and the ring empty.

use crate::inbox::{record_length, Inbox, Posted, V4_HEADER};
use crate::lock;
use core::sync::atomic::Ordering;
use shunt_segment::inbox::{gate, local_charge, mark, LONGEST, POSITION, TAKEN_SHIFT};

/// What became of a piece or packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// It lies in the ring.
    Done,
    /// The program's memory faulted; nothing was written.
    Fault,
    /// No room now.
    Full,
    /// The gate is shut: the kernel shall carry it.
    Kernel,
    /// As `Kernel`, for good.
    Retired,
}

/// Bytes that a receiver has copied and not taken yet.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    head: u64,
    next: u64,
    /// Bytes copied.
    pub copied: usize,
    /// Bytes that the packet has.
    pub whole: usize,
    /// The program's memory faulted behind those that were copied.
    pub fault: bool,
    /// The processor that the sender ran on, plus one; 0: unknown.
    pub processor: u16,
}

impl Inbox {
    /// Whether the gate is open: no receiver sleeps, and none needs the kernel.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.header().gate.load(Ordering::Acquire) & gate::OPEN != 0
    }

    /// Puts one piece of a stream, or one `packet`, into the ring, if the gate is open and what waits, with it, costs no
    /// more than `limit`.
    ///
    /// `me` is the calling thread; `pause` as in [`lock::acquire`]. The senders' order is the caller's to keep.
    ///
    /// # Safety
    /// `pieces` are any addresses that are not ours, together `length` bytes, at most [`LONGEST`].
    #[inline]
    pub unsafe fn put(
        &self,
        me: u32,
        packet: bool,
        processor: u16,
        pieces: impl Iterator<Item = (*mut u8, usize)>,
        length: usize,
        limit: u64,
        pause: impl FnMut(u32),
    ) -> Put {
        let header = self.header();
        if length > LONGEST || !self.is_open() {
            return self.turned_away();
        }
        let Some(held) = lock::acquire(&header.lock, me, false, pause) else { return Put::Kernel };
        let tail = header.tail.load(Ordering::Relaxed) & POSITION & !mark::ALL;
        let charged = header.charged.load(Ordering::Relaxed);
        let cost = local_charge(length, packet);
        if !self.has_place(tail, charged, cost, limit) {
            return Put::Full;
        }
        let next = tail.wrapping_add(record_length(mark::PRESENT, length)) & POSITION;
        self.word(next).store(0, Ordering::Relaxed);
        let mut at = tail + V4_HEADER;
        let mut left = length;
        for (data, size) in pieces {
            let size = size.min(left);
            // SAFETY: all pieces together fit into the ring; the program's memory may fault.
            if !unsafe { self.ring().put(at, data, size) } {
                return Put::Fault;
            }
            at = at.wrapping_add(size as u64);
            left -= size;
        }
        self.word(tail + 8).store((length - left) as u64 | (processor as u64) << 32, Ordering::Relaxed);
        self.word(tail + 16).store(charged << 32, Ordering::Relaxed);
        self.word(tail + 24).store(0, Ordering::Relaxed);
        header.charged.store(charged.wrapping_add(cost), Ordering::Relaxed);
        header.tail.store(next, Ordering::Relaxed);
        self.word(tail).swap(tail | mark::PRESENT, Ordering::SeqCst); // publish
        let after = header.gate.load(Ordering::SeqCst); // look at the gate
        if after & gate::OPEN == 0 {
            // The receiver that shut it looks once more; if nothing older lies here, that look may have come before our bytes.
            let back = header.head.compare_exchange(tail, next, Ordering::SeqCst, Ordering::Acquire).is_ok();
            drop(held);
            return if back { self.turned_away() } else { Put::Done };
        }
        drop(held);
        Put::Done
    }

    #[cold]
    fn turned_away(&self) -> Put {
        match self.refusal() {
            Posted::Retired => Put::Retired,
            _ => Put::Kernel,
        }
    }

    /// Whether something that costs `cost` fits. The senders' lock is held.
    #[inline(always)]
    fn has_place(&self, tail: u64, charged: u64, cost: u64, limit: u64) -> bool {
        // Records are smaller than their charges, so this bounds the ring as well.
        let limit = limit.min(self.size() / 2);
        let waiting = charged.wrapping_sub(self.header().released.load(Ordering::Relaxed));
        waiting.saturating_add(cost) <= limit || self.make_place(tail, charged, cost, limit)
    }

    #[cold]
    fn make_place(&self, tail: u64, charged: u64, cost: u64, limit: u64) -> bool {
        let waiting = self.waiting_since(tail, charged);
        self.header().released.store(charged.wrapping_sub(waiting), Ordering::Relaxed);
        waiting.saturating_add(cost) <= limit
    }

    fn waiting_since(&self, tail: u64, charged: u64) -> u64 {
        let head = self.header().head.load(Ordering::Acquire) & POSITION;
        if head == tail {
            return 0;
        }
        // What was charged before the oldest record has been released; 32 bits of it tell the rest.
        let before = (self.word(head.wrapping_add(16)).load(Ordering::Relaxed) >> 32) as u32;
        (charged as u32).wrapping_sub(before) as u64
    }

    /// What the sender is charged for what waits: a receiver that takes a part of a record releases nothing.
    pub fn waiting_charge(&self) -> u64 {
        let header = self.header();
        self.waiting_since(header.tail.load(Ordering::Acquire) & POSITION, header.charged.load(Ordering::Relaxed))
    }

    /// Whether nothing waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    /// Bytes of the stream that wait.
    pub fn waiting_bytes(&self) -> usize {
        let head = self.header().head.load(Ordering::SeqCst);
        let (mut position, mut taken) = (head & POSITION, (head >> TAKEN_SHIFT) as usize);
        let mut bytes = 0usize;
        // A hostile ring could be a circle.
        for _ in 0..self.size() / 64 {
            let Some(record) = self.at(position) else { break };
            bytes += record.length.saturating_sub(taken);
            taken = 0;
            position = record.next & POSITION;
        }
        bytes
    }

    /// Copies up to `want` bytes of a stream; `buffers` gives what is left of the program's from byte `n` on, at most so
    /// many. `None`: nothing waits.
    ///
    /// # Safety
    /// The buffers are any addresses that are not ours.
    #[inline]
    pub unsafe fn see_bytes<B>(&self, want: usize, buffers: impl Fn(usize, usize) -> B) -> Option<Seen>
    where
        B: Iterator<Item = (*mut u8, usize)>,
    {
        let head = self.header().head.load(Ordering::SeqCst);
        let (mut position, mut taken) = (head & POSITION, (head >> TAKEN_SHIFT) as usize);
        let first = self.at(position)?;
        let mut seen = Seen { head, next: head, copied: 0, whole: 0, fault: false, processor: first.source.processor };
        let mut record = Some(first);
        // A hostile writer could go on for ever with records of nothing.
        for _ in 0..=self.size() / 64 {
            let Some(now) = record else { break };
            let rest = now.length.saturating_sub(taken);
            let size = rest.min(want - seen.copied);
            let mut from = now.payload.wrapping_add(taken as u64);
            for (data, part) in buffers(seen.copied, size) {
                // SAFETY: no record is longer than the ring; the program's memory may fault.
                if !unsafe { self.ring().get(from, data, part) } {
                    seen.fault = true;
                    return Some(seen);
                }
                from = from.wrapping_add(part as u64);
            }
            seen.copied += size;
            if size < rest {
                seen.next = position | ((taken + size) as u64) << TAKEN_SHIFT;
                return Some(seen);
            }
            position = now.next & POSITION;
            seen.next = position;
            taken = 0;
            if seen.copied == want {
                return Some(seen);
            }
            record = self.at(position);
        }
        Some(seen)
    }

    /// Copies the next packet, or as much of it as there is room for.
    ///
    /// # Safety
    /// As for [`Inbox::see_bytes`].
    pub unsafe fn see_packet<B>(&self, room: usize, buffers: impl Fn(usize, usize) -> B) -> Option<Seen>
    where
        B: Iterator<Item = (*mut u8, usize)>,
    {
        let head = self.header().head.load(Ordering::SeqCst);
        let record = self.at(head & POSITION)?;
        let copied = record.length.min(room);
        let mut seen = Seen {
            head,
            next: record.next & POSITION,
            copied,
            whole: record.length,
            fault: false,
            processor: record.source.processor,
        };
        let mut from = record.payload;
        for (data, part) in buffers(0, copied) {
            // SAFETY: no record is longer than the ring; the program's memory may fault.
            if !unsafe { self.ring().get(from, data, part) } {
                seen.fault = true;
                return Some(seen);
            }
            from = from.wrapping_add(part as u64);
        }
        Some(seen)
    }

    /// Takes what was copied: false if another receiver, or the sender, took some of it meanwhile.
    #[inline(always)]
    pub fn take_seen(&self, seen: &Seen) -> bool {
        self.header().head.compare_exchange(seen.head, seen.next, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Whether no receiver took anything since: what was copied is what stands there.
    pub fn is_still(&self, seen: &Seen) -> bool {
        self.header().head.load(Ordering::SeqCst) == seen.head
    }

    /// A sender is about to use the kernel, or has used it.
    pub fn note_news(&self) {
        self.header().news.fetch_add(1, Ordering::SeqCst);
    }

    /// How often senders did; `None`: there may be others who never say.
    #[inline(always)]
    pub fn news(&self) -> Option<u64> {
        let header = self.header();
        let news = header.news.load(Ordering::SeqCst);
        (header.attached.load(Ordering::SeqCst) == 1).then_some(news)
    }

    /// Whether every sender says so from now on.
    pub fn attach(&self, all: bool) {
        self.header().attached.store(all as u32, Ordering::SeqCst);
    }
}
