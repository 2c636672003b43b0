//! What an endpoint keeps in memory that several processes may map: everything except descriptors and addresses.
//!
//! ```text
//! 0        Header: what this is, the lock, counters
//! 4 KiB    registry of channels, and its index by tag
//!          send queue, receive queue, free queue
//!          what the device keeps (page aligned)
//!          communication segment (page aligned)
//! ```
//!
//! Offsets follow from [`Shape`] alone. A handle ([`Memory`]) checks the shape once, when it attaches, and keeps a private
//! copy; what it reads later (positions, descriptors, addresses) it checks each time.

mod memory;
mod queue;
mod registry;
mod seals;

pub use memory::{Header, Layout, Memory, Shape};
pub use queue::{Full, Plain, Queue};
pub use registry::{ChannelEntry, Registry};
pub use seals::{is_safe_to_map, SEALS};

use crate::area::Area;
use crate::message::{INLINE, SCATTER};

/// A cache line, and its neighbour that is fetched with it.
#[repr(C, align(128))]
#[derive(Default, Debug)]
pub struct CacheLine<T>(pub T);

/// An entry of a send queue.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct SendDescriptor {
    /// The channel.
    pub channel: u32,
    /// `shunt_wire::endpoint::Kind` as a number.
    pub kind: u32,
    /// Bytes in `head`.
    pub head_length: u32,
    /// Areas in `areas`.
    pub count: u32,
    /// For the device: the header of the frame, in front of the first bytes.
    pub wire: [u8; shunt_wire::endpoint::HEADER],
    /// The first bytes.
    pub head: [u8; INLINE],
    /// Where the rest lies.
    pub areas: [Area; SCATTER],
}

impl SendDescriptor {
    /// Nothing to send.
    pub const fn empty() -> SendDescriptor {
        SendDescriptor {
            channel: 0,
            kind: 0,
            head_length: 0,
            count: 0,
            wire: [0; shunt_wire::endpoint::HEADER],
            head: [0; INLINE],
            areas: [Area::new(0, 0); SCATTER],
        }
    }

    /// The first bytes; never more than there are, whatever the length says.
    #[inline(always)]
    pub fn head(&self) -> &[u8] {
        &self.head[..(self.head_length as usize).min(INLINE)]
    }

    /// The areas; never more than there are.
    #[inline(always)]
    pub fn areas(&self) -> &[Area] {
        &self.areas[..(self.count as usize).min(SCATTER)]
    }
}
