//! Copies between private memory and a ring in shared memory.
//!
//! The peer may write the ring at any time. That can garble bytes, which is the peer's right, but not more: source and
//! destination are raw bytes, lengths come from private memory.

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

    /// Copies `length` bytes in, starting at stream position `position`.
    ///
    /// # Safety
    /// `source` holds `length` readable bytes, `base` points to `size` writable bytes, `length <= size`.
    #[inline(always)]
    pub unsafe fn put(self, position: u64, source: *const u8, length: usize) {
        let at = position as usize & (self.size as usize - 1);
        let first = length.min(self.size as usize - at);
        // SAFETY: at + first <= size, and the rest fits before `at` because length <= size.
        unsafe {
            copy(source, self.base.add(at), first);
            if first < length {
                copy(source.add(first), self.base, length - first);
            }
        }
    }

    /// Copies `length` bytes out, starting at stream position `position`.
    ///
    /// # Safety
    /// As for [`Ring::put`], with the roles exchanged.
    #[inline(always)]
    pub unsafe fn get(self, position: u64, target: *mut u8, length: usize) {
        let at = position as usize & (self.size as usize - 1);
        let first = length.min(self.size as usize - at);
        // SAFETY: as in put.
        unsafe {
            copy(self.base.add(at), target, first);
            if first < length {
                copy(self.base, target.add(first), length - first);
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

    pub unsafe fn put(self, position: u64, source: *const u8, length: usize) {
        assert!(length <= self.size as usize);
        for k in 0..length {
            // SAFETY: as for the real one; the checker watches the byte.
            unsafe { self.byte(position + k as u64).with_mut(|byte| *byte = *source.add(k)) }
        }
    }

    pub unsafe fn get(self, position: u64, target: *mut u8, length: usize) {
        assert!(length <= self.size as usize);
        for k in 0..length {
            // SAFETY: as for the real one; the checker watches the byte.
            unsafe { self.byte(position + k as u64).with(|byte| *target.add(k) = *byte) }
        }
    }
}

/// A copy that does not call for the sizes that matter most to latency.
///
/// # Safety
/// As for `core::ptr::copy_nonoverlapping`.
#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy(source: *const u8, target: *mut u8, length: usize) {
    // SAFETY: two overlapping word moves cover exactly `length` bytes; else passed on to the caller.
    unsafe {
        if length <= 16 {
            if length >= 8 {
                let a = source.cast::<u64>().read_unaligned();
                let b = source.add(length - 8).cast::<u64>().read_unaligned();
                target.cast::<u64>().write_unaligned(a);
                target.add(length - 8).cast::<u64>().write_unaligned(b);
            } else {
                small(source, target, length);
            }
        } else {
            core::ptr::copy_nonoverlapping(source, target, length);
        }
    }
}

/// Fewer than eight bytes.
///
/// # Safety
/// As for `core::ptr::copy_nonoverlapping`.
#[inline(always)]
pub unsafe fn small(source: *const u8, target: *mut u8, length: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        if length >= 4 {
            let a = source.cast::<u32>().read_unaligned();
            let b = source.add(length - 4).cast::<u32>().read_unaligned();
            target.cast::<u32>().write_unaligned(a);
            target.add(length - 4).cast::<u32>().write_unaligned(b);
        } else if length >= 2 {
            let a = source.cast::<u16>().read_unaligned();
            let b = source.add(length - 2).cast::<u16>().read_unaligned();
            target.cast::<u16>().write_unaligned(a);
            target.add(length - 2).cast::<u16>().write_unaligned(b);
        } else if length == 1 {
            target.write(source.read());
        }
    }
}
