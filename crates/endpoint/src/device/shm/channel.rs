//! What an endpoint keeps of a channel: in its shared memory, and in this process alone.

use super::lane::Lane;
use crate::shared::ChannelEntry;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the device keeps of a channel, in the words of its entry. Each pair is two counts, low half and high half.
pub(super) mod word {
    /// Receiving: next slot, next byte of the ring.
    pub const NEXT: usize = 0;
    /// Receiving: what the sender has been told: slots, bytes.
    pub const TOLD: usize = 1;
    /// Receiving: bodies in all, bodies released in order.
    pub const BODIES: usize = 2;
    /// Receiving: bytes of the ring that are released.
    pub const RELEASED: usize = 3;
    /// Sending: next slot, next byte of the ring.
    pub const TAIL: usize = 4;
    /// Sending: the peer's heads as last seen.
    pub const SEEN: usize = 5;
    /// Flags.
    pub const STATE: usize = 6;
}

/// The peer's lane is here.
pub(super) const HAVE_OUT: u64 = 1;
/// The peer has our lane.
pub(super) const PEER_HAS: u64 = 2;
/// The peer broke the rules, or is gone: nothing is sent or received any more.
pub(super) const DEAD: u64 = 4;
/// The last send found no room.
pub(super) const BLOCKED: u64 = 8;

#[inline(always)]
pub(super) fn pair(word: &AtomicU64) -> (u32, u32) {
    let value = word.load(Relaxed);
    (value as u32, (value >> 32) as u32)
}

#[inline(always)]
pub(super) fn set_pair(word: &AtomicU64, low: u32, high: u32) {
    word.store(low as u64 | (high as u64) << 32, Relaxed);
}

pub(super) fn flag(entry: &ChannelEntry, flag: u64, on: bool) {
    let state = &entry.device[word::STATE];
    let value = state.load(Relaxed);
    state.store(if on { value | flag } else { value & !flag }, Relaxed);
}

#[inline(always)]
pub(super) fn has(entry: &ChannelEntry, flags: u64) -> bool {
    entry.device[word::STATE].load(Relaxed) & flags != 0
}

/// Where everything of the one channel lies, for an endpoint that has only one open: found once for each change of the registry.
#[derive(Clone, Copy)]
pub(super) struct Only {
    /// Its name, or 0: there is none, or more than one.
    pub channel: u32,
    pub entry: *const ChannelEntry,
    pub lane_in: Lane,
    /// Null while the peer has not given it.
    pub out: *mut u8,
}

impl Only {
    pub const NONE: Only = Only { channel: 0, entry: core::ptr::null(), lane_in: Lane::NONE, out: core::ptr::null_mut() };
}

/// What this process alone knows of a channel.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Mapped {
    /// The channel's name, or 0.
    pub channel: u32,
    pub lane_in: i32,
    pub lane_out: i32,
    pub out: *mut u8,
}
