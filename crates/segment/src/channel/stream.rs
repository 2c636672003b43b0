//! What a side writes to send and to receive: the word that announces and the lines behind it.

use crate::sync::{AtomicU32, AtomicU64};

/// Bits of [`Post::word`].
pub mod word {
    /// Stream positions are counted in bytes modulo 2^48.
    pub const POSITION: u64 = (1 << 48) - 1;
    /// Shift of the count of bytes before the position that stand in [`super::Post::inline`].
    pub const INLINE_SHIFT: u32 = 48;
    /// Shift of the ring class that holds the newest bytes.
    pub const CLASS_SHIFT: u32 = 54;
    /// Shift of the number (modulo 8) of the last change of class.
    pub const SWITCH_SHIFT: u32 = 57;
    /// No more bytes will follow: shutdown(SHUT_WR), or closed.
    pub const FIN: u64 = 1 << 60;
    /// The side has been closed by its last owner.
    pub const CLOSED: u64 = 1 << 61;
    /// The side was closed in a way that TCP answers with RST.
    pub const RST: u64 = 1 << 62;
    /// With RST: the end (FIN) had been announced before.
    pub const LATE: u64 = 1 << 63;
    /// In [`super::Transmit::switch`] only: the peer has received everything up to the border.
    pub const SETTLED: u64 = 1 << 63;
}

/// Bytes that fit beside the word that announces them.
#[cfg(not(loom))]
pub const INLINE: usize = 48;
/// Bytes that fit beside the word that announces them: few in a model.
#[cfg(loom)]
pub const INLINE: usize = 8;

/// The line that a side writes when it sends.
#[repr(C, align(64))]
pub struct Post {
    /// Position behind the newest byte sent, and flags ([`word`]).
    pub word: AtomicU64,
    /// [`Receive::position`] when this side last sent.
    pub ack: AtomicU64,
    /// The newest bytes, when they are few and the ring was empty before them.
    pub inline: [AtomicU64; INLINE / 8],
}

/// A side's sending state; the peer reads the counts of bells, rarely.
#[repr(C, align(64))]
pub struct Transmit {
    /// Thread that is sending, 0: none.
    pub lock: AtomicU32,
    /// Doorbells rung so far, those included that are about to be written on the companion: no more lie there, or were taken.
    pub rung: AtomicU32,
    /// The last of [`super::Side::borders`].
    pub switch: AtomicU64,
    /// The newest known [`Receive::position`] of the peer: a lower bound.
    pub acked: AtomicU64,
    /// Sends of small messages into an empty large ring, counted to shrink it. Top bit: `word` is valid.
    pub small: AtomicU32,
    /// Largest class this side may use.
    pub class_limit: AtomicU32,
    /// Sends that found no space, modulo 2^32: an edge for those who wait for it.
    pub blocked: AtomicU32,
    /// SO_SNDBUF as the program set it (and the kernel doubled it); 0: never set, so that the ring alone is the limit.
    pub send_buffer: AtomicU32,
    /// Copy of [`Post::word`], to be read without disturbing that line.
    pub word: AtomicU64,
    /// Doorbells written on the companion so far, urgent ones left out: no fewer lie there, or were taken.
    pub written: AtomicU32,
    /// Why this side reset the connection, where TCP would not have: a code of [`crate::reason::Reason`].
    pub broken: AtomicU32,
    /// As [`super::Side::stamp`], of bytes that came soon behind those that it tells of: they count where these have been read.
    pub later_stamp: AtomicU64,
}

/// A side's receiving state; the peer reads `position` when it is out of space.
#[repr(C, align(64))]
pub struct Receive {
    /// Position of the next byte to receive, counted in 64 bits without wrap: so an old acknowledgement never looks new.
    pub position: AtomicU64,
    /// Thread that is receiving, 0: none.
    pub lock: AtomicU32,
    /// Doorbells taken off the companion so far.
    pub taken: AtomicU32,
    /// Class in which `position` lies (low 3 bits), and how many bytes are known to wait there.
    pub class: AtomicU32,
    /// Newest change of class (modulo 8) whose border `position` is known to have passed.
    pub switch: AtomicU32,
    /// State of the socket that all its owners on this side share ([`state`]).
    pub state: AtomicU32,
    /// The process that has bytes in use which it has received ([`Receive::held`]); 0: none.
    pub holder: AtomicU32,
    /// The position of the first byte that this side sent and noted for a tool, plus one; 0: none. What comes behind it its peer need not note
    /// ([`crate::tap`]).
    pub noted_from: AtomicU64,
    /// The first byte of those that were received where they lie and are still in use, and [`super::references::HELD`]; 0: none are. Their sender
    /// may not change what is behind it.
    pub held: AtomicU64,
}

/// Bits of [`Receive::state`].
pub mod state {
    /// shutdown(SHUT_RD) was called.
    pub const SHUT_RD: u32 = 1 << 1;
    /// The connection was reset; the next call gets ECONNRESET.
    pub const RESET_DUE: u32 = 1 << 2;
    /// A write after the peer's close; the error EPIPE waits in SO_ERROR.
    pub const PIPE_DUE: u32 = 1 << 3;
    /// Nothing will be sent or received any more.
    pub const DONE: u32 = 1 << 4;
    /// The peer's end was noticed and turned into the bits above.
    pub const END_NOTED: u32 = 1 << 5;
    /// The peer vanished without closing (killed, or the last of several owners left).
    pub const PEER_GONE: u32 = 1 << 6;
    /// SO_LINGER with a time of zero: whichever of the side's owners closes last, resets.
    pub const LINGER_RESET: u32 = 1 << 7;
    /// The descriptor has an owner (F_SETOWN): urgent data is announced by an urgent byte on the companion, for SIGURG.
    pub const OWNED: u32 = 1 << 8;
    /// A non-blocking connect was answered with EINPROGRESS; the next connect gives 0, whichever thread calls it.
    pub const CONNECTING: u32 = 1 << 9;
    /// All who own this side know that it has, or had, several owners.
    pub const SHARED: u32 = 1 << 10;
    /// The reset was this side's own, after TCP_USER_TIMEOUT: its error is ETIMEDOUT.
    pub const TIMED_OUT: u32 = 1 << 11;
    /// The side was closed behind its own end: the hang-up is nothing that a peer is signalled for.
    pub const CLOSED_LATE: u32 = 1 << 12;
    /// One of the side's owners has dissolved the connection (connect to AF_UNSPEC): for the others it looks like one that was
    /// never made.
    pub const DISSOLVED: u32 = 1 << 13;
    /// The socket is bound to its address as the listener was that it came from, and stays so when the connection is dissolved.
    pub const AT_ADDRESS: u32 = 1 << 14;
    /// The side has put bytes that it sent by reference into the link ([`crate::channel::references::place::LENT`]): their memory is to be given back.
    pub const KEEPS: u32 = 1 << 15;
}
