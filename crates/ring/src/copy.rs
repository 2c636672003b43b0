//! Copies between the program's memory and a ring in shared memory.
//!
//! The peer may write the ring at any time. That can garble bytes, which is the peer's right, but not more: source and
//! destination are raw bytes, lengths come from private memory. The program's memory may fault: then a copy says so.

#[cfg(not(loom))]
use core::arch::{
    asm,
    x86_64::{_mm_prefetch, _MM_HINT_T0},
};
#[cfg(not(loom))]
use shunt_sys::user::{copy, copy_away, copy_short};

/// A ring's memory: `size` is a power of two.
#[derive(Clone, Copy)]
pub struct Ring {
    /// First byte.
    pub base: *mut u8,
    /// Bytes.
    pub size: u32,
}

#[cfg(not(loom))]
impl Ring {
    /// The ring at `offset` of the link.
    #[inline(always)]
    pub fn at(link: *mut u8, offset: usize, size: u32) -> Ring {
        // SAFETY: the caller takes the offset from `ring_offset`, which stays inside the link for any argument.
        Ring { base: unsafe { link.add(offset) }, size }
    }

    /// Copies `length` bytes in, starting at stream position `position`; false if the source faults.
    ///
    /// # Safety
    /// `base` points to `size` writable bytes, `length <= size`.
    #[inline(always)]
    pub unsafe fn put(self, position: u64, source: *const u8, length: usize) -> bool {
        // SAFETY: passed on.
        unsafe { self.put_by(position, source, length, copy) }
    }

    /// As [`Ring::put`], of fewer than [`LONG`](shunt_sys::user::LONG) bytes.
    ///
    /// # Safety
    /// As for [`Ring::put`], and `length < LONG`.
    #[inline(always)]
    pub unsafe fn put_short(self, position: u64, source: *const u8, length: usize) -> bool {
        // SAFETY: passed on.
        unsafe { self.put_by(position, source, length, copy_short) }
    }

    /// As [`Ring::put`], past the caches of this processor ([`shunt_sys::user::copy_away`]).
    ///
    /// # Safety
    /// As for [`Ring::put`].
    #[inline(never)]
    pub unsafe fn put_away(self, position: u64, source: *const u8, length: usize) -> bool {
        // SAFETY: passed on.
        unsafe { self.put_by(position, source, length, copy_away) }
    }

    #[inline(always)]
    fn at_position(self, position: u64) -> usize {
        position as usize & (self.size as usize - 1)
    }

    #[inline(always)]
    unsafe fn put_by(
        self,
        position: u64,
        source: *const u8,
        length: usize,
        copy: unsafe fn(*const u8, *mut u8, usize) -> bool,
    ) -> bool {
        let at = self.at_position(position);
        let first = length.min(self.size as usize - at);
        // SAFETY: at + first <= size, and the rest fits before `at` because length <= size.
        unsafe {
            let ok = copy(source, self.base.add(at), first);
            if first < length {
                return ok && copy(source.wrapping_add(first), self.base, length - first);
            }
            ok
        }
    }

    /// Copies `length` bytes out, starting at stream position `position`; false if the target faults.
    ///
    /// # Safety
    /// As for [`Ring::put`], with the roles exchanged.
    #[inline(always)]
    pub unsafe fn get(self, position: u64, target: *mut u8, length: usize) -> bool {
        // SAFETY: passed on.
        unsafe { self.get_by(position, target, length, copy) }
    }

    /// As [`Ring::get`], of fewer than [`LONG`](shunt_sys::user::LONG) bytes.
    ///
    /// # Safety
    /// As for [`Ring::get`], and `length < LONG`.
    #[inline(always)]
    pub unsafe fn get_short(self, position: u64, target: *mut u8, length: usize) -> bool {
        // SAFETY: passed on.
        unsafe { self.get_by(position, target, length, copy_short) }
    }

    #[inline(always)]
    unsafe fn get_by(
        self,
        position: u64,
        target: *mut u8,
        length: usize,
        copy: unsafe fn(*const u8, *mut u8, usize) -> bool,
    ) -> bool {
        let at = self.at_position(position);
        let first = length.min(self.size as usize - at);
        // SAFETY: as in put_by.
        unsafe {
            let ok = copy(self.base.add(at), target, first);
            if first < length {
                return ok && copy(self.base, target.wrapping_add(first), length - first);
            }
            ok
        }
    }

    /// Asks for the lines of `length` bytes at `position`, to be read soon; of longer messages for the first ones.
    #[inline(always)]
    pub fn fetch(self, position: u64, length: usize) {
        const MOST: usize = 2048;
        // SAFETY: no access, and inside the ring.
        self.each_line(position, length.min(MOST), |line| unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) });
    }

    /// As [`Ring::fetch`], to be written, which takes them from a reader's caches.
    #[inline(always)]
    pub fn prepare(self, position: u64, length: usize) {
        self.each_line(position, length, |line| {
            // SAFETY: a hint, which does nothing where it is not known.
            unsafe { asm!("prefetchw byte ptr [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly)) }
        });
    }

    #[inline(always)]
    fn each_line(self, position: u64, length: usize, ask: impl Fn(*mut u8)) {
        const LINE: usize = 64;
        let at = self.at_position(position);
        let first = self.base.wrapping_add(at);
        // At the ring's end it is not worth a second piece.
        let length = length.min(self.size as usize - at);
        let mut done = 0;
        while length - done > 3 * LINE {
            (0..4).for_each(|line| ask(first.wrapping_add(done + line * LINE)));
            done += 4 * LINE;
            if done >= length {
                return;
            }
        }
        loop {
            ask(first.wrapping_add(done));
            done += LINE;
            if done >= length {
                break;
            }
        }
    }
}

/// A byte of a model's link: the model checker finds accesses that nothing orders.
#[cfg(loom)]
pub type Byte = loom::cell::UnsafeCell<u8>;

#[cfg(loom)]
impl Ring {
    pub fn at(link: *mut u8, offset: usize, size: u32) -> Ring {
        // SAFETY: a model's link is an array of `Byte`.
        Ring { base: unsafe { link.cast::<Byte>().add(offset) }.cast(), size }
    }

    unsafe fn byte(&self, position: u64) -> &Byte {
        let at = position as usize & (self.size as usize - 1);
        // SAFETY: at < size.
        unsafe { &*self.base.cast::<Byte>().add(at) }
    }

    pub unsafe fn put(self, position: u64, source: *const u8, length: usize) -> bool {
        assert!(length <= self.size as usize);
        for k in 0..length {
            // SAFETY: as for the real one; the checker watches the byte.
            unsafe { self.byte(position + k as u64).with_mut(|byte| *byte = *source.add(k)) }
        }
        true
    }

    pub unsafe fn put_away(self, position: u64, source: *const u8, length: usize) -> bool {
        // SAFETY: passed on.
        unsafe { self.put(position, source, length) }
    }

    pub unsafe fn put_short(self, position: u64, source: *const u8, length: usize) -> bool {
        // SAFETY: passed on.
        unsafe { self.put(position, source, length) }
    }

    pub unsafe fn get_short(self, position: u64, target: *mut u8, length: usize) -> bool {
        // SAFETY: passed on.
        unsafe { self.get(position, target, length) }
    }

    pub fn fetch(self, _position: u64, _length: usize) {}

    pub fn prepare(self, _position: u64, _length: usize) {}

    pub unsafe fn get(self, position: u64, target: *mut u8, length: usize) -> bool {
        assert!(length <= self.size as usize);
        for k in 0..length {
            // SAFETY: as for the real one; the checker watches the byte.
            unsafe { self.byte(position + k as u64).with(|byte| *target.add(k) = *byte) }
        }
        true
    }
}
