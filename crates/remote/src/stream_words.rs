//! What the processes of a station tell each other about its streams: words in the station's memory.

use core::sync::atomic::{AtomicU64, Ordering};
use shunt_station::{Station, Stream};

/// Links of a station: all are made with it, so that every process that is forked has all of them.
pub const LINKS: usize = 8;

/// Streams that rings are provided for.
pub const STREAMS: u32 = LINKS as u32 * shunt_segment::CHANNELS as u32;

/// Bits of [`FLAGS`].
pub mod flag {
    /// The pump is to move its bytes.
    pub const ACTIVE: u64 = 1 << 0;
    /// All bytes and the end were given to the engine.
    pub const FIN_OUT: u64 = 1 << 1;
    /// A reset was given to the engine.
    pub const RESET_OUT: u64 = 1 << 2;
    /// The peer sends no more.
    pub const FIN_IN: u64 = 1 << 3;
    /// The peer reset the stream, or the way to it is lost.
    pub const RESET_IN: u64 = 1 << 4;
    /// No process has the near companion any more.
    pub const NEAR_GONE: u64 = 1 << 5;
    /// Bytes came for a program that had closed: they are answered with a reset.
    pub const REFUSED: u64 = 1 << 6;
    /// The engine wants nothing more of it, and the near side is closed: only the keeper's descriptors are left.
    pub const OVER: u64 = 1 << 7;
    /// A sleeper of the near side is to be rung by the keeper.
    pub const RING: u64 = 1 << 8;
    /// The client gave up before the stream was opened.
    pub const GIVEN_UP: u64 = 1 << 9;
    /// BEGIN, or BEGUN, is to be said to the peer before anything else.
    pub const BEGIN_DUE: u64 = 1 << 10;
    /// The station's stream is not bound yet: OPENED has not come.
    pub const BIND_DUE: u64 = 1 << 11;
    /// The record was written into the shadow ([`super::super::tcp_fallback`]).
    pub const RECORD_OUT: u64 = 1 << 12;
    /// As RING, by an urgent byte: the kernel makes SIGURG of it.
    pub const RING_URGENT: u64 = 1 << 15;
    /// What the peer acknowledged before BEGUN is to be looked up.
    pub const CATCH_UP: u64 = 1 << 14;
    /// The record says that nothing came by the engine.
    pub const NEVER_FAST: u64 = 1 << 13;
    /// It goes by TCP because it is large ([`super::super::bulk`]).
    pub const BULK: u64 = 1 << 16;
    /// [`super::SCORE`] is not 0.
    pub const COUNTS: u64 = 1 << 17;
    /// This side found it large, and says nothing more of it by the engine: the peer's record is awaited.
    pub const QUITS: u64 = 1 << 19;
    /// LEAVE is to be said to the peer, behind all that was sent.
    pub const LEAVE_DUE: u64 = 1 << 20;
    /// The peer knows nothing of LEAVE.
    pub const STAYS: u64 = 1 << 21;
    /// The program has the shadow in the companion's place: nothing is moved any more.
    pub const LENT: u64 = 1 << 18;
}

/// Values of [`MODE`]: which way the bytes of a stream go. Only [`mode::FAST`] ones go by the engine, and a client's in
/// [`mode::BEGINNING`] if none went by TCP before.
pub use shunt_station::paths as mode;

/// Bits ([`flag`]).
pub const FLAGS: usize = 0;
/// Bytes that the peer's side has.
pub use mode::ACKNOWLEDGED;
/// Bytes put into the near ring.
pub use mode::RECEIVED;
/// Bytes given to the engine, or to TCP; as all positions here, counted as the near ring does.
pub use mode::SENT;
/// Bytes that the peer may send, counted from the beginning.
pub const GRANTED: usize = 4;
/// Which life of the channel it is: far sockets of each process know by it whether they are its.
pub const GENERATION: usize = 5;
/// The near side's mark of an urgent byte that was told.
pub const MARK: usize = 6;
/// One of [`mode`].
pub use mode::WAY as MODE;
/// The position in the near ring at which the engine's bytes begin, outgoing; incoming.
pub const OUT_BASE: usize = 8;
pub const IN_BASE: usize = 9;
/// A server's: the position that BEGIN named, plus one; 0: it has not come.
pub const BEGIN_AT: usize = 10;
/// Bytes that were sent ahead of the peer's program ([`super::bulk`]).
pub const SCORE: usize = 11;
/// [`SENT`] when bytes came last.
pub const ANSWERED: usize = 12;
/// Until when the rings are kept short for the program to leave them (ns).
pub const SHORT_UNTIL: usize = 13;
/// When the program asks for the shadow next, at the earliest (ns).
pub const ASK_AT: usize = 14;
/// What limits the near ring's room but for that: the near side's SO_SNDBUF, and the far side's SO_RCVBUF in the upper half.
pub const LIMITS: usize = 15;
/// Where in the first link's header page the words stand that belong to no stream.
pub const COMMON: usize = 3072;

/// Words that belong to no stream.
#[repr(C)]
pub struct Common {
    /// A bit for each stream that is to be looked after by the next holder of the lock.
    pub dirty: [AtomicU64; (STREAMS as usize).div_ceil(64)],
    /// As `dirty`, by the holder of the lock: what its turn, or the next one, is to look after.
    pub owed: [AtomicU64; (STREAMS as usize).div_ceil(64)],
    /// A bit for each stream whose peer may soon send no more: threads that drive look whether the program has read.
    pub narrow: [AtomicU64; (STREAMS as usize).div_ceil(64)],
    /// A bit for each stream that its program is to leave to TCP ([`super::switch_to_tcp`]).
    pub leaving: [AtomicU64; (STREAMS as usize).div_ceil(64)],
    /// Gates that the keeper has, or will have: bit 0 for IPv4, 1 for IPv6.
    pub gates: AtomicU64,
    /// Until when the keeper sleeps at most (CLOCK_MONOTONIC, ns).
    pub sleeps_until: AtomicU64,
    /// The keeper was called to ring, and has not begun to look.
    pub called: AtomicU64,
    /// When the first message since the last turn was sent, with which later ones are held (ns); 0: none was.
    pub held_since: AtomicU64,
    /// Messages are held now and then: the keeper is to look often.
    pub holding: AtomicU64,
    /// Until when none may be held (ns).
    pub no_hold_until: AtomicU64,
    /// The user that the keeper has become, plus one; 0: it is its maker's.
    pub keeper_user: AtomicU64,
    /// When what a program holds back is due ([`shunt_stream::corked`]), since the keeper looked last (ns); 0: nothing was.
    pub held_back: AtomicU64,
}

impl Common {
    /// Whether any stream is to be looked after.
    pub fn is_any_marked(&self, order: Ordering) -> bool {
        self.dirty.iter().chain(&self.owed).any(|word| word.load(order) != 0)
    }
}

const _: () = {
    use shunt_segment::link::LinkHeader;
    assert!(core::mem::offset_of!(LinkHeader, offers) + core::mem::size_of::<shunt_segment::offers::Offers>() <= COMMON);
};
const _: () = assert!(COMMON + core::mem::size_of::<Common>() <= 4096);

/// The word `which` of `stream`.
pub fn word(station: &Station, stream: Stream, which: usize) -> &AtomicU64 {
    &station.words(stream)[which]
}

/// Its value.
pub fn get(station: &Station, stream: Stream, which: usize) -> u64 {
    word(station, stream, which).load(Ordering::Acquire)
}

/// Sets it.
pub fn set(station: &Station, stream: Stream, which: usize, value: u64) {
    word(station, stream, which).store(value, Ordering::Release);
}

/// The stream's flags.
pub fn flags(station: &Station, stream: Stream) -> u64 {
    get(station, stream, FLAGS)
}

/// Which way its bytes go.
pub fn way(station: &Station, stream: Stream) -> u64 {
    get(station, stream, MODE)
}

/// Adds flags; gives those before.
pub fn raise(station: &Station, stream: Stream, bits: u64) -> u64 {
    word(station, stream, FLAGS).fetch_or(bits, Ordering::AcqRel)
}

/// Takes flags away; gives those before.
pub fn lower(station: &Station, stream: Stream, bits: u64) -> u64 {
    word(station, stream, FLAGS).fetch_and(!bits, Ordering::AcqRel)
}
