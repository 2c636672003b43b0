//! Counters in shared memory: tools read them while the endpoint works.

use crate::shared::CacheLine;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a frame that arrived was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Drop {
    /// Shorter than its header.
    Short = 0,
    /// Not a frame of ours.
    Magic = 1,
    /// A frame of another version.
    Version = 2,
    /// A kind that does not exist.
    Kind = 3,
    /// The length in the header is not that of the frame.
    Length = 4,
    /// No receiver registered its tag.
    Tag = 5,
    /// The tag exists, but for another sender.
    Source = 6,
    /// More bytes than a message may have, or than the buffers hold.
    Oversized = 7,
    /// The free queue was empty.
    NoBuffer = 8,
    /// The receive queue was full.
    QueueFull = 9,
    /// An update of memory that is not exported, not to this channel, not writable, or outside it.
    Export = 10,
    /// The peer broke the rules of memory that it shares with us.
    Violation = 11,
}

impl Drop {
    /// How many reasons there are.
    pub const COUNT: usize = 12;

    /// All of them, in the order of their codes.
    pub const ALL: [Drop; Drop::COUNT] = [
        Drop::Short,
        Drop::Magic,
        Drop::Version,
        Drop::Kind,
        Drop::Length,
        Drop::Tag,
        Drop::Source,
        Drop::Oversized,
        Drop::NoBuffer,
        Drop::QueueFull,
        Drop::Export,
        Drop::Violation,
    ];

    /// The word that tools show.
    pub const fn name(self) -> &'static str {
        match self {
            Drop::Short => "short",
            Drop::Magic => "magic",
            Drop::Version => "version",
            Drop::Kind => "kind",
            Drop::Length => "length",
            Drop::Tag => "tag",
            Drop::Source => "source",
            Drop::Oversized => "oversized",
            Drop::NoBuffer => "no-buffer",
            Drop::QueueFull => "queue-full",
            Drop::Export => "export",
            Drop::Violation => "violation",
        }
    }
}

impl From<shunt_wire::endpoint::Rejection> for Drop {
    fn from(rejection: shunt_wire::endpoint::Rejection) -> Drop {
        use shunt_wire::endpoint::Rejection;
        match rejection {
            Rejection::Short => Drop::Short,
            Rejection::Magic => Drop::Magic,
            Rejection::Version => Drop::Version,
            Rejection::Kind => Drop::Kind,
            Rejection::Length => Drop::Length,
        }
    }
}

/// What an endpoint has done. Written by the thread that drives it, so plain loads and stores suffice.
#[repr(C)]
#[derive(Default)]
pub struct Counters {
    /// Messages handed to the device.
    pub sent: AtomicU64,
    /// Their bytes.
    pub sent_bytes: AtomicU64,
    /// Times that `send` answered `NoResource`.
    pub refused: AtomicU64,
    /// Messages that the device could not send, and lost.
    pub unsent: AtomicU64,
    _sending: [AtomicU64; 4],
    /// Messages given to the owner.
    pub received: AtomicU64,
    /// Their bytes.
    pub received_bytes: AtomicU64,
    /// Doorbells heard.
    pub woken: AtomicU64,
    /// Updates of exported memory done for a peer.
    pub updates: AtomicU64,
    _receiving: CacheLine<[AtomicU64; 4]>,
    /// Frames dropped, by reason.
    pub dropped: [AtomicU64; 16],
}

impl Counters {
    /// Adds `amount`. The endpoint's lock is held, so this is no read-modify-write of the processor.
    #[inline(always)]
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Counts a frame that is dropped.
    #[cold]
    pub fn drop(&self, reason: Drop) {
        Counters::add(&self.dropped[reason as usize], 1);
    }

    /// Frames dropped for `reason`.
    pub fn dropped(&self, reason: Drop) -> u64 {
        self.dropped[reason as usize].load(Relaxed)
    }

    /// Frames dropped for any reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.iter().map(|counter| counter.load(Relaxed)).sum()
    }
}
