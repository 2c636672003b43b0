//! The header of a link: the processes that share it.

use crate::bid::Bid;
use crate::offers::Offers;
use crate::sync::{AtomicU32, AtomicU64};

/// First word of a link: "shuntlnk".
pub const MAGIC: u64 = u64::from_le_bytes(*b"shuntlnk");

/// The memfd's name.
pub const NAME: &[u8] = b"shunt-link\0";

/// How names in /proc begin that stand for it.
pub const IN_PROC: &str = "/memfd:shunt-link";

/// Connections of a link whose channels are streams to other hosts: always many.
pub const STATIONS: u32 = u32::MAX;

/// The same of one whose channels are streams to peers that have only a kernel.
pub const PLAIN_PEERS: u32 = u32::MAX - 1;

/// A process as tools show it.
#[repr(C)]
pub struct Party {
    /// Process id as the other party's kernel tells it.
    pub pid: AtomicU32,
    /// Effective user id.
    pub uid: AtomicU32,
    /// Program name, as in /proc/PID/comm, NUL-padded.
    pub program: [AtomicU64; 2],
    /// 1 if this process takes part in membarrier(2), so that its peer needs no fence when it sends.
    pub barrier: AtomicU32,
    /// 1 once the process has begun to end. (Of one that is killed the kernel tells.)
    pub ending: AtomicU32,
}

/// First page of a link.
#[repr(C, align(4096))]
pub struct LinkHeader {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::VERSION`].
    pub version: AtomicU32,
    /// [`crate::CHANNELS`].
    pub channels: AtomicU32,
    /// Random number of the client process: with `sequence` it names the link.
    pub nonce: AtomicU64,
    /// Number of the link within its client process.
    pub sequence: AtomicU32,
    /// 1 while exactly one process accepts from the listener and has this link: no need to send it again.
    pub sole: AtomicU32,
    /// 1 once a process that has the link became another user: no further connection is made in it. Of a station's link a bit for
    /// each channel that such a process has kept.
    pub retired: AtomicU32,
    /// Connections that were made in it, one after another or beside each other; said for the first two only. [`STATIONS`]: it is
    /// one of a station's.
    pub lent: AtomicU32,
    /// The connecting process.
    pub client: Party,
    /// The process that accepted last.
    pub server: Party,
    /// 1: the process that accepted last is one of several, which have no use for the bell of the link's offers, so it is not sent
    /// with the link.
    pub several: AtomicU32,
    /// Connections made in memory.
    pub offers: Offers,
    /// The one that is to be made in memory where several processes accept.
    pub bid: Bid,
    /// Channels of which [`crate::channel::Head::announced`] may tell something, one bit each: the client's word.
    pub announced: AtomicU32,
    /// 1 once the client means to announce connections: ends of pairs are kept for them.
    pub announces: AtomicU32,
    /// 1: it leads to another network namespace, and a TCP connection stays beside each of its streams.
    pub near: AtomicU32,
    /// How often a tool has asked that one of its streams go back to TCP ([`crate::channel::cut`]).
    pub cuts: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(core::mem::size_of::<LinkHeader>() == crate::area::PAGE);
