//! Arguments and results that other code encodes and decodes: C's stubs, tools.

use crate::client::{Client, Pending};
use crate::error::Error;
use crate::reference::How;
use crate::wire::LINE;
use crate::xdr::{self, Decoder, Encoder, Xdr};

/// Results as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw(pub Vec<u8>);

impl Xdr for Raw {
    const LEAST: usize = 0;
    const MOST: usize = usize::MAX;
    fn encode(&self, to: &mut Encoder<'_>) {
        to.fixed(&self.0);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, xdr::Error> {
        Ok(Self(from.rest_vec()))
    }
}

/// Bytes, of which there are `BOUND` at most.
struct Part<'a, const BOUND: usize>(&'a [u8]);

impl<const BOUND: usize> Xdr for Part<'_, BOUND> {
    const LEAST: usize = 0;
    const MOST: usize = BOUND;
    #[inline]
    fn encode(&self, to: &mut Encoder<'_>) {
        to.fixed(self.0);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, xdr::Error> {
        Err(from.error(xdr::Reason::Borrowed))
    }
}

impl Client {
    /// Begins a call with arguments that are encoded already; `most` bounds the bytes of its results.
    ///
    /// # Errors
    /// [`Error`]; the call has not begun then.
    pub fn begin_raw(&self, procedure: u16, arguments: &[u8], most: usize, how: &How<'_>) -> Result<Pending<'_, Raw>, Error> {
        let pending = match (arguments.len() <= LINE, most <= LINE) {
            (true, true) => self.begin_with::<_, ()>(procedure, &Part::<LINE>(arguments), how)?,
            (false, true) => self.begin_with::<_, ()>(procedure, &Part::<{ usize::MAX }>(arguments), how)?,
            (_, false) => return self.begin_bounded(procedure, &Part::<{ usize::MAX }>(arguments), most, how),
        };
        Ok(pending.of())
    }

    /// The same, of which the caller does not want to hear any more.
    ///
    /// # Errors
    /// [`Error`]: it was not sent.
    pub fn tell_raw(&self, procedure: u16, arguments: &[u8]) -> Result<(), Error> {
        self.tell(procedure, &Part::<{ usize::MAX }>(arguments))
    }
}
