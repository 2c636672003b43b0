//! Processes that carry a side's bytes to programs without shunt.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Carriers that one side can have at the same time.
pub const CARRIERS: usize = 4;

/// Processes that carry this side's bytes to programs without shunt, and what they owe the side's other owners. Only
/// sides that several processes own have any; only these look here.
#[repr(C, align(64))]
pub struct Carriage {
    /// Names of the carriers at work ([`crate::name::carrier`]); 0: an empty place.
    pub carriers: [AtomicU64; CARRIERS],
    /// The carrier whose program has bytes that still stand in the ring as well; 0: none.
    pub lender: AtomicU64,
    /// How often another owner asked the carriers to settle: to hand on what their programs wrote, and to take back what
    /// these have not read.
    pub asked: AtomicU32,
    /// The low half of the lender's name, when another carrier asks it to take back.
    pub recalled: AtomicU32,
    /// The last of these requests that each carrier has met.
    pub settled: [AtomicU32; CARRIERS],
}

impl Carriage {
    /// Whether the side has any carrier.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.carriers.iter().fold(0, |all, place| all | place.load(Ordering::Relaxed)) != 0
    }

    /// Makes it as fresh memory is.
    pub fn clear(&self) {
        for word in self.carriers.iter().chain([&self.lender]) {
            word.store(0, Ordering::Relaxed);
        }
        for word in self.settled.iter().chain([&self.asked, &self.recalled]) {
            word.store(0, Ordering::Relaxed);
        }
    }
}
