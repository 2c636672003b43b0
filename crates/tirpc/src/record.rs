//! Records of RFC 5531, section 11, over a stream of bytes: a record is any number of fragments, each behind a mark of four bytes, whose
//! highest bit says that it is the last.
//!
//! Both directions have one buffer of a fixed size and keep no record whole: what does not fit is sent, or read, on the way. So the longest
//! record takes no more memory than the shortest, and lengths that a peer claims are never allocated here.

mod input;
mod output;

pub use input::{Input, Source};
pub use output::{Output, Sink};

/// The bit of a mark that says that the fragment is its record's last.
pub(crate) const LAST: u32 = 1 << 31;
/// Bytes of a mark.
const MARK: usize = 4;

/// The record or the stream ended, or the stream failed: nothing more can be had. The source or sink knows which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

#[cfg(test)]
mod tests;
