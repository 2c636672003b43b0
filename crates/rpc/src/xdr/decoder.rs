//! Bytes to values: a count is compared with its bound and with the bytes that are left before anything is allocated.

use super::source::{Copies, Source};
use super::stack::{stack, DEEPEST, STACK};
use super::{Error, Reason, Xdr};
use crate::value::Inlet;

/// How much memory values may take for each of their bytes, and whatever they are: a union is as large as its largest arm.
const SWELL: usize = 64;
const FREE: usize = 1 << 20;

/// Reads values, each byte once: where another process may write, a second look could find another value, so there are no clones.
#[derive(Debug)]
pub struct Decoder<'a> {
    source: Source<'a>,
    at: usize,
    depth: u32,
    /// Where the stack was at the first level.
    base: usize,
    /// Bytes of memory for the elements that were announced so far.
    spent: usize,
    /// What references refer to comes in their place.
    pub(crate) inlet: Option<&'a Inlet<'a>>,
}

impl<'a> Decoder<'a> {
    /// Over `bytes`.
    #[inline(always)]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { source: Source::own(bytes), at: 0, depth: 0, base: 0, spent: 0, inlet: None }
    }

    /// The same; what references refer to comes in their place.
    pub(crate) fn by_value(bytes: &'a [u8], inlet: &'a Inlet<'a>) -> Self {
        Self { inlet: Some(inlet), ..Self::new(bytes) }
    }

    /// Over memory that another process may write meanwhile: nothing of it is read twice.
    ///
    /// # Safety
    /// `length` bytes are mapped at `at`, which is a multiple of 4, as long as `'a`.
    pub(crate) unsafe fn shared(at: *const u8, length: usize, copies: &'a Copies) -> Self {
        // SAFETY: the caller's promise.
        let source = unsafe { Source::shared(at, length, copies) };
        Self { source, ..Self::new(&[]) }
    }

    /// An error here.
    #[cold]
    #[must_use]
    pub fn error(&self, reason: Reason) -> Error {
        Error { at: self.at, reason }
    }

    /// Bytes that are left.
    #[inline(always)]
    #[must_use]
    pub fn left(&self) -> usize {
        self.source.len() - self.at
    }

    /// What was found at the place, whose end is so many bytes further on.
    #[inline(always)]
    fn taken<T>(&mut self, found: Option<T>, count: usize) -> Result<T, Error> {
        match found {
            Some(value) => {
                self.at += count;
                Ok(value)
            }
            None => Err(self.error(Reason::Short)),
        }
    }

    /// An unsigned unit.
    ///
    /// # Errors
    /// `Short`.
    #[inline(always)]
    pub fn unsigned(&mut self) -> Result<u32, Error> {
        self.taken(self.source.unit(self.at), 4)
    }

    /// Two units.
    ///
    /// # Errors
    /// `Short`.
    #[inline(always)]
    pub fn unsigned_hyper(&mut self) -> Result<u64, Error> {
        self.taken(self.source.two_units(self.at), 8)
    }

    /// So many bytes, and the zeros up to a unit. Where they came by memory that is shared these are a copy's: what keeps them takes a
    /// vector or an array of its own instead.
    ///
    /// # Errors
    /// `Short`, `Padding`.
    #[inline]
    pub fn fixed(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let bytes = self.taken(self.source.slice(self.at, count), count)?;
        self.padding(count)?;
        Ok(bytes)
    }

    /// The same as an array.
    ///
    /// # Errors
    /// `Short`, `Padding`.
    #[inline]
    pub fn fixed_array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.taken(self.source.array(self.at), N)?;
        self.padding(N)?;
        Ok(bytes)
    }

    /// The zeros behind so many bytes.
    #[inline(always)]
    fn padding(&mut self, count: usize) -> Result<(), Error> {
        let count = count.wrapping_neg() & 3;
        match self.taken(self.source.are_zeros(self.at, count), count)? {
            true => Ok(()),
            false => Err(self.error(Reason::Padding)),
        }
    }

    /// A count of elements that each have `least` bytes: within its bound, and no more than can be there.
    ///
    /// # Errors
    /// `Bound`, `Short`.
    #[inline]
    pub fn count(&mut self, most: u32, least: usize) -> Result<usize, Error> {
        let count = self.unsigned()?;
        if count > most {
            return Err(Error { at: self.at - 4, reason: Reason::Bound { count, most } });
        }
        if count as usize > self.left() / least.max(1) {
            return Err(self.error(Reason::Short));
        }
        Ok(count as usize)
    }

    /// A count and so many bytes.
    ///
    /// # Errors
    /// `Bound`, `Short`, `Padding`.
    #[inline]
    pub fn variable(&mut self, most: u32) -> Result<&'a [u8], Error> {
        let count = self.count(most, 1)?;
        self.fixed(count)
    }

    /// The same as a vector.
    ///
    /// # Errors
    /// `Bound`, `Short`, `Padding`.
    #[inline]
    pub fn variable_vec(&mut self, most: u32) -> Result<Vec<u8>, Error> {
        let count = self.count(most, 1)?;
        let mut bytes = vec![];
        self.taken(self.source.append(self.at, count, &mut bytes), count)?;
        self.padding(count)?;
        Ok(bytes)
    }

    /// All bytes that are left: as [`Decoder::fixed`].
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        let (at, left) = (self.at, self.left());
        self.at += left;
        self.source.slice(at, left).unwrap_or_default()
    }

    /// The same as a vector.
    #[inline]
    pub fn rest_vec(&mut self) -> Vec<u8> {
        let (at, left) = (self.at, self.left());
        self.at += left;
        let mut bytes = vec![];
        self.source.append(at, left, &mut bytes);
        bytes
    }

    /// Counts memory that is about to be taken.
    #[inline(always)]
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        self.spent = self.spent.saturating_add(bytes);
        if self.spent > FREE && self.spent - FREE > self.source.len().saturating_mul(SWELL) {
            return Err(self.error(Reason::Memory));
        }
        Ok(())
    }

    /// The same, where values of this type may hold others of it.
    #[inline(always)]
    pub(super) fn nested_if<T>(&mut self, nests: bool, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if nests {
            self.nested(read)
        } else {
            read(self)
        }
    }

    /// Goes a level down while `read` runs.
    ///
    /// # Errors
    /// `Depth`, or that of `read`.
    pub fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let here = stack();
        if self.depth == 0 {
            self.base = here;
        }
        if self.depth == DEEPEST || self.base.saturating_sub(here) > STACK {
            return Err(self.error(Reason::Depth));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Whether another element of a list comes, of type `T`.
    ///
    /// # Errors
    /// `Short`, `Boolean`, `Memory`.
    pub fn another<T>(&mut self) -> Result<bool, Error> {
        let comes = bool::decode(self)?;
        if comes {
            self.spend(size_of::<T>())?;
        }
        Ok(comes)
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// `Rest`.
    #[inline(always)]
    pub fn end(&self) -> Result<(), Error> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.error(Reason::Rest(left))),
        }
    }
}
