//! Where encoded bytes go: to memory of this process alone, or to memory that its peer may write meanwhile.
//!
//! Nothing of it is read, and of shared memory no reference is made: a reference says that nobody else writes there.

use std::marker::PhantomData;

/// Memory to be written.
#[derive(Debug)]
pub(crate) struct Sink<'a> {
    at: *mut u8,
    room: usize,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> Sink<'a> {
    /// Memory of this process alone.
    #[inline(always)]
    pub fn own(bytes: &'a mut [u8]) -> Self {
        Self { at: bytes.as_mut_ptr(), room: bytes.len(), life: PhantomData }
    }

    /// Memory that is shared.
    ///
    /// # Safety
    /// `room` bytes are mapped for writing at `at`, as long as `'a`.
    pub unsafe fn shared(at: *mut u8, room: usize) -> Self {
        Self { at, room, life: PhantomData }
    }

    #[inline(always)]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Writes bytes to a place; false: they do not fit, and none is written.
    #[inline(always)]
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> bool {
        let fits = at <= self.room && bytes.len() <= self.room - at;
        if fits {
            // SAFETY: inside the memory, and no slice of this process's has part of it.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(at), bytes.len()) };
        }
        fits
    }

    /// Writes what was written to the beginning of memory of this process alone; false: it does not fit.
    pub fn begin_as(&mut self, other: &Self, length: usize) -> bool {
        let fits = length <= self.room && length <= other.room;
        if fits {
            // SAFETY: inside both, which are apart; the caller has written these bytes.
            unsafe { std::ptr::copy_nonoverlapping(other.at.cast_const(), self.at, length) };
        }
        fits
    }
}
