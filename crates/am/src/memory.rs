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

/// What all engines begin with.
#[inline]
fn head(memory: &[u64]) -> Result<&Shared, MemoryError> {
    let head = memory.get(..words(size_of::<Shared>())).ok_or(MemoryError::Small)?;
    Ok(bytemuck::from_bytes(bytemuck::cast_slice(head)))
}

/// Where the parts of an engine lie, worked out once for a process that attaches to it again and again.
pub struct Layout {
    config: Config,
    parts: [usize; 8],
}

impl Layout {
    /// Of an engine with this configuration.
    ///
    /// # Errors
    /// The configuration is out of range.
    pub fn of(config: &Config) -> Result<Layout, MemoryError> {
        config.validate().map_err(MemoryError::Config)?;
        Ok(Layout { config: *config, parts: config.parts() })
    }

    #[inline(always)]
    pub(crate) fn is_of(&self, shared: &Shared) -> bool {
        shared.magic == MAGIC && shared.config == self.config
    }
}

fn cast<T: bytemuck::Pod>(words: &mut [u64]) -> &mut [T] {
    bytemuck::cast_slice_mut(words)
}

impl<'m> Memory<'m> {
    /// Cuts up memory that an engine was made in.
    pub(crate) fn attach(memory: &'m mut [u64]) -> Result<Self, MemoryError> {
        let shared = head(memory)?;
        if shared.magic != MAGIC {
            return Err(MemoryError::Foreign);
        }
        let layout = Layout::of(&shared.config)?;
        Self::attach_as(memory, &layout)
    }

    /// The same, of an engine that is known to have this layout.
    #[inline]
    pub(crate) fn attach_as(memory: &'m mut [u64], layout: &Layout) -> Result<Self, MemoryError> {
        let shared = head(memory)?;
        if !layout.is_of(shared) {
            return Err(MemoryError::Foreign);
        }
        let mut rest = memory;
        let mut next = |at: usize| {
            let (part, behind) = core::mem::take(&mut rest).split_at_mut_checked(layout.parts[at]).ok_or(MemoryError::Small)?;
            rest = behind;
            Ok(part)
        };
        Ok(Self {
            shared: &mut cast(next(0)?)[0],
            peers: cast(next(1)?),
            channels: cast(next(2)?),
            slots: cast(next(3)?),
            order: cast(next(4)?),
            holds: cast(next(5)?),
            payload: cast(next(6)?),
            held: cast(next(7)?),
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
