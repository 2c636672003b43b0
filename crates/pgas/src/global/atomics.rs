//! Atomic operations on elements: an instruction on the rank's own word, by a processor of its host.

use super::{Global, Plain};
use crate::atomic::{self, Whole, Word};
use crate::error::Result;
use crate::far::Operation;
use crate::wait::{self, Span, Waits};
use crate::world::World;

/// What one of these operations is near, and what it is called far.
type How<T> = (unsafe fn(usize, T) -> T, Operation);

impl<T: Plain + Word> Global<T> {
    const IS_WORD: () = assert!(size_of::<T>() == 4 || size_of::<T>() == 8, "atomic operations are of four or eight bytes");

    /// The value before, if it is wanted: from another host it has to be waited for.
    #[inline]
    fn atomic(&self, world: &World, (near, far): How<T>, value: T, wanted: bool) -> Result<T> {
        const { Self::IS_WORD };
        if self.is_far(world, 1) {
            return match wanted {
                true => world.far_atomic(self.address, far, value, value, self.rank),
                false => world.far_update(self.address, far, value, self.rank).map(|()| value),
            };
        }
        let at = self.place(world, 1)?;
        // SAFETY: checked, and aligned as the heap's objects are.
        let before = unsafe { near(at, value) };
        world.stored(self.rank, at, size_of::<T>());
        Ok(before)
    }

    /// Reads, in one order with all atomic operations on this word.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    pub fn fetch(&self, world: &World) -> Result<T> {
        const { Self::IS_WORD };
        if self.is_far(world, 1) {
            let none = T::from_bits(0);
            return world.far_atomic(self.address, Operation::Load, none, none, self.rank);
        }
        let at = self.place(world, 1)?;
        // SAFETY: checked, and aligned as the heap's objects are.
        Ok(unsafe { atomic::load(at) })
    }

    /// Writes, in one order with all atomic operations on this word. Like a put it may be under way when the call returns.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    pub fn set(&self, world: &World, value: T) -> Result<()> {
        self.atomic(world, (atomic::swap, Operation::Swap), value, false).map(drop)
    }

    /// Writes; the value before.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    pub fn swap(&self, world: &World, value: T) -> Result<T> {
        self.atomic(world, (atomic::swap, Operation::Swap), value, true)
    }

    /// Writes `value` if `expected` is there, by their bits; the value before.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    pub fn compare_swap(&self, world: &World, expected: T, value: T) -> Result<T> {
        const { Self::IS_WORD };
        if self.is_far(world, 1) {
            return world.far_atomic(self.address, Operation::CompareSwap, value, expected, self.rank);
        }
        let at = self.place(world, 1)?;
        // SAFETY: checked, and aligned as the heap's objects are.
        let before = unsafe { atomic::compare_swap(at, expected, value) };
        world.stored(self.rank, at, size_of::<T>());
        Ok(before)
    }

    /// Waits until this rank's own element is as asked for; its value then.
    ///
    /// # Errors
    /// If the element does not exist or is another rank's, or if the job ends.
    pub fn wait_until(&self, world: &World, ready: impl Fn(T) -> bool) -> Result<T> {
        const { Self::IS_WORD };
        self.is_own(world)?;
        let at = self.place(world, 1)?;
        // SAFETY: as above.
        let value = || unsafe { atomic::load::<T>(at) };
        let mut found = value();
        wait::until(world, Waits::Value, Span::of(at as *const T), || {
            found = value();
            ready(found)
        })?;
        Ok(found)
    }
}

macro_rules! operations {
    ($($what:literal $fetch:ident $update:ident $operation:ident;)*) => {
        impl<T: Plain + Whole> Global<T> {$(
            #[doc = concat!($what, "; the value before.")]
            ///
            /// # Errors
            /// If the element or the rank does not exist.
            pub fn $fetch(&self, world: &World, value: T) -> Result<T> {
                self.atomic(world, (atomic::$fetch, Operation::$operation), value, true)
            }

            #[doc = concat!($what, ". Like a put it may be under way when the call returns.")]
            ///
            /// # Errors
            /// If the element or the rank does not exist.
            pub fn $update(&self, world: &World, value: T) -> Result<()> {
                self.atomic(world, (atomic::$fetch, Operation::$operation), value, false).map(drop)
            }
        )*}
    };
}

operations! {
    "Adds, and wraps around" fetch_add add Add;
    "And of bits" fetch_and and And;
    "Or of bits" fetch_or or Or;
    "Exclusive or of bits" fetch_xor xor Xor;
}
