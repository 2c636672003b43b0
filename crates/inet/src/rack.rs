//! Which packets are lost, by the times of sending: RACK (RFC 8985, section 6).
//!
//! A packet is lost if one that was sent later has arrived, and a round trip and a *reordering window* have gone by since it was
//! sent. So a lost retransmission is found, too, and packets that overtake each other by less than the window cost nothing.

use crate::flights::{Fate, Flight, Flights};
use crate::sequence::Seq;
use shunt_path::{Nanoseconds, RoundTrip};

/// A duplicate widens the reordering window for so many recoveries (section 6.2, step 4).
const PERSISTENCE: u8 = 16;
/// As many packets behind a gap mean loss where packets never overtook each other.
const THRESHOLD: u32 = 3;

/// State of the method; names in brackets are the RFC's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// Of the packets that arrived, the one that was sent last: when, its end, its round trip [xmit_ts, end_seq, rtt].
    sent: Nanoseconds,
    end: Seq,
    round_trip: Nanoseconds,
    any: bool,
    /// The highest place that has arrived (`RACK.fack`).
    highest: Seq,
    /// A packet has overtaken another (`RACK.reordering_seen`).
    overtaken: bool,
    /// Quarters of the least round trip that the window has (`RACK.reo_wnd_mult`), and for how many recoveries more.
    quarters: u32,
    persistence: u8,
    /// The end of the round trip in which a duplicate was counted (`RACK.dsack_round`).
    round: Option<Seq>,
}

/// Whether the packet sent at `a.0` with end `a.1` left after `b`: packets of one call have one time.
fn later(a: (Nanoseconds, Seq), b: (Nanoseconds, Seq)) -> bool {
    a.0 > b.0 || (a.0 == b.0 && a.1.after(b.1))
}

impl Rack {
    /// A packet has arrived, told by an acknowledgement or a block (steps 2 and 3).
    pub fn arrived(&mut self, flight: &Flight, least: Nanoseconds, now: Nanoseconds) {
        let end = flight.end();
        if !self.any || end.after(self.highest) {
            self.highest = end;
        } else if end.before(self.highest) && !flight.again {
            self.overtaken = true;
        }
        let round_trip = now.saturating_sub(flight.sent);
        // Whether the first packet or its repetition arrived cannot be told if it took less than any round trip ever did.
        if flight.again && round_trip < least {
            return;
        }
        if !self.any || later((flight.sent, end), (self.sent, self.end)) {
            (self.sent, self.end, self.round_trip, self.any) = (flight.sent, end, round_trip, true);
        }
    }

    /// The receiver had something twice (step 4): the window was too small. Counted once a round trip.
    pub fn duplicate(&mut self, una: Seq, next: Seq) {
        if self.round.is_none_or(|round| !una.before(round)) {
            self.round = Some(next);
            self.quarters = self.quarters.max(1) + 1;
            self.persistence = PERSISTENCE;
        }
    }

    /// A recovery has ended.
    pub fn recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.quarters = 1;
        }
    }

    fn window(&self, path: &RoundTrip, recovering: bool, behind_gap: u32) -> Nanoseconds {
        if !self.overtaken && (recovering || behind_gap >= THRESHOLD) {
            return 0;
        }
        (path.least / 4 * u64::from(self.quarters.max(1))).min(path.smoothed)
    }

    /// Finds what is lost now (step 5), and returns when to look again. `each` gets what is lost newly; `recovering` and `segment`, bytes of a
    /// full packet, decide the reordering window.
    pub fn look<const MOST: usize>(
        &self,
        flights: &mut Flights<MOST>,
        path: &RoundTrip,
        recovering: bool,
        segment: u32,
        now: Nanoseconds,
        mut each: impl FnMut(&Flight),
    ) -> Option<Nanoseconds> {
        if !self.any {
            return None;
        }
        let window = self.window(path, recovering, flights.arrived() / segment.max(1));
        let mut again = None;
        for index in 0..flights.count() {
            let flight = *flights.at(index);
            if flight.fate != Fate::Sent || !later((self.sent, self.end), (flight.sent, flight.end())) {
                continue;
            }
            let deadline = flight.sent + self.round_trip + window;
            if deadline <= now {
                flights.decide(index, Fate::Lost);
                each(&flight);
            } else {
                again = Some(again.map_or(deadline, |time: Nanoseconds| time.max(deadline)));
            }
        }
        again
    }
}
