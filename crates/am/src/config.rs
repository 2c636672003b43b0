//! What the caller decides, and what follows from it for memory.

use bytemuck::{Pod, Zeroable};
use shunt_path::Bounds;

pub use shunt_path::{Nanoseconds, MICROSECOND, MILLISECOND};

/// Most peers of one engine: their "has something to do" bits are one array.
pub const MAXIMUM_PEERS: u32 = 4096;
/// Largest window, in packets: the receiver's map of what has arrived has so many bits.
pub const MAXIMUM_WINDOW: u32 = 1024;
/// Smallest frame: the headers, eight words and some data must fit.
pub const MINIMUM_FRAME: u32 = 256;
/// Frames where longer ones do not arrive, and where these do not either: with the headers of an endpoint, UDP and IPv6 packets of 1,200 bytes
/// (RFC 8899, BASE_PLPMTU), and of 576, which every host takes (RFC 1122, 3.3.2).
pub(crate) const SHORT_FRAMES: [u32; 2] = [1200 - 16 - 8 - 40, 576 - 16 - 8 - 40];
/// Largest frame.
pub const MAXIMUM_FRAME: u32 = 1 << 20;
/// Gets that one peer may have under way.
pub const FETCHES: usize = 8;

/// The shape of an engine. It bounds everything that any peer can make it hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Config {
    /// Peers, 1 to 4096. A peer's number is that of the device's channel to it.
    pub peers: u32,
    /// Ordered channels with each peer, 0 to 4096, numbered from 1.
    pub channels: u32,
    /// Packets under way to a peer: a power of two, 8 to 1024. A link of rate r and round-trip time t needs r * t / frame.
    pub window: u32,
    /// Requests that a peer may have unanswered, 1 to `window / 2`: so many reply packets are set aside for each peer.
    pub replies: u32,
    /// Packets of ordered channels kept because an earlier one is missing, 0 to `window`. 0 drops them.
    pub held: u32,
    /// Largest frame of the device, in bytes: 256 to 1,048,576.
    pub frame: u32,
    /// 1: the device loses, repeats, reorders and changes nothing, so only credits remain.
    pub reliable: u32,
    /// 1: the device drops frames that were changed on the way; 0: frames carry an integrity word.
    pub checked: u32,
    /// 1: messages join the packet that waits, and only `transmit` sends (SOVIA 3.2.3, with the caller's poll for a timer).
    pub combine: u32,
    /// 1: each peer that knows the channel may set up a connection; 0: only `connect` and `adopt` do.
    pub accept: u32,
    /// Packets that may arrive before an acknowledgement is sent by itself (SOVIA's threshold t, 3.2.2). A sender that may have
    /// fewer than four times as many under way asks for one after a quarter of its window, or after a quarter of these.
    pub acknowledge_every: u32,
    /// Microseconds that an acknowledgement waits for something to ride on.
    pub acknowledge_after: u32,
    /// Microseconds: least retransmission time-out. RFC 6298 says a second; the receiver's delay and its scheduler bound it here.
    pub least_timeout: u32,
    /// Milliseconds without a sign of life after which a peer that owes one is lost: the declared time.
    pub lost_after: u32,
    /// 1: only what is missing is sent again; 0: all from the first missing packet (go-back-N, for comparison).
    pub selective: u32,
    /// Packets that may be under way at first (RFC 6928: 10).
    pub initial_window: u32,
}

impl Config {
    /// Retransmission time-outs: the longest is shorter than a declared time, and the first for paths of one site, where RFC 6298 says 1 s.
    pub(crate) fn timeouts(&self) -> Bounds {
        Bounds { least: u64::from(self.least_timeout) * MICROSECOND, most: 2_000 * MILLISECOND, initial: 100 * MILLISECOND }
    }

    /// For devices that lose frames, such as `udp` and `xdp`, with frames of `frame` bytes.
    #[must_use]
    pub const fn lossy(peers: u32, frame: u32) -> Self {
        Self {
            peers,
            channels: 8,
            window: 256,
            replies: 64,
            held: 256,
            frame,
            reliable: 0,
            checked: 0,
            combine: 0,
            accept: 1,
            acknowledge_every: 32,
            acknowledge_after: 500,
            least_timeout: 10_000,
            lost_after: 5_000,
            selective: 1,
            initial_window: 10,
        }
    }

    /// For devices that lose nothing, such as `shm`.
    #[must_use]
    pub const fn reliable(peers: u32, frame: u32) -> Self {
        let mut config = Self::lossy(peers, frame);
        config.reliable = 1;
        config.checked = 1;
        config.window = 128;
        config.held = 0;
        config
    }

    /// The first field that is out of its range.
    ///
    /// # Errors
    /// Its name and range.
    pub fn validate(&self) -> Result<(), &'static str> {
        let within = |value: u32, low: u32, high: u32| value >= low && value <= high;
        if !within(self.peers, 1, MAXIMUM_PEERS) {
            return Err("peers: 1 to 4096");
        }
        if self.channels > 4096 {
            return Err("channels: 0 to 4096");
        }
        if !within(self.window, 8, MAXIMUM_WINDOW) || !self.window.is_power_of_two() {
            return Err("window: a power of two, 8 to 1024");
        }
        if !within(self.replies, 1, self.window / 2) {
            return Err("replies: 1 to half of the window");
        }
        if self.held > self.window {
            return Err("held: 0 to the window");
        }
        if !within(self.frame, MINIMUM_FRAME, MAXIMUM_FRAME) {
            return Err("frame: 256 to 1048576");
        }
        if self.lost_after == 0 || self.least_timeout == 0 || self.acknowledge_every == 0 || self.initial_window == 0 {
            return Err("lost_after, least_timeout, acknowledge_every, initial_window: not 0");
        }
        Ok(())
    }

    /// Bytes between the payloads of two packets in memory.
    pub(crate) const fn stride(&self) -> usize {
        (self.frame as usize + 63) & !63
    }

    /// Channels with two more for bulk transfer, and the unordered one at 0.
    pub(crate) const fn lanes(&self) -> usize {
        self.channels as usize + 3
    }

    pub(crate) const fn lost_after(&self) -> Nanoseconds {
        self.lost_after as u64 * MILLISECOND
    }
}

/// The ordered channel of stores: the peer's requests write here.
pub(crate) const fn store_channel(config: &Config) -> u16 {
    config.channels as u16 + 1
}

/// The ordered channel of what gets fetch.
pub(crate) const fn fetch_channel(config: &Config) -> u16 {
    config.channels as u16 + 2
}
