//! Typed symmetric objects for Rust programs.
//!
//! Other ranks write this memory at any time, so nothing here lends a reference to it: values go in and out by copies.

use crate::atomic::{self, Word};
use crate::error::{Error, Result};
use crate::far::Operation;
use crate::remote::wire::Request;
use crate::trace::{bulk, Kind};
use crate::wait::{self, Span, Waits};
use crate::world::World;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// A type whose every pattern of bits is a value, without pointers to anything.
///
/// # Safety
/// As the sentence says.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($type:ty)*) => {$(
        // SAFETY: numbers.
        unsafe impl Plain for $type {}
    )*};
}
plain! { u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64 u128 i128 }

// SAFETY: an array has no padding of its own.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A symmetric array: `length` elements on each rank, at one offset.
#[derive(Debug)]
pub struct Symmetric<T> {
    address: usize,
    length: usize,
    of: PhantomData<fn(T) -> T>,
}

impl<T> Clone for Symmetric<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Symmetric<T> {}

/// One element, or the first of several, on one rank.
#[derive(Debug)]
pub struct Global<T> {
    address: usize,
    rank: usize,
    /// Elements from here to the end of the array.
    room: usize,
    of: PhantomData<fn(T) -> T>,
}

impl<T> Clone for Global<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Global<T> {}

/// A spread array: `length` elements in all, blocks of `block` elements dealt to the ranks in turn.
#[derive(Debug)]
pub struct Spread<T> {
    local: Symmetric<T>,
    length: usize,
    block: usize,
    ranks: usize,
}

impl<T> Clone for Spread<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Spread<T> {}

impl World {
    /// Allocates `length` elements on each rank, which are zero; all ranks together.
    ///
    /// # Errors
    /// If there is no room, or if the job ends.
    pub fn alloc<T: Plain>(&self, length: usize) -> Result<Symmetric<T>> {
        let bytes = length.checked_mul(size_of::<T>()).ok_or(Error::Full { bytes: usize::MAX, heap: self.own_heap().1 })?;
        let address = self.take(bytes.max(1), align_of::<T>())?;
        // SAFETY: the heap has just given these bytes to this object.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, bytes) };
        self.all().barrier(self)?;
        Ok(Symmetric { address, length, of: PhantomData })
    }

    /// Gives an array back; all ranks together. Handles of it are refused or name whatever comes there next.
    ///
    /// # Errors
    /// If the job ends.
    pub fn free<T: Plain>(&self, array: Symmetric<T>) -> Result<()> {
        self.all().barrier(self)?;
        self.give(array.address);
        Ok(())
    }

    /// Allocates a spread array; all ranks together.
    ///
    /// # Errors
    /// If there is no room, or if the job ends.
    pub fn spread<T: Plain>(&self, length: usize, block: usize) -> Result<Spread<T>> {
        let block = block.max(1);
        let blocks = length.div_ceil(block).div_ceil(self.ranks());
        Ok(Spread { local: self.alloc(blocks * block)?, length, block, ranks: self.ranks() })
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// If the job ends.
    pub fn barrier(&self) -> Result<()> {
        self.all().barrier(self)
    }

    /// Waits until every store of every rank is seen.
    ///
    /// # Errors
    /// If the job ends.
    pub fn all_store_sync(&self) -> Result<()> {
        self.all().barrier(self)
    }

    /// Puts, and counts the bytes at the target for its [`World::store_sync`].
    ///
    /// # Errors
    /// As [`Global::put_all`].
    pub fn store<T: Plain>(&self, to: Global<T>, values: &[T]) -> Result<()> {
        to.put_all(self, values)?;
        if let (true, Some(way)) = (self.is_far(to.rank), self.other_hosts()) {
            // Counted after the bytes.
            way.fence();
            let request = Request::Count { rank: to.rank as u64, bytes: size_of_val(values) as u64 };
            return way.tell(self, way.hosts().of(to.rank), &request);
        }
        self.block(to.rank).stored_bytes.fetch_add(size_of_val(values) as u64, AcqRel);
        self.flagged(to.rank);
        Ok(())
    }

    /// Waits until so many bytes were stored here since the last time.
    ///
    /// # Errors
    /// If the job ends.
    pub fn store_sync(&self, bytes: u64) -> Result<()> {
        let word = &self.own_block().stored_bytes;
        wait::until(self, Waits::Value, Span::FLAG, || word.load(Acquire) >= bytes)?;
        word.fetch_sub(bytes, AcqRel);
        Ok(())
    }

    /// The sum, minimum or whatever of all ranks' values, in order of ranks.
    ///
    /// # Errors
    /// If there is no room for a word, or if the job ends.
    pub fn reduce<T: Word>(&self, value: T, operation: impl Fn(T, T) -> T) -> Result<T> {
        let all = self.all();
        all.tell(self, 1, value.bits())?;
        all.barrier(self)?;
        let mut result = if self.ranks() == 1 { value } else { T::from_bits(all.told(self, 0, 1)) };
        for rank in 1..self.ranks() {
            result = operation(result, T::from_bits(all.told(self, rank, 1)));
        }
        all.barrier(self)?;
        Ok(result)
    }
}

impl<T: Plain> Symmetric<T> {
    /// Elements on each rank.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// An element of a rank. One behind the end is refused when it is used.
    pub fn at(&self, rank: usize, index: usize) -> Global<T> {
        let room = self.length.saturating_sub(index);
        Global { address: self.address.wrapping_add(index.wrapping_mul(size_of::<T>())), rank, room, of: PhantomData }
    }

    /// Where the own elements lie, for code that takes on itself that no other rank writes meanwhile.
    pub fn as_ptr(&self) -> *mut T {
        self.address as *mut T
    }
}

impl<T: Plain> Spread<T> {
    /// Elements in all.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The rank that has an element.
    pub fn owner(&self, index: usize) -> usize {
        index / self.block % self.ranks
    }

    /// An element. Its room ends with its block.
    pub fn at(&self, index: usize) -> Global<T> {
        let local = index / self.block / self.ranks * self.block + index % self.block;
        let mut global = self.local.at(self.owner(index), local);
        global.room = (self.block - index % self.block).min(self.length.saturating_sub(index));
        global
    }
}

impl<T: Plain> Global<T> {
    /// The rank that has it.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Whether it lives on another host, and these elements of it exist as far as this array says.
    fn is_far(&self, world: &World, count: usize) -> bool {
        count <= self.room && world.is_far(self.rank)
    }

    fn place(&self, world: &World, count: usize) -> Result<usize> {
        let length = count.saturating_mul(size_of::<T>());
        let found = if count <= self.room { world.remote(self.address, length, self.rank) } else { None };
        found.ok_or_else(|| world.wrong(self.address, length, self.rank as i64))
    }

    /// Reads it.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    #[inline]
    pub fn get(&self, world: &World) -> Result<T> {
        if self.is_far(world, 1) {
            let mut value = std::mem::MaybeUninit::<T>::uninit();
            // SAFETY: any bits are a value.
            return unsafe {
                world.far_get(value.as_mut_ptr().cast(), self.address, size_of::<T>(), self.rank, true)?;
                Ok(value.assume_init())
            };
        }
        // SAFETY: checked; aligned, as the heap's objects are; any bits are a value. Volatile, since others write it.
        Ok(unsafe { (self.place(world, 1)? as *const T).read_volatile() })
    }

    /// Writes it.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    #[inline]
    pub fn put(&self, world: &World, value: T) -> Result<()> {
        if self.is_far(world, 1) {
            return self.put_all(world, &[value]);
        }
        let to = self.place(world, 1)?;
        // SAFETY: as in `get`.
        unsafe { (to as *mut T).write_volatile(value) };
        world.stored(self.rank, to, size_of::<T>());
        Ok(())
    }

    /// Reads several.
    ///
    /// # Errors
    /// If not all of them exist, or the rank does not.
    pub fn get_all(&self, world: &World, values: &mut [T]) -> Result<()> {
        if self.is_far(world, values.len()) {
            let _scope = bulk(world, Kind::Get, self.rank, size_of_val(values));
            // SAFETY: any bits are values.
            return unsafe { world.far_get(values.as_mut_ptr().cast(), self.address, size_of_val(values), self.rank, true) };
        }
        let from = self.place(world, values.len())? as *const T;
        let _scope = bulk(world, Kind::Get, self.rank, size_of_val(values));
        // SAFETY: checked; any bits are values.
        unsafe { std::ptr::copy(from, values.as_mut_ptr(), values.len()) };
        Ok(())
    }

    /// Writes several.
    ///
    /// # Errors
    /// If not all of them exist, or the rank does not.
    pub fn put_all(&self, world: &World, values: &[T]) -> Result<()> {
        if self.is_far(world, values.len()) {
            let _scope = bulk(world, Kind::Put, self.rank, size_of_val(values));
            // SAFETY: a slice can be read.
            return unsafe { world.far_put(self.address, values.as_ptr().cast(), size_of_val(values), self.rank) };
        }
        let to = self.place(world, values.len())? as *mut T;
        let _scope = bulk(world, Kind::Put, self.rank, size_of_val(values));
        // SAFETY: checked.
        unsafe { std::ptr::copy(values.as_ptr(), to, values.len()) };
        world.stored(self.rank, to as usize, size_of_val(values));
        Ok(())
    }
}

impl<T: Plain + Word> Global<T> {
    /// Adds; the value before.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    pub fn fetch_add(&self, world: &World, value: T) -> Result<T> {
        const { assert!(size_of::<T>() >= 4, "atomic operations are of four or eight bytes") };
        if self.is_far(world, 1) {
            return world.far_atomic(self.address, Operation::Add, value, value, self.rank);
        }
        let at = self.place(world, 1)?;
        // SAFETY: checked, and aligned as the heap's objects are.
        let before = unsafe { atomic::fetch_add(at, value) };
        world.stored(self.rank, at, size_of::<T>());
        Ok(before)
    }

    /// Writes `value` if `expected` is there; the value before.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    pub fn compare_swap(&self, world: &World, expected: T, value: T) -> Result<T> {
        const { assert!(size_of::<T>() >= 4, "atomic operations are of four or eight bytes") };
        if self.is_far(world, 1) {
            return world.far_atomic(self.address, Operation::CompareSwap, value, expected, self.rank);
        }
        let at = self.place(world, 1)?;
        // SAFETY: checked, and aligned as the heap's objects are.
        let before = unsafe { atomic::compare_swap(at, expected, value) };
        world.stored(self.rank, at, size_of::<T>());
        Ok(before)
    }

    /// Waits until this rank's own element is as asked for.
    ///
    /// # Errors
    /// If the element does not exist, or if the job ends.
    pub fn wait_until(&self, world: &World, ready: impl Fn(T) -> bool) -> Result<T> {
        let at = self.place(world, 1)?;
        // SAFETY: as above.
        let value = || unsafe { atomic::load::<T>(at) };
        wait::until(world, Waits::Value, Span::of(at as *const T), || ready(value()))?;
        Ok(value())
    }
}
