//! Spread arrays: one array over all ranks, in blocks that are dealt to them in turn.

use super::{Global, Plain, Symmetric};
use crate::error::Result;
use crate::world::World;

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
    /// Allocates a spread array; all ranks together.
    ///
    /// # Errors
    /// If there is no room, or if the job ends.
    pub fn spread<T: Plain>(&self, length: usize, block: usize) -> Result<Spread<T>> {
        let block = block.max(1);
        let blocks = length.div_ceil(block).div_ceil(self.ranks());
        Ok(Spread { local: self.alloc(blocks * block)?, length, block, ranks: self.ranks() })
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
