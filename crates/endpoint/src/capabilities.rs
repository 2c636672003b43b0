//! What a device can do. Transports declare, callers adapt.

/// What provides the buffers that arrivals lie in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffers {
    /// The owner, by [`crate::Endpoint::post`]: areas of at least so many bytes, at offsets that are multiples of `alignment`.
    Posted {
        /// Bytes that a buffer must have.
        smallest: u32,
        /// What its offset must be a multiple of.
        alignment: u32,
    },
    /// The device. `post` answers [`crate::PostError::NotNeeded`].
    Own,
}

/// What an endpoint's device can do. Constant while the endpoint lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The device's name, as tools show it.
    pub device: &'static str,
    /// One sentence on how it works here: which mode was chosen, and what that costs.
    pub sentence: &'static str,
    /// Bytes of the largest message, head and body.
    pub largest: u32,
    /// Areas that one message may be gathered from.
    pub gather: u32,
    /// Messages may be lost, doubled or reordered between two endpoints that are alive. Where not, a message is lost only
    /// for the reasons that the receiver's counters name.
    pub lossy: bool,
    /// Messages of a channel arrive in the order they were sent.
    pub ordered: bool,
    /// What provides receive buffers.
    pub buffers: Buffers,
    /// Exported memory of the peer can be mapped, and is written without its help.
    pub direct: bool,
    /// Messages leave only at [`crate::Endpoint::flush`] or when the queue is full; where not, `send` itself is enough.
    pub needs_flush: bool,
}
