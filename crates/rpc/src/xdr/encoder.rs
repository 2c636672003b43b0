//! Values to bytes.

use super::stack::{stack, DEEPEST, STACK};
use crate::value::ByValue;

/// Writes values into memory of a fixed size. What does not fit is counted and not written.
pub struct Encoder<'a> {
    into: &'a mut [u8],
    /// Where all of it goes that `into` has no room for.
    larger: Option<&'a mut [u8]>,
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
        Self { into, larger: None, at: 0, over: false, depth: 0, base: 0, by_value: None }
    }

    /// The same; references are written as what they refer to.
    pub(crate) fn by_value(into: &'a mut [u8], values: &'a ByValue<'a>) -> Self {
        Self { by_value: Some(values), ..Self::new(into) }
    }

    /// Into memory that is near at hand; what finds no room there goes into `larger` memory, with all that was written before.
    pub(crate) fn spilling(into: &'a mut [u8], larger: &'a mut [u8]) -> Self {
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
        self.at <= self.into.len()
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.into.get_mut(self.at..).and_then(|rest| rest.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        } else if self.larger.is_some() {
            self.spill(bytes);
        }
        self.at = self.at.saturating_add(bytes.len());
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        let Some(larger) = self.larger.take() else { return };
        if let Some((before, rest)) = larger.split_at_mut_checked(self.at) {
            before.copy_from_slice(&self.into[..self.at]);
            if let Some(place) = rest.get_mut(..bytes.len()) {
                place.copy_from_slice(bytes);
            }
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
