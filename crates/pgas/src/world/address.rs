//! The check of addresses, where each rank's copy of an object lies in this process, and the numbers that all ranks have for it.

use super::{locked, World, DATA};
use crate::error::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{compiler_fence, AtomicU64, Ordering};

/// Linux maps so many bytes around an address that is read, as far as their pages exist; heaps begin at multiples of it.
pub(super) const WINDOW: usize = 64 << 10;

impl World {
    /// Where this process finds rank `rank`'s copy of the symmetric object at `address`; none if the rank does not exist or lives on another
    /// host, or if not all of `length` bytes are symmetric. [`World::wrong`] says which.
    #[inline(always)]
    pub fn remote(&self, address: usize, length: usize, rank: usize) -> Option<usize> {
        if self.is_near(rank) {
            let (offset, top) = (address.wrapping_sub(self.own_heap), self.top.load(Relaxed));
            if offset < top && length <= top - offset {
                return Some(self.first_heap + rank * self.heap_bytes + offset);
            }
            let offset = address.wrapping_sub(self.own_data);
            if offset < self.data_bytes && length <= self.data_bytes - offset {
                return Some(self.first_data + rank * self.data_bytes + offset);
            }
            return self.looked_up(address, length, rank);
        }
        None
    }

    /// The same of the heap, if every address is looked up.
    #[cold]
    #[inline(never)]
    fn looked_up(&self, address: usize, length: usize, rank: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.own_heap);
        (self.careful && self.is_allocated(offset, length)).then(|| self.first_heap + rank * self.heap_bytes + offset)
    }

    /// Whether the bytes lie below the end of the highest object; within an object, if every address is looked up.
    fn is_allocated(&self, offset: usize, length: usize) -> bool {
        let top = self.top.load(Relaxed);
        match self.careful {
            false => offset < top && length <= top - offset,
            true => locked(&self.heap).as_ref().is_some_and(|heap| heap.has(offset, length)),
        }
    }

    /// Why [`World::remote`] found nothing.
    #[cold]
    pub fn wrong(&self, address: usize, length: usize, rank: i64) -> Error {
        if rank < 0 || rank >= self.ranks as i64 {
            return Error::Rank { rank, ranks: self.ranks };
        }
        Error::Address {
            rank: rank as usize,
            address,
            length,
            heap: (self.own_heap, self.heap_bytes),
            data: (self.own_data, self.data_bytes),
            object: self.object(address),
        }
    }

    /// The object of the heap that an address is in or behind: its offset and size.
    fn object(&self, address: usize) -> Option<(usize, usize)> {
        let offset = address.wrapping_sub(self.own_heap);
        locked(&self.heap).as_ref().filter(|_| offset < self.heap_bytes).and_then(|heap| heap.before(offset))
    }

    /// Whether the bytes are symmetric memory of this rank.
    pub fn is_symmetric(&self, address: usize, length: usize) -> bool {
        self.remote(address, length, self.me).is_some()
    }

    /// To be called after each store of so many bytes at `at`, which [`World::remote`] gave for the rank: wakes it if it sleeps for them. The
    /// sleeper has paid for the order of the caller's store and this load (`membarrier` in `wait`).
    #[inline(always)]
    pub fn stored(&self, rank: usize, at: usize, bytes: usize) {
        compiler_fence(Ordering::SeqCst);
        if self.block(rank).asleep.load(Relaxed) != 0 {
            crate::wait::rouse_for(self, rank, at, bytes);
        }
    }

    /// The same after a store to a flag of the job's own.
    #[inline(always)]
    pub fn flagged(&self, rank: usize) {
        compiler_fence(Ordering::SeqCst);
        if self.block(rank).asleep.load(Relaxed) != 0 {
            crate::wait::rouse(self.block(rank));
        }
    }

    /// To be called before a store of many bytes at `at`, which [`World::remote`] gave: a first look at a window of a heap maps all its pages that
    /// exist, where stores would enter the kernel for each.
    #[inline(always)]
    pub fn look_ahead(&self, at: usize, bytes: usize) {
        let window = at.wrapping_sub(self.first_heap) / WINDOW;
        if at.wrapping_sub(self.first_heap) < self.heap_bytes * self.ranks
            && (self.window(window).load(Relaxed) & 1 << (window % 64) == 0 || bytes > WINDOW)
        {
            self.look(at, bytes);
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, at: usize, bytes: usize) {
        let mut next = at;
        while next < at + bytes {
            let window = (next - self.first_heap) / WINDOW;
            if self.window(window).fetch_or(1 << (window % 64), Relaxed) & 1 << (window % 64) == 0 {
                // SAFETY: the caller's bytes are mapped; what is read does not matter.
                unsafe { (next as *const u8).read_volatile() };
            }
            next = (next / WINDOW + 1) * WINDOW;
        }
    }

    /// The word that has a window's bit.
    #[inline(always)]
    fn window(&self, window: usize) -> &AtomicU64 {
        // SAFETY: there is a bit for each window of each heap; the mapping lives as long as the process.
        unsafe { &*((self.mapped + window / 64 * 8) as *const AtomicU64) }
    }

    /// A number for mapped symmetric memory that all ranks have for the same place.
    pub(crate) fn number(&self, at: usize) -> u64 {
        let heaps = at.wrapping_sub(self.first_heap);
        if heaps < self.heap_bytes * self.ranks {
            return heaps as u64;
        }
        DATA | at.wrapping_sub(self.first_data) as u64
    }

    /// The number of a rank's copy of an object, wherever the rank lives; none if there is no such rank, or if the bytes are not symmetric.
    pub fn place_of(&self, rank: usize, address: usize, length: usize) -> Option<u64> {
        if rank >= self.ranks {
            return None;
        }
        let offset = address.wrapping_sub(self.own_data);
        if offset < self.data_bytes && length <= self.data_bytes - offset {
            return Some((rank * self.data_bytes + offset) as u64 | DATA);
        }
        let offset = address.wrapping_sub(self.own_heap);
        self.is_allocated(offset, length).then(|| (rank * self.heap_bytes + offset) as u64)
    }

    /// The number that rank 0's copy of an object has, which is the offset in the heap; none if it is not symmetric.
    pub(crate) fn own_number(&self, address: usize, bytes: usize) -> Option<u64> {
        self.place(0, address, bytes)
    }

    /// The number of a rank's copy of an object; none if it is not symmetric.
    pub(crate) fn place(&self, rank: usize, address: usize, bytes: usize) -> Option<u64> {
        self.place_of(rank, address, bytes)
    }
}
