//! External data representation (RFC 4506): big-endian units of four bytes, no tags.
//!
//! The bytes are those of rpcgen and libtirpc. Whatever is decoded may come from an enemy: a count is compared with its bound and
//! with the bytes that are left before anything is allocated, and nesting has a limit.

mod arrays;
mod compound;
mod decoder;
mod encoder;
mod error;
mod numbers;
mod sink;
mod source;
mod stack;
#[cfg(test)]
mod tests;

pub use arrays::{Bytes, List, Opaque};
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use error::{Error, Reason};
pub(crate) use sink::Sink;
pub(crate) use source::{loaded_once, Copies};
pub use stack::DEEPEST;

/// A quadruple: 16 bytes that are not computed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quadruple(pub [u8; 16]);

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
