//! One connection between its handshake and its end: segments and time in, bytes' places and segments out.

use crate::header::{self, Header, Timestamps};
use crate::leave::Leave;
use crate::receive::{Receiver, Wanted};
use crate::send::{Judgement, Sender};
use crate::sequence::Seq;
use crate::settings::{Clock, Recovery, Settings, State};
use shunt_path::{Nanoseconds, MILLISECOND};

/// Time stamps older than this say nothing of a segment's age (RFC 7323, section 5.5).
const STALE: Nanoseconds = 24 * 24 * 3600 * 1000 * MILLISECOND;
/// Bytes of so many full packets, with none sent in between, are a stream.
const STREAM: u32 = 10;
/// Segments that are answered although nothing of them is wanted: so many in a second at the most (RFC 5961, section 7).
const ANSWERS: u32 = 100;

/// What a segment brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Where its bytes go.
    pub wanted: Wanted,
    /// Bytes at the head of the sender's ring that need not be kept any longer.
    pub acknowledged: u32,
}

/// What is to be done about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was taken.
    Taken(Arrival),
    /// Nothing of it is wanted: too old, outside the window, an absurd acknowledgement.
    Ignored,
    /// It is the kernel's, as the connection is from now on. Nothing of it was taken.
    Leave(Leave),
}

/// A segment that is to leave: its header but for the ports, and its bytes in the sender's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Ports are the connection's; the checksum is made with the bytes.
    pub header: Header,
    /// First byte of the payload, from the head of the sender's ring.
    pub from: u32,
    /// Bytes of the payload. More than `segment` only where runs are allowed.
    pub length: u32,
}

/// An established connection. `MOST`: packets that may be under way.
#[derive(Clone, Copy, Debug)]
pub struct Connection<const MOST: usize> {
    ports: (u16, u16),
    sender: Sender<MOST>,
    receiver: Receiver,
    settings: Settings,
    segment: u32,
    scales: (u8, u8),
    selective: bool,
    clock: Option<Clock>,
    /// TS.Recent, and when it was heard.
    recent: Option<(u32, Nanoseconds)>,
    /// Bytes that came in order since the last one that was sent.
    run: u32,
    /// Answers in this second.
    answers: (Nanoseconds, u32),
}

impl<const MOST: usize> Connection<MOST> {
    /// Takes over from the kernel. `ports`: ours, the peer's.
    pub fn new(state: &State, ports: (u16, u16), settings: Settings, now: Nanoseconds) -> Self {
        let promised = state.promised_from.plus(state.promised).latest(state.expected);
        let mut receiver = Receiver::new(state.expected, promised, state.own_scale);
        receiver.acknowledged = state.promised_from.earliest(state.expected);
        if receiver.acknowledged != state.expected {
            // The acknowledgement that was due is due still.
            receiver.answer();
        }
        Connection {
            ports,
            sender: Sender::new(state, settings),
            receiver,
            settings,
            segment: state.segment.max(1),
            scales: (state.scale.min(14), state.own_scale.min(14)),
            selective: state.selective,
            clock: state.timestamps.map(|(clock, _)| clock),
            recent: state.timestamps.and_then(|(_, recent)| recent).map(|value| (value, now)),
            run: 0,
            answers: (0, 0),
        }
    }

    /// Whether small packets wait for acknowledgements from now on ([`Settings::nagle`]).
    pub fn set_nagle(&mut self, on: bool) {
        self.sender.set_nagle(on);
    }

    /// What goes back to the kernel's socket. Bytes of the sender's ring from its head: [`Connection::held`].
    pub fn give_back(&self, now: Nanoseconds) -> State {
        State {
            unacknowledged: self.sender.una,
            sent: self.sender.next,
            expected: self.receiver.next,
            segment: self.segment,
            window_told: self.sender.told,
            window: self.sender.window,
            largest_window: self.sender.largest,
            promised: self.receiver.promised.since(self.receiver.acknowledged),
            promised_from: self.receiver.acknowledged,
            scale: self.scales.0,
            own_scale: self.scales.1,
            selective: self.selective,
            timestamps: self.clock.map(|clock| (Clock { value: clock.value(now), at: now }, self.recent.map(|(value, _)| value))),
            round_trip: (self.sender.path.smoothed, self.sender.path.variation),
        }
    }

    /// The oldest byte that is not acknowledged, and the byte that is expected: of what [`Connection::give_back`] tells, what is asked for again and again.
    #[inline]
    pub fn places(&self) -> (Seq, Seq) {
        (self.sender.una, self.receiver.next)
    }

    /// Bytes of a full packet.
    #[inline]
    pub fn full(&self) -> u32 {
        self.segment
    }

    /// The smoothed round-trip time, 0 if there is none.
    #[inline]
    pub fn round_trip(&self) -> Nanoseconds {
        self.sender.path.smoothed
    }

    /// Bytes in the sender's ring, and of those the ones that were sent.
    pub fn held(&self) -> (u32, u32) {
        self.sender.held()
    }

    /// The sender's ring holds so many bytes.
    pub fn offer(&mut self, bytes: u32) {
        self.sender.offer(bytes);
    }

    /// The receiver's ring has so much room behind the bytes that are in order.
    pub fn set_room(&mut self, room: u32) {
        self.receiver.set_room(room, self.segment, self.settings.ring);
    }

    /// Judges and takes a segment, whose checksum and ports are right and whose payload has `length` bytes.
    pub fn segment(&mut self, header: &Header, length: u32, now: Nanoseconds) -> Verdict {
        if let Some(reason) = self.odd(header) {
            return Verdict::Leave(reason);
        }
        let (start, end) = (header.sequence, header.sequence.plus(length));
        let fair = self.sender.judge(header.acknowledgement) == Judgement::Fair;
        if self.is_old(header, now) || !self.receiver.acceptable(start, end) || !fair {
            self.answer(now);
            return Verdict::Ignored;
        }
        if length > 0 && self.receiver.is_ahead(start) && self.leaves_gaps() {
            return Verdict::Leave(Leave::Gap);
        }
        // RFC 7323, section 4.3: the clock of the segment that the last acknowledgement stopped at. Not that of one that was overtaken, as in Linux.
        if let Some(stamps) = header.timestamps {
            if !start.after(self.receiver.acknowledged)
                && !header.acknowledgement.before(self.sender.una)
                && self.recent.is_none_or(|(recent, _)| !Seq(stamps.value).before(Seq(recent)))
            {
                self.recent = Some((stamps.value, now));
            }
        }
        let delay = match (self.clock, header.timestamps) {
            (Some(clock), Some(stamps)) if stamps.echo != 0 => {
                Some(u64::from(clock.value(now).wrapping_sub(stamps.echo)) * MILLISECOND)
                    .filter(|delay| *delay < 60_000 * MILLISECOND)
            }
            _ => None,
        };
        let window = u32::from(header.window) << self.scales.0;
        let acknowledged =
            self.sender.acknowledge(header.acknowledgement, start, length == 0, window, &header.blocks, delay, now);
        let wanted = self.receiver.take(start, length, self.segment, now);
        self.run = self.run.saturating_add(wanted.ready);
        Verdict::Taken(Arrival { wanted, acknowledged: acknowledged.bytes })
    }

    fn leaves_gaps(&self) -> bool {
        match self.settings.recovery {
            Recovery::GiveBack => true,
            Recovery::Exchanges(_) => self.run >= STREAM * self.segment,
            Recovery::Own(_) => false,
        }
    }

    /// What an established connection does not meet in its ordinary life.
    fn odd(&self, header: &Header) -> Option<Leave> {
        const RARE: u8 = header::SYN | header::RST | header::FIN | header::URG | header::ECE | header::CWR;
        if header.flags & RARE == 0 && header.flags & header::ACK != 0 && self.clock.is_some() == header.timestamps.is_some() {
            return None;
        }
        Some(match header.flags {
            flags if flags & header::RST != 0 => Leave::Reset,
            flags if flags & header::SYN != 0 => Leave::Syn,
            flags if flags & header::FIN != 0 => Leave::Fin,
            flags if flags & header::URG != 0 => Leave::Urgent,
            flags if flags & (header::ECE | header::CWR) != 0 => Leave::Congestion,
            _ => Leave::Odd,
        })
    }

    /// Protection against wrapped sequence numbers (RFC 7323, section 5.3). A clock that is behind by one is none that wrapped: Linux's rule.
    fn is_old(&self, header: &Header, now: Nanoseconds) -> bool {
        match (header.timestamps, self.recent) {
            (Some(stamps), Some((recent, heard))) => {
                Seq(stamps.value).plus(1).before(Seq(recent)) && now.saturating_sub(heard) < STALE
            }
            _ => false,
        }
    }

    fn answer(&mut self, now: Nanoseconds) {
        if now.saturating_sub(self.answers.0) >= 1000 * MILLISECOND {
            self.answers = (now, 0);
        }
        if self.answers.1 < ANSWERS {
            self.answers.1 += 1;
            self.receiver.answer();
        }
    }

    /// If an acknowledgement is due, it is due now: nobody may be there when it is.
    pub fn acknowledge(&mut self) {
        if self.receiver.deadline().is_some() {
            self.receiver.answer();
        }
    }

    /// When [`Connection::timer`] and [`Connection::outgoing`] are to be called, if nothing comes before.
    pub fn deadline(&self) -> Option<Nanoseconds> {
        match (self.sender.deadline(), self.receiver.deadline()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Whether [`Connection::timer`] and [`Connection::outgoing`] have nothing to do now, which costs less to ask than they.
    #[inline]
    pub fn rests(&mut self, now: Nanoseconds) -> bool {
        self.sender.rests() && self.deadline().is_none_or(|due| due > now)
    }

    /// Does what is due.
    ///
    /// # Errors
    /// The connection is the kernel's from now on.
    pub fn timer(&mut self, now: Nanoseconds) -> Result<(), Leave> {
        self.sender.timer(now)
    }

    /// A segment that leaves now, with bytes, or an acknowledgement alone. To be called until there is none.
    pub fn outgoing(&mut self, now: Nanoseconds) -> Option<Outgoing> {
        let piece = self.sender.next_piece(now);
        if piece.is_none() && !self.receiver.is_due(now) {
            return None;
        }
        let una = self.sender.una;
        let (from, length, sequence, last) = match piece {
            None => (0, 0, self.sender.next, false),
            // A probe of a closed window repeats the number before the oldest, so that it is answered.
            Some(piece) if piece.length == 0 => (0, 0, una.plus(u32::MAX), false),
            Some(piece) => (piece.from, piece.length, una.plus(piece.from), piece.last),
        };
        let timestamps =
            self.clock.map(|clock| Timestamps { value: clock.value(now), echo: self.recent.map_or(0, |(recent, _)| recent) });
        // A full segment leaves no room for blocks, which an acknowledgement alone will tell.
        let most = match (self.selective, length, timestamps) {
            (false, ..) | (true, 1.., _) => 0,
            (true, 0, None) => 4,
            (true, 0, Some(_)) => 3,
        };
        let window = self.receiver.window();
        let header = Header {
            source: self.ports.0,
            destination: self.ports.1,
            sequence,
            acknowledgement: self.receiver.next,
            flags: if last { header::ACK | header::PSH } else { header::ACK },
            window,
            timestamps,
            blocks: self.receiver.blocks(most),
        };
        self.receiver.sent(length > 0);
        if length > 0 {
            self.run = 0;
        }
        Some(Outgoing { header, from, length })
    }
}
