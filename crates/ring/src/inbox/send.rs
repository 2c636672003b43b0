//! Putting a datagram in, or leaving it to the kernel.

use super::record::{header_length, record_length, Details, Source};
use super::Inbox;
use crate::lock;
use core::sync::atomic::Ordering;
use shunt_segment::inbox::{charge, gate, mark, LONGEST};

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

impl Inbox {
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
        let marks = self.describe(tail, charged, source, details, length);
        let mut at = tail.wrapping_add(header_length(marks));
        let next = tail.wrapping_add(record_length(marks, length));
        self.word(next).store(0, Ordering::Relaxed);
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
        // The receiver that shut the gate looks once more; if nothing older lies here, that look may have come before our
        // datagram.
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
}
