//! A client's bid: it waits in connect for any of several processes that accept to take one of its idle pairs.
//!
//! Where several processes accept from one listener it is not known which of them will take a connection, so it cannot be offered
//! on a companion that one of them holds. But one that waits in accept at this moment can say for itself which of its own pairs it
//! takes. The protocol is `shunt_ring::bid`.

use crate::sync::{AtomicU32, AtomicU64};

/// The client's line; an acceptor changes `word` alone.
#[repr(C, align(64))]
pub struct Bid {
    /// Number of the bid, its state, and which channels' pairs may be taken, or which one was.
    pub word: AtomicU64,
    /// When the client connects, by the time stamp counter.
    pub began: AtomicU64,
    /// 1: the client means to bid, so that pairs are worth keeping where several processes accept.
    pub intended: AtomicU32,
}

impl Bid {
    /// A bid for a model: its atomics are not plain memory.
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Bid {
        Bid { word: AtomicU64::new(0), began: AtomicU64::new(0), intended: AtomicU32::new(0) }
    }
}
