//! Which parts of a peer's pool are memory already.
//!
//! A page of a file that nobody has written is a hole, and becomes memory of the process that touches it first, a reader too: its memory
//! cgroup pays. So what a reference names is read only where the pool's owner has paid. A page that is there stays there: the seals of a
//! pool for anyone forbid its owner, too, to take pages out of it. So a unit without holes is not looked at again.

use crate::limit::Limit;
use crate::shape::Shape;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_sys::{calls, check, libc, mapping, syscall};

const SEEK_HOLE: i32 = 4;
const BITS: usize = u32::BITS as usize;

/// What is known of a file: a bit for each unit, and behind those one for each unit's spare. Offsets are from the first unit.
#[derive(Debug)]
pub(crate) struct Holes {
    fd: i32,
    shape: Shape,
    whole: *mut AtomicU32,
}

fn room(shape: Shape) -> usize {
    (2 * shape.units).div_ceil(BITS) * size_of::<AtomicU32>()
}

/// Where the first hole of a file from `at` on begins. Its end is one.
pub(crate) fn first(fd: i32, at: usize) -> usize {
    // SAFETY: plain numbers.
    check(unsafe { syscall!(libc::SYS_lseek, fd, at, SEEK_HOLE) }).unwrap_or(0)
}

impl Holes {
    /// Of the file behind `fd`, which is to stay open.
    ///
    /// # Errors
    /// [`Limit::Memory`].
    pub(crate) fn of(fd: i32, shape: Shape) -> Result<Holes, Limit> {
        // Zeros: nothing is known.
        let whole = mapping::reserve(room(shape)).map_err(Limit::of)?.cast();
        Ok(Holes { fd, shape, whole })
    }

    fn word(&self, unit: usize) -> (&AtomicU32, u32) {
        debug_assert!(unit < 2 * self.shape.units);
        // SAFETY: as many bits were reserved.
        (unsafe { &*self.whole.add(unit / BITS) }, 1 << (unit % BITS))
    }

    /// Whether all of these bytes, inside the units and spares, are memory.
    #[inline]
    pub(crate) fn are_absent(&self, bytes: Range<usize>) -> bool {
        let size = self.shape.unit;
        let mut at = bytes.start;
        while at < bytes.end {
            let (word, bit) = self.word(at / size);
            if word.load(Ordering::Relaxed) & bit == 0 {
                return self.look(at, bytes.end);
            }
            at = at - at % size + size;
        }
        true
    }

    #[cold]
    fn look(&self, start: usize, end: usize) -> bool {
        let size = self.shape.unit;
        let mut unit = start / size;
        let first = self.first_from(unit * size);
        // All up to the first one is noted, so that no part of a file is gone through twice.
        while unit < 2 * self.shape.units && (unit + 1) * size <= first {
            let (word, bit) = self.word(unit);
            word.fetch_or(bit, Ordering::Relaxed);
            unit += 1;
        }
        // One that lies in front, in the same unit, is none of the caller's.
        let hole = if first <= start { self.first_from(start) } else { first };
        hole >= end
    }

    fn first_from(&self, at: usize) -> usize {
        let front = self.shape.front();
        first(self.fd, front + at).saturating_sub(front)
    }
}

impl Drop for Holes {
    fn drop(&mut self) {
        let _ = calls::munmap(self.whole.cast(), room(self.shape));
    }
}
