//! Processes that carry a side's bytes to programs without shunt.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Relays that one side can have at the same time.
pub const RELAYS: usize = 4;

/// Processes that carry this side's bytes to programs without shunt, and what they owe the side's other owners. Only
/// sides that several processes own have any; only these look here.
#[repr(C, align(64))]
pub struct Carriage {
    /// Names of the relays at work ([`crate::name::relay`]); 0: an empty place.
    pub relays: [AtomicU64; RELAYS],
    /// The relay whose program has bytes that still stand in the ring as well; 0: none.
    pub lender: AtomicU64,
    /// How often another owner asked the relays to settle: to hand on what their programs wrote, and to take back what
    /// these have not read.
    pub asked: AtomicU32,
    /// The low half of the lender's name, when another relay asks it to take back.
    pub recalled: AtomicU32,
    /// The last of these requests that each relay has met.
    pub settled: [AtomicU32; RELAYS],
}

impl Carriage {
    /// Whether the side has any relay.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.relays.iter().fold(0, |all, place| all | place.load(Ordering::Relaxed)) != 0
    }

    /// Makes it as fresh memory is.
    pub fn clear(&self) {
        for word in self.relays.iter().chain([&self.lender]) {
            word.store(0, Ordering::Relaxed);
        }
        for word in self.settled.iter().chain([&self.asked, &self.recalled]) {
            word.store(0, Ordering::Relaxed);
        }
    }
}
