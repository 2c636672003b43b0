//! Endpoints on one host, in shared memory. Nothing enters the kernel while both sides are awake.
//!
//! Each direction of a channel is a [lane], made by its receiver and handed to its sender, the only memory that the two
//! share. A message is in the receiver's cache when it reads the one line that announces it. What is longer than two lines
//! is copied into the lane's ring, and lies there, in the address space behind the receiver's segment, until it is
//! released. Positions of both sides are in their endpoints' own memory, which no peer maps.

mod channel;
mod control;
mod direct;
mod lane;
mod receiving;
mod sending;
mod setup;
mod sleeping;

use crate::shared::{ChannelEntry, Memory, Shape};
use crate::{
    Address, Area, Arrival, AttachError, Backlog, Body, Buffers, Capabilities, Channel, Counters, Endpoint, Family, Message,
    OpenError, PostError, Segment, SendError, Tag, Tags, Ticket, INLINE, SCATTER, WORDS,
};
use channel::*;
use core::sync::atomic::Ordering::Relaxed;
use lane::{GRAIN, RING, SLOTS, SLOT_BYTES};
use shunt_sys::{calls, libc, mapping, Errno};

const DEVICE: u32 = Family::Memory as u32;

/// Bytes of the largest body: many of them fill a ring, so both sides copy at the same time.
const LARGEST_BODY: u32 = 32 << 10;

/// Bodies that may be held at once: as many as fit the ring.
const BODIES: u32 = RING / GRAIN;

/// Channels at most: their lanes lie behind the segment, and all of it is named by 32 bits.
const MOST_CHANNELS: u32 = 1024;
const _: () = assert!(MOST_CHANNELS as usize * lane::SIZE + (1 << 30) < 1 << 32);

/// Empty looks between two looks at the socket, while a channel is being set up and otherwise.
const LOOKS_OPENING: u32 = 16;
const LOOKS: u32 = 1 << 14;

/// How often a sender that finds no room asks whether its peer still lives.
const PROBE_NS: u64 = 1_000_000;

const CAPABILITIES: Capabilities = Capabilities {
    device: "shm",
    sentence: "shared memory of this host: a line of cache for a small message, a copy in and a copy out for a large one",
    largest: INLINE as u32 + LARGEST_BODY,
    gather: SCATTER as u32,
    lossy: false,
    ordered: true,
    buffers: Buffers::Own,
    direct: true,
    needs_flush: false,
};

/// How an endpoint in shared memory is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Channels at most; a power of two, at most 1,024.
    pub channels: u32,
    /// Bytes of the communication segment; a multiple of 4,096.
    pub segment: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { channels: 64, segment: 1 << 20 }
    }
}

/// An endpoint in shared memory.
pub struct Shm {
    memory: Memory,
    socket: i32,
    number: u64,
    /// One [`Mapped`] for each channel, and behind them the numbers of those that are open.
    mapped: *mut Mapped,
    open: u32,
    /// Which of the open ones had the last message.
    current: u32,
    only: Only,
    /// The registry's changes as this handle knows them.
    changes: u64,
    empty_looks: u32,
    opening: bool,
    probed: u64,
    fences: bool,
    offers: [direct::Offer; direct::IMPORTS],
}

// SAFETY: one thread uses the handle at a time; the memory is mapped for the whole process.
unsafe impl Send for Shm {}

const fn table_size(channels: u32) -> usize {
    channels as usize * (core::mem::size_of::<Mapped>() + 4)
}

fn extra(shape: &Shape) -> usize {
    shape.channels as usize * lane::SIZE
}

impl Shm {
    /// A new endpoint with a random name.
    ///
    /// # Errors
    /// EINVAL for a shape that is none; what the system answers.
    pub fn new(options: Options) -> Result<Shm, Errno> {
        let Options { channels, segment } = options;
        if channels > MOST_CHANNELS {
            return Err(Errno(libc::EINVAL));
        }
        let table = channels.checked_mul(BODIES * 4).ok_or(Errno(libc::EINVAL))?;
        let shape = Shape { channels, send: 1, receive: 1, free: 1, segment, device: table };
        let memory = Memory::create_with(DEVICE, shape, extra(&shape))?;
        let Tag(number) = Tag::random()?;
        let socket = control::socket(number)?;
        Shm::assemble(memory, socket, number)
    }

    /// An endpoint that was handed over: its memory's memfd, its socket, and for each channel the lanes that
    /// [`Shm::lanes`] gave. All belong to the handle from now on.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(memory_fd: i32, socket: i32, mut lanes: impl FnMut(Channel) -> Option<(i32, i32)>) -> Result<Shm, AttachError> {
        let number = control::number_of(socket);
        let memory = Memory::attach_with(memory_fd, DEVICE, extra);
        let (Some(number), Ok(memory)) = (number, memory) else {
            let _ = calls::close(socket);
            return Err(AttachError::Device);
        };
        if memory.shape().device as usize != memory.shape().channels as usize * BODIES as usize * 4 {
            let _ = calls::close(socket);
            return Err(AttachError::Layout);
        }
        let mut shm = Shm::assemble(memory, socket, number).map_err(AttachError::System)?;
        for index in 0..shm.memory.shape().channels as usize {
            let Some((channel, _)) = shm.memory.registry().iter().find(|(channel, _)| channel.index() == index) else { continue };
            let Some((lane_in, lane_out)) = lanes(channel) else { continue };
            shm.map_in(channel, lane_in).map_err(AttachError::System)?;
            if lane_out >= 0 {
                shm.map_out(channel, lane_out);
            }
        }
        shm.list();
        Ok(shm)
    }

    fn assemble(memory: Memory, socket: i32, number: u64) -> Result<Shm, Errno> {
        let mapped = match mapping::reserve(table_size(memory.shape().channels)) {
            Ok(table) => table.cast(),
            Err(error) => {
                let _ = calls::close(socket);
                return Err(error);
            }
        };
        let fences = shunt_sys::barrier::register().is_err();
        let (open, current, changes, empty_looks, opening, probed) = (0, 0, u64::MAX, 0, true, 0);
        let offers = [direct::Offer::NONE; direct::IMPORTS];
        let only = Only::NONE;
        Ok(Shm { memory, socket, number, mapped, open, current, only, changes, empty_looks, opening, probed, fences, offers })
    }

    /// The memory, whose memfd goes to another owner together with the socket ([`Endpoint::descriptor`]) and the lanes.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The memfds of a channel's lanes: the one received by, and the one sent by (-1 while the peer has not given it).
    pub fn lanes(&self, channel: Channel) -> Option<(i32, i32)> {
        self.memory.registry().get(channel)?;
        let mapped = self.mapped(channel.index())?;
        (mapped.channel == channel.0).then_some((mapped.lane_in, mapped.lane_out))
    }

    #[inline(always)]
    fn count_received(&self, arrival: &Arrival) {
        let counters = self.memory.counters();
        Counters::add(&counters.received, 1);
        Counters::add(&counters.received_bytes, arrival.length as u64);
    }

    /// Nothing has come: now and then the socket is looked at.
    #[inline(always)]
    fn look_at_nothing(&mut self) {
        self.empty_looks += 1;
        if self.empty_looks > if self.opening { LOOKS_OPENING } else { LOOKS } {
            self.listen();
        }
    }

    #[cold]
    fn send_words_long(&mut self, channel: Channel, words: &[u64; WORDS], count: usize) -> Result<Ticket, SendError> {
        let bytes = words.map(u64::to_ne_bytes);
        let bytes = bytes.as_flattened();
        self.send_long(&Message::small(channel, &bytes[..count.min(WORDS) * 8]))
    }

    /// Takes the next message of any channel.
    #[inline(never)]
    fn receive_any(&mut self, arrival: &mut Arrival) -> bool {
        if self.memory.header().device_words[1].load(Relaxed) != self.changes {
            self.list();
        }
        for step in 0..self.open {
            let mut place = self.current + step;
            if place >= self.open {
                place -= self.open;
            }
            // SAFETY: the list has `open` entries.
            let channel = Channel(unsafe { *self.order().add(place as usize) });
            let Some(entry) = self.memory.registry().entry(channel.index()) else { continue };
            if self.take(channel, entry, self.lane_in(channel.index()), arrival) {
                // The next look begins behind it, so that one channel cannot keep the others waiting.
                self.current = if place + 1 >= self.open { 0 } else { place + 1 };
                self.count_received(arrival);
                return true;
            }
        }
        self.look_at_nothing();
        false
    }

    /// The open channels that this process has mapped.
    fn each(&self) -> impl Iterator<Item = (Channel, &ChannelEntry)> + '_ {
        let registry = self.memory.registry();
        (0..self.open).filter_map(move |place| {
            // SAFETY: the list has `open` entries.
            let channel = Channel(unsafe { *self.order().add(place as usize) });
            Some((channel, registry.get(channel)?))
        })
    }
}

impl Endpoint for Shm {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    fn segment(&self) -> Segment {
        self.memory.segment_with_extra()
    }

    fn address(&self) -> Address {
        control::address(self.number)
    }

    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        control::number(remote).ok_or(OpenError::Address)?;
        let registry = self.memory.registry();
        let channel = registry.insert(remote, tags)?;
        let made = lane::create().and_then(|fd| {
            self.map_in(channel, fd).inspect_err(|_| {
                let _ = calls::close(fd);
            })
        });
        if let Err(error) = made {
            registry.remove(channel);
            return Err(OpenError::System(error));
        }
        if let Some(entry) = registry.get(channel) {
            self.greet(channel, entry);
        }
        self.changed();
        self.listen();
        Ok(channel)
    }

    fn close(&mut self, channel: Channel) {
        if self.memory.registry().get(channel).is_some() {
            self.close_direct(channel);
        }
        if self.memory.registry().remove(channel).is_none() {
            return;
        }
        if let Some(mapped) = self.mapped(channel.index()).filter(|mapped| mapped.channel == channel.0) {
            // Arrivals may lie in our lane still: it stays mapped until its place is used again.
            self.lane_in(channel.index()).header().closed.0.store(1, Relaxed);
            let _ = calls::close(mapped.lane_in);
            if !mapped.out.is_null() {
                let _ = calls::munmap(mapped.out, lane::SIZE);
                let _ = calls::close(mapped.lane_out);
            }
            self.set_mapped(channel.index(), Mapped { channel: 0, out: core::ptr::null_mut(), ..mapped });
        }
        self.changed();
        self.list();
    }

    #[inline]
    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        if matches!(message.body, Body::None) && message.head.len() <= SLOT_BYTES {
            if let Some(ticket) = self.send_line(message.channel, message.head) {
                return Ok(ticket);
            }
        }
        self.send_long(message)
    }

    #[inline(always)]
    fn send_words(&mut self, channel: Channel, words: &[u64; WORDS], count: usize) -> Result<Ticket, SendError> {
        match self.send_slot(channel, words, count) {
            Some(ticket) => Ok(ticket),
            None => self.send_words_long(channel, words, count),
        }
    }

    fn flush(&mut self) -> Result<bool, SendError> {
        if self.opening {
            self.listen();
        }
        Ok(true)
    }

    fn injected(&mut self) -> Ticket {
        Ticket(self.memory.counters().sent.load(Relaxed) as u32)
    }

    fn post(&mut self, _: Area) -> Result<(), PostError> {
        Err(PostError::NotNeeded)
    }

    #[inline]
    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        let current = self.memory.header().device_words[1].load(Relaxed) == self.changes;
        if !current || self.only.channel == 0 {
            return self.receive_any(arrival);
        }
        // SAFETY: the entry lies in the memory, which is mapped as long as the handle lives.
        let entry = unsafe { &*self.only.entry };
        if !self.take(Channel(self.only.channel), entry, self.only.lane_in, arrival) {
            self.look_at_nothing();
            return false;
        }
        self.count_received(arrival);
        true
    }

    #[inline]
    fn release(&mut self, arrival: &mut Arrival) {
        self.give_back(arrival);
    }

    fn backlog(&mut self) -> Backlog {
        Backlog { waiting: self.look_ahead(), capacity: SLOTS / 2 }
    }

    fn descriptor(&self) -> i32 {
        self.socket
    }

    fn arm(&mut self) -> bool {
        self.arm_all()
    }

    fn disarm(&mut self) {
        self.unarm();
        self.listen();
    }

    fn counters(&self) -> &Counters {
        self.memory.counters()
    }
}

impl core::ops::Drop for Shm {
    fn drop(&mut self) {
        self.drop_direct();
        for index in 0..self.memory.shape().channels as usize {
            let Some(mapped) = self.mapped(index).filter(|mapped| mapped.channel != 0) else { continue };
            let _ = calls::close(mapped.lane_in);
            if !mapped.out.is_null() {
                let _ = calls::munmap(mapped.out, lane::SIZE);
                let _ = calls::close(mapped.lane_out);
            }
        }
        let _ = calls::munmap(self.mapped.cast(), table_size(self.memory.shape().channels));
        let _ = calls::close(self.socket);
    }
}
