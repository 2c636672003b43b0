//! What an engine remembers: plain data, no pointers, so that it may lie in memory that processes of one owner share.
//!
//! Every bit pattern of these types is a value. What indexes something is checked where it is used, by slices; a garbled
//! state makes wrong messages or a panic, never a wild access.

use crate::config::{Config, Nanoseconds, FETCHES, MAXIMUM_PEERS, MAXIMUM_WINDOW};
use bytemuck::{Pod, Zeroable};
use shunt_path::{Congestion, RoundTrip};

/// "shuntam4"
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"shuntam4");

/// The end of a list of slots.
pub(crate) const NONE: u16 = u16::MAX;

/// Where a connection is in its life.
///
/// ```text
///  IDLE ──connect──► CONNECTING ──an answer to our name──► UP ──silence, reset, bye──► IDLE
///   └───────────────────┴───── the peer proves that it knows our name ─────┘
/// ```
pub(crate) mod life {
    pub const IDLE: u32 = 0;
    pub const CONNECTING: u32 = 1;
    pub const UP: u32 = 2;
}

/// What is known of the peer's side of a connection that is up here.
pub(crate) mod sign {
    /// It is, or was, up there.
    pub const CONFIRMED: u32 = 0;
    /// The peer may not know yet: it is told until there is a sign.
    pub const PROVING: u32 = 1;
    /// The peer has our offer, and may not have adopted it yet.
    pub const ADOPTED: u32 = 2;
}

/// Counts since the engine or the connection was made; for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Counters {
    /// Frames sent with messages, each time they were sent.
    pub frames_sent: u64,
    /// Frames that arrived and were this connection's.
    pub frames_received: u64,
    /// Frames that carried an acknowledgement alone.
    pub acknowledgements_sent: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Time-outs that were taken back: the packet had arrived.
    pub spurious: u64,
    /// Packets that arrived twice.
    pub duplicates: u64,
    /// Packets dropped because they were too far ahead or nothing could hold them.
    pub overruns: u64,
    /// Frames of an older connection, or for none.
    pub stale: u64,
    /// Frames that are none, or were changed on the way.
    pub rejected: u64,
    /// Well-formed frames that break the protocol's rules.
    pub violations: u64,
    /// Handlers run for requests and replies.
    pub handled: u64,
}

/// What all peers share.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Shared {
    pub magic: u64,
    pub config: Config,
    pub secret: [u64; 2],
    pub drawn: u64,
    pub epoch: u64,
    /// No timer of any peer ends before this.
    pub deadline: Nanoseconds,
    /// The next reset may be sent then.
    pub reset_at: Nanoseconds,
    pub counters: Counters,
    /// Peer that `transmit` begins with next.
    pub turn: u64,
    /// Peers that have something to send.
    pub busy: [u64; MAXIMUM_PEERS as usize / 64],
}

impl Shared {
    /// Something is to be sent to a peer: `transmit` will look there.
    #[inline]
    pub(crate) fn mark_busy(&mut self, index: u32) {
        let index = index as usize;
        self.busy[index / 64] |= 1 << (index % 64);
    }
}

/// A list of slots, first in, first out.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Queue {
    pub head: u16,
    pub tail: u16,
    pub length: u32,
}

/// What a packet is sent for: each class has its own queue, in this order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Reply = 0,
    Request = 1,
    Bulk = 2,
}

impl Class {
    pub(crate) fn of(code: u8) -> Self {
        match code {
            0 => Self::Reply,
            1 => Self::Request,
            _ => Self::Bulk,
        }
    }
}

/// Where a slot is.
pub(crate) mod slot {
    pub const FREE: u8 = 0;
    pub const QUEUED: u8 = 1;
    pub const FLIGHT: u8 = 2;
    pub const LOST: u8 = 3;
    /// Arrived out of order: an acknowledgement's map says so.
    pub const ARRIVED: u8 = 4;
}

/// A packet that is to be sent or may have to be sent again.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Slot {
    pub sent_at: Nanoseconds,
    pub length: u32,
    pub in_channel: u32,
    pub channel: u16,
    pub next: u16,
    pub attempts: u16,
    pub state: u8,
    pub class: u8,
    /// Bytes of the channel in it, and which use of the channel they belong to.
    pub bytes: u32,
    pub generation: u32,
}

/// A packet that arrived before those that its channel needs first.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Held {
    pub length: u32,
    pub in_channel: u32,
    pub next: u16,
    pub reserved: [u16; 3],
}

/// An ordered channel, both directions.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Channel {
    /// Bytes sent; wraps never.
    pub sent: u64,
    /// Bytes that the peer lets us send.
    pub limit: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes that we let the peer send, and what of it we have said.
    pub room: u64,
    pub room_said: u64,
    /// Number of the next packet to be sent, and to be delivered.
    pub next_sent: u32,
    pub next_delivered: u32,
    /// Packets in slots.
    pub queued: u32,
    /// First packet held, in order.
    pub held: u16,
    /// Next channel whose room is to be said.
    pub next_room: u16,
    /// In the list of those.
    pub room_due: u32,
    /// Which use of the channel this is, as both sides agreed.
    pub generation: u32,
    /// Bytes that the peer has, in order.
    pub acknowledged: u64,
    /// Next channel of which the program is to hear that, and whether it is in the list of those.
    pub next_news: u16,
    pub news: u16,
    pub reserved: u32,
}

/// A get: at the asking side what was asked, at the other how far the answer is.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Fetch {
    pub name: u64,
    /// In the segment of the side that has this record.
    pub offset: u64,
    pub length: u64,
    pub done: u64,
    pub words: [u64; 8],
    pub count: u32,
    pub handler: u32,
    pub live: u32,
    pub refused: u32,
}

/// What the other side's hello said.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Parameters {
    pub epoch: u64,
    pub name: u64,
    pub window: u32,
    pub channels: u32,
    pub frame: u32,
    pub limit: u32,
}

/// One connection.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Peer {
    // What a plain request and its reply touch.
    /// In the peer's frames to us, and in ours to it; 0: nothing is up.
    pub token: u64,
    pub remote_token: u64,
    pub life: u32,
    /// A frame came since the timer looked.
    pub heard: u32,
    pub requests_sent: u32,
    /// Up to where the peer takes requests.
    pub limit: u32,
    /// Requests taken, and up to where we said that we would.
    pub requests_taken: u32,
    pub limit_said: u32,
    /// Requests taken and not run, and reply packets not yet acknowledged.
    pub replies_owed: u32,
    pub replies_received: u32,
    /// 1: up, over a device that loses nothing, and each message goes at once.
    pub straight: u32,
    /// The reply packets set aside, as the configuration says.
    pub replies: u32,
    /// A call found no credit: ask for it.
    pub starved: u32,
    /// See [`sign`].
    pub sign: u32,

    /// Frames of the connection end there: the smaller of both sides' wishes.
    pub frame: u32,
    pub window: u32,
    pub channels: u32,
    /// A caller waits for this peer.
    pub watched: u32,

    // Sending.
    pub next_sequence: u64,
    pub oldest: u64,
    pub queues: [Queue; 3],
    /// Slots of a class in any state but free.
    pub used: [u32; 3],
    pub free: u16,
    pub free_held: u16,
    pub in_flight: u32,
    pub lost: u32,
    pub arrived: u32,
    pub again: u32,
    pub duplicate_acknowledgements: u32,
    /// Head of the list of channels whose room is to be said.
    pub room_due: u16,
    /// Head of the list of channels with bytes that were acknowledged.
    pub news: u16,
    pub congestion: Congestion,
    pub round_trip: RoundTrip,
    /// Newest packet known to have arrived, by time of sending (RFC 8985, RACK.xmit_ts and RACK.end_seq).
    pub rack_sent_at: Nanoseconds,
    pub rack_sequence: u64,
    pub rack_round_trip: Nanoseconds,
    pub reordering: u32,
    pub backoff: u32,

    // Receiving.
    pub received: u64,
    pub map: [u64; MAXIMUM_WINDOW as usize / 64],
    pub unacknowledged: u32,
    pub acknowledge_now: u32,
    pub echo: u32,
    pub held_count: u32,
    pub echo_at: Nanoseconds,
    /// Packets in the map: behind a gap.
    pub ahead: u32,
    /// A piece of the store under way did not fit our segment.
    pub store_refused: u32,

    // Timers; 0: not running.
    pub acknowledge_at: Nanoseconds,
    pub retransmit_at: Nanoseconds,
    pub tail_probe_at: Nanoseconds,
    pub rack_at: Nanoseconds,
    pub pace_at: Nanoseconds,
    pub probe_at: Nanoseconds,
    pub lost_at: Nanoseconds,
    pub connect_at: Nanoseconds,
    pub deadline: Nanoseconds,
    pub last_heard: Nanoseconds,
    pub interested_since: Nanoseconds,
    /// The oldest packet when the timers last looked, since when it is that, and how often it had been sent by then.
    pub stuck: u64,
    pub stuck_since: Nanoseconds,
    pub stuck_attempts: u32,
    /// A connection ended because its frames did not arrive, and none was closed since then: which of the short ones this one's are,
    /// from 1 on. Outlives a connection.
    pub short: u32,
    pub tries: u32,
    /// Gets under way: asked by us, asked by the peer.
    pub asked_live: u16,
    pub serving_live: u16,

    // Setting up.
    /// Our name in the connection that is up, and what the peer said of itself.
    pub own_name: u64,
    pub remote: Parameters,
    /// Our name in the next connection; 0: not drawn yet. The one that was offered. The peer that asked last: only so that data
    /// may overtake its proof. These outlive a connection.
    pub next_name: u64,
    pub offered: u64,
    pub asker: Parameters,

    // Gets: asked by us, asked by the peer.
    pub asked: [Fetch; FETCHES],
    pub serving: [Fetch; FETCHES],
    pub fetch_name: u64,
    pub serve_next: u64,
    pub counters: Counters,
}
