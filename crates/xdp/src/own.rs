//! Frames through a queue of one's own.

use core::net::SocketAddr;
use core::sync::atomic::fence;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use shunt_endpoint::direct::apply;
use shunt_endpoint::shared::{ChannelEntry, Memory};
use shunt_endpoint::{Area, Arrival, ArrivalParts, Channel, Counters, Drop as Reason, Gather, PostError, SendError, Tag, INLINE};
use shunt_sys::{libc, Errno};
use shunt_wire::endpoint::{Frame, Kind, Repr, HEADER};

use crate::address::decode;
use crate::packet::{Envelope, Malformed, Path, Prepared, Sum, LONGEST, UDP};
use crate::ring::Descriptor;
use crate::runs::{each, Cutter, Limits, Run};
use crate::socket::Socket;
use crate::state::{mac_of_word, State, UNREACHABLE};

/// Word of a channel's entry: the Ethernet address of its next hop, or 0 while it is not known. The agent writes it.
pub const NEXT_HOP: usize = 0;
/// Word of a channel's entry: bytes of the largest datagram on its way.
pub const LARGEST: usize = 1;

/// Bytes at the start of a frame that are copied before they are believed: all headers, and what an arrival's head holds.
const START: usize = LONGEST + HEADER + INLINE;

/// The private half.
pub struct Own {
    pub(crate) socket: Socket,
    /// Sends runs, where the agent gave a socket for that.
    pub(crate) cutter: Option<Cutter>,
    /// Runs are begun: there is such a socket, and it was not refused.
    pub(crate) makes_runs: bool,
    pub(crate) limits: Limits,
    /// Where the segment begins in the registered memory.
    pub(crate) segment: u32,
    /// The channels that were sent to and received from last. A channel's addresses are the same as long as it is open, and its
    /// generation is another one when it is opened again; its tag is compared because generations wrap.
    sent: Option<Sent>,
    heard: Option<(Channel, Tag, SocketAddr)>,
    /// Frames taken since the last one was sent.
    pub(crate) streak: u32,
    /// Frames put on the transmit ring since the last flush; the channel and the bytes of the last datagram.
    pub(crate) put: u32,
    pub(crate) last: (Channel, u32),
}

/// More frames than that without one sent between are a stream.
const STREAM: u32 = 4;
/// Turns of waiting between two looks at an empty ring, in a stream.
const REST: u32 = 64;

/// The headers of a channel.
struct Sent {
    channel: Channel,
    tag: Tag,
    next_hop: u64,
    headers: Prepared,
}

/// A valid frame.
enum Valid {
    One(One),
    /// Or several, of which the first was judged.
    Run(Run),
}

/// The fields of an arrival.
struct One {
    kind: Kind,
    channel: Channel,
    /// First byte of the message in the frame, and its bytes.
    at: usize,
    length: usize,
}

impl Own {
    /// Over a socket in whose memory the segment begins at `segment`.
    pub fn new(socket: Socket, cutter: Option<Cutter>, segment: u32) -> Own {
        let (makes_runs, limits) = (cutter.is_some(), Limits::of(&socket.shape()));
        let (sent, heard, last) = (None, None, (Channel(0), 0));
        Own { socket, cutter, makes_runs, limits, segment, sent, heard, streak: 0, put: 0, last }
    }

    /// Writes a frame into a free chunk and puts it on the transmit ring; or into a run.
    #[inline]
    pub fn send(
        &mut self,
        memory: &Memory,
        (channel, entry): (Channel, &ChannelEntry),
        gather: &Gather<'_>,
        kind: Kind,
    ) -> Result<(), SendError> {
        let state = State::of(memory);
        let Some(headers) = self.headers(memory, (channel, entry))? else {
            // As an IP network does it: the message is lost.
            Counters::add(&memory.counters().unsent, 1);
            return Ok(());
        };
        let length = HEADER + gather.len();
        let largest = entry.device[LARGEST].load(Relaxed);
        if length as u64 > largest {
            return Err(SendError::TooLarge);
        }
        let mut head = [0; HEADER];
        Repr { kind, tag: entry.tags().send.0, length: gather.len() as u32 }.emit(&mut head);
        if self.collect(memory, (channel, length as u64 == largest), &head, gather)? {
            return Ok(());
        }
        self.put_frame(state, &headers, length, |datagram| {
            // SAFETY: as many bytes as the datagram has.
            unsafe {
                core::ptr::copy_nonoverlapping(head.as_ptr(), datagram, HEADER);
                gather.copy_to(0, datagram.add(HEADER), gather.len())
            }
        })?;
        (self.put, self.last) = (self.put + 1, (channel, length as u32));
        Ok(())
    }

    /// The headers of a channel's packets; `None`: its next hop does not answer.
    ///
    /// Errors: `NoResource` while the next hop is not known, `Channel` for addresses that are none.
    #[inline]
    pub(crate) fn headers(
        &mut self,
        memory: &Memory,
        (channel, entry): (Channel, &ChannelEntry),
    ) -> Result<Option<Prepared>, SendError> {
        let next_hop = entry.device[NEXT_HOP].load(Relaxed);
        if next_hop == 0 {
            return Err(SendError::NoResource);
        }
        if next_hop == UNREACHABLE {
            return Ok(None);
        }
        let tag = entry.tags().send;
        match &self.sent {
            Some(sent) if sent.channel == channel && sent.tag == tag && sent.next_hop == next_hop => Ok(Some(sent.headers)),
            _ => self.prepare(State::of(memory), (channel, entry), next_hop).ok_or(SendError::Channel).map(Some),
        }
    }

    /// Puts a frame with a datagram of `length` bytes on the transmit ring; `write` writes it, or fails.
    #[inline(always)]
    pub(crate) fn put_frame(
        &mut self,
        state: &State,
        headers: &Prepared,
        length: usize,
        write: impl FnOnce(*mut u8) -> bool,
    ) -> Result<(), SendError> {
        let Some(chunk) = self.chunk(state) else { return Err(SendError::NoResource) };
        let header = headers.header();
        let Some(frame) = self.socket.room(chunk.into(), header + length) else {
            state.push(chunk);
            return Err(SendError::Device(Errno(libc::EINVAL)));
        };
        // SAFETY: the chunk lies in the memory and is ours; `header + length` bytes were checked.
        unsafe {
            let datagram = frame.add(header);
            if !write(datagram) {
                state.push(chunk);
                return Err(SendError::Fault);
            }
            let sum = (!self.socket.makes_sums()).then(|| Sum::default().add_raw(datagram, length));
            let headers = headers.headers(length, sum);
            core::ptr::copy_nonoverlapping(headers.as_ptr(), frame, header);
        }
        self.streak = 0;
        if !self.socket.put(chunk.into(), (header + length) as u32, header - UDP) {
            state.push(chunk);
            return Err(SendError::NoResource);
        }
        Ok(())
    }

    /// Puts a frame that is whole on the transmit ring; false: there is no room, or it is longer than a chunk.
    #[inline]
    pub(crate) fn put_whole(&mut self, state: &State, frame: &[u8]) -> bool {
        let Some(chunk) = self.chunk(state) else { return false };
        self.streak = 0;
        let Some(to) = self.socket.room(chunk.into(), frame.len()) else {
            state.push(chunk);
            return false;
        };
        // SAFETY: the chunk lies in the memory and is ours; as many bytes as were checked.
        unsafe { core::ptr::copy_nonoverlapping(frame.as_ptr(), to, frame.len()) };
        let put = self.socket.put_whole(chunk.into(), frame.len() as u32);
        if !put {
            state.push(chunk);
        }
        put
    }

    /// The headers of another channel than the last; `None`: its addresses are none.
    #[cold]
    fn prepare(&mut self, state: &State, (channel, entry): (Channel, &ChannelEntry), next_hop: u64) -> Option<Prepared> {
        let (source, destination) = (decode(&state.address())?.0, decode(&entry.address())?.0);
        fence(Acquire); // the agent changes our address before the next hop's word
        let path = Path { from: mac_of_word(state.mac.load(Relaxed)), to: mac_of_word(next_hop), source, destination };
        let headers = path.prepare();
        self.sent = Some(Sent { channel, tag: entry.tags().send, next_hop, headers });
        Some(headers)
    }

    /// Whether frames of the channel with this tag come from there.
    #[inline]
    fn comes_from(&mut self, (channel, entry): (Channel, &ChannelEntry), tag: Tag, source: SocketAddr) -> bool {
        match self.heard {
            Some((heard, its, peer)) if heard == channel && its == tag => peer == source,
            _ => {
                self.heard = decode(&entry.address()).map(|(peer, _)| (channel, tag, peer));
                self.heard.is_some_and(|(_, _, peer)| peer == source)
            }
        }
    }

    /// A free chunk, after taking back what the kernel has sent.
    #[inline]
    fn chunk(&mut self, state: &State) -> Option<u32> {
        if let Some(chunk) = state.pop() {
            return Some(chunk);
        }
        self.reclaim(state);
        state.pop().or_else(|| {
            // More waits than the kernel takes in one call.
            let _ = self.socket.kick();
            self.reclaim(state);
            state.pop()
        })
    }

    fn reclaim(&mut self, state: &State) {
        let chunk = self.socket.shape().chunk;
        while let Some(offset) = self.socket.sent() {
            state.push(offset as u32 & !(chunk - 1));
        }
    }

    /// Makes the kernel send. True: nothing waits.
    #[inline]
    pub fn flush(&mut self, memory: &Memory) -> Result<bool, SendError> {
        self.put = 0;
        let state = State::of(memory);
        if !state.sending.is_empty() {
            return Ok(self.send_runs(memory)? && self.empty_ring(state)?);
        }
        self.empty_ring(state)
    }

    /// Makes the kernel send what is on the transmit ring. True: all of it.
    #[inline]
    pub(crate) fn empty_ring(&mut self, state: &State) -> Result<bool, SendError> {
        let mut left = self.socket.unsent();
        while left > 0 {
            match self.socket.kick() {
                Ok(()) => {}
                // The interface is down or full for now: what waits, waits.
                Err(Errno(libc::ENETDOWN | libc::ENOBUFS | libc::EAGAIN)) => break,
                Err(errno) => return Err(SendError::Device(errno)),
            }
            let now = self.socket.unsent();
            if now >= left {
                break;
            }
            left = now;
        }
        self.reclaim(state);
        Ok(self.socket.unsent() == 0)
    }

    /// Puts a chunk on the fill ring.
    pub fn post(&mut self, memory: &Memory, buffer: Area) -> Result<(), PostError> {
        let chunk = self.socket.shape().chunk;
        let offset = self.segment + buffer.offset;
        if buffer.length < chunk || !offset.is_multiple_of(chunk) {
            return Err(PostError::Area);
        }
        let posted = &State::of(memory).posted;
        // No more than the ring has slots, so that there is always room for those that come back.
        if posted.load(Relaxed) >= self.socket.shape().receive || !self.socket.give(offset.into()) {
            return Err(PostError::Full);
        }
        posted.store(posted.load(Relaxed) + 1, Relaxed);
        Ok(())
    }

    /// Puts the chunk of an arrival on the fill ring again, unless others have it, too.
    #[inline]
    pub fn give_back(&mut self, buffer: Area) {
        let at = self.segment + buffer.offset;
        if buffer.length == 0 {
            self.drop_share(at);
        } else {
            self.give_chunk(at);
        }
    }

    /// Puts the chunk in which this byte of the registered memory lies on the fill ring, if it is one for frames to come.
    #[inline]
    pub(crate) fn give_chunk(&mut self, at: u32) {
        let chunk = at & !(self.socket.shape().chunk - 1);
        if chunk >= self.segment {
            let _ = self.socket.give(chunk.into());
        }
    }

    /// Whether nothing waits to be received.
    #[inline]
    pub fn is_empty(&mut self, memory: &Memory) -> bool {
        self.socket.arrived() == 0 && !State::of(memory).receiving.is_there()
    }

    /// The next message.
    #[inline]
    pub fn receive(&mut self, memory: &Memory, arrival: &mut Arrival) -> bool {
        if State::of(memory).receiving.is_there() && self.take_from_cut(memory, arrival) {
            return true;
        }
        let mut bad = 0;
        while let Some(descriptor) = self.socket.take(&mut bad) {
            self.streak = self.streak.saturating_add(1);
            let chunk = descriptor.offset as u32 & !(self.socket.shape().chunk - 1);
            let mut start = [0u8; START];
            match self.check(memory, &descriptor, &mut start) {
                Err(reason) => {
                    memory.counters().drop(reason);
                    self.give_chunk(chunk);
                    self.pass_rest(descriptor.goes_on());
                }
                Ok(Valid::Run(run)) => {
                    self.begin_cut(State::of(memory), &descriptor, &run);
                    if self.take_from_cut(memory, arrival) {
                        return true;
                    }
                }
                Ok(Valid::One(valid)) => {
                    let head = valid.length.min(INLINE);
                    let rest = valid.length - head;
                    let (area, buffer);
                    let (mut areas, mut buffers) = (&[][..], &[][..]);
                    if rest > 0 {
                        let offset = descriptor.offset as u32 - self.segment + (valid.at + head) as u32;
                        area = [Area::new(offset, rest as u32)];
                        buffer = [Area::new(chunk - self.segment, self.socket.shape().chunk)];
                        (areas, buffers) = (&area[..], &buffer[..]);
                    } else {
                        let _ = self.socket.give(chunk.into());
                    }
                    let parts = ArrivalParts {
                        channel: valid.channel,
                        length: valid.length as u32,
                        head: &start[valid.at..][..head],
                        areas,
                        buffers,
                    };
                    if self.hand_over(memory, valid.kind, &parts, arrival) {
                        return true;
                    }
                }
            }
        }
        if bad > 0 {
            Counters::add(&memory.counters().dropped[Reason::Violation as usize], bad);
        }
        if !self.look_ahead() {
            for _ in 0..REST {
                core::hint::spin_loop();
            }
        }
        false
    }

    /// Nothing waits: asks for the lines of what comes next. False: it is a stream, whose lines would be taken back from their writer.
    #[inline]
    pub(crate) fn look_ahead(&mut self) -> bool {
        self.socket.prod();
        let alone = self.streak <= STREAM;
        if alone {
            self.socket.look_ahead();
        }
        alone
    }

    /// Makes an arrival of a message; or does what an update asks for, of which there may be no arrival.
    #[inline]
    pub(crate) fn hand_over(&mut self, memory: &Memory, kind: Kind, parts: &ArrivalParts<'_>, arrival: &mut Arrival) -> bool {
        if kind == Kind::Message {
            arrival.fill(parts);
            return true;
        }
        let notification = apply(memory, parts, kind == Kind::UpdateNotify);
        parts.buffers.iter().for_each(|buffer| self.give_back(*buffer));
        if let Some(notification) = notification {
            arrival.fill_notification(parts.channel, notification);
            return true;
        }
        false
    }

    /// Judges a frame. `start` gets its first bytes, which are private from then on.
    #[inline]
    fn check(&mut self, memory: &Memory, descriptor: &Descriptor, start: &mut [u8; START]) -> Result<Valid, Reason> {
        let length = descriptor.length as usize;
        if descriptor.offset < self.segment.into() {
            // A process of ours posted a chunk that is for frames to be sent.
            return Err(Reason::Violation);
        }
        let frame = self.socket.umem().at(descriptor.offset, length).ok_or(Reason::Violation)?;
        let known = length.min(START);
        // SAFETY: inside the memory, and no more than the buffer has.
        unsafe { core::ptr::copy_nonoverlapping(frame, start.as_mut_ptr(), known) };
        // Of a frame in several chunks the others are looked at when their turn comes.
        let seen = if descriptor.goes_on() { LONGEST + usize::from(u16::MAX) } else { length };
        let envelope = Envelope::parse(&start[..known.min(LONGEST)], seen).map_err(reason_of)?;
        let header = Frame::new(&start[envelope.at..known.min(envelope.at + envelope.length)]);
        let each = if descriptor.goes_on() {
            (header.length() as usize + HEADER).min(envelope.length)
        } else {
            each(envelope.length, |at| {
                let mut header = [0; HEADER];
                // SAFETY: `parse` found the datagram inside the frame, and the header is inside the datagram.
                unsafe { core::ptr::copy_nonoverlapping(frame.add(envelope.at + at), header.as_mut_ptr(), HEADER) };
                header
            })
        };
        let repr = Repr::parse_start(&header, each)?;
        let tag = Tag(repr.tag);
        let (channel, entry) = memory.registry().by_tag(tag).ok_or(Reason::Tag)?;
        if !self.comes_from((channel, entry), tag, envelope.source) {
            return Err(Reason::Source);
        }
        let intact = if descriptor.goes_on() {
            // What a kernel has not cut never left memory, and has no checksum yet.
            each <= State::of(memory).largest.load(Relaxed) as usize && envelope.is_left_to_others()
        } else {
            // SAFETY: as above.
            envelope.is_intact(|| unsafe { Sum::default().add_raw(frame.add(envelope.at), envelope.length) })
        };
        if !intact {
            return Err(Reason::Length);
        }
        if descriptor.goes_on() || each < envelope.length {
            return Ok(Valid::Run(Run { at: envelope.at, length: envelope.length, each, tag: repr.tag }));
        }
        Ok(Valid::One(One { kind: repr.kind, channel, at: envelope.at + HEADER, length: repr.length as usize }))
    }
}

/// The counter of a frame whose headers are wrong.
pub fn reason_of(malformed: Malformed) -> Reason {
    match malformed {
        Malformed::Short => Reason::Short,
        Malformed::Protocol => Reason::Magic,
        Malformed::Damaged => Reason::Length,
    }
}
