//! What a process notes of its streams while a tool captures them: behind the process's state, in the same file, where the tool has made room.
//!
//! ```text
//! file:   0                ProcessState; its header's `tap` is a number while a tool reads
//!         OFFSET           Tap (one page)
//!         then             RING bytes of records, oldest at `head`, the next one at `tail`, both counted without wrap
//!
//! record: length | kind << 32, connection, position, ticks, bytes that it stands for; then the bytes, or fewer of them; padded to a word
//! ```
//!
//! The process never waits for the reader: what finds no room is counted in `lost`. Writing into the file of a process takes what tracing it takes.

use crate::process;
use crate::sync::{AtomicU32, AtomicU64};

/// Where it lies in the file.
pub const OFFSET: usize = process::SIZE;

/// Bytes of records that it has room for.
pub const RING: usize = 4 << 20;

/// Bytes of the whole.
pub const SIZE: usize = core::mem::size_of::<Tap>() + RING;

/// Words before a record's bytes.
pub const WORDS: usize = 5;

/// Words of the bytes of an [`kind::OPENED`] record: the link's nonce; its number and above it the channel; the count of the channel's
/// connections and above it the side; the client's address in two words, the server's in two; both ports, the client's below.
pub const OPENED_WORDS: usize = 8;

/// Kinds of records.
pub mod kind {
    /// A connection is told of first: its number in the others, and which it is.
    pub const OPENED: u64 = 1;
    /// The process sent the bytes before this position and behind it.
    pub const SENT: u64 = 2;
    /// It received them: the sender may not have told of them.
    pub const RECEIVED: u64 = 3;
    /// It will send no more.
    pub const ENDED: u64 = 4;
}

/// Its first page.
#[repr(C, align(4096))]
pub struct Tap {
    /// 1 while a thread writes a record.
    pub lock: AtomicU32,
    /// Connections told of so far.
    pub connections: AtomicU32,
    /// Behind the newest record.
    pub tail: AtomicU64,
    /// Bytes of streams that were not noted.
    pub lost: AtomicU64,
    _line: [u64; 5],
    /// The oldest record that the tool has not taken.
    pub head: AtomicU64,
    /// When it last looked, in ticks.
    pub seen: AtomicU64,
    /// Bytes of a send that are noted, at most.
    pub longest: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<Tap>() == crate::area::PAGE && OFFSET.is_multiple_of(crate::area::PAGE));
#[cfg(not(loom))]
const _: () = assert!(core::mem::offset_of!(Tap, head) == 64);
