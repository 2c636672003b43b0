//! From the kernel to the receive queue.

use super::{from_sockaddr, Udp};
use crate::direct::apply_and_queue;
use crate::{Address, Area, Arrival, ArrivalParts, Drop as Reason, Segment, Tag, INLINE};
use core::mem::zeroed;
use shunt_sys::{calls, libc};
use shunt_wire::endpoint::{Frame, Kind, Repr, HEADER};

/// Datagrams that one call takes at most.
const BATCH: usize = 16;
/// The same where each may be a run of up to [`super::outgoing::RUN_MESSAGES`]: all of them fit a receive queue of 256.
const RUNS: usize = 4;
/// Bytes of a frame that are read before its message is known: header and head.
const START: usize = HEADER + INLINE;
const NAME: usize = 28;

/// The arguments of one recvmmsg of up to `N` datagrams.
struct Batch<const N: usize> {
    entries: [libc::mmsghdr; N],
    parts: [libc::iovec; N],
    names: [[u8; 32]; N],
    control: [[u64; 8]; N],
}

impl Udp {
    /// Takes what the kernel has, as much as one call gives. True: the receive queue is not empty.
    ///
    /// A call for one datagram costs less than a call for many that gets one: many are asked for while many come. A call for
    /// some runs that gets one costs less than two calls, and has seen that there is no more.
    pub(super) fn take_in(&self) -> bool {
        let many = self.many.get();
        let taken = match (self.coalesce, many) {
            (true, _) => self.take_in_up_to::<RUNS>(),
            (false, true) => self.take_in_up_to::<BATCH>(),
            (false, false) => self.take_in_up_to::<1>(),
        };
        self.many.set(taken > many as usize);
        !self.memory.receive_queue().is_empty()
    }

    /// Takes all that the kernel has, as far as there are buffers and room: what waits in the kernel cannot be counted.
    pub(super) fn take_in_all(&self) {
        let (free, queue) = (self.memory.free_queue(), self.memory.receive_queue());
        self.drained.set(false);
        while !free.is_empty() && !self.drained.get() {
            let room = (queue.capacity() - queue.len()) as usize;
            let taken = match self.coalesce {
                true if room >= super::outgoing::RUN_MESSAGES as usize => self.take_in_up_to::<1>(),
                false if room >= BATCH => self.take_in_up_to::<BATCH>(),
                false if room > 0 => self.take_in_up_to::<1>(),
                _ => return,
            };
            if taken == 0 {
                return;
            }
        }
    }

    /// Gives the number of datagrams that came, and notes whether the kernel had fewer than were asked for.
    fn take_in_up_to<const N: usize>(&self) -> usize {
        let (free, segment) = (self.memory.free_queue(), self.memory.segment());
        // SAFETY: integers and pointers, for which zero is valid.
        let mut batch: Batch<N> = unsafe { zeroed() };
        let mut buffers = [Area::default(); N];
        let mut count = 0;
        while count < N {
            let Some(buffer) = free.peek(count as u32) else { break };
            let Some(base) = segment.pointer(buffer).filter(|_| buffer.length as usize >= START) else {
                // Nonsense on the free queue: forget it. What was looked at before it stays.
                if count == 0 {
                    free.advance(1);
                    continue;
                }
                break;
            };
            buffers[count] = buffer;
            batch.parts[count] = libc::iovec { iov_base: base.cast(), iov_len: buffer.length as usize };
            count += 1;
        }
        if count == 0 {
            return self.take_in_without_buffers();
        }
        let Some(taken) = batch.receive(self.socket, count) else { return 0 };
        self.drained.set(taken < count);
        // A lone buffer to which nothing refers is the next one again, while its lines are in the caches.
        let alone = taken == 1;
        if !alone {
            free.advance(taken as u32);
        }
        for (index, buffer) in buffers[..taken].iter().enumerate() {
            let sender = batch.sender(index);
            let length = (batch.entries[index].msg_len as usize).min(buffer.length as usize);
            let (each, cut) = (batch.run(index).unwrap_or(length), batch.is_cut(index));
            self.joined.set(self.joined.get() + (each < length) as u64);
            match (self.divide(*buffer, length, each, cut, sender), alone) {
                (true, true) => free.advance(1),
                (false, false) => {
                    let _ = free.put(buffer);
                }
                _ => {}
            }
        }
        taken
    }

    /// Small messages need no buffer; others are dropped, as an interface drops what it has no buffer for.
    #[cold]
    fn take_in_without_buffers(&self) -> usize {
        let mut places = [[0u8; START + 1]; RUNS];
        // SAFETY: as in `take_in`.
        let mut batch: Batch<RUNS> = unsafe { zeroed() };
        for (part, place) in batch.parts.iter_mut().zip(&mut places) {
            *part = libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() };
        }
        let Some(taken) = batch.receive(self.socket, RUNS) else { return 0 };
        for (index, place) in places[..taken].iter().enumerate() {
            let length = (batch.entries[index].msg_len as usize).min(START + 1);
            let alone = batch.run(index).is_none_or(|each| each >= length);
            if batch.is_cut(index) || length > START || !alone {
                self.memory.counters().drop(Reason::NoBuffer);
            } else {
                self.accept(&place[..length], length, None, batch.sender(index));
            }
        }
        taken
    }

    /// The messages of a buffer: one, or a run of `each` bytes. True: some refer to it.
    fn divide(&self, buffer: Area, length: usize, each: usize, cut: bool, sender: Option<Address>) -> bool {
        let segment = self.memory.segment();
        let mut users = 0u32;
        let mut done = 0;
        // A datagram without bytes is one frame too: a short one.
        loop {
            let size = each.max(1).min(length - done);
            let last = done + size >= length;
            if last && cut {
                self.memory.counters().drop(Reason::Oversized);
            } else {
                let mut start = [0u8; START];
                let head = size.min(START);
                let frame = Area::new(buffer.offset + done as u32, size as u32);
                segment.read(frame, &mut start[..head]);
                users += self.accept(&start[..head], size, Some((buffer, frame)), sender) as u32;
            }
            done += size;
            if last {
                break;
            }
        }
        if users > 0 {
            set_users(&segment, buffer, users);
        }
        users > 0
    }

    /// Judges a frame of `length` bytes by its `start`, and puts its message on the receive queue. True: the message refers
    /// to the buffer.
    fn accept(&self, start: &[u8], length: usize, place: Option<(Area, Area)>, sender: Option<Address>) -> bool {
        let memory = &self.memory;
        let refused = |reason: Reason| {
            memory.counters().drop(reason);
            false
        };
        let (kind, tag) = match judge(start, length) {
            Ok(judged) => judged,
            Err(reason) => return refused(reason),
        };
        let Some((channel, entry)) = memory.registry().by_tag(tag) else { return refused(Reason::Tag) };
        if sender != Some(entry.address()) {
            return refused(Reason::Source);
        }
        let message = length - HEADER;
        if message > self.capabilities.largest as usize {
            return refused(Reason::Oversized);
        }
        let rest = place.map(|(buffer, frame)| (buffer, frame.without(START as u32))).filter(|(_, rest)| rest.length > 0);
        let (buffers, areas) = match &rest {
            Some((buffer, area)) => (core::slice::from_ref(buffer), core::slice::from_ref(area)),
            None => (&[][..], &[][..]),
        };
        let parts = ArrivalParts { channel, length: message as u32, head: &start[HEADER..], areas, buffers };
        if kind != Kind::Message {
            apply_and_queue(memory, &parts, kind == Kind::UpdateNotify);
            return false;
        }
        let mut arrival = Arrival::empty();
        arrival.fill(&parts);
        if memory.receive_queue().put(&arrival).is_err() {
            return refused(Reason::QueueFull);
        }
        rest.is_some()
    }

    /// A message that referred to `buffer` is released; the last one frees it.
    pub(super) fn give_back(&self, buffer: Area) {
        let segment = self.memory.segment();
        match users(&segment, buffer).checked_sub(1) {
            Some(left) if left > 0 => set_users(&segment, buffer, left),
            // There is room: it came from there.
            _ => {
                let _ = self.memory.free_queue().put(&buffer);
            }
        }
    }
}

/// What a frame is and which tag it is for, or why it is none of ours.
fn judge(start: &[u8], length: usize) -> Result<(Kind, Tag), Reason> {
    let repr = Repr::parse_start(&Frame::new(start), length)?;
    Ok((repr.kind, Tag(repr.tag)))
}

/// How many messages refer to a buffer is kept in its first word: the header of its first frame, which has been read.
fn users(segment: &Segment, buffer: Area) -> u32 {
    let mut word = [0; 4];
    segment.read(buffer, &mut word);
    u32::from_ne_bytes(word)
}

fn set_users(segment: &Segment, buffer: Area, users: u32) {
    segment.write(buffer, &users.to_ne_bytes());
}

impl<const N: usize> Batch<N> {
    /// Asks the kernel for up to `count` datagrams; `None`: there are none.
    fn receive(&mut self, socket: i32, count: usize) -> Option<usize> {
        for index in 0..count {
            let header = &mut self.entries[index].msg_hdr;
            header.msg_name = self.names[index].as_mut_ptr().cast();
            header.msg_namelen = NAME as u32;
            header.msg_iov = &mut self.parts[index];
            header.msg_iovlen = 1;
            header.msg_control = self.control[index].as_mut_ptr().cast();
            header.msg_controllen = core::mem::size_of_val(&self.control[index]) as _;
        }
        let entries = self.entries.as_mut_ptr();
        let taken = calls::recvmmsg(socket, entries, count as u32, libc::MSG_DONTWAIT, core::ptr::null_mut()).ok()?;
        (taken > 0).then_some(taken.min(count))
    }

    fn sender(&self, index: usize) -> Option<Address> {
        from_sockaddr(&self.names[index][..(self.entries[index].msg_hdr.msg_namelen as usize).min(NAME)])
    }

    /// Whether the buffer was too small.
    fn is_cut(&self, index: usize) -> bool {
        self.entries[index].msg_hdr.msg_flags & libc::MSG_TRUNC != 0
    }

    /// Bytes of each message, where the kernel joined several: udp(7), UDP_GRO.
    fn run(&self, index: usize) -> Option<usize> {
        let words = &self.control[index];
        let kind = libc::SOL_UDP as u64 | (libc::UDP_GRO as u64) << 32;
        let told = self.entries[index].msg_hdr.msg_controllen >= 20 && words[1] == kind;
        told.then(|| words[2] as u32 as usize).filter(|each| *each > 0)
    }
}
