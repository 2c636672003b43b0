//! A peer's pool, mapped once and kept: what its owner says is checked, what its memory holds is never believed twice.

use crate::file::File;
use crate::guard;
use crate::holes::{self, Holes};
use crate::limit::Limit;
use crate::pool::{Header, MAGIC, VERSION};
use crate::reference::{Reference, Violation};
use crate::seals;
use crate::shape::{Audience, Shape, PAGE};
use core::ops::Range;
use core::sync::atomic::{fence, AtomicU32, Ordering};
use shunt_sys::{calls, mapping};

/// The mapping, with a private copy of the shape.
#[derive(Debug)]
pub struct Attached {
    base: *mut u8,
    shape: Shape,
    writable: bool,
    file: File,
    /// None of a pool whose owner is trusted.
    holes: Option<Holes>,
}

// SAFETY: shared memory, reached by atomics and by copying.
unsafe impl Send for Attached {}
// SAFETY: as above.
unsafe impl Sync for Attached {}

impl Attached {
    /// Maps the pool behind `fd`, which stays the caller's. Of [`Audience::Trusted`]: to be written, too.
    ///
    /// # Errors
    /// [`Limit::Unsealed`], [`Limit::Shape`], [`Limit::Memory`], [`Limit::Descriptors`].
    pub fn map(fd: i32, audience: Audience) -> Result<Attached, Limit> {
        let trusted = audience == Audience::Trusted;
        let size = seals::size(fd, trusted)?;
        if size < PAGE {
            return Err(Limit::Shape);
        }
        let file = if trusted { File::again(fd) } else { File::opened(fd) }.map_err(Limit::of)?;
        // What is read of it without a reference: the header, and what is told of units.
        let memory = if trusted { size } else { holes::first(file.0, 0) };
        if memory < PAGE {
            return Err(Limit::Unsealed);
        }
        let mapped = if trusted { mapping::shared(file.0, size) } else { mapping::shared_to_read(file.0, size) };
        let base = mapped.map_err(Limit::of)?;
        // SAFETY: a page at least; its words are atomic, and any value is one.
        let header = unsafe { &*base.cast::<Header>() };
        let sound = header.magic.load(Ordering::Acquire) == MAGIC && header.version.load(Ordering::Relaxed) == VERSION;
        let (unit, units) = (header.unit.load(Ordering::Relaxed), header.units.load(Ordering::Relaxed));
        let shape = Shape { unit: unit as usize, units: units as usize }.checked().ok().filter(|_| sound);
        let shape = shape.filter(|shape| shape.file() == size).ok_or(Limit::Shape);
        let holes = |shape| if trusted { Ok(None) } else { Holes::of(file.0, shape).map(Some) };
        let shape = shape.and_then(|shape| if memory < shape.told() { Err(Limit::Unsealed) } else { Ok(shape) });
        match shape.and_then(|shape| Ok((shape, holes(shape)?))) {
            Ok((shape, holes)) => {
                let attached = Attached { base, shape, writable: trusted, file, holes };
                attached.populate();
                Ok(attached)
            }
            Err(limit) => {
                let _ = calls::munmap(base, size);
                Err(limit)
            }
        }
    }

    /// Enters the units into this process's page tables, if all of them are memory already. A fault for each page that a message is
    /// read from the first time, or for sixteen, costs more than passing the message does.
    fn populate(&self) {
        /// Not more than takes a blink; tables of such a pool are two megabytes.
        const MOST: usize = 1 << 30;
        const MADV_POPULATE_READ: i32 = 22;
        let bytes = self.shape.bytes();
        if bytes <= MOST && self.holes.as_ref().is_none_or(|holes| holes.are_absent(0..bytes)) {
            // SAFETY: inside the mapping. A kernel that cannot do this leaves it undone.
            let _ = calls::madvise(unsafe { self.base.add(self.shape.front()) }, bytes, MADV_POPULATE_READ);
        }
    }

    /// The file, to be passed on. It stays this one's.
    pub fn descriptor(&self) -> i32 {
        self.file.0
    }

    /// Its units, as they were when it was mapped.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether it can be written: its owner trusts this process, and this one its owner.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The bytes of a reference.
    ///
    /// # Errors
    /// [`Violation::Outside`]. [`Violation::Hole`]: its owner has not made it memory, and this process would.
    pub fn check(&self, reference: &Reference) -> Result<Span<'_>, Violation> {
        let range = reference.range(self.shape.bytes())?;
        if !self.are_memory(range.clone()) {
            return Err(Violation::Hole);
        }
        Ok(Span { attached: self, range, generation: reference.generation })
    }

    fn are_memory(&self, bytes: Range<usize>) -> bool {
        self.holes.as_ref().is_none_or(|holes| holes.are_absent(bytes))
    }

    fn told(&self, unit: usize, which: usize) -> &AtomicU32 {
        // SAFETY: in front of the units.
        unsafe { &*self.base.add(PAGE).cast::<AtomicU32>().add(2 * unit + which) }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = calls::munmap(self.base, self.shape.file());
    }
}

/// Bytes of a peer's region. They can change at any time, in what is not copied yet, if the peer is not honest.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    attached: &'a Attached,
    range: Range<usize>,
    generation: u32,
}

impl Span<'_> {
    /// How many.
    pub fn length(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Where the first is; for readers in place, which outputs under TCOW do not have.
    pub fn pointer(&self) -> *mut u8 {
        // SAFETY: inside the units.
        unsafe { self.attached.base.add(self.attached.shape.front() + self.range.start) }
    }

    /// Whether the region is still what the reference says, as far as its owner tells: asked after reading in place.
    pub fn is_fresh(&self, first_unit: usize) -> bool {
        fence(Ordering::Acquire);
        first_unit < self.attached.shape.units && self.attached.told(first_unit, 1).load(Ordering::Acquire) == self.generation
    }

    /// Copies bytes from `from` on, as they were when the output was made: where the owner writes meanwhile it saves the unit
    /// first and says so, and what was copied is copied again from there. Gives how many.
    pub fn copy_to(&self, from: usize, to: &mut [u8]) -> usize {
        let count = to.len().min(self.length().saturating_sub(from));
        // SAFETY: as many bytes as the slice has.
        unsafe { self.copy_raw(from, to.as_mut_ptr(), count) };
        count
    }

    /// As [`Span::copy_to`], to memory that others may see.
    ///
    /// # Safety
    /// `count` bytes at `to` are the caller's to write.
    ///
    /// # Panics
    /// When there are not as many bytes.
    pub unsafe fn copy_raw(&self, from: usize, to: *mut u8, count: usize) {
        assert!(from <= self.length() && count <= self.length() - from);
        let shape = self.attached.shape;
        let mut done = 0;
        while done < count {
            let at = self.range.start + from + done;
            let unit = at / shape.unit;
            let part = (count - done).min(shape.unit - at % shape.unit);
            // SAFETY: `at + part` is inside the units, and as far behind them inside the spares; the rest is promised.
            unsafe {
                let source = self.attached.base.add(shape.front() + at);
                let target = to.add(done);
                guard::read(self.attached.told(unit, 0), |saved| {
                    let spare = at + shape.bytes();
                    // What an honest owner has saved is memory.
                    let saved = saved && self.attached.are_memory(spare..spare + part);
                    let source = if saved { source.add(shape.bytes()) } else { source };
                    core::ptr::copy_nonoverlapping(source, target, part);
                });
            }
            done += part;
        }
    }
}
