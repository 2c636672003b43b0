//! Frames through a queue of one's own.

use core::net::SocketAddr;
use core::sync::atomic::Ordering::Relaxed;

use shunt_endpoint::direct::apply;
use shunt_endpoint::shared::{ChannelEntry, Memory};
use shunt_endpoint::{Area, Arrival, ArrivalParts, Channel, Counters, Drop as Reason, Gather, PostError, SendError, Tag, INLINE};
use shunt_sys::{libc, Errno};
use shunt_wire::endpoint::{Frame, Kind, Repr, HEADER};

use crate::address::decode;
use crate::packet::{Envelope, Malformed, Path, Prepared, Sum, LONGEST, UDP};
use crate::ring::Descriptor;
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
    /// Where the segment begins in the registered memory.
    segment: u32,
    /// The channels that were sent to and received from last. A channel's addresses are the same as long as it is open, and its
    /// generation is another one when it is opened again; its tag is compared because generations wrap.
    sent: Option<Sent>,
    heard: Option<(Channel, Tag, SocketAddr)>,
    /// Frames taken since the last one was sent.
    run: u32,
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

/// A valid frame: the fields of its arrival.
struct Valid {
    kind: Kind,
    channel: Channel,
    /// First byte of the message in the frame, and its bytes.
    at: usize,
    length: usize,
}

impl Own {
    /// Over a socket in whose memory the segment begins at `segment`.
    pub fn new(socket: Socket, segment: u32) -> Own {
        Own { socket, segment, sent: None, heard: None, run: 0 }
    }

    /// Writes a frame into a free chunk and puts it on the transmit ring.
    #[inline]
    pub fn send(
        &mut self,
        memory: &Memory,
        (channel, entry): (Channel, &ChannelEntry),
        gather: &Gather<'_>,
        kind: Kind,
    ) -> Result<(), SendError> {
        let state = State::of(memory);
        let next_hop = entry.device[NEXT_HOP].load(Relaxed);
        if next_hop == 0 {
            return Err(SendError::NoResource);
        }
        if next_hop == UNREACHABLE {
            // As an IP network does it: the message is lost.
            Counters::add(&memory.counters().unsent, 1);
            return Ok(());
        }
        let length = HEADER + gather.len();
        if length as u64 > entry.device[LARGEST].load(Relaxed) {
            return Err(SendError::TooLarge);
        }
        let tag = entry.tags().send;
        let headers = match &self.sent {
            Some(sent) if sent.channel == channel && sent.tag == tag && sent.next_hop == next_hop => sent.headers,
            _ => self.prepare(state, (channel, entry), next_hop).ok_or(SendError::Channel)?,
        };
        let Some(chunk) = self.chunk(state) else { return Err(SendError::NoResource) };
        let header = headers.header();
        let Some(frame) = self.socket.room(chunk.into(), header + length) else {
            return Err(SendError::Device(Errno(libc::EINVAL)));
        };
        let mut head = [0; HEADER];
        Repr { kind, tag: tag.0, length: gather.len() as u32 }.emit(&mut head);
        // SAFETY: the chunk lies in the memory and is ours; `header + length` bytes were checked.
        unsafe {
            let datagram = frame.add(header);
            core::ptr::copy_nonoverlapping(head.as_ptr(), datagram, HEADER);
            if !gather.copy_to(0, datagram.add(HEADER), gather.len()) {
                state.push(chunk);
                return Err(SendError::Fault);
            }
            let sum = (!self.socket.makes_sums()).then(|| Sum::default().add_raw(datagram, length));
            let headers = headers.headers(length, sum);
            core::ptr::copy_nonoverlapping(headers.as_ptr(), frame, header);
        }
        self.run = 0;
        if !self.socket.put(chunk.into(), (header + length) as u32, header - UDP) {
            state.push(chunk);
            return Err(SendError::NoResource);
        }
        Ok(())
    }

    /// The headers of another channel than the last; `None`: its addresses are none.
    #[cold]
    fn prepare(&mut self, state: &State, (channel, entry): (Channel, &ChannelEntry), next_hop: u64) -> Option<Prepared> {
        let (source, destination) = (decode(&state.address())?.0, decode(&entry.address())?.0);
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

    /// Makes the kernel send. True: the transmit ring is empty.
    #[inline]
    pub fn flush(&mut self, memory: &Memory) -> Result<bool, SendError> {
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
        self.reclaim(State::of(memory));
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

    /// Puts the chunk of an arrival on the fill ring again.
    #[inline]
    pub fn give_back(&mut self, buffer: Area) {
        let chunk = self.socket.shape().chunk;
        let _ = self.socket.give(u64::from((self.segment + buffer.offset) & !(chunk - 1)));
    }

    /// The next message.
    #[inline]
    pub fn receive(&mut self, memory: &Memory, arrival: &mut Arrival) -> bool {
        let mut bad = 0;
        while let Some(descriptor) = self.socket.take(&mut bad) {
            self.run = self.run.saturating_add(1);
            let chunk = descriptor.offset as u32 & !(self.socket.shape().chunk - 1);
            let mut start = [0u8; START];
            match self.check(memory, &descriptor, &mut start) {
                Err(reason) => {
                    memory.counters().drop(reason);
                    if chunk >= self.segment {
                        let _ = self.socket.give(chunk.into());
                    }
                }
                Ok(valid) => {
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
                    if valid.kind == Kind::Message {
                        arrival.fill(&parts);
                        return true;
                    }
                    let notification = apply(memory, &parts, valid.kind == Kind::UpdateNotify);
                    buffers.iter().for_each(|buffer| self.give_back(*buffer));
                    if let Some(notification) = notification {
                        arrival.fill_notification(valid.channel, notification);
                        return true;
                    }
                }
            }
        }
        if bad > 0 {
            Counters::add(&memory.counters().dropped[Reason::Violation as usize], bad);
        }
        self.socket.prod();
        if self.run <= STREAM {
            self.socket.look_ahead();
        } else {
            // The lines that were asked for would be taken back from who writes them.
            for _ in 0..REST {
                core::hint::spin_loop();
            }
        }
        false
    }

    /// Judges a frame. `start` gets its first bytes, which are private from then on.
    #[inline]
    fn check(&mut self, memory: &Memory, descriptor: &Descriptor, start: &mut [u8; START]) -> Result<Valid, Reason> {
        let length = descriptor.length as usize;
        if descriptor.offset < self.segment.into() {
            // Somebody of ours posted a chunk that is for frames to be sent.
            return Err(Reason::Violation);
        }
        let frame = self.socket.umem().at(descriptor.offset, length).ok_or(Reason::Violation)?;
        let known = length.min(START);
        // SAFETY: inside the memory, and no more than the buffer has.
        unsafe { core::ptr::copy_nonoverlapping(frame, start.as_mut_ptr(), known) };
        let envelope = Envelope::parse(&start[..known.min(LONGEST)], length).map_err(reason_of)?;
        let header = Frame::new(&start[envelope.at..known.min(envelope.at + envelope.length)]);
        let repr = Repr::parse_start(&header, envelope.length)?;
        let tag = Tag(repr.tag);
        let (channel, entry) = memory.registry().by_tag(tag).ok_or(Reason::Tag)?;
        if !self.comes_from((channel, entry), tag, envelope.source) {
            return Err(Reason::Source);
        }
        // SAFETY: `parse` found the datagram inside the frame.
        if !envelope.is_intact(|| unsafe { Sum::default().add_raw(frame.add(envelope.at), envelope.length) }) {
            return Err(Reason::Length);
        }
        Ok(Valid { kind: repr.kind, channel, at: envelope.at + HEADER, length: repr.length as usize })
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
