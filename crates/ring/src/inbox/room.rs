//! How much may wait, by what the kernel would charge for it.

use super::Inbox;
use core::sync::atomic::Ordering;
use shunt_segment::inbox::RING;

/// Beyond this part of what may wait an inbox is crowded.
const CROWDED: u64 = 4;

impl Inbox {
    /// Whether a datagram that costs `cost` fits; an empty queue takes any. The senders' lock is held.
    #[inline(always)]
    pub(super) fn has_room(&self, tail: u64, charged: u64, cost: u64) -> bool {
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
}
