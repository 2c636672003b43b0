//! Typed symmetric objects for Rust programs.
//!
//! Other ranks write this memory at any time, so nothing here lends a reference to it: values go in and out by copies.
//!
//! ```
//! use shunt_pgas::{Signal, World};
//!
//! let world = World::join().unwrap();
//! let (me, next) = (world.me(), (world.me() + 1) % world.ranks());
//! let values = world.alloc::<f64>(100).unwrap();
//! let arrived = world.alloc::<u64>(1).unwrap();
//!
//! // A put that tells its receiver.
//! values.at(next, 10).put_signal(world, &[1.0, 2.0], arrived.at(next, 0), Signal::Add(1)).unwrap();
//! arrived.at(me, 0).wait_until(world, |count| count >= 1).unwrap();
//!
//! // Split-phase: both gets are under way at once, and the buffers are lent until the scope ends.
//! let (mut ten, mut eleven) = (0.0, 0.0);
//! world
//!     .scope(|scope| {
//!         scope.get(values.at(next, 10), &mut ten)?;
//!         scope.get(values.at(next, 11), &mut eleven).map(drop)
//!     })
//!     .unwrap();
//! assert_eq!((ten, eleven), (1.0, 2.0));
//!
//! // Collectives are of teams.
//! let sum = world.team().reduce(world, me as u64, |a, b| a + b).unwrap();
//! assert_eq!(sum, (world.ranks() * (world.ranks() - 1) / 2) as u64);
//! world.finalize().unwrap();
//! ```

mod atomics;
mod guard;
mod scope;
mod signal;
mod spread;
mod store;
mod strided;
mod team;

pub use guard::{Guard, Lock};
pub use scope::{Got, Scope};
pub use signal::Signal;
pub use spread::Spread;
pub use team::Team;

use crate::error::{Error, Result};
use crate::trace::{bulk, Kind};
use crate::world::World;
use std::marker::PhantomData;

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

    /// Waits for all ranks.
    ///
    /// # Errors
    /// If the job ends.
    pub fn barrier(&self) -> Result<()> {
        self.all().barrier(self)
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
        found.ok_or_else(|| self.wrong(world, count))
    }

    /// Why [`Global::place`] found nothing.
    #[cold]
    fn wrong(&self, world: &World, count: usize) -> Error {
        let offset = self.address.wrapping_sub(world.own_heap().0) as i64;
        match self.rank < world.ranks() && count > self.room {
            true => Error::Elements { rank: self.rank, offset, count, room: self.room },
            false => world.wrong(self.address, count.saturating_mul(size_of::<T>()), self.rank as i64),
        }
    }

    /// An error if it is another rank's.
    fn is_own(&self, world: &World) -> Result<()> {
        match self.rank == world.me() || self.rank >= world.ranks() {
            true => Ok(()),
            false => Err(Error::Other { rank: self.rank, me: world.me() }),
        }
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
