//! The sending half: what has been sent and not acknowledged, what may be sent now, and the timers that watch over it.
//!
//! Bytes stay in the caller's ring until they are acknowledged, which makes that ring the store for repetitions: this half names
//! bytes by their distance from [`Sender::una`].

use crate::flights::{Fate, Flight, Flights};
use crate::header::Blocks;
use crate::leave::Leave;
use crate::rack::Rack;
use crate::sequence::Seq;
use crate::settings::{Recovery, Settings, State};
use shunt_path::{Bounds, Congestion, Law, Nanoseconds, RoundTrip, MILLISECOND};

/// Packets that may be under way at the beginning (RFC 6928), and at any time where the kernel does the recovery.
const INITIAL: u32 = 10;
/// As many acknowledgements of one place mean that the packet there is lost (RFC 5681, section 3.2).
const DUPLICATES: u32 = 3;
/// No time-out is longer (RFC 6298, section 2.5).
const LONGEST: Nanoseconds = 60_000 * MILLISECOND;
/// Before the first measurement (RFC 6298, section 2.1).
const FIRST: Nanoseconds = 1_000 * MILLISECOND;

/// Bytes that leave now, counted from the oldest that is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first of them.
    pub from: u32,
    /// How many; 0 in a probe of a closed window, whose sequence number is the one before.
    pub length: u32,
    /// They are the last that there are, or that may leave for now.
    pub last: bool,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Bytes that the ring need not keep any longer.
    pub bytes: u32,
}

/// Why an acknowledgement is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is as it should be, perhaps an old one.
    Fair,
    /// It names a place that was not sent, or one so old that no peer would (RFC 5961, section 5.2).
    Absurd,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timers {
    /// A packet is not acknowledged (RFC 6298).
    retransmit: Option<Nanoseconds>,
    /// The same, sooner: the last packet is sent again (RFC 8985, section 7).
    probe: Option<Nanoseconds>,
    /// One that was overtaken is to be taken for lost (RFC 8985, section 6.2).
    reorder: Option<Nanoseconds>,
    /// The window is closed (RFC 9293, section 3.8.6.1).
    persist: Option<Nanoseconds>,
}

/// State of the sending half, with at most `MOST` packets under way.
#[derive(Clone, Copy, Debug)]
pub struct Sender<const MOST: usize> {
    pub(crate) una: Seq,
    pub(crate) next: Seq,
    /// Bytes in the caller's ring, from `una`.
    offered: u32,
    pub(crate) window: u32,
    pub(crate) largest: u32,
    /// The segment that told the window (SND.WL1).
    pub(crate) told: Seq,
    segment: u32,
    selective: bool,
    settings: Settings,
    flights: Flights<MOST>,
    pub(crate) path: RoundTrip,
    congestion: Congestion,
    rack: Rack,
    timers: Timers,
    /// Time-outs in a row, and probes of a closed window.
    backoff: u32,
    /// The place that ends a recovery.
    recovering: Option<Seq>,
    /// That recovery began with a time-out: the window grows in it as at a start (RFC 5681, section 3.1).
    timed_out: bool,
    /// Acknowledgements of one place.
    duplicates: u32,
    /// The window of congestion is what keeps bytes back.
    limited: bool,
    /// The last packet was sent again, and this much was sent then.
    probing: Option<Seq>,
    /// A probe is to leave: of loss, of a closed window.
    send_probe: bool,
    send_window_probe: bool,
    /// The place behind the last packet that was sent and was less than a full one.
    small: Seq,
    /// Bytes acknowledged that are less than a packet.
    part: u32,
    last_sent: Nanoseconds,
}

impl<const MOST: usize> Sender<MOST> {
    /// See [`Settings::nagle`].
    pub fn set_nagle(&mut self, on: bool) {
        self.settings.nagle = on;
    }

    /// Takes over at `state`. What was sent and not acknowledged may have arrived; it is sent again.
    pub fn new(state: &State, settings: Settings) -> Self {
        let law = match settings.recovery {
            Recovery::GiveBack => Law::Cubic,
            Recovery::Own(law) | Recovery::Exchanges(law) => law,
        };
        let (smoothed, variation) = state.round_trip;
        let mut flights = Flights::default();
        if state.sent.after(state.unacknowledged) {
            let length = state.sent.since(state.unacknowledged);
            flights.push(Flight { start: state.unacknowledged, length, sent: 0, fate: Fate::Sent, again: true });
            flights.decide(0, Fate::Lost);
        }
        Sender {
            una: state.unacknowledged,
            next: state.sent,
            offered: state.sent.since(state.unacknowledged),
            window: state.window,
            largest: state.largest_window.max(state.window),
            told: state.window_told,
            segment: state.segment.max(1),
            selective: state.selective,
            settings,
            flights,
            path: RoundTrip { smoothed, variation, least: smoothed },
            congestion: Congestion::new(INITIAL, law),
            rack: Rack::default(),
            timers: Timers::default(),
            backoff: 0,
            recovering: None,
            timed_out: false,
            duplicates: 0,
            limited: false,
            probing: None,
            send_probe: false,
            send_window_probe: false,
            small: state.unacknowledged,
            part: 0,
            last_sent: 0,
        }
    }

    fn own(&self) -> bool {
        self.settings.recovery != Recovery::GiveBack
    }

    /// The caller's ring holds so many bytes from the oldest that is not acknowledged.
    pub fn offer(&mut self, bytes: u32) {
        self.offered = bytes.max(self.next.since(self.una));
    }

    /// Bytes of the ring, and of those the ones that were sent.
    pub fn held(&self) -> (u32, u32) {
        (self.offered, self.next.since(self.una))
    }

    fn timeout(&self) -> Nanoseconds {
        self.path.timeout(Bounds { least: self.settings.least_timeout, most: LONGEST, initial: FIRST }, self.backoff)
    }

    /// Whether the receiver may have sent this acknowledgement.
    pub fn judge(&self, acknowledgement: Seq) -> Judgement {
        let old = self.una.since(acknowledgement);
        if acknowledgement.after(self.next) || (acknowledgement.before(self.una) && old > self.largest) {
            return Judgement::Absurd;
        }
        Judgement::Fair
    }

    /// Bytes under way, as far as is known (RFC 6675's pipe).
    fn under_way(&self) -> u32 {
        let gone = self.flights.arrived() + self.flights.lost();
        let told = if self.selective { 0 } else { self.duplicates * self.segment };
        self.next.since(self.una).saturating_sub(gone + told)
    }

    /// Takes an acknowledgement that is fair. `start`: of its segment; `pure`: the segment had no data; `window`: scaled; `delay`: since the
    /// time stamp that it echoes, if it does.
    pub fn acknowledge(
        &mut self,
        acknowledgement: Seq,
        start: Seq,
        pure: bool,
        window: u32,
        blocks: &Blocks,
        delay: Option<Nanoseconds>,
        now: Nanoseconds,
    ) -> Acknowledged {
        let advanced = acknowledgement.after(self.una);
        // The window of the newest segment counts (RFC 9293, section 3.10.7.4); of several that say the same otherwise, which may have overtaken each other,
        // the widest, or that it is closed: Linux's rule.
        let mut same_window = true;
        if !acknowledgement.before(self.una) {
            let newer = advanced || self.told.before(start);
            if newer || (self.told == start && (window > self.window || window == 0)) {
                same_window = self.window == window;
                self.window = window;
                self.largest = self.largest.max(window);
                self.told = start;
                if !same_window && self.flights.count() == 0 {
                    // What the probes waited for.
                    self.timers.persist = None;
                    self.send_window_probe = false;
                    self.backoff = 0;
                }
            }
        }
        let mut sample = None;
        let mut delivered = 0u32;
        let arrived_before = self.flights.arrived();
        {
            let (rack, least) = (&mut self.rack, self.path.least);
            let mut twice = false;
            let mut each = |flight: Flight| {
                rack.arrived(&flight, least, now);
                delivered += flight.length;
                if !flight.again {
                    sample = Some(now.saturating_sub(flight.sent));
                }
            };
            if advanced {
                self.flights.acknowledge(acknowledgement, &mut each);
            }
            if self.selective && self.settings.recovery != Recovery::GiveBack {
                for (index, &(from, to)) in blocks.as_slice().iter().enumerate() {
                    // What lies before the acknowledgement, or inside the second block, came twice (RFC 2883).
                    let inside =
                        blocks.as_slice().get(1).is_some_and(|&(start, end)| index == 0 && !from.before(start) && !to.after(end));
                    if from.before(acknowledgement) || inside {
                        twice = true;
                    } else if from.before(to) && !to.after(self.next) {
                        self.flights.arrive(from, to, &mut each);
                    }
                }
            }
            if twice {
                self.rack.duplicate(acknowledgement, self.next);
            }
        }
        let bytes = if advanced { acknowledgement.since(self.una) } else { 0 };
        if advanced {
            self.una = acknowledgement;
            self.small = self.small.latest(acknowledgement);
            self.offered -= bytes;
            if let Some(sample) = sample.or(delay) {
                self.path.measure(sample);
            }
            self.backoff = 0;
            self.probing = self.probing.filter(|end| acknowledgement.before(*end));
            self.timers.retransmit = None;
            self.timers.probe = None;
        }
        let news = self.flights.arrived() > arrived_before;
        self.count_duplicates(advanced, pure && same_window && acknowledgement == self.una, news);
        if self.own() {
            self.grow(delivered, now);
            self.find_losses(advanced, now);
        } else if (self.duplicates == DUPLICATES || self.overtaking(blocks) >= DUPLICATES * self.segment)
            && self.probing.is_none()
        {
            self.send_probe = true;
        }
        if self.recovering.is_some_and(|end| !acknowledgement.before(end)) {
            self.recovering = None;
            self.rack.recovered();
        }
        self.arm(now);
        Acknowledged { bytes }
    }

    /// Bytes that the peer has and that lie behind a gap: three packets' worth say that the gap is a loss, however few acknowledgements tell of
    /// them (RFC 6675, section 4).
    fn overtaking(&self, blocks: &Blocks) -> u32 {
        let sound = |(from, to): &&(Seq, Seq)| self.selective && from.after(self.una) && from.before(*to) && !to.after(self.next);
        blocks.as_slice().iter().filter(sound).map(|(from, to)| to.since(*from)).sum()
    }

    fn count_duplicates(&mut self, advanced: bool, again: bool, news: bool) {
        if advanced {
            self.duplicates = 0;
        } else if self.flights.count() > 0 && again && (news || !self.selective)
            || (!self.own() && again && self.flights.count() > 0)
        {
            self.duplicates += 1;
        }
    }

    fn grow(&mut self, delivered: u32, now: Nanoseconds) {
        if delivered == 0 {
            return;
        }
        let bytes = self.part + delivered;
        self.part = bytes % self.segment;
        if self.recovering.is_none() || self.timed_out {
            self.congestion.delay(self.path.smoothed, u64::from(self.una.0), u64::from(self.next.0));
            self.congestion.acknowledged(now, bytes / self.segment, self.limited, self.path.smoothed, MOST as u32);
        }
    }

    fn find_losses(&mut self, advanced: bool, now: Nanoseconds) {
        let mut newest: Option<Nanoseconds> = None;
        if self.selective {
            let recovering = self.recovering.is_some();
            self.timers.reorder = self.rack.look(&mut self.flights, &self.path, recovering, self.segment, now, |flight| {
                newest = newest.max(Some(flight.sent));
            });
        } else if self.flights.count() > 0 {
            // RFC 6582: three acknowledgements of one place, and in a recovery each that does not end it.
            let partial = advanced && self.recovering.is_some_and(|end| self.una.before(end));
            let oldest = *self.flights.at(0);
            if (self.duplicates == DUPLICATES && self.recovering.is_none()) || (partial && oldest.fate == Fate::Sent) {
                self.flights.decide(0, Fate::Lost);
                newest = Some(oldest.sent);
            }
        }
        if let Some(sent) = newest {
            self.congestion.lost(now, sent);
            if self.recovering.is_none() {
                self.recovering = Some(self.next);
                self.timed_out = false;
            }
        }
    }

    /// Sets the timers for what is under way now.
    fn arm(&mut self, now: Nanoseconds) {
        if self.flights.count() == 0 {
            self.timers = Timers { persist: self.timers.persist, ..Timers::default() };
            if self.offered > self.next.since(self.una) && self.window < self.segment.min(self.offered) {
                self.timers.persist.get_or_insert(now + self.timeout());
            } else {
                self.timers.persist = None;
            }
            return;
        }
        let timeout = self.timeout();
        let retransmit = *self.timers.retransmit.get_or_insert(now + timeout);
        if self.timers.probe.is_none()
            && self.probing.is_none()
            && self.recovering.is_none()
            && self.path.smoothed != 0
            && self.backoff == 0
        {
            // RFC 8985, section 7.2, but for a lone packet, whose acknowledgement the peer may delay: then round trips are that long.
            self.timers.probe = Some((now + self.path.smoothed * 2 + 10 * MILLISECOND).min(retransmit));
        }
    }

    /// Whether nothing waits to leave before a timer is due.
    #[inline]
    pub fn rests(&mut self) -> bool {
        let rests = self.offered == self.next.since(self.una) && self.flights.lost() == 0;
        self.limited &= !rests; // as one that asks for a piece finds
        rests
    }

    /// When [`Sender::timer`] is to be called.
    pub fn deadline(&self) -> Option<Nanoseconds> {
        if self.send_probe || self.send_window_probe {
            return Some(0);
        }
        let Timers { retransmit, probe, reorder, persist } = self.timers;
        let or_never = |time: Option<Nanoseconds>| time.unwrap_or(Nanoseconds::MAX);
        let first = or_never(retransmit).min(or_never(probe)).min(or_never(reorder)).min(or_never(persist));
        (first != Nanoseconds::MAX).then_some(first)
    }

    /// Does what is due.
    ///
    /// # Errors
    /// Nothing was heard for so long that the kernel is to go on.
    pub fn timer(&mut self, now: Nanoseconds) -> Result<(), Leave> {
        let due = |time: Option<Nanoseconds>| time.is_some_and(|time| time <= now);
        if due(self.timers.persist) {
            self.backoff += 1;
            self.send_window_probe = true;
            self.timers.persist = Some(now + self.timeout());
        }
        if due(self.timers.reorder) {
            self.timers.reorder = None;
            self.find_losses(false, now);
        }
        if due(self.timers.retransmit) {
            if !self.own() || self.backoff + 1 >= self.settings.timeouts.max(1) {
                return Err(Leave::Loss);
            }
            self.congestion.timed_out(now, self.backoff == 0);
            self.backoff += 1;
            self.flights.lose_all();
            self.recovering = Some(self.next);
            self.timed_out = true;
            self.duplicates = 0;
            self.timers = Timers { retransmit: Some(now + self.timeout()), ..Timers::default() };
        } else if due(self.timers.probe) {
            self.timers.probe = None;
            self.send_probe = true;
        }
        Ok(())
    }

    /// Bytes that the window of congestion allows beside what is under way.
    fn allowance(&self) -> u32 {
        let packets = if self.own() { self.congestion.packets() } else { INITIAL };
        packets.saturating_mul(self.segment).saturating_sub(self.under_way())
    }

    /// What may leave now; it counts as sent. `None`: nothing, until something changes or a timer is due.
    pub fn next_piece(&mut self, now: Nanoseconds) -> Option<Piece> {
        if self.send_window_probe {
            self.send_window_probe = false;
            // What the window has room for, though it is less than a packet (RFC 1122, section 4.2.3.4's override).
            let (waiting, sent) = (self.offered - self.next.since(self.una), self.next.since(self.una));
            let length = waiting.min(self.window.saturating_sub(sent)).min(self.segment);
            if length > 0 && !self.flights.is_full() {
                return Some(self.fresh(length, now));
            }
            return Some(Piece { from: 0, length: 0, last: false });
        }
        if self.send_probe {
            self.send_probe = false;
            if self.flights.count() > 0 {
                return Some(self.probe(now));
            }
        }
        if let Some(index) = self.flights.first_lost() {
            if self.allowance() > 0 || self.under_way() == 0 {
                let length = self.flights.at(index).length.min(self.segment);
                return Some(self.repeat(index, length, now));
            }
            return None;
        }
        self.new_piece(now)
    }

    /// A packet whose acknowledgement tells of losses: the oldest where the kernel does the rest, else new bytes, or the youngest.
    fn probe(&mut self, now: Nanoseconds) -> Piece {
        self.probing = Some(self.next);
        if !self.own() {
            return self.repeat(0, self.segment, now);
        }
        let window = self.window.saturating_sub(self.next.since(self.una));
        let fresh = (self.offered - self.next.since(self.una)).min(window).min(self.segment);
        if fresh > 0 && !self.flights.is_full() {
            return self.fresh(fresh, now);
        }
        self.repeat(self.flights.count() - 1, self.segment, now)
    }

    fn repeat(&mut self, index: usize, length: u32, now: Nanoseconds) -> Piece {
        let length = length.min(self.flights.at(index).length);
        self.flights.send_again(index, length, now);
        let from = self.flights.at(index).start.since(self.una);
        self.last_sent = now;
        self.arm(now);
        Piece { from, length, last: from + length == self.offered }
    }

    fn fresh(&mut self, length: u32, now: Nanoseconds) -> Piece {
        let from = self.next.since(self.una);
        self.flights.push(Flight { start: self.next, length, sent: now, fate: Fate::Sent, again: false });
        self.next = self.next.plus(length);
        if !length.is_multiple_of(self.segment) {
            self.small = self.next;
        }
        self.last_sent = now;
        // RFC 8985, section 7.2: the probe waits from the last packet on.
        self.timers.probe = None;
        self.arm(now);
        Piece { from, length, last: !self.continues() }
    }

    /// Nagle's rule as Linux has it (Minshall's): a packet that is not full waits only for another one that was not full.
    fn is_held_back(&self) -> bool {
        self.settings.nagle && self.small.after(self.una)
    }

    /// Whether another packet may follow at once. The last that may not is marked (PSH), as Linux marks the last of what it sends at once, so that a
    /// receiver that joins segments does not wait for more.
    fn continues(&self) -> bool {
        let sent = self.next.since(self.una);
        let waiting = self.offered - sent;
        let length = waiting.min(self.window.saturating_sub(sent)).min(self.segment);
        let fits = length == self.segment || (length == waiting && !self.is_held_back());
        length > 0 && fits && self.allowance() >= length && !self.flights.is_full()
    }

    fn new_piece(&mut self, now: Nanoseconds) -> Option<Piece> {
        let sent = self.next.since(self.una);
        let waiting = self.offered - sent;
        if waiting == 0 {
            self.limited = false;
            return None;
        }
        if sent == 0 && now.saturating_sub(self.last_sent) > self.timeout() && self.own() {
            // RFC 5681, section 4.1: what was learned of the path is old.
            self.congestion.idle(INITIAL);
        }
        let run = self.segment * self.settings.run.max(1);
        let window = self.window.saturating_sub(sent);
        let allowance = self.allowance();
        let mut length = waiting.min(window).min(run);
        if length > self.segment {
            length -= length % self.segment;
        }
        // RFC 1122, section 4.2.3.4: no silly window, and Nagle's rule.
        let whole = length >= self.segment;
        let all = length == waiting && !self.is_held_back();
        let large = length > 0 && length >= self.largest / 2;
        if !(whole || all || large) || self.flights.is_full() {
            self.arm(now);
            return None;
        }
        if allowance < length.min(self.segment) {
            self.limited = true;
            return None;
        }
        if length > allowance {
            length = allowance - allowance % self.segment;
        }
        // A window is in use that is filled by half in slow start, and but for a packet or two later (RFC 9438, section 4.2; RFC 2861).
        self.limited |= self.under_way() + length + 2 * self.segment >= self.congestion.packets().saturating_mul(self.segment)
            || (self.congestion.in_slow_start()
                && 2 * (self.under_way() + length) >= self.congestion.packets().saturating_mul(self.segment));
        Some(self.fresh(length, now))
    }
}
