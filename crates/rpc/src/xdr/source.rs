//! Where bytes to be decoded lie: in memory of this process alone, or in memory that its peer may write meanwhile.
//!
//! A peer's memory is input: each of its bytes is loaded once, by code that no compiler makes load twice, into a value that is judged then.
//! So what is long is copied once, to where it belongs. A slice of such memory is never made; what asks for one is given a copy's. Neither a source
//! nor a decoder can be cloned: there is no second look at a byte, and copies have no more bytes than the memory.

use std::cell::RefCell;
use std::marker::PhantomData;

/// Bytes of a copy's memory that are kept.
const KEPT: usize = 1 << 20;

/// Copies of shared memory, which slices are given of. They live as long as the decoder that asked for them, and their memory longer.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Boxed by their vectors: they stay where they are while others are added.
    made: RefCell<Vec<Vec<u8>>>,
    spare: RefCell<Vec<u8>>,
}

impl Copies {
    /// The memory of the largest is kept for the next time, if it is of no great length: a server has copies of each caller.
    pub fn reuse(&mut self) {
        let kept = self.made.get_mut().drain(..).filter(|one| one.capacity() <= KEPT).max_by_key(Vec::capacity);
        if let Some(kept) = kept.filter(|one| one.capacity() > self.spare.get_mut().capacity()) {
            self.spare = RefCell::new(kept);
        }
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.made.borrow().iter().map(Vec::len).sum()
    }
}

/// What was copied to `copy` is what is judged and what is kept: without this a compiler may read it from the shared memory again.
#[inline(always)]
pub(crate) fn loaded_once(copy: *const u8) {
    // SAFETY: no instruction; it may read and write memory, as far as the compiler knows.
    #[cfg(not(miri))]
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) copy, options(nostack, preserves_flags));
    }
    #[cfg(miri)]
    let _ = copy;
}

/// Memory that another process may write.
#[derive(Debug)]
struct Raw<'a> {
    at: *const u8,
    life: PhantomData<&'a u8>,
}

/// Where bytes lie.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// Empty where `raw` is.
    own: &'a [u8],
    raw: Option<(Raw<'a>, &'a Copies)>,
    length: usize,
}

impl<'a> Source<'a> {
    /// Memory of this process alone.
    #[inline(always)]
    pub fn own(bytes: &'a [u8]) -> Self {
        Self { own: bytes, raw: None, length: bytes.len() }
    }

    /// Memory that is shared.
    ///
    /// # Safety
    /// `length` bytes are mapped at `at`, which is a multiple of 4, as long as `'a`.
    pub unsafe fn shared(at: *const u8, length: usize, copies: &'a Copies) -> Self {
        debug_assert!(at.addr().is_multiple_of(4));
        Self { own: &[], raw: Some((Raw { at, life: PhantomData }, copies)), length }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether so many bytes are there.
    #[inline(always)]
    fn has(&self, at: usize, count: usize) -> bool {
        at <= self.length && count <= self.length - at
    }

    /// A unit: `at` is a multiple of 4 where memory is shared, as all that is decoded before has whole units.
    #[inline(always)]
    pub fn unit(&self, at: usize) -> Option<u32> {
        match &self.raw {
            None => Some(u32::from_be_bytes(*self.own.get(at..)?.first_chunk()?)),
            Some((raw, _)) if self.has(at, 4) && at.is_multiple_of(4) => {
                // SAFETY: inside the memory, and aligned, as it is.
                Some(u32::from_be(unsafe { raw.at.add(at).cast::<u32>().read_volatile() }))
            }
            Some(_) => None,
        }
    }

    /// Two of them.
    #[inline(always)]
    pub fn two_units(&self, at: usize) -> Option<u64> {
        match &self.raw {
            None => Some(u64::from_be_bytes(*self.own.get(at..)?.first_chunk()?)),
            Some(_) => Some(u64::from(self.unit(at)?) << 32 | u64::from(self.unit(at.checked_add(4)?)?)),
        }
    }

    /// Whether so many bytes, three at most, are all zero.
    #[inline(always)]
    pub fn are_zeros(&self, at: usize, count: usize) -> Option<bool> {
        match &self.raw {
            None => Some(self.own.get(at..)?.get(..count)?.iter().all(|&byte| byte == 0)),
            Some((raw, _)) if self.has(at, count) => {
                // SAFETY: inside the memory.
                Some((at..at + count).all(|at| unsafe { raw.at.add(at).read_volatile() } == 0))
            }
            Some(_) => None,
        }
    }

    /// So many bytes as a slice: of a copy where memory is shared.
    #[inline(always)]
    pub fn slice(&self, at: usize, count: usize) -> Option<&'a [u8]> {
        match &self.raw {
            None => self.own.get(at..)?.get(..count),
            Some(_) => self.copied(at, count),
        }
    }

    #[inline(never)]
    fn copied(&self, at: usize, count: usize) -> Option<&'a [u8]> {
        let (_, copies) = self.raw.as_ref()?;
        if !self.has(at, count) {
            return None;
        }
        let mut copy = copies.spare.take();
        copy.clear();
        copy.reserve_exact(count);
        self.append(at, count, &mut copy)?;
        // SAFETY: the vector's bytes, which stay where they are and as they are as long as the copies are borrowed.
        let bytes = unsafe { std::slice::from_raw_parts(copy.as_ptr(), count) };
        copies.made.borrow_mut().push(copy);
        Some(bytes)
    }

    /// Puts so many bytes behind those of a vector: what is shared is copied once.
    #[inline(always)]
    pub fn append(&self, at: usize, count: usize, to: &mut Vec<u8>) -> Option<()> {
        match &self.raw {
            None => to.extend_from_slice(self.own.get(at..)?.get(..count)?),
            Some((raw, _)) if self.has(at, count) => {
                to.reserve(count);
                // SAFETY: inside the memory; room was reserved. The other side may write meanwhile: bytes are bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(raw.at.add(at), to.as_mut_ptr().add(to.len()), count);
                    to.set_len(to.len() + count);
                }
                loaded_once(to.as_ptr());
            }
            Some(_) => return None,
        }
        Some(())
    }

    /// Fills an array with bytes.
    #[inline(always)]
    pub fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        match &self.raw {
            None => self.own.get(at..)?.first_chunk().copied(),
            Some((raw, _)) if self.has(at, N) => {
                let mut array = [0; N];
                // SAFETY: inside the memory.
                unsafe { std::ptr::copy_nonoverlapping(raw.at.add(at), array.as_mut_ptr(), N) };
                loaded_once(array.as_ptr());
                Some(array)
            }
            Some(_) => None,
        }
    }
}
