//! Split-phase operations: what is begun in a scope is complete at its end, or when [`Scope::sync`] returns.
//!
//! A get from another host writes its buffer when the answer comes, so a buffer stays lent to the scope until then. The scope is a closure, since
//! a value that ends it by its `drop` could be forgotten, and the buffer be used meanwhile.

use super::{Global, Plain};
use crate::error::Result;
use crate::trace::{bulk, Kind};
use crate::world::World;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Operations under way, see [`World::scope`].
#[derive(Debug)]
pub struct Scope<'world, 'env> {
    world: &'world World,
    /// How often all of them were complete.
    turn: Cell<u64>,
    /// Neither longer nor shorter: buffers outlive the scope.
    env: PhantomData<Cell<&'env mut ()>>,
}

/// A buffer that a get fills.
#[derive(Debug)]
pub struct Got<'scope, 'world, 'env, T: ?Sized> {
    scope: &'scope Scope<'world, 'env>,
    turn: u64,
    /// No reference, since the answer may be written meanwhile.
    to: NonNull<T>,
    env: PhantomData<&'env mut T>,
}

impl World {
    /// Runs `body`, whose operations go on meanwhile, and completes them. Gets of several ranks on other hosts take as long as one.
    ///
    /// # Errors
    /// Those of `body`; if the job ends. Then buffers may hold anything.
    pub fn scope<'env, R>(&self, body: impl FnOnce(&Scope<'_, 'env>) -> Result<R>) -> Result<R> {
        /// Also if `body` panics.
        struct Complete<'world>(&'world World);
        impl Drop for Complete<'_> {
            fn drop(&mut self) {
                // Where it fails, answers that come late are dropped.
                let _ = self.0.complete();
            }
        }
        let whole = Complete(self);
        let result = body(&Scope { world: self, turn: Cell::new(0), env: PhantomData })?;
        std::mem::forget(whole);
        self.complete()?;
        Ok(result)
    }
}

impl<'world, 'env> Scope<'world, 'env> {
    /// Begins to read an element into `to`.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    pub fn get<'scope, T: Plain>(&'scope self, from: Global<T>, to: &'env mut T) -> Result<Got<'scope, 'world, 'env, T>> {
        // SAFETY: lent until all is complete.
        unsafe { self.begin(from, to, 1)? };
        Ok(Got { scope: self, turn: self.turn.get(), to: NonNull::from(to), env: PhantomData })
    }

    /// Begins to read several.
    ///
    /// # Errors
    /// If not all of them exist, or the rank does not.
    pub fn get_all<'scope, T: Plain>(&'scope self, from: Global<T>, to: &'env mut [T]) -> Result<Got<'scope, 'world, 'env, [T]>> {
        // SAFETY: lent until all is complete.
        unsafe { self.begin(from, to.as_mut_ptr(), to.len())? };
        Ok(Got { scope: self, turn: self.turn.get(), to: NonNull::from(to), env: PhantomData })
    }

    /// # Safety
    /// So many elements can be written there until [`World::complete`] has returned.
    unsafe fn begin<T: Plain>(&self, from: Global<T>, to: *mut T, count: usize) -> Result<()> {
        let (world, bytes) = (self.world, count * size_of::<T>());
        if from.is_far(world, count) {
            let _scope = bulk(world, Kind::Get, from.rank, bytes);
            // SAFETY: by the caller; any bits are values.
            return unsafe { world.far_get(to.cast(), from.address, bytes, from.rank, false) };
        }
        let place = from.place(world, count)? as *const T;
        let _scope = bulk(world, Kind::Get, from.rank, bytes);
        // SAFETY: checked; by the caller.
        unsafe { std::ptr::copy(place, to, count) };
        Ok(())
    }

    /// Begins to write an element.
    ///
    /// # Errors
    /// If the element or the rank does not exist.
    pub fn put<T: Plain>(&self, to: Global<T>, value: T) -> Result<()> {
        to.put(self.world, value)
    }

    /// Begins to write several; the slice may be used again at once.
    ///
    /// # Errors
    /// If not all of them exist, or the rank does not.
    pub fn put_all<T: Plain>(&self, to: Global<T>, values: &[T]) -> Result<()> {
        to.put_all(self.world, values)
    }

    /// Waits until all that was begun is complete: puts are seen by all ranks, and buffers filled.
    ///
    /// # Errors
    /// If the job ends.
    pub fn sync(&self) -> Result<()> {
        self.world.complete()?;
        self.turn.set(self.turn.get() + 1);
        Ok(())
    }
}

impl<'env, T: ?Sized> Got<'_, '_, 'env, T> {
    /// The buffer again, filled: waits as [`Scope::sync`] does, if that was not called since.
    ///
    /// # Errors
    /// If the job ends.
    pub fn wait(mut self) -> Result<&'env mut T> {
        if self.scope.turn.get() == self.turn {
            self.scope.sync()?;
        }
        // SAFETY: it was lent for this long, and nothing writes it any more.
        Ok(unsafe { self.to.as_mut() })
    }
}
