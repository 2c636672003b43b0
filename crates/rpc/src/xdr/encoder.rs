//! Values to bytes.

use super::sink::Sink;
use super::stack::{stack, DEEPEST, STACK};
use crate::value::ByValue;

/// Writes values into memory of a fixed size. What does not fit is counted and not written.
pub struct Encoder<'a> {
    into: Sink<'a>,
    /// Where all of it goes that `into` has no room for.
    larger: Option<Sink<'a>>,
    at: usize,
    over: bool,
    depth: u32,
    /// Where the stack was at the first level.
    base: usize,
    /// References are written as what they refer to.
    pub(crate) by_value: Option<&'a ByValue<'a>>,
}

impl<'a> Encoder<'a> {
    /// Over `into`.
    #[inline(always)]
    pub fn new(into: &'a mut [u8]) -> Self {
        Self::to(Sink::own(into))
    }

    /// Over memory that another process may write meanwhile, as well.
    #[inline(always)]
    pub(crate) fn to(into: Sink<'a>) -> Self {
        Self { into, larger: None, at: 0, over: false, depth: 0, base: 0, by_value: None }
    }

    /// The same; references are written as what they refer to.
    pub(crate) fn by_value(into: &'a mut [u8], values: &'a ByValue<'a>) -> Self {
        Self { by_value: Some(values), ..Self::new(into) }
    }

    /// Into memory that is near at hand; what finds no room there goes into `larger` memory, with all that was written before.
    pub(crate) fn spilling(into: &'a mut [u8], larger: Sink<'a>) -> Self {
        Self { larger: Some(larger), ..Self::new(into) }
    }

    /// Bytes of all that was encoded, whether they found room or not.
    #[inline(always)]
    #[must_use]
    pub fn needed(&self) -> usize {
        self.at
    }

    /// Whether all of it found room.
    #[inline(always)]
    #[must_use]
    pub fn fits(&self) -> bool {
        self.at <= self.into.room()
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        if !self.into.put(self.at, bytes) && self.larger.is_some() {
            self.spill(bytes);
        }
        self.at = self.at.saturating_add(bytes.len());
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        let Some(mut larger) = self.larger.take() else { return };
        if larger.begin_as(&self.into, self.at) {
            larger.put(self.at, bytes);
        }
        self.into = larger;
    }

    /// An unsigned unit.
    #[inline(always)]
    pub fn unsigned(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Two units.
    #[inline(always)]
    pub fn unsigned_hyper(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// Bytes without their count, and zeros up to a unit.
    #[inline]
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.put(&[0; 3][..bytes.len().wrapping_neg() & 3]);
    }

    /// Goes a level down while `write` runs. Too deep a value is none, as one with too many elements.
    pub(super) fn nested_if(&mut self, nests: bool, write: impl FnOnce(&mut Self)) {
        if !nests {
            return write(self);
        }
        let here = stack();
        if self.depth == 0 {
            self.base = here;
        }
        if self.depth == DEEPEST || self.base.saturating_sub(here) > STACK {
            self.over = true;
            return;
        }
        self.depth += 1;
        write(self);
        self.depth -= 1;
    }

    /// Whether a value had more elements than its definition allows, or was nested too deeply.
    #[inline(always)]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Notes a count that has a bound.
    #[inline(always)]
    pub fn bounded(&mut self, count: usize, most: u32) {
        self.over |= count > most as usize;
    }

    /// A count and so many bytes.
    #[inline]
    pub fn variable(&mut self, bytes: &[u8]) {
        self.unsigned(bytes.len() as u32);
        self.fixed(bytes);
    }
}
