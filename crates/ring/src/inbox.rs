//! Datagrams through shared memory: many senders, one total order, any owner of the socket receives.
//!
//! Senders exclude each other by a lock that survives its owner. Receivers hold none: they copy a record and then move
//! the head past it by compare-and-swap; a receiver that loses has copied in vain. A sender that finds the gate shut after it has
//! published takes its record back by the same compare-and-swap and uses the kernel instead, so a receiver that shuts
//! the gate, looks once more, and finds nothing may sleep in the kernel: nothing will lie here while it does.
//!
//! The orders that pair: *publish* (a sender's swap of the record's first word) before its *look at the gate*, and a
//! receiver's *shutting of the gate* before its *last look*. All four are sequentially consistent.

mod gate;
mod receive;
mod record;
mod room;
mod send;

pub(crate) use record::{record_length, V4_HEADER};
pub use record::{Details, Front, Source};
pub use send::Posted;

use crate::copy::Ring;
use core::sync::atomic::AtomicU64;
use shunt_segment::inbox::{InboxHeader, LONGEST, RING};

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
}
