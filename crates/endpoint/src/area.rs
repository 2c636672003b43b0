//! Buffers by offset and length, and the memory they lie in.

use core::marker::PhantomData;
use shunt_sys::user;

/// A run of bytes in a communication segment. Any value may be made; it is checked against the segment where it is used.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Area {
    /// First byte, counted from the start of the segment.
    pub offset: u32,
    /// Bytes.
    pub length: u32,
}

impl Area {
    /// The area of `length` bytes from `offset` on.
    pub const fn new(offset: u32, length: u32) -> Area {
        Area { offset, length }
    }

    /// The byte behind the last one.
    #[inline(always)]
    pub const fn end(&self) -> u64 {
        self.offset as u64 + self.length as u64
    }

    /// The first `length` bytes of the area, or all of it if it has fewer.
    #[inline(always)]
    pub const fn first(&self, length: u32) -> Area {
        Area { offset: self.offset, length: if length < self.length { length } else { self.length } }
    }

    /// What is left without the first `length` bytes.
    #[inline(always)]
    pub const fn without(&self, length: u32) -> Area {
        let length = if length < self.length { length } else { self.length };
        Area { offset: self.offset + length, length: self.length - length }
    }
}

/// A communication segment as this process has it mapped: a private handle, copied freely.
///
/// Other processes may write the same bytes at any time (owners of the endpoint; on some devices the peer, where an
/// arrival lies). So no reference to them is ever made: bytes are copied in and out, once, and judged after that.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    base: *mut u8,
    size: u32,
}

// SAFETY: raw bytes, copied without references; each process that shares them accepts any bytes.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// The segment of `size` bytes at `base`.
    ///
    /// # Safety
    /// They are mapped, readable and writable, as long as any copy of the handle is used.
    pub const unsafe fn new(base: *mut u8, size: u32) -> Segment {
        Segment { base, size }
    }

    /// Bytes.
    #[inline(always)]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether the area lies inside.
    #[inline(always)]
    pub fn contains(&self, area: Area) -> bool {
        area.end() <= self.size as u64
    }

    /// Where the area begins, if it lies inside.
    #[inline(always)]
    pub fn pointer(&self, area: Area) -> Option<*mut u8> {
        // SAFETY: the offset is inside the mapping.
        self.contains(area).then(|| unsafe { self.base.add(area.offset as usize) })
    }

    /// Copies `bytes` to the start of the area; false, and nothing is copied, if they do not fit or the area is not inside.
    #[inline]
    pub fn write(&self, area: Area, bytes: &[u8]) -> bool {
        if bytes.len() > area.length as usize {
            return false;
        }
        let Some(target) = self.pointer(area) else { return false };
        // SAFETY: inside the mapping; the source is a slice, which cannot overlap memory without references to it.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        true
    }

    /// Copies the start of the area into all of `bytes`; false if the area is shorter or not inside.
    #[inline]
    pub fn read(&self, area: Area, bytes: &mut [u8]) -> bool {
        if bytes.len() > area.length as usize {
            return false;
        }
        let Some(source) = self.pointer(area) else { return false };
        // SAFETY: as in `write`.
        unsafe { core::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len()) };
        true
    }

    /// Copies all of the area to the program's memory at `target`; false if that faults or the area is not inside.
    ///
    /// # Safety
    /// `target` is the program's to name: not memory of shunt.
    #[inline]
    pub unsafe fn read_to(&self, area: Area, target: *mut u8) -> bool {
        let Some(source) = self.pointer(area) else { return false };
        // SAFETY: the source is ours; a fault at the target is resolved.
        unsafe { user::copy(source, target, area.length as usize) }
    }

    /// Copies `length` bytes from one place in the segment to another; false if either is not inside.
    pub fn copy_within(&self, from: Area, to: u32) -> bool {
        match (self.pointer(from), self.pointer(Area::new(to, from.length))) {
            (Some(source), Some(target)) => {
                // SAFETY: both inside the mapping; they may overlap.
                unsafe { core::ptr::copy(source, target, from.length as usize) };
                true
            }
            _ => false,
        }
    }
}

/// Bytes of the program to be sent: a slice, or what the program named by address, which may not even be mapped.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    address: *const u8,
    length: usize,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    /// What the program named. A fault while reading is answered by [`crate::SendError::Fault`].
    ///
    /// # Safety
    /// Faults of this thread reach [`shunt_sys::user::resolve`], or the bytes are mapped as long as this value lives.
    pub unsafe fn named(address: *const u8, length: usize) -> Bytes<'a> {
        Bytes { address, length, lifetime: PhantomData }
    }

    /// Bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Their address.
    #[inline(always)]
    pub fn address(&self) -> *const u8 {
        self.address
    }

    /// Copies `length` of them, from `from` on, to memory of ours; false if that faults or they are fewer.
    ///
    /// # Safety
    /// `target` has room for `length` bytes.
    #[inline(always)]
    pub unsafe fn copy_to(&self, from: usize, target: *mut u8, length: usize) -> bool {
        if from > self.length || length > self.length - from {
            return false;
        }
        // SAFETY: the source is the program's, inside what it named; the target is the caller's.
        unsafe { user::copy(self.address.wrapping_add(from), target, length) }
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { address: bytes.as_ptr(), length: bytes.len(), lifetime: PhantomData }
    }
}
