//! Locks that one rank has at a time, first come, first served.

use super::Symmetric;
use crate::error::Result;
use crate::lock;
use crate::world::World;

/// A lock of the job. Its word is rank 0's.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    word: Symmetric<u64>,
}

/// The lock is this rank's until this is dropped; what it has put before is seen by the next.
#[derive(Debug)]
#[must_use = "the lock is given back at once"]
pub struct Guard<'world> {
    world: &'world World,
    lock: Lock,
}

impl World {
    /// Makes a lock, which is free; all ranks together.
    ///
    /// # Errors
    /// If there is no room, or if the job ends.
    pub fn lock(&self) -> Result<Lock> {
        Ok(Lock { word: self.alloc(1)? })
    }

    /// Gives a lock's word back; all ranks together, when none has it or waits for it.
    ///
    /// # Errors
    /// If the job ends.
    pub fn free_lock(&self, lock: Lock) -> Result<()> {
        self.free(lock.word)
    }
}

impl Lock {
    /// Waits for it. A rank that has it already waits for ever.
    ///
    /// # Errors
    /// If the job ends.
    pub fn acquire<'world>(&self, world: &'world World) -> Result<Guard<'world>> {
        lock::set(world, self.word.address)?;
        Ok(Guard { world, lock: *self })
    }

    /// Takes it if no rank has it.
    ///
    /// # Errors
    /// If the job ends.
    pub fn try_acquire<'world>(&self, world: &'world World) -> Result<Option<Guard<'world>>> {
        Ok(lock::test(world, self.word.address)?.then_some(Guard { world, lock: *self }))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // It fails only where the job ends, which the next call tells.
        let _ = lock::clear(self.world, self.lock.word.address);
    }
}
