//! What a side waits for, and how it is told.

use crate::sync::{AtomicU32, AtomicU64};

/// What a doorbell is: a byte with which no text begins. Any other byte on a companion was put there past the library.
pub const BELL: u8 = 0xbe;

/// What a side waits for; the peer looks at it after each send and receive, so it changes rarely.
#[repr(C, align(128))]
pub struct Wait {
    /// Conditions that sleepers wait for ([`arm`]); the peer swaps it to 0 and rings the doorbell.
    pub armed: AtomicU32,
    /// Sleepers of this side, all threads and processes.
    pub sleepers: AtomicU32,
    /// Processor on which this side last began to wait, plus one; 0: unknown.
    pub processor: AtomicU32,
    /// How this side last waited: 0 not yet, 1 spinning, 2 sleeping, 3 in a poll or epoll set.
    pub style: AtomicU32,
    /// The word that would announce the bytes which this side holds back (TCP_CORK, MSG_MORE), once nothing newer was announced;
    /// 0: none were. The peer announces them when their time has come, by the sender's own word.
    pub held: AtomicU64,
    /// When that is, in CLOCK_MONOTONIC ns; 0: this side never held any back, nor in earlier connections of the channel.
    pub held_until: AtomicU64,
}

/// Bits of [`Wait::armed`].
pub mod arm {
    /// Wake when bytes or an end arrive.
    pub const IN: u32 = 1;
    /// Wake when space comes free.
    pub const OUT: u32 = 2;
    /// This side sleeps often: its peer is to execute a fence before it looks at the conditions.
    pub const FENCE: u32 = 4;
    /// As FENCE, but this side does not rely on it yet: no barrier has told the peer.
    pub const FENCE_ASKED: u32 = 8;
    /// This side waits in a set with others: its peer is to say when bytes arrived, so that the order can be told.
    pub const STAMP: u32 = 1 << 8;
    /// Each message is to ring, whether a thread sleeps or not: the kernel makes a signal of the bell (O_ASYNC).
    pub const ALWAYS: u32 = 1 << 9;
    /// This side looks for itself, however it sleeps, before its peer's bytes have been held back for as long as they may be: the
    /// first of them need no bell.
    pub const LOOKS: u32 = 1 << 10;
    /// A tool captures what is sent to this side: the peer notes it ([`crate::tap`]).
    pub const TAP: u32 = 1 << 11;
    /// A tool asks for the TCP connection beside the stream: the peer, which looks here when it sends, is to look at [`crate::channel::cut`].
    pub const CUT: u32 = 1 << 12;
    /// The word's upper half counts armings: one that looks the same is not the same.
    pub const ONE_ARMING: u32 = 1 << 16;
    /// Shift of IN and OUT as armed by a sleeper in a set, which may take them back without harm to those in blocking calls.
    pub const SET_SHIFT: u32 = 4;
}

/// Values of [`Wait::style`].
pub mod style {
    /// Did not wait yet.
    pub const NONE: u32 = 0;
    /// Last waited by spinning.
    pub const SPIN: u32 = 1;
    /// Last waited asleep in a blocking call.
    pub const SLEEP: u32 = 2;
    /// Last waited asleep in poll, select or epoll.
    pub const POLL: u32 = 3;
}
