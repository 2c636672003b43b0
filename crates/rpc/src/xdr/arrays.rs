//! Bytes and elements that have a count, of the definition or of their own.

use super::{padded, Decoder, Encoder, Error, Reason, Xdr};

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
        from.fixed_array().map(Self)
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
        from.variable_vec(BOUND).map(Self)
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
