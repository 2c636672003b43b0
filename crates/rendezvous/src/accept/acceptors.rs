//! What the threads of a process that accept connections know together.

use super::patience::Patience;
use core::sync::atomic::{AtomicBool, AtomicU32};

/// Where this process waits for clients, as far as is known.
pub(super) mod place {
    pub const UNKNOWN: u32 = 0;
    /// Bells stay on the line until it sleeps, and clients that come before have no bell to ring.
    pub const ACCEPT: u32 = 1;
    /// In poll and sets: bells have to be taken off first.
    pub const SETS: u32 = 2;
}

/// What threads that wait in accept have seen.
pub(super) struct Acceptors {
    /// The processor of the client that was accepted last, plus one; 0: unknown.
    pub(super) client: AtomicU32,
    /// One of [`place`].
    pub(super) place: AtomicU32,
    /// Clients that were sent away, as they were not honest or there was no room for them.
    pub(super) sent_away: AtomicU32,
    /// Whether this process has ever made such a set.
    pub(super) any_asleep: AtomicBool,
    /// Users whose clients connected and did not send their link.
    pub(super) links: Patience,
    /// Users whose clients announced themselves by a bid, and did not come through the kernel.
    pub(super) bids: Patience,
}

pub(super) static ACCEPTORS: Acceptors = Acceptors {
    client: AtomicU32::new(0),
    place: AtomicU32::new(place::UNKNOWN),
    sent_away: AtomicU32::new(0),
    any_asleep: AtomicBool::new(false),
    links: Patience::new(),
    bids: Patience::new(),
};

/// The patience with users whose clients bid.
pub fn patience_with_bids() -> &'static Patience {
    &ACCEPTORS.bids
}
