//! How large a pool is, and where things lie in its file.

use crate::limit::Limit;

pub(crate) const PAGE: usize = 4096;
/// A huge page of x86-64.
pub const HUGE: usize = 2 << 20;

/// Which pages a pool is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Ordinary ones, in a sealed memfd.
    Small,
    /// Huge ones, in a file that cannot be sealed: between processes that trust each other.
    Huge,
    /// Huge ones where they are to be had, else ordinary ones.
    HugeIfPossible,
}

/// To whom a pool can be lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    /// To peers that could change this process's memory anyway (ptrace(2)): they can write, too.
    Trusted,
    /// To any one peer: it can read.
    Anyone,
}

/// Units of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Bytes in one: a power of two, from a page to 2 MiB. Regions are whole units, and a protection changes for whole units.
    pub unit: usize,
    /// How many.
    pub units: usize,
}

/// Units of a pool at most.
pub const MOST_UNITS: usize = 1 << 16;
/// Bytes of a pool at most, spares aside.
pub const LARGEST: usize = 1 << 36;

impl Shape {
    /// The shape itself, if it is one.
    ///
    /// # Errors
    /// [`Limit::PoolShape`].
    pub fn checked(self) -> Result<Shape, Limit> {
        let sound = self.unit.is_power_of_two() && (PAGE..=HUGE).contains(&self.unit);
        match sound && (1..=MOST_UNITS).contains(&self.units) && self.units * self.unit <= LARGEST {
            true => Ok(self),
            false => Err(Limit::PoolShape),
        }
    }

    /// Bytes of the header and of what is told of units.
    pub(crate) fn told(self) -> usize {
        PAGE + self.units * 2 * size_of::<u32>()
    }

    /// Bytes in front of the first unit.
    pub fn front(self) -> usize {
        self.told().next_multiple_of(self.unit.max(PAGE))
    }

    /// Bytes of all units.
    pub fn bytes(self) -> usize {
        self.unit * self.units
    }

    /// Bytes of the file.
    pub fn file(self) -> usize {
        self.front() + 2 * self.bytes()
    }
}
