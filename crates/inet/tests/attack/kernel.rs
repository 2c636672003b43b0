//! The numbers of Linux's socket, as far as TCP_REPAIR tells of them, and what segments do to them (`net/ipv4/tcp_input.c`): what an engine that was
//! given back must have left as the kernel would have it.
//!
//! It sends nothing, so its promises stay where they are, and so does the place that it acknowledged last. Where the peer sends more than was promised it is
//! RFC 9293's kernel, which cuts that off: Linux keeps or drops such a segment whole, and the peer sends it again.

use std::collections::BTreeMap;

use shunt_inet::{Header, Seq, State};

/// Time stamps older than this say nothing of a segment's age (RFC 7323, section 5.5).
const STALE: u64 = 24 * 24 * 3600 * 1_000_000_000;

/// One connection.
#[derive(Clone, Debug)]
pub struct Kernel {
    state: State,
    heard: u64,
    /// By its distance from the first byte of all: which segment it came with. First come, first kept.
    kept: BTreeMap<u32, u32>,
    origin: Seq,
    /// Bytes that the program has, each with the segment that brought it.
    pub delivered: Vec<u32>,
}

impl Kernel {
    /// A socket with these numbers, whose program has these bytes.
    pub fn new(state: &State, origin: Seq, delivered: Vec<u32>, now: u64) -> Kernel {
        Kernel { state: *state, heard: now, kept: BTreeMap::new(), origin, delivered }
    }

    /// What TCP_REPAIR would tell. The clock is none of it.
    pub fn numbers(&self) -> (Seq, Seq, Seq, u32, u32, Option<u32>) {
        numbers(&self.state)
    }

    /// The byte that is expected, and the oldest that was not acknowledged.
    pub fn places(&self) -> (Seq, Seq) {
        (self.state.expected, self.state.unacknowledged)
    }

    /// A segment with no flag but ACK; `number` is its name.
    pub fn segment(&mut self, header: &Header, length: u32, number: u32, now: u64) {
        let (start, end) = (header.sequence, header.sequence.plus(length));
        let recent = self.state.timestamps.and_then(|(_, recent)| recent);
        let stamp = header.timestamps.map_or(0, |stamps| stamps.value);
        // tcp_paws_check, with its window of one.
        if recent.is_some_and(|recent| recent.wrapping_sub(stamp) as i32 > 1) && now.saturating_sub(self.heard) < STALE {
            return;
        }
        // tcp_sequence.
        let promised = self.state.promised_from.plus(self.state.promised).latest(self.state.expected);
        if end.before(self.state.promised_from) || start.after(promised) {
            return;
        }
        // tcp_ack.
        let (una, acknowledgement) = (self.state.unacknowledged, header.acknowledgement);
        let is_old = acknowledgement.before(una);
        if acknowledgement.after(self.state.sent) || (is_old && una.since(acknowledgement) > self.state.largest_window) {
            return;
        }
        if !is_old {
            // tcp_replace_ts_recent.
            if !start.after(self.state.promised_from) && recent.is_none_or(|recent| recent.wrapping_sub(stamp) as i32 <= 0) {
                if let Some((_, recent)) = &mut self.state.timestamps {
                    (*recent, self.heard) = (Some(stamp), now);
                }
            }
            // tcp_may_update_window.
            let window = u32::from(header.window) << self.state.scale;
            let told = self.state.window_told;
            let may =
                acknowledgement.after(una) || start.after(told) || (start == told && (window > self.state.window || window == 0));
            if may {
                self.state.window_told = start;
                self.state.window = window;
                self.state.largest_window = self.state.largest_window.max(window);
            }
            self.state.unacknowledged = acknowledgement;
        }
        // tcp_data_queue.
        for byte in 0..length {
            let place = start.plus(byte);
            if !place.before(self.state.expected) && place.before(promised) {
                self.kept.entry(place.since(self.origin)).or_insert(number);
            }
        }
        while let Some(came_with) = self.kept.remove(&self.state.expected.since(self.origin)) {
            self.delivered.push(came_with);
            self.state.expected = self.state.expected.plus(1);
        }
    }
}

/// Those of a state: the oldest byte, the newest, the one that is expected, window, largest window, the peer's clock.
pub fn numbers(state: &State) -> (Seq, Seq, Seq, u32, u32, Option<u32>) {
    let recent = state.timestamps.and_then(|(_, recent)| recent);
    (state.unacknowledged, state.sent, state.expected, state.window, state.largest_window, recent)
}
