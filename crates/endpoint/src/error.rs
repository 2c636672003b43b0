//! Why a verb could not be done. None of them blocks.

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
