//! A queue of plain descriptors between one that puts and one that takes, which may be different processes.

use super::CacheLine;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Values for which any bytes are valid.
///
/// # Safety
/// No padding that matters, no references, no niches.
pub unsafe trait Plain: Copy {}

// SAFETY: two integers.
unsafe impl Plain for crate::Area {}
// SAFETY: integers and arrays of them.
unsafe impl Plain for super::SendDescriptor {}
// SAFETY: integers and arrays of them.
unsafe impl Plain for crate::Arrival {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}

/// The queue has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// The shared half: positions that count for ever, each written by one side.
#[repr(C)]
pub(super) struct Positions {
    tail: CacheLine<AtomicU32>,
    head: CacheLine<AtomicU32>,
}

pub(super) const POSITIONS: usize = core::mem::size_of::<Positions>();

/// The private half: where the queue lies, and how many entries it has (a power of two).
///
/// One thread puts and one takes at a time; that is the endpoint's lock, or the roles of two processes.
pub struct Queue<'a, T: Plain> {
    base: *mut u8,
    mask: u32,
    lifetime: PhantomData<&'a T>,
}

impl<T: Plain> Queue<'_, T> {
    /// Bytes that a queue of `capacity` entries takes.
    pub const fn size(capacity: u32) -> usize {
        POSITIONS + capacity as usize * core::mem::size_of::<T>()
    }

    /// The queue at `base`.
    ///
    /// # Safety
    /// [`Queue::size`] bytes there stay mapped for the lifetime, aligned to 128; `capacity` is a power of two.
    #[inline(always)]
    pub unsafe fn at<'a>(base: *mut u8, capacity: u32) -> Queue<'a, T> {
        Queue { base, mask: capacity - 1, lifetime: PhantomData }
    }

    #[inline(always)]
    fn positions(&self) -> &Positions {
        // SAFETY: mapped and aligned, see `at`; atomics accept any bytes.
        unsafe { &*self.base.cast() }
    }

    #[inline(always)]
    fn slot(&self, position: u32) -> *mut T {
        // SAFETY: masked, so inside the queue.
        unsafe { self.base.add(POSITIONS).cast::<T>().add((position & self.mask) as usize) }
    }

    /// Entries that wait; never more than the capacity, whatever the positions say.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        let positions = self.positions();
        let length = positions.tail.0.load(Acquire).wrapping_sub(positions.head.0.load(Acquire));
        // A difference that no honest pair of sides makes: nothing waits.
        if length > self.mask + 1 {
            0
        } else {
            length
        }
    }

    /// Whether none waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many entries it holds.
    #[inline(always)]
    pub fn capacity(&self) -> u32 {
        self.mask + 1
    }

    /// Puts an entry at the end.
    ///
    /// # Errors
    /// [`Full`].
    #[inline(always)]
    pub fn put(&self, value: &T) -> Result<(), Full> {
        let positions = self.positions();
        let tail = positions.tail.0.load(Relaxed);
        if tail.wrapping_sub(positions.head.0.load(Acquire)) > self.mask {
            return Err(Full);
        }
        // SAFETY: inside the queue; the other side does not look there before the tail says so.
        unsafe { self.slot(tail).write_volatile(*value) };
        positions.tail.0.store(tail.wrapping_add(1), Release);
        Ok(())
    }

    /// Copies entry `number` from the front, without taking it.
    #[inline(always)]
    pub fn peek(&self, number: u32) -> Option<T> {
        if number >= self.len() {
            return None;
        }
        let head = self.positions().head.0.load(Relaxed);
        // SAFETY: inside the queue, and any bytes are a `T`.
        Some(unsafe { self.slot(head.wrapping_add(number)).read_volatile() })
    }

    /// Where entry `number` from the front lies. It may hold anything, and is the other side's again once it is taken.
    #[inline(always)]
    pub fn place(&self, number: u32) -> *mut T {
        self.slot(self.positions().head.0.load(Relaxed).wrapping_add(number))
    }

    /// Takes the entry at the front.
    #[inline(always)]
    pub fn take(&self) -> Option<T> {
        let value = self.peek(0)?;
        self.advance(1);
        Some(value)
    }

    /// Drops `count` entries at the front.
    #[inline(always)]
    pub fn advance(&self, count: u32) {
        let head = &self.positions().head.0;
        head.store(head.load(Relaxed).wrapping_add(count), Release);
    }

    /// The position behind the last entry: how many were put in all. Wraps around.
    #[inline(always)]
    pub fn tail(&self) -> u32 {
        self.positions().tail.0.load(Relaxed)
    }

    /// The position of the front: how many were taken in all. Wraps around.
    #[inline(always)]
    pub fn head(&self) -> u32 {
        self.positions().head.0.load(Relaxed)
    }
}
