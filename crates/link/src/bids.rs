//! What became of the bids that a client made to connect again by a link, and when the next is due.

use core::sync::atomic::Ordering;
use shunt_segment::bid::Bid;
use shunt_sys::clock;

/// How long a client looks for an acceptor that is awake on another processor: as long as the way through the kernel took of late, within
/// these bounds, in ns. It loses no more by that than it could gain, and what is awake on a slow machine is seen there, too.
pub const AWAKE_NS: [u64; 2] = [4_000, 16_000];

/// With how many more bids in vain than taken pairs are not worth keeping.
const IN_VAIN: u32 = 8;

/// The longest pause is a quarter of two to the power of this, in connections.
const LONGEST: u32 = 10;

/// What became of a link's bids.
#[derive(Clone, Copy)]
pub struct Bids {
    /// In vain, more than were taken: where that is every other, there are pauses.
    pub vain: u32,
    /// Connections until the next.
    pub pause: u32,
    /// The connection to the listener that was made through the kernel last: index of its link, channel. What comes after it is not to be accepted
    /// before.
    pub last: Option<(u16, u8)>,
    /// What the way through the kernel took of late, in ticks.
    pub kernel: u64,
}

impl Bids {
    /// None yet.
    pub const NONE: Bids = Bids { vain: 0, pause: 0, last: None, kernel: 0 };

    /// Whether this connection is one to bid for.
    pub fn are_due(&mut self, bid: &Bid) -> bool {
        if self.pause == 0 {
            return true;
        }
        self.pause -= 1;
        if self.pause == 1 {
            bid.intended.store(1, Ordering::Relaxed); // the next but one finds a pair
        }
        false
    }

    /// How long to look for an acceptor that is awake, in ticks.
    pub fn patience(&self) -> u64 {
        let [least, most] = AWAKE_NS.map(clock::ticks_for_ns);
        self.kernel.clamp(least, most)
    }

    /// One was taken.
    pub fn was_taken(&mut self) {
        self.vain = self.vain.saturating_sub(1);
    }

    /// One was not.
    pub fn was_in_vain(&mut self, bid: &Bid) {
        self.vain = (self.vain + 1).min(LONGEST);
        self.pause = (1 << self.vain) / 4;
        if self.vain >= IN_VAIN {
            bid.intended.store(0, Ordering::Relaxed);
        }
    }
}
