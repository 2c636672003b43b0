//! Elements that lie some distance apart: columns of matrices, and the like.

use super::{Global, Plain};
use crate::error::{Error, Result};
use crate::world::World;

/// Elements from the first to the last.
fn reach(count: usize, step: usize) -> usize {
    count.saturating_sub(1).saturating_mul(step).saturating_add(1)
}

/// How many elements `step` apart a slice of this length has.
fn within(length: usize, step: usize) -> Result<usize> {
    match step {
        0 => Err(Error::Setup("elements that are 0 apart are one".into())),
        _ => Ok(length.div_ceil(step)),
    }
}

impl<T: Plain> Global<T> {
    /// Writes `values[0]`, `values[values_step]`, ... here and `step`, 2 `step`, ... elements further.
    ///
    /// # Errors
    /// If not all of them exist, or the rank does not; if a step is 0.
    pub fn put_strided(&self, world: &World, step: usize, values: &[T], values_step: usize) -> Result<()> {
        let count = within(values.len(), values_step)?;
        within(0, step)?;
        if count == 0 {
            return Ok(());
        }
        let size = size_of::<T>();
        if self.is_far(world, reach(count, step)) {
            let from = (values.as_ptr().cast(), (values_step * size) as isize);
            // SAFETY: the slice's elements can be read.
            return unsafe { world.far_scatter((self.address, step * size), from, (size, count), self.rank) };
        }
        let to = self.place(world, reach(count, step))? as *mut T;
        for (at, value) in values.iter().step_by(values_step).enumerate() {
            // SAFETY: checked up to the last one.
            unsafe { to.add(at * step).write_volatile(*value) };
        }
        world.stored(self.rank, to as usize, reach(count, step) * size);
        Ok(())
    }

    /// Reads what is here and `step`, 2 `step`, ... elements further to `values[0]`, `values[values_step]`, ...
    ///
    /// # Errors
    /// If not all of them exist, or the rank does not; if a step is 0.
    pub fn get_strided(&self, world: &World, step: usize, values: &mut [T], values_step: usize) -> Result<()> {
        let count = within(values.len(), values_step)?;
        within(0, step)?;
        if count == 0 {
            return Ok(());
        }
        let size = size_of::<T>();
        if self.is_far(world, reach(count, step)) {
            let to = (values.as_mut_ptr().cast(), (values_step * size) as isize);
            // SAFETY: the slice's elements can be written; the call returns when they are.
            return unsafe { world.far_gather(to, (self.address, step * size), (size, count), self.rank) };
        }
        let from = self.place(world, reach(count, step))? as *const T;
        for (at, value) in values.iter_mut().step_by(values_step).enumerate() {
            // SAFETY: checked up to the last one; any bits are a value.
            *value = unsafe { from.add(at * step).read_volatile() };
        }
        Ok(())
    }
}
