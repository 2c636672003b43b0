//! What a process tells about its descriptors, for `shunt why`: readable while it runs, hangs or is stopped.

use crate::reason::COUNTERS;
use crate::sync::{AtomicU32, AtomicU64};

/// First word: "shuntprc".
pub const MAGIC: u64 = u64::from_le_bytes(*b"shuntprc");

/// The memfd's name.
pub const NAME: &[u8] = b"shunt-process\0";

/// Descriptors with a row; higher ones are not recorded.
pub const ROWS: usize = 65536;

/// First page of a process state.
#[repr(C, align(4096))]
pub struct ProcessHeader {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::VERSION`].
    pub version: AtomicU32,
    /// The process that writes. A child after fork that did not write yet still shows its parent's.
    pub pid: AtomicU32,
    /// Number of rows.
    pub rows: AtomicU32,
    /// While a tool captures what the process sends and receives, a number of its own ([`crate::tap`]); 0: none does.
    pub tap: AtomicU32,
    /// How often each [`crate::reason::Reason`] was given to a connection, by code.
    pub counters: [AtomicU64; COUNTERS],
    /// Sockets on which processes have received messages by the library's hooks, so that they will take passed descriptors
    /// up ([`receiver`]): the writer's, and those of its children that have no state of their own yet. (A child that is
    /// about to exec has none.)
    pub receivers: [AtomicU64; RECEIVERS],
    /// Objects whose own instructions could make calls on connections, as far as one had to know.
    pub found: [Found; FOUND],
    /// What waits of its threads on connections were made of.
    pub waits: Waits,
}

/// What waits of all threads were made of, in ticks of the time stamp counter, which is one for all processes of a host. Waits that end within
/// the first few looks are left out; a thread tells of the others when it sleeps, or looks for long.
#[repr(C)]
pub struct Waits {
    /// Ticks of looking.
    pub spun: AtomicU64,
    /// Waits that slept.
    pub sleeps: AtomicU64,
    /// Ticks asleep.
    pub slept: AtomicU64,
}

/// An object of the program's.
#[repr(C)]
pub struct Found {
    /// 0: none; else [`found`]. Written last.
    pub fate: AtomicU32,
    /// The first call's number plus one. 0: not known.
    pub call: AtomicU32,
    /// Its file's name, without directories, as far as there is room: the bytes in order, zeros behind.
    pub name: [AtomicU64; found::NAME / 8],
}

/// Objects that a state has room for.
pub const FOUND: usize = 8;

/// What becomes of calls by an object's own instructions.
pub mod found {
    /// Bytes of a name.
    pub const NAME: usize = 48;
    /// They are trapped.
    pub const TRAPPED: u32 = 1;
    /// The kernel cannot tell of them: the process keeps to it.
    pub const UNTOLD: u32 = 2;
}

/// Coding of a receiver: the process in the upper half, the lower half of the socket's inode in the lower.
pub const fn receiver(process: u32, inode: u32) -> u64 {
    (process as u64) << 32 | inode as u64
}

/// Receivers that a state has room for; later ones take earlier ones' places.
pub const RECEIVERS: usize = 256;

/// The whole state: a header and one word for each descriptor.
#[repr(C)]
pub struct ProcessState {
    /// Which process, and counters.
    pub header: ProcessHeader,
    /// Per descriptor: [`row`]-coded word; 0: not a socket of ours.
    pub rows: [AtomicU32; ROWS],
}

/// Bytes of a process state.
pub const SIZE: usize = core::mem::size_of::<ProcessState>();

/// Coding of a row: reason in the low byte, kind in the next, link channel in the upper half (plus one; 0: none).
pub mod row {
    /// Packs a row.
    pub const fn pack(reason: u8, kind: u8, channel_plus_one: u16) -> u32 {
        reason as u32 | (kind as u32) << 8 | (channel_plus_one as u32) << 16
    }
    /// Reason code of a row.
    pub const fn reason(word: u32) -> u8 {
        word as u8
    }
    /// Kind of a row ([`super::kind`]).
    pub const fn kind(word: u32) -> u8 {
        (word >> 8) as u8
    }
    /// Channel of a row.
    pub const fn channel(word: u32) -> Option<u16> {
        ((word >> 16) as u16).checked_sub(1)
    }
}

/// Kinds of descriptors in rows.
pub mod kind {
    /// A TCP socket that the kernel carries, or not connected yet.
    pub const TCP: u8 = 1;
    /// A listener.
    pub const LISTENER: u8 = 2;
    /// An accelerated connection.
    pub const STREAM: u8 = 3;
    /// An epoll set.
    pub const EPOLL: u8 = 4;
    /// A descriptor that shunt keeps for itself.
    pub const PRIVATE: u8 = 5;
    /// A UDP socket.
    pub const DATAGRAM: u8 = 6;
    /// An AF_UNIX stream or packet socket.
    pub const LOCAL: u8 = 7;
}
