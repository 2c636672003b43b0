//! Puts that tell their receiver: a word that changes after the bytes have come.

use super::{Global, Plain};
use crate::error::{Error, Result};
use crate::trace::{bulk, Kind};
use crate::world::World;

/// What becomes of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// It has this value.
    Set(u64),
    /// This is added to it.
    Add(u64),
}

impl<T: Plain> Global<T> {
    /// Writes several, and then the word `signal` of the same rank, whose [`Global::wait_until`] never sees the signal before the values.
    ///
    /// # Errors
    /// If not all of them exist, or the rank does not; if the word is of another rank.
    pub fn put_signal(&self, world: &World, values: &[T], signal: Global<u64>, how: Signal) -> Result<()> {
        if signal.rank != self.rank {
            return Err(Error::Setup(format!("a signal of rank {} for values of rank {}", signal.rank, self.rank)));
        }
        let bytes = size_of_val(values);
        if self.is_far(world, values.len()) && signal.is_far(world, 1) && bytes > 0 {
            let _scope = bulk(world, Kind::Put, self.rank, bytes);
            let (value, adds) = match how {
                Signal::Set(value) => (value, false),
                Signal::Add(value) => (value, true),
            };
            let word = (signal.address, value, adds);
            // SAFETY: a slice can be read.
            return unsafe { world.far_put_signal(self.address, (values.as_ptr().cast(), bytes), word, self.rank) };
        }
        if signal.room == 0 {
            return Err(signal.wrong(world, 1));
        }
        self.put_all(world, values)?;
        world.fence();
        match how {
            Signal::Set(value) => signal.set(world, value),
            Signal::Add(value) => signal.add(world, value),
        }
    }
}
