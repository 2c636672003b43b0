//! A region as the application has it, and where it lies.

use super::Pool;
use crate::limit::Limit;
use crate::state::{Event, State};

/// Where bytes lie in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// First unit of the region.
    pub first: usize,
    /// Its units.
    pub count: usize,
    /// Its generation.
    pub generation: u32,
    /// Where the bytes are, from the start of all units.
    pub offset: usize,
}

/// A region that the application has: moved in, or adopted. Dropped, it is free as soon as no process reads it.
#[derive(Debug)]
pub struct Region {
    pub(super) pool: Pool,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) generation: u32,
}

impl Region {
    /// Its pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Where it lies.
    pub fn located(&self) -> Located {
        let unit = self.pool.shape().unit;
        Located {
            first: self.first as usize,
            count: self.count as usize,
            generation: self.generation,
            offset: self.first as usize * unit,
        }
    }

    /// Bytes of it: whole units.
    pub fn size(&self) -> usize {
        self.count as usize * self.pool.shape().unit
    }

    /// First byte.
    pub fn pointer(&self) -> *mut u8 {
        self.pool.control().pointer(self.first as usize)
    }

    /// What it holds. A trusted peer that was given it to write can change this meanwhile: that is what trust is.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: inside the mapping, which the handle keeps.
        unsafe { core::slice::from_raw_parts(self.pointer(), self.size()) }
    }

    /// The same, to be written. Of a region that is being output under TCOW the first write to each unit faults, and is mended.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; one handle, so one such slice.
        unsafe { core::slice::from_raw_parts_mut(self.pointer(), self.size()) }
    }

    /// Gives up the handle, and leaves the region as it is: moving out, or kept for a later input.
    pub fn leave(self) -> (Pool, Located) {
        let at = self.located();
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: moved out of what is not dropped.
        (unsafe { core::ptr::read(&this.pool) }, at)
    }

    /// The handle of a region that was left, and is moved in again.
    ///
    /// # Errors
    /// [`Limit::Stale`], [`Limit::State`]: it is not what it was (table 3: "check region").
    pub fn regain(pool: Pool, at: Located) -> Result<Region, Limit> {
        let value = pool.value(at.first);
        if value.generation() != at.generation {
            return Err(Limit::Stale);
        }
        match value.state() {
            State::MovedIn | State::MovingIn => {
                Ok(Region { pool, first: at.first as u32, count: at.count as u32, generation: at.generation })
            }
            _ => Err(Limit::State),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let at = self.located();
        if self.pool.apply(&at, Event::Remove) == Err(Limit::State) {
            // An input into it is under way: that is given up first.
            let _ = self.pool.apply(&at, Event::Abandon);
            let _ = self.pool.apply(&at, Event::Remove);
        }
    }
}
