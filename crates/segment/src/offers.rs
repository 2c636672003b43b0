//! The queue of a link: connections that its client makes in memory, for the server to accept.
//!
//! The first connections of a channel go through the kernel, which gives them a companion. When both ends have closed
//! and kept their descriptors of it, the client can use channel and companion again without asking the kernel: it writes
//! the channel's number here. The protocol is `shunt_ring::offers`; each line has one writer.

use crate::sync::AtomicU32;
use crate::CHANNELS;

/// What the client writes.
#[repr(C, align(64))]
pub struct Published {
    /// Connections offered so far, modulo 2^32.
    pub count: AtomicU32,
    /// Bells rung so far: bytes written to the link's bell.
    pub rung: AtomicU32,
    /// Channels, as a ring: offer number n stands in place n modulo [`CHANNELS`].
    pub channels: [AtomicU32; CHANNELS],
}

/// What the server writes.
#[repr(C, align(64))]
pub struct Taken {
    /// Offers accepted (or refused) so far, modulo 2^32.
    pub count: AtomicU32,
    /// Bells taken off so far, or about to be.
    pub bells: AtomicU32,
    /// Offers that may wait at one time (the listener's backlog); 0: none are accepted.
    pub backlog: AtomicU32,
    /// Not 0: each offer is to ring, whatever waits: an edge-triggered set hears of every connection.
    pub each: AtomicU32,
}

/// The queue.
#[repr(C)]
pub struct Offers {
    /// The client's lines.
    pub published: Published,
    /// The server's line.
    pub taken: Taken,
}

impl Offers {
    /// A queue for a model: its atomics are not plain memory.
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Offers {
        let narrow = || AtomicU32::new(0);
        Offers {
            published: Published { count: narrow(), rung: narrow(), channels: core::array::from_fn(|_| narrow()) },
            taken: Taken { count: narrow(), bells: narrow(), backlog: narrow(), each: narrow() },
        }
    }
}
