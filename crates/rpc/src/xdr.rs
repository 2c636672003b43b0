//! External data representation (RFC 4506): big-endian units of four bytes, no tags.
//!
//! The bytes are those of rpcgen and libtirpc. Whatever is decoded may come from an enemy: a count is compared with its bound and
//! with the bytes that are left before anything is allocated, and nesting has a limit.

use crate::value::{ByValue, Inlet};
use std::fmt;

/// Values inside each other that are followed. The elements of a list, whose last field is the optional next one, are none: they are as
/// many as there are bytes for.
pub const DEEPEST: u32 = 1000;

/// Why bytes are no value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// They end too early.
    Short,
    /// More elements than the bound says.
    Bound {
        /// Elements that the bytes announce.
        count: u32,
        /// The most that the definition allows.
        most: u32,
    },
    /// The bytes that fill the last unit are not zero.
    Padding,
    /// A boolean that is neither 0 nor 1.
    Boolean(u32),
    /// A number that is none of an enumeration's.
    Enumeration(i32),
    /// A discriminant without an arm.
    Arm(i32),
    /// Values that take far more memory than their bytes.
    Memory,
    /// Values nested deeper than [`DEEPEST`], or than a part of the stack.
    Depth,
    /// Bytes remain behind the value.
    Rest(usize),
    /// Arguments that are references cannot be decoded.
    Borrowed,
    /// A decoder of the program's own took them for none.
    Refused,
    /// A window that does not lie in the caller's memory, or is not aligned for its elements.
    Window,
}

/// Where and why bytes are no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Bytes before it.
    pub at: usize,
    /// What is wrong.
    pub reason: Reason,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "at byte {}: ", self.at)?;
        match self.reason {
            Reason::Short => to.write_str("the bytes end too early"),
            Reason::Bound { count, most } => write!(to, "{count} elements where the definition allows {most}"),
            Reason::Padding => to.write_str("padding that is not zero"),
            Reason::Boolean(value) => write!(to, "{value} is no boolean"),
            Reason::Enumeration(value) => write!(to, "{value} is not of the enumeration"),
            Reason::Arm(value) => write!(to, "no arm of the union for {value}"),
            Reason::Depth => write!(to, "nested deeper than {DEEPEST}, or than {STACK} bytes of the stack"),
            Reason::Memory => to.write_str("values that take far more memory than their bytes"),
            Reason::Rest(count) => write!(to, "{count} bytes behind the value"),
            Reason::Refused => to.write_str("they are not what the definition says, or more than a decoder takes"),
            Reason::Borrowed => to.write_str("a reference is not decoded"),
            Reason::Window => to.write_str("a window outside the caller's memory"),
        }
    }
}

impl std::error::Error for Error {}

/// Writes values into memory of a fixed size. What does not fit is counted and not written.
pub struct Encoder<'a> {
    into: &'a mut [u8],
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
        Self { into, at: 0, over: false, depth: 0, base: 0, by_value: None }
    }

    /// The same; references are written as what they refer to.
    pub(crate) fn by_value(into: &'a mut [u8], values: &'a ByValue<'a>) -> Self {
        Self { into, at: 0, over: false, depth: 0, base: 0, by_value: Some(values) }
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
        }
        self.at = self.at.saturating_add(bytes.len());
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
    fn nested_if(&mut self, nests: bool, write: impl FnOnce(&mut Self)) {
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

/// How much memory values may take for each of their bytes, and whatever they are: a union is as large as its largest arm.
const SWELL: usize = 64;
const FREE: usize = 1 << 20;

/// Bytes of the stack that values nested in each other may take while they are written or read: a small part of a thread's.
const STACK: usize = 256 << 10;

/// Where the stack is.
#[inline(always)]
fn stack() -> usize {
    let mark = 0u8;
    std::hint::black_box(&raw const mark).addr()
}

/// Reads values.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
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
        Self { bytes, at: 0, depth: 0, base: 0, spent: 0, inlet: None }
    }

    /// The same; what references refer to comes in their place.
    pub(crate) fn by_value(bytes: &'a [u8], inlet: &'a Inlet<'a>) -> Self {
        Self { bytes, at: 0, depth: 0, base: 0, spent: 0, inlet: Some(inlet) }
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
        self.bytes.len() - self.at
    }

    #[inline(always)]
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        match self.bytes[self.at..].get(..count) {
            Some(bytes) => {
                self.at += count;
                Ok(bytes)
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
        Ok(u32::from_be_bytes(self.take(4)?.try_into().unwrap_or_default()))
    }

    /// Two units.
    ///
    /// # Errors
    /// `Short`.
    #[inline(always)]
    pub fn unsigned_hyper(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().unwrap_or_default()))
    }

    /// So many bytes, and the zeros up to a unit.
    ///
    /// # Errors
    /// `Short`, `Padding`.
    #[inline]
    pub fn fixed(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let bytes = self.take(count)?;
        let padding = self.take(count.wrapping_neg() & 3)?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(self.error(Reason::Padding));
        }
        Ok(bytes)
    }

    /// A count of elements that each have `least` bytes: within its bound, and no more than can be there.
    ///
    /// # Errors
    /// `Bound`, `Short`.
    #[inline]
    pub fn count(&mut self, most: u32, least: usize) -> Result<usize, Error> {
        let count = self.unsigned()?;
        if count > most {
            self.at -= 4;
            return Err(self.error(Reason::Bound { count, most }));
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

    /// All bytes that are left.
    #[inline]
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// Counts memory that is about to be taken.
    #[inline(always)]
    fn spend(&mut self, bytes: usize) -> Result<(), Error> {
        self.spent = self.spent.saturating_add(bytes);
        if self.spent > FREE && self.spent - FREE > self.bytes.len().saturating_mul(SWELL) {
            return Err(self.error(Reason::Memory));
        }
        Ok(())
    }

    /// The same, where values of this type may hold others of it.
    #[inline(always)]
    fn nested_if<T>(&mut self, nests: bool, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
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

/// A type with a representation.
pub trait Xdr: Sized {
    /// Bytes of its shortest value.
    const LEAST: usize;
    /// Bytes of its longest value; `usize::MAX`: no bound that fits.
    const MOST: usize;

    /// Writes it.
    fn encode(&self, to: &mut Encoder<'_>);

    /// Reads it.
    ///
    /// # Errors
    /// [`Error`]: the bytes are none.
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error>;
}

/// Bytes with the zeros up to a unit.
#[must_use]
pub const fn padded(bytes: usize) -> usize {
    bytes.saturating_add(3) & !3
}

/// A value's bytes, for tests and tools.
#[must_use]
pub fn to_bytes<T: Xdr>(value: &T) -> Vec<u8> {
    let mut sizer = Encoder::new(&mut []);
    value.encode(&mut sizer);
    let mut bytes = vec![0; sizer.needed()];
    value.encode(&mut Encoder::new(&mut bytes));
    bytes
}

/// The value that fills `bytes`.
///
/// # Errors
/// [`Error`].
pub fn from_bytes<T: Xdr>(bytes: &[u8]) -> Result<T, Error> {
    let mut decoder = Decoder::new(bytes);
    let value = T::decode(&mut decoder)?;
    decoder.end()?;
    Ok(value)
}

macro_rules! number {
    ($($type:ty, $size:expr, $value:ident, $from:ident, $encode:expr, $decode:expr;)*) => {$(
        impl Xdr for $type {
            const LEAST: usize = $size;
            const MOST: usize = $size;
            #[inline(always)]
            fn encode(&self, to: &mut Encoder<'_>) {
                let $value = *self;
                $encode(to);
            }
            #[inline(always)]
            fn decode($from: &mut Decoder<'_>) -> Result<Self, Error> {
                $decode
            }
        }
    )*};
}

number! {
    u32, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value), from.unsigned();
    i32, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value as u32), Ok(from.unsigned()? as i32);
    u64, 8, value, from, |to: &mut Encoder<'_>| to.unsigned_hyper(value), from.unsigned_hyper();
    i64, 8, value, from, |to: &mut Encoder<'_>| to.unsigned_hyper(value as u64), Ok(from.unsigned_hyper()? as i64);
    f32, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value.to_bits()), Ok(f32::from_bits(from.unsigned()?));
    f64, 8, value, from, |to: &mut Encoder<'_>| to.unsigned_hyper(value.to_bits()), Ok(f64::from_bits(from.unsigned_hyper()?));
    bool, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(u32::from(value)), match from.unsigned()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(from.error(Reason::Boolean(other))),
    };
    // rpcgen's own, beyond the RFC: each fills a unit.
    u8, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(u32::from(value)), Ok(from.unsigned()? as u8);
    i8, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value as i32 as u32), Ok(from.unsigned()? as i8);
    u16, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(u32::from(value)), Ok(from.unsigned()? as u16);
    i16, 4, value, from, |to: &mut Encoder<'_>| to.unsigned(value as i32 as u32), Ok(from.unsigned()? as i16);
}

impl Xdr for () {
    const LEAST: usize = 0;
    const MOST: usize = 0;
    #[inline(always)]
    fn encode(&self, _: &mut Encoder<'_>) {}
    #[inline(always)]
    fn decode(_: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(())
    }
}

impl<T: Xdr> Xdr for Option<Box<T>> {
    const LEAST: usize = 4;
    // What an optional value holds may be of its own type: no bound is computed.
    const MOST: usize = usize::MAX;
    fn encode(&self, to: &mut Encoder<'_>) {
        to.unsigned(u32::from(self.is_some()));
        if let Some(value) = self {
            to.nested_if(true, |to| value.encode(to));
        }
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        if bool::decode(from)? {
            from.spend(size_of::<T>())?;
            from.nested(|from| Ok(Some(Box::new(T::decode(from)?))))
        } else {
            Ok(None)
        }
    }
}

/// `T name[N]`.
impl<T: Xdr, const N: usize> Xdr for [T; N] {
    const LEAST: usize = T::LEAST * N;
    const MOST: usize = T::MOST.saturating_mul(N);
    fn encode(&self, to: &mut Encoder<'_>) {
        to.nested_if(T::MOST == usize::MAX, |to| self.iter().for_each(|value| value.encode(to)));
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let mut values = Vec::with_capacity(N.min(from.left()));
        from.nested_if(T::MOST == usize::MAX, |from| {
            for _ in 0..N {
                values.push(T::decode(from)?);
            }
            Ok(())
        })?;
        values.try_into().map_err(|_| from.error(Reason::Short))
    }
}

/// `opaque name[N]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opaque<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Opaque<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Xdr for Opaque<N> {
    const LEAST: usize = padded(N);
    const MOST: usize = padded(N);
    #[inline]
    fn encode(&self, to: &mut Encoder<'_>) {
        to.fixed(&self.0);
    }
    #[inline]
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let bytes = from.fixed(N)?;
        Ok(Self(bytes.try_into().unwrap_or([0; N])))
    }
}

/// `opaque name<MOST>`, and `string name<MOST>`: C's strings have no encoding. A longer one is refused before it is
/// sent, and by the side that decodes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes<const BOUND: u32>(pub Vec<u8>);

impl<const BOUND: u32> Xdr for Bytes<BOUND> {
    const LEAST: usize = 4;
    const MOST: usize = padded(BOUND as usize).saturating_add(4);
    #[inline]
    fn encode(&self, to: &mut Encoder<'_>) {
        to.bounded(self.0.len(), BOUND);
        to.variable(&self.0);
    }
    #[inline]
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(Self(from.variable(BOUND)?.to_vec()))
    }
}

impl<const BOUND: u32> From<&str> for Bytes<BOUND> {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl<const BOUND: u32> From<&[u8]> for Bytes<BOUND> {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl<const BOUND: u32> From<Vec<u8>> for Bytes<BOUND> {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl<const BOUND: u32> std::ops::Deref for Bytes<BOUND> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// `T name<MOST>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct List<T, const BOUND: u32>(pub Vec<T>);

impl<T: Xdr, const BOUND: u32> Xdr for List<T, BOUND> {
    const LEAST: usize = 4;
    const MOST: usize = T::MOST.saturating_mul(BOUND as usize).saturating_add(4);
    fn encode(&self, to: &mut Encoder<'_>) {
        to.bounded(self.0.len(), BOUND);
        to.unsigned(self.0.len() as u32);
        to.nested_if(T::MOST == usize::MAX, |to| self.0.iter().for_each(|value| value.encode(to)));
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let count = from.count(BOUND, T::LEAST)?;
        from.spend(count.saturating_mul(size_of::<T>()))?;
        // A value in memory may be many times as large as its bytes: the vector grows with what was decoded.
        let mut values = Vec::with_capacity(count.min(1024));
        from.nested_if(T::MOST == usize::MAX, |from| {
            for _ in 0..count {
                values.push(T::decode(from)?);
            }
            Ok(())
        })?;
        Ok(Self(values))
    }
}

impl<T, const BOUND: u32> From<Vec<T>> for List<T, BOUND> {
    fn from(values: Vec<T>) -> Self {
        Self(values)
    }
}

impl<T, const BOUND: u32> std::ops::Deref for List<T, BOUND> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// A quadruple: 16 bytes that are not computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quadruple(pub [u8; 16]);

impl Xdr for Quadruple {
    const LEAST: usize = 16;
    const MOST: usize = 16;
    fn encode(&self, to: &mut Encoder<'_>) {
        to.fixed(&self.0);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(Self(from.fixed(16)?.try_into().unwrap_or_default()))
    }
}

macro_rules! tuple {
    ($($name:ident)+) => {
        /// The arguments of a procedure, one behind the other.
        impl<$($name: Xdr),+> Xdr for ($($name,)+) {
            const LEAST: usize = 0 $(+ $name::LEAST)+;
            const MOST: usize = 0usize$(.saturating_add($name::MOST))+;
            #[inline(always)]
            #[allow(non_snake_case)]
            fn encode(&self, to: &mut Encoder<'_>) {
                let ($($name,)+) = self;
                $($name.encode(to);)+
            }
            #[inline(always)]
            fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
                Ok(($($name::decode(from)?,)+))
            }
        }
    };
}

tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
tuple!(A B C D E F G);
tuple!(A B C D E F G H);

/// Arguments that a caller keeps. They are never decoded as references: they would have no owner.
impl<T: Xdr> Xdr for &T {
    const LEAST: usize = T::LEAST;
    const MOST: usize = T::MOST;
    #[inline(always)]
    fn encode(&self, to: &mut Encoder<'_>) {
        (**self).encode(to);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Err(from.error(Reason::Borrowed))
    }
}

/// By reference: what a caller has encodes as the value would.
impl<T: Xdr> Xdr for Box<T> {
    const LEAST: usize = T::LEAST;
    const MOST: usize = T::MOST;
    #[inline(always)]
    fn encode(&self, to: &mut Encoder<'_>) {
        to.nested_if(T::MOST == usize::MAX, |to| (**self).encode(to));
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        from.nested_if(T::MOST == usize::MAX, |from| Ok(Box::new(T::decode(from)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Everything = (u32, i64, (bool, Bytes<8>), List<(i32, Opaque<5>), 9>, Option<Box<(u32, Option<Box<u64>>)>>, [u16; 3]);

    #[test]
    fn the_bytes_are_those_of_the_standard() {
        assert_eq!(to_bytes(&(-1i32, 2u64)), [255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(to_bytes(&Bytes::<9>(b"hello".to_vec())), *b"\0\0\0\x05hello\0\0\0");
        assert_eq!(to_bytes(&Opaque(*b"abc")), *b"abc\0");
        assert_eq!(to_bytes(&Some(Box::new(7u32))), [0, 0, 0, 1, 0, 0, 0, 7]);
        assert_eq!(to_bytes(&List::<u32, 3>(vec![1, 2])), [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn what_lies_is_refused() {
        let refused = |bytes: &[u8]| from_bytes::<Bytes<8>>(bytes).unwrap_err().reason;
        assert_eq!(refused(&[0, 0, 0, 9]), Reason::Bound { count: 9, most: 8 });
        assert_eq!(refused(&[0, 0, 0, 8, 1]), Reason::Short);
        assert_eq!(refused(&[0, 0, 0, 1, 1, 0, 1, 0]), Reason::Padding);
        assert_eq!(refused(&[0, 0, 0, 0, 1]), Reason::Rest(1));
        assert_eq!(from_bytes::<bool>(&[0, 0, 0, 2]).unwrap_err().reason, Reason::Boolean(2));
        // A count of four thousand million costs nothing.
        assert_eq!(from_bytes::<List<u32, { u32::MAX }>>(&[255; 12]).unwrap_err().reason, Reason::Short);
    }

    /// `struct list { list *next; }`.
    #[derive(Debug, PartialEq)]
    struct Chain(Option<Box<Chain>>);

    impl Xdr for Chain {
        const LEAST: usize = 4;
        const MOST: usize = usize::MAX;
        fn encode(&self, to: &mut Encoder<'_>) {
            self.0.encode(to);
        }
        fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
            Ok(Self(Xdr::decode(from)?))
        }
    }

    /// `struct tree { int value; tree kids<>; };`, as it is generated.
    #[derive(Debug, Default)]
    struct Tree {
        _value: i32,
        kids: List<Tree, { u32::MAX }>,
    }

    impl Xdr for Tree {
        const LEAST: usize = 8;
        const MOST: usize = usize::MAX;
        fn encode(&self, _: &mut Encoder<'_>) {}
        fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
            Ok(Self { _value: i32::decode(from)?, kids: List::decode(from)? })
        }
    }

    /// `struct node { opaque data[4096]; node *next; };`
    #[derive(Debug)]
    struct Node {
        _data: [u8; 4096],
        _next: Option<Box<Node>>,
    }

    impl Xdr for Node {
        const LEAST: usize = 4100;
        const MOST: usize = usize::MAX;
        fn encode(&self, _: &mut Encoder<'_>) {}
        fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
            let _data = from.fixed(4096)?.try_into().unwrap();
            Ok(Self { _data, _next: Option::decode(from)? })
        }
    }

    /// On a stack as threads have it.
    fn on_a_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            std::thread::Builder::new().stack_size(2 << 20).spawn_scoped(scope, act).unwrap().join().unwrap()
        })
    }

    /// `union u switch (int k) { case 1: opaque x[4096]; default: void; };`
    #[derive(Debug)]
    enum Union {
        _Large([u8; 4096]),
        Void,
    }

    impl Xdr for Union {
        const LEAST: usize = 4;
        const MOST: usize = 4100;
        fn encode(&self, _: &mut Encoder<'_>) {}
        fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
            i32::decode(from).map(|_| Self::Void)
        }
    }

    #[test]
    fn values_take_a_bounded_memory() {
        let unions = |count: u32| [&count.to_be_bytes()[..], &vec![0; count as usize * 4]].concat();
        let decoded = |count| from_bytes::<List<Union, { u32::MAX }>>(&unions(count)).map(|list| list.len());
        assert_eq!(decoded(200), Ok(200));
        assert_eq!(decoded(1 << 20).unwrap_err().reason, Reason::Memory);
    }

    #[test]
    fn values_that_hold_others_of_their_type_have_an_end() {
        let tree = |depth: usize| [[0, 0, 0, 1, 0, 0, 0, 1].repeat(depth), vec![0; 8]].concat();
        let node = |depth: usize| [[vec![7; 4096], vec![0, 0, 0, 1]].concat().repeat(depth), vec![0; 4100]].concat();
        on_a_thread(|| {
            assert_eq!(from_bytes::<Tree>(&tree(1)).unwrap().kids.len(), 1);
            assert!(from_bytes::<Tree>(&tree(100)).is_ok());
            assert!(from_bytes::<Node>(&node(5)).is_ok());
            assert_eq!(from_bytes::<Tree>(&tree(400_000)).unwrap_err().reason, Reason::Depth);
            assert_eq!(from_bytes::<Node>(&node(999)).unwrap_err().reason, Reason::Depth);
        });
    }

    #[test]
    fn nesting_has_an_end() {
        let chain = |links: u32| {
            let mut bytes: Vec<u8> = (0..links).flat_map(|_| 1u32.to_be_bytes()).collect();
            bytes.extend([0; 4]);
            bytes
        };
        // Frames are several times as large where nothing is optimised: the stack's bound comes first there.
        let reached = if cfg!(debug_assertions) { DEEPEST / 10 } else { DEEPEST };
        assert!(from_bytes::<Chain>(&chain(reached)).is_ok());
        assert_eq!(from_bytes::<Chain>(&chain(DEEPEST + 1)).unwrap_err().reason, Reason::Depth);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut small = [0; 6];
        let mut encoder = Encoder::new(&mut small);
        (1u32, 2u32).encode(&mut encoder);
        assert_eq!((encoder.needed(), encoder.fits()), (8, false));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value_or_none(bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..200)) {
            if let Ok(value) = from_bytes::<Everything>(&bytes) {
                let again = to_bytes(&value);
                // Shorts are cut, as libtirpc does; all else is as it came.
                prop_assert_eq!(again.len(), bytes.len());
                prop_assert_eq!(from_bytes::<Everything>(&again).unwrap(), value);
                prop_assert!(again.len() >= Everything::LEAST);
            }
        }
    }
}
