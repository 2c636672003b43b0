//! Why a verb could not be done. None of them blocks.

use core::fmt::{self, Display, Formatter};
use shunt_sys::Errno;

/// Why nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// A queue is full: try again after the next `flush` or `receive`. U-Net's back-pressure.
    NoResource,
    /// No such channel (any more).
    Channel,
    /// More bytes, a longer head or more areas than [`crate::Capabilities`] allows.
    TooLarge,
    /// An area does not lie in the segment.
    Area,
    /// The program's bytes cannot be read: EFAULT.
    Fault,
    /// The channel's peer is gone, or broke the rules of memory that it shares with us.
    Peer,
    /// The device failed.
    Device(Errno),
}

/// Why a channel was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The registry is full.
    Full,
    /// The receive tag is 0 or taken, or the device did not hand it out; or the send tag is 0.
    Tag,
    /// The address is not one of this device's family, or cannot be reached by it.
    Address,
    /// What the system answered.
    System(Errno),
}

impl From<Errno> for OpenError {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// Why a buffer was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The free queue is full.
    Full,
    /// It does not lie in the segment, is too small or badly aligned.
    Area,
    /// This device provides its own.
    NotNeeded,
}

/// Why memory is no endpoint of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// It is not sealed as an endpoint's segment is, so it could shrink under us.
    Unsealed,
    /// The first words are not those of an endpoint.
    Magic,
    /// An endpoint of another version.
    Version,
    /// An endpoint of another device.
    Device,
    /// Sizes and offsets that do not fit each other.
    Layout,
    /// What the system answered.
    System(Errno),
}

impl Display for SendError {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResource => to.write_str("a queue is full"),
            Self::Channel => to.write_str("no such channel"),
            Self::TooLarge => to.write_str("more than the device takes in one message"),
            Self::Area => to.write_str("an area does not lie in the segment"),
            Self::Fault => to.write_str("the bytes cannot be read"),
            Self::Peer => to.write_str("the peer is gone, or broke the rules"),
            Self::Device(errno) => write!(to, "the device failed: {errno}"),
        }
    }
}

impl Display for OpenError {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => to.write_str("no room for another channel"),
            Self::Tag => to.write_str("a tag is 0, taken, or not handed out by the device"),
            Self::Address => to.write_str("the device cannot reach that address"),
            Self::System(errno) => errno.fmt(to),
        }
    }
}

impl Display for PostError {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Full => "the free queue is full",
            Self::Area => "the buffer does not lie in the segment, is too small or badly aligned",
            Self::NotNeeded => "the device has buffers of its own",
        })
    }
}

impl Display for AttachError {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsealed => to.write_str("the memory is not sealed as an endpoint's is"),
            Self::Magic => to.write_str("the memory is no endpoint's"),
            Self::Version => to.write_str("an endpoint of another version"),
            Self::Device => to.write_str("an endpoint of another device"),
            Self::Layout => to.write_str("sizes and offsets that do not fit each other"),
            Self::System(errno) => errno.fmt(to),
        }
    }
}

impl core::error::Error for SendError {}
impl core::error::Error for OpenError {}
impl core::error::Error for PostError {}
impl core::error::Error for AttachError {}
