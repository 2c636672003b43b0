//! An engine's memory: one run of words, cut into arrays whose places follow from the configuration.

use crate::config::Config;
use crate::connection::Side;
use crate::state::{Channel, Held, Peer, Shared, Slot, MAGIC};
use core::mem::size_of;

/// The arrays, each for all peers.
pub(crate) struct Memory<'m> {
    pub shared: &'m mut Shared,
    peers: &'m mut [Peer],
    channels: &'m mut [Channel],
    slots: &'m mut [Slot],
    order: &'m mut [u16],
    holds: &'m mut [Held],
    payload: &'m mut [u8],
    held: &'m mut [u8],
}

/// Why memory is no engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// Fewer words than [`Config::words`], or more than this machine can address.
    Small,
    /// No engine of this version.
    Foreign,
    /// A configuration that is out of range: which field, and its range.
    Config(&'static str),
}

impl core::fmt::Display for MemoryError {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Small => to.write_str("fewer words than the configuration needs"),
            Self::Foreign => to.write_str("no engine of this version"),
            Self::Config(what) => write!(to, "the configuration: {what}"),
        }
    }
}

impl core::error::Error for MemoryError {}

const fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

impl Config {
    /// Words of the arrays, in order.
    fn parts(&self) -> [usize; 8] {
        let (peers, window, held) = (self.peers as usize, self.window as usize, self.held as usize);
        [
            words(size_of::<Shared>()),
            words(size_of::<Peer>() * peers),
            words(size_of::<Channel>() * peers * self.lanes()),
            words(size_of::<Slot>() * peers * window),
            words(2 * peers * window),
            words(size_of::<Held>() * peers * held),
            words(self.stride() * peers * window),
            words(self.stride() * peers * held),
        ]
    }

    /// Words (of 8 bytes) that an engine needs. Most are packets' buffers, never touched while they are not used.
    #[must_use]
    pub fn words(&self) -> usize {
        self.parts().iter().sum()
    }
}

fn cast<T: bytemuck::Pod>(words: &mut [u64]) -> &mut [T] {
    bytemuck::cast_slice_mut(words)
}

impl<'m> Memory<'m> {
    /// Cuts up memory that an engine was made in.
    pub(crate) fn attach(memory: &'m mut [u64]) -> Result<Self, MemoryError> {
        let head = memory.get(..words(size_of::<Shared>())).ok_or(MemoryError::Small)?;
        let shared: &Shared = bytemuck::from_bytes(bytemuck::cast_slice(head));
        if shared.magic != MAGIC {
            return Err(MemoryError::Foreign);
        }
        let config = shared.config;
        config.validate().map_err(MemoryError::Config)?;
        if memory.len() < config.words() {
            return Err(MemoryError::Small);
        }
        let mut rest = memory;
        let mut parts = config.parts().map(|length| {
            let (part, behind) = core::mem::take(&mut rest).split_at_mut(length);
            rest = behind;
            Some(part)
        });
        let mut part = |at: usize| parts[at].take().unwrap_or_default();
        Ok(Self {
            shared: &mut cast(part(0))[0],
            peers: cast(part(1)),
            channels: cast(part(2)),
            slots: cast(part(3)),
            order: cast(part(4)),
            holds: cast(part(5)),
            payload: cast(part(6)),
            held: cast(part(7)),
        })
    }

    #[inline]
    pub(crate) fn peer(&self, index: u32) -> Option<&Peer> {
        self.peers.get(index as usize).filter(|_| index < self.shared.config.peers)
    }

    /// What a peer has for itself beside its arrays.
    #[inline(always)]
    pub(crate) fn peer_mut(&mut self, index: u32) -> Option<&mut Peer> {
        self.peers.get_mut(index as usize)
    }

    pub(crate) fn channel(&self, index: u32, channel: u16) -> Option<&Channel> {
        let lanes = self.shared.config.lanes();
        self.channels.get(index as usize * lanes..)?.get(..lanes)?.get(usize::from(channel))
    }

    /// One peer's share.
    #[inline]
    pub(crate) fn side(&mut self, index: u32) -> Option<Side<'_>> {
        let config = &self.shared.config;
        if index >= config.peers {
            return None;
        }
        let at = index as usize;
        let (window, held, stride, lanes) = (config.window as usize, config.held as usize, config.stride(), config.lanes());
        Some(Side {
            index,
            peer: self.peers.get_mut(at)?,
            channels: self.channels.get_mut(at * lanes..(at + 1) * lanes)?,
            slots: self.slots.get_mut(at * window..(at + 1) * window)?,
            order: self.order.get_mut(at * window..(at + 1) * window)?,
            holds: self.holds.get_mut(at * held..(at + 1) * held)?,
            payload: self.payload.get_mut(at * window * stride..(at + 1) * window * stride)?,
            held: self.held.get_mut(at * held * stride..(at + 1) * held * stride)?,
            shared: self.shared,
        })
    }
}
