//! Stores: puts whose completion the receiver waits for, not the sender.

use super::{Global, Plain};
use crate::error::Result;
use crate::remote::wire::Request;
use crate::wait::{self, Span, Waits};
use crate::world::World;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

impl World {
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
}
