//! What the peer says has arrived, and what is lost in consequence.
//!
//! Losses are found by time, as in RACK (RFC 8985): a packet is lost when one sent later has arrived, and a while for
//! reordering has passed. That finds lost retransmissions too. A connection that never saw reordering goes by three later
//! packets, as TCP's three duplicate acknowledgements do.

use crate::config::{Nanoseconds, MICROSECOND, MILLISECOND};
use crate::connection::{expand, Side};
use crate::frame::{u64_at, Numbers};
use crate::state::{slot, Peer};
use crate::transmit::stamp;

/// Later packets that must have arrived before one counts as lost at once.
const THRESHOLD: u32 = 3;

/// No round trip takes so long, however long a peer may be silent before it is lost.
const LONGEST: Nanoseconds = 60_000 * MILLISECOND;

impl Peer {
    /// A time stamp of ours came back; 0: none did.
    #[inline(always)]
    pub(crate) fn measure(&mut self, now: Nanoseconds, echo: u32, lost_after: Nanoseconds) {
        let sample = u64::from(stamp(now).wrapping_sub(echo)) * MICROSECOND;
        // A clock that ran backwards, or an old echo, would be a sample of hours.
        if echo != 0 && sample < lost_after.min(LONGEST) {
            self.round_trip.measure(sample);
            self.congestion.delay(sample, self.oldest, self.next_sequence);
        }
    }
}

impl Side<'_> {
    /// Takes in the numbers of a frame, and the map of an acknowledgement (empty in others). False: nonsense.
    pub(crate) fn acknowledge(&mut self, now: Nanoseconds, numbers: &Numbers, map: Option<&[u8]>) -> bool {
        let upto = expand(self.peer.oldest, numbers.acknowledged);
        if upto > self.peer.next_sequence {
            return false;
        }
        if self.peer.limit.wrapping_sub(numbers.limit) as i32 <= 0 {
            // The peer may not promise more than its window: reply packets are no more than that.
            if numbers.limit.wrapping_sub(self.peer.requests_sent) as i32 > crate::config::MAXIMUM_WINDOW as i32 {
                return false;
            }
            self.peer.limit = numbers.limit;
            if numbers.limit.wrapping_sub(self.peer.requests_sent) as i32 > 0 {
                self.peer.starved = 0;
            }
        }
        if upto < self.peer.oldest {
            return true;
        }
        let limited = self.peer.in_flight + self.peer.lost + 1 >= self.peer.congestion.packets();
        let (before, mut arrived, mut spurious) = (self.peer.oldest, 0, false);
        while self.peer.oldest < upto {
            let sequence = self.peer.oldest;
            let index = self.order[self.place(sequence)];
            arrived += self.has_arrived(index, sequence, numbers, &mut spurious);
            self.peer.arrived = self.peer.arrived.saturating_sub(1);
            if self.slots[usize::from(index)].attempts > 1 {
                self.peer.again = self.peer.again.saturating_sub(1);
            }
            self.release(index);
            self.peer.oldest += 1;
        }
        for (at, bytes) in map.unwrap_or_default().chunks_exact(8).enumerate() {
            let mut bits = u64_at(bytes, 0);
            while bits != 0 {
                let sequence = upto + 1 + at as u64 * 64 + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                if sequence >= self.peer.next_sequence {
                    return false;
                }
                let index = self.order[self.place(sequence)];
                arrived += self.has_arrived(index, sequence, numbers, &mut spurious);
            }
        }
        if arrived > 0 {
            self.peer.measure(now, numbers.echo, self.shared.config.lost_after());
            if spurious && self.peer.backoff > 0 {
                self.peer.counters.spurious += 1;
                self.peer.congestion.undo();
            }
            self.peer.backoff = 0;
            self.peer.duplicate_acknowledgements = 0;
            let (round_trip, window) = (self.peer.round_trip.estimate(), self.peer.window);
            self.peer.congestion.acknowledged(now, arrived, limited, round_trip, window);
            self.peer.retransmit_at = if self.outstanding() == 0 { 0 } else { now + self.timeout() };
        }
        if self.peer.oldest == before && map.is_some() && self.outstanding() > 0 {
            self.peer.duplicate_acknowledgements += 1;
        }
        if self.shared.config.selective == 0 {
            self.go_back(now);
        } else if self.peer.arrived > 0 || self.peer.again > 0 {
            self.detect_loss(now);
        }
        self.mark_busy();
        true
    }

    fn outstanding(&self) -> u32 {
        self.peer.in_flight + self.peer.lost
    }

    /// Marks one packet; gives 1 if that is news.
    fn has_arrived(&mut self, index: u16, sequence: u64, numbers: &Numbers, spurious: &mut bool) -> u32 {
        let slot = &mut self.slots[usize::from(index)];
        match slot.state {
            slot::FLIGHT => self.peer.in_flight -= 1,
            slot::LOST => {
                // It was thought lost, and nothing was sent again: it was late.
                self.peer.lost -= 1;
                self.peer.reordering = 1;
            }
            _ => return 0,
        }
        slot.state = slot::ARRIVED;
        self.peer.arrived += 1;
        if slot.attempts > 1 && (numbers.echo.wrapping_sub(stamp(slot.sent_at)) as i32) < 0 {
            // What is echoed was sent before the retransmission (RFC 3522, Eifel): the first one had arrived.
            *spurious = true;
            self.peer.reordering = 1;
            return 1;
        }
        if slot.attempts == 1 && sequence < self.peer.rack_sequence {
            self.peer.reordering = 1;
        }
        if (slot.sent_at, sequence) > (self.peer.rack_sent_at, self.peer.rack_sequence) {
            self.peer.rack_sent_at = slot.sent_at;
            self.peer.rack_sequence = sequence;
        }
        1
    }

    /// Finds packets that were sent before one that has arrived.
    pub(crate) fn detect_loss(&mut self, now: Nanoseconds) {
        self.peer.rack_at = 0;
        if self.shared.config.selective == 0 {
            return;
        }
        let newest = (self.peer.rack_sent_at, self.peer.rack_sequence);
        let path = self.peer.round_trip;
        // RFC 8985, 6.2 step 4: a quarter of the least round trip; more on paths that do reorder.
        let window = if self.peer.reordering != 0 { path.smoothed / 2 } else { path.least / 4 };
        let mut later = self.peer.arrived;
        for sequence in self.peer.oldest..self.peer.next_sequence {
            let index = self.order[self.place(sequence)];
            let slot = &mut self.slots[usize::from(index)];
            if slot.state == slot::ARRIVED {
                later = later.saturating_sub(1);
                continue;
            }
            if slot.state != slot::FLIGHT || (slot.sent_at, sequence) >= newest {
                continue;
            }
            let over = slot.sent_at + path.smoothed.max(path.least) + window;
            let at_once = self.peer.reordering == 0 && slot.attempts == 1 && later >= THRESHOLD;
            if now >= over || at_once {
                slot.state = slot::LOST;
                let sent_at = slot.sent_at;
                self.peer.lost += 1;
                self.peer.in_flight -= 1;
                self.peer.congestion.lost(now, sent_at);
                self.mark_busy();
            } else if self.peer.rack_at == 0 || over < self.peer.rack_at {
                self.peer.rack_at = over;
            }
        }
    }

    /// Go-back-N: three duplicates send everything from the first missing packet again.
    fn go_back(&mut self, now: Nanoseconds) {
        if self.peer.duplicate_acknowledgements != THRESHOLD {
            return;
        }
        let first = self.order[self.place(self.peer.oldest)];
        let sent_at = self.slots[usize::from(first)].sent_at;
        if !self.peer.congestion.lost(now, sent_at) {
            return;
        }
        for sequence in self.peer.oldest..self.peer.next_sequence {
            let index = self.order[self.place(sequence)];
            let slot = &mut self.slots[usize::from(index)];
            if slot.state == slot::FLIGHT {
                slot.state = slot::LOST;
                self.peer.lost += 1;
                self.peer.in_flight -= 1;
            }
        }
    }
}
