//! Endpoints on one host, in shared memory. Nothing enters the kernel while both sides are awake.
//!
//! Each direction of a channel is a [lane], made by its receiver and handed to its sender, the only memory that the two
//! share. A message is in the receiver's cache when it reads the one line that announces it. What is longer than two lines
//! is copied into the lane's ring, and lies there, in the address space behind the receiver's segment, until it is
//! released. Positions of both sides are in their endpoints' own memory, which no peer maps.

mod control;
mod direct;
mod lane;

use crate::gather::Gather;
use crate::shared::{ChannelEntry, Memory, Shape};
use crate::{
    Address, Area, Arrival, AttachError, Backlog, Body, Buffers, Capabilities, Channel, Counters, Drop as Reason, Endpoint,
    Family, Message, OpenError, PostError, Segment, SendError, Tag, Tags, Ticket, INLINE, SCATTER,
};
use control::{Heard, Hello};
use core::sync::atomic::{compiler_fence, fence, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use lane::{Lane, GRAIN, RING, SLOTS, SLOT_BYTES};
use shunt_ring::bell;
use shunt_segment::channel::arm::IN;
use shunt_sys::{calls, clock, libc, mapping, Errno};

const DEVICE: u32 = Family::Memory as u32;

/// Bytes of the largest body: eight of them fill a ring, so both sides copy at the same time.
const LARGEST_BODY: u32 = 32 << 10;

/// Bodies that may be held at once: as many as fit the ring.
const BODIES: u32 = RING / GRAIN;

/// What memory that is handed to a peer cannot do any more.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

const MEMBARRIER_GLOBAL_EXPEDITED: i32 = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

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

/// What the device keeps of a channel, in the words of its entry. Each pair is two counts, low half and high half.
mod word {
    /// Receiving: next slot, next byte of the ring.
    pub const NEXT: usize = 0;
    /// Receiving: what the sender has been told: slots, bytes.
    pub const TOLD: usize = 1;
    /// Receiving: bodies in all, bodies released in order.
    pub const BODIES: usize = 2;
    /// Receiving: bytes of the ring that are released.
    pub const RELEASED: usize = 3;
    /// Sending: next slot, next byte of the ring.
    pub const TAIL: usize = 4;
    /// Sending: the peer's heads as last seen.
    pub const SEEN: usize = 5;
    /// Flags.
    pub const STATE: usize = 6;
}

/// The peer's lane is here.
const HAVE_OUT: u64 = 1;
/// The peer has our lane.
const PEER_HAS: u64 = 2;
/// The peer broke the rules, or is gone: nothing is sent or received any more.
const DEAD: u64 = 4;
/// The last send found no room.
const BLOCKED: u64 = 8;

#[inline(always)]
fn pair(word: &AtomicU64) -> (u32, u32) {
    let value = word.load(Relaxed);
    (value as u32, (value >> 32) as u32)
}

#[inline(always)]
fn set_pair(word: &AtomicU64, low: u32, high: u32) {
    word.store(low as u64 | (high as u64) << 32, Relaxed);
}

fn flag(entry: &ChannelEntry, flag: u64, on: bool) {
    let state = &entry.device[word::STATE];
    let value = state.load(Relaxed);
    state.store(if on { value | flag } else { value & !flag }, Relaxed);
}

#[inline(always)]
fn has(entry: &ChannelEntry, flags: u64) -> bool {
    entry.device[word::STATE].load(Relaxed) & flags != 0
}

/// What this process alone knows of a channel.
#[repr(C)]
#[derive(Clone, Copy)]
struct Mapped {
    /// The channel's name, or 0.
    channel: u32,
    lane_in: i32,
    lane_out: i32,
    out: *mut u8,
}

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
        if channels > 1024 {
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
        let fences = calls::membarrier(MEMBARRIER_REGISTER_GLOBAL_EXPEDITED, 0, 0).is_err();
        let (open, current, changes, empty_looks, opening, probed) = (0, 0, u64::MAX, 0, true, 0);
        let offers = [direct::Offer::NONE; direct::IMPORTS];
        Ok(Shm { memory, socket, number, mapped, open, current, changes, empty_looks, opening, probed, fences, offers })
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
    fn mapped(&self, index: usize) -> Option<&mut Mapped> {
        // SAFETY: inside the table, which this handle alone uses; zero is valid. One reference at a time is made.
        (index < self.memory.shape().channels as usize).then(|| unsafe { &mut *self.mapped.add(index) })
    }

    /// The numbers of open channels.
    #[inline(always)]
    fn order(&self) -> *mut u32 {
        // SAFETY: behind the table, see `table_size`.
        unsafe { self.mapped.add(self.memory.shape().channels as usize).cast() }
    }

    /// Counts of changes of the registry, for handles of other processes.
    fn changed(&self) {
        let changes = &self.memory.header().device_words[1];
        changes.store(changes.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Lists the open channels whose lanes this process has.
    #[cold]
    fn list(&mut self) {
        self.changes = self.memory.header().device_words[1].load(Relaxed);
        (self.open, self.current, self.opening) = (0, 0, false);
        for (channel, entry) in self.memory.registry().iter() {
            let Some(mapped) = self.mapped(channel.index()).filter(|mapped| mapped.channel == channel.0) else { continue };
            let state = entry.device[word::STATE].load(Relaxed);
            self.opening |= state & DEAD == 0 && (state & PEER_HAS == 0 || mapped.out.is_null());
            // SAFETY: there are as many places as channels.
            unsafe { self.order().add(self.open as usize).write(channel.0) };
            self.open += 1;
        }
    }

    /// The lane by which a channel is received: it is mapped behind the segment, at the channel's place.
    #[inline(always)]
    fn lane_in(&self, index: usize) -> Lane {
        let area = Area::new(self.window(index), lane::SIZE as u32);
        let base = self.memory.segment_with_extra().pointer(area).unwrap_or_default();
        // SAFETY: channels in the list have their lane there.
        unsafe { Lane::at(base) }
    }

    /// Where that place begins in the segment.
    #[inline(always)]
    fn window(&self, index: usize) -> u32 {
        self.memory.shape().segment + (index * lane::SIZE) as u32
    }

    fn map_in(&self, channel: Channel, fd: i32) -> Result<(), Errno> {
        let place = Area::new(self.window(channel.index()), lane::SIZE as u32);
        let base = self.memory.segment_with_extra().pointer(place).ok_or(Errno(libc::EINVAL))?;
        if !lane::is_safe_to_map(fd) {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the channel's own place; arrivals of an older channel there were closed with it.
        unsafe { mapping::shared_over(base, fd, lane::SIZE)? };
        if let Some(mapped) = self.mapped(channel.index()) {
            *mapped = Mapped { channel: channel.0, lane_in: fd, lane_out: -1, out: core::ptr::null_mut() };
        }
        Ok(())
    }

    /// Takes a lane of the peer's; the descriptor is ours to close.
    fn map_out(&self, channel: Channel, fd: i32) -> bool {
        let Some(mapped) = self.mapped(channel.index()).filter(|mapped| mapped.channel == channel.0 && mapped.out.is_null())
        else {
            let _ = calls::close(fd);
            return false;
        };
        let base = match lane::is_safe_to_map(fd) {
            true => mapping::shared(fd, lane::SIZE).ok(),
            false => None,
        };
        // SAFETY: just mapped, in full size.
        let lane = base.map(|base| (base, unsafe { Lane::at(base) }));
        let Some((base, lane)) = lane.filter(|(_, lane)| lane.is_ours()) else {
            if let Some(base) = base {
                let _ = calls::munmap(base, lane::SIZE);
            }
            let _ = calls::close(fd);
            return false;
        };
        lane.header().barrier.0.store(!self.fences as u32, Relaxed);
        (mapped.out, mapped.lane_out) = (base, fd);
        true
    }

    /// Says hello to the peer of a channel, with our lane.
    fn greet(&self, channel: Channel, entry: &ChannelEntry) {
        let (Some(mapped), Some(peer)) = (self.mapped(channel.index()), control::number(&entry.address())) else { return };
        let flags = if mapped.out.is_null() { 0 } else { control::HAVE };
        let hello = Hello::new(self.number, entry.tags().send.0, flags);
        // If it fails, the peer will ask by its own hello, or this side when it next looks.
        let _ = control::greet(self.socket, peer, &hello, mapped.lane_in);
    }

    /// Takes what lies in the socket: bells, and hellos.
    #[cold]
    fn listen(&mut self) {
        self.empty_looks = 0;
        for _ in 0..64 {
            match control::hear(self.socket) {
                None => break,
                Some(Heard::Bell) => Counters::add(&self.memory.counters().woken, 1),
                Some(Heard::Nonsense) => self.memory.counters().drop(Reason::Magic),
                Some(Heard::Hello(hello, fd)) if hello.flags & control::OFFER != 0 => self.offered(hello, fd),
                Some(Heard::Hello(hello, fd)) => self.welcome(hello, fd),
            }
        }
        self.list();
    }

    fn welcome(&mut self, hello: Hello, fd: i32) {
        let refused = |reason: Reason| {
            let _ = calls::close(fd);
            self.memory.counters().drop(reason);
        };
        let Some((channel, entry)) = self.memory.registry().by_tag(Tag(hello.tag)) else { return refused(Reason::Tag) };
        if entry.address() != control::address(hello.from) {
            return refused(Reason::Source);
        }
        if !self.mapped(channel.index()).is_some_and(|mapped| mapped.channel == channel.0) {
            // Opened by another process of this owner, which has not handed the lanes over.
            return refused(Reason::NoBuffer);
        }
        if hello.flags & control::HAVE != 0 {
            flag(entry, PEER_HAS, true);
        }
        let known = has(entry, HAVE_OUT);
        if known {
            let _ = calls::close(fd);
        } else if self.map_out(channel, fd) {
            flag(entry, HAVE_OUT, true);
        } else {
            self.memory.counters().drop(Reason::Violation);
            return;
        }
        // Whoever learns something says so: the exchange ends when both know that both have.
        if hello.flags & control::HAVE == 0 || !known {
            self.greet(channel, entry);
        }
    }

    /// Stops a channel whose peer broke the rules or is gone.
    #[cold]
    fn give_up(&self, entry: &ChannelEntry, violation: bool) {
        flag(entry, DEAD, true);
        if violation {
            self.memory.counters().drop(Reason::Violation);
        }
    }

    /// What a sender does that finds no room: asks now and then whether the peer lives.
    #[cold]
    fn refuse(&mut self, channel: Channel) -> SendError {
        Counters::add(&self.memory.counters().refused, 1);
        let registry = self.memory.registry();
        let Some(entry) = registry.get(channel) else { return SendError::Channel };
        flag(entry, BLOCKED, true);
        let now = clock::monotonic_ns();
        if now.wrapping_sub(self.probed) < PROBE_NS {
            return SendError::NoResource;
        }
        self.probed = now;
        let gone = control::number(&entry.address()).is_none_or(|peer| control::ring(self.socket, peer).is_err());
        if gone && has(entry, HAVE_OUT) {
            self.give_up(entry, false);
            return SendError::Peer;
        }
        if !has(entry, HAVE_OUT) {
            self.greet(channel, entry);
        }
        self.listen();
        SendError::NoResource
    }

    /// Takes the next message of a channel.
    ///
    /// The way of a message of one line is straight: the next position does not depend on what the line says, so the
    /// processor already fetches the next line while it waits for this one.
    #[inline(always)]
    fn take(&self, channel: Channel, arrival: &mut Arrival) -> bool {
        let index = channel.index();
        let Some(entry) = self.memory.registry().entry(index) else { return false };
        let lane = self.lane_in(index);
        let (slot, byte) = pair(&entry.device[word::NEXT]);
        let Some(word) = lane.announced(slot) else {
            // The second line of a message then comes beside the first, not after it: 1.3 x faster where there is one.
            lane.prefetch(slot.wrapping_add(1));
            return false;
        };
        if !word.is_one_line() || has(entry, DEAD) {
            return self.take_long(channel, entry, (slot, byte), word, arrival);
        }
        arrival.channel = channel.0;
        arrival.length = word.length();
        arrival.kind = 0;
        arrival.count = 0;
        // SAFETY: a slot has 56 bytes, the head has room for two of them.
        unsafe { core::ptr::copy_nonoverlapping(lane.bytes(slot), arrival.head.as_mut_ptr(), SLOT_BYTES) };
        self.taken(entry, lane, slot.wrapping_add(1), byte);
        true
    }

    /// Notes that everything before `slot` has been copied: the sender may have it.
    #[inline(always)]
    fn taken(&self, entry: &ChannelEntry, lane: Lane, slot: u32, byte: u32) {
        set_pair(&entry.device[word::NEXT], slot, byte);
        let (told, _) = pair(&entry.device[word::TOLD]);
        if slot.wrapping_sub(told) >= SLOTS / 4 {
            self.tell(entry, lane);
        }
    }

    /// Takes a message of two lines, or with a body.
    #[inline(never)]
    fn take_long(
        &self,
        channel: Channel,
        entry: &ChannelEntry,
        (slot, byte): (u32, u32),
        word: lane::Word,
        arrival: &mut Arrival,
    ) -> bool {
        let lane = self.lane_in(channel.index());
        if has(entry, DEAD) {
            return false;
        }
        if word.is_notice() {
            let notification = self.heed(channel, lane, slot);
            self.taken(entry, lane, slot.wrapping_add(1), byte);
            if let Some(notification) = notification {
                arrival.fill_notification(channel, notification);
            }
            return notification.is_some();
        }
        let length = word.length();
        if length > CAPABILITIES.largest || !lane.is_complete(slot, word) {
            self.give_up(entry, true);
            return false;
        }
        arrival.channel = channel.0;
        arrival.length = length;
        arrival.kind = 0;
        arrival.count = 0;
        // SAFETY: slots have 56 bytes each, the head has room for two of them.
        unsafe {
            core::ptr::copy_nonoverlapping(lane.bytes(slot), arrival.head.as_mut_ptr(), SLOT_BYTES);
            let second = lane.bytes(slot.wrapping_add(1));
            core::ptr::copy_nonoverlapping(second, arrival.head.as_mut_ptr().add(SLOT_BYTES), INLINE - SLOT_BYTES);
        }
        let mut next = byte;
        if length as usize > INLINE {
            let body = length - INLINE as u32;
            if !self.hold(channel, entry, byte, body, arrival) {
                self.give_up(entry, true);
                return false;
            }
            next = byte.wrapping_add(body.next_multiple_of(GRAIN));
        }
        self.taken(entry, lane, slot.wrapping_add(2), next);
        true
    }

    /// Notes a body that lies in the ring until it is released; false: more lie there than a ring can hold.
    fn hold(&self, channel: Channel, entry: &ChannelEntry, byte: u32, body: u32, arrival: &mut Arrival) -> bool {
        let (next, front) = pair(&entry.device[word::BODIES]);
        let span = body.next_multiple_of(GRAIN);
        let released = entry.device[word::RELEASED].load(Relaxed) as u32;
        if next.wrapping_sub(front) >= BODIES || byte.wrapping_sub(released).saturating_add(span) > RING {
            return false;
        }
        self.body(channel.index(), next).store(span, Relaxed);
        set_pair(&entry.device[word::BODIES], next.wrapping_add(1), front);
        let window = self.window(channel.index());
        let first = body.min(RING - byte % RING);
        arrival.areas[0] = Area::new(window + Lane::ring_offset(byte), first);
        arrival.buffers[0] = Area::new(channel.0, next);
        arrival.count = 1;
        if first < body {
            arrival.areas[1] = Area::new(window + Lane::ring_offset(0), body - first);
            arrival.buffers[1] = arrival.buffers[0];
            arrival.count = 2;
        }
        true
    }

    /// Bytes of body `number` of a channel while it is held, plus 1 when it is released.
    fn body(&self, index: usize, number: u32) -> &AtomicU32 {
        let place = index as u32 * BODIES + number % BODIES;
        // SAFETY: inside the device's part, which has a word for each body of each channel.
        unsafe { &*self.memory.device_part().cast::<AtomicU32>().add(place as usize) }
    }

    /// Tells the sender what is free again, and wakes it if it waits for that.
    #[cold]
    fn tell(&self, entry: &ChannelEntry, lane: Lane) {
        let (slot, _) = pair(&entry.device[word::NEXT]);
        let released = entry.device[word::RELEASED].load(Relaxed) as u32;
        set_pair(&entry.device[word::TOLD], slot, released);
        lane.header().heads.0.store(slot as u64 | (released as u64) << 32, core::sync::atomic::Ordering::Release);
        // Either the sender's look, which comes after its flag, sees this, or we see the flag.
        fence(SeqCst);
        if lane.header().blocked.0.load(Relaxed) != 0 && lane.header().blocked.0.swap(0, SeqCst) != 0 {
            if let Some(peer) = control::number(&entry.address()) {
                let _ = control::ring(self.socket, peer);
            }
        }
    }

    /// Whether there is room for so many slots and bytes behind the tail. `None`: the peer writes nonsense.
    #[inline(always)]
    fn has_room(entry: &ChannelEntry, lane: Lane, slots: u32, bytes: u32) -> Option<bool> {
        let (slot, byte) = pair(&entry.device[word::TAIL]);
        let fits = |(slot_head, byte_head): (u32, u32)| {
            slot.wrapping_sub(slot_head) + slots <= SLOTS && byte.wrapping_sub(byte_head) + bytes <= RING
        };
        if fits(pair(&entry.device[word::SEEN])) {
            return Some(true);
        }
        let heads = lane.header().heads.0.load(core::sync::atomic::Ordering::Acquire);
        let (slot_head, byte_head) = (heads as u32, (heads >> 32) as u32);
        if slot.wrapping_sub(slot_head) > SLOTS || byte.wrapping_sub(byte_head) > RING {
            return None;
        }
        entry.device[word::SEEN].store(heads, Relaxed);
        Some(fits((slot_head, byte_head)))
    }

    /// Copies a message into the lane and announces it. False: the program's bytes fault, and nothing was sent.
    #[inline(always)]
    fn put(&self, entry: &ChannelEntry, lane: Lane, gather: &Gather<'_>, lines: u32, span: u32) -> bool {
        let (slot, byte) = pair(&entry.device[word::TAIL]);
        let length = gather.len();
        let mut copied = true;
        // SAFETY: slots and ring have room for what is copied there; has_room said that the receiver is done with it.
        unsafe {
            copied &= gather.copy_to(0, lane.bytes(slot), length.min(SLOT_BYTES));
            if lines == 2 {
                let second = length.min(INLINE) - SLOT_BYTES;
                copied &= gather.copy_to(SLOT_BYTES, lane.bytes(slot.wrapping_add(1)), second);
            }
            if length > INLINE {
                let body = length - INLINE;
                let (target, until) = lane.ring(byte);
                let first = body.min(until as usize);
                copied &= gather.copy_to(INLINE, target, first);
                if first < body {
                    copied &= gather.copy_to(INLINE + first, lane.ring(0).0, body - first);
                }
            }
        }
        if copied {
            lane.announce(slot, length as u32);
            set_pair(&entry.device[word::TAIL], slot.wrapping_add(lines), byte.wrapping_add(span));
        }
        copied
    }

    /// Wakes the receiver if it sleeps.
    #[inline(always)]
    fn wake(&self, entry: &ChannelEntry, lane: Lane) {
        if self.fences {
            fence(SeqCst);
        }
        compiler_fence(SeqCst);
        if bell::must_ring(&lane.header().wait.0, IN) {
            if let Some(peer) = control::number(&entry.address()) {
                let _ = control::ring(self.socket, peer);
            }
        }
    }

    /// The straight way of a message of one line: `None` if anything is unusual.
    #[inline(always)]
    fn send_line(&self, channel: Channel, head: &[u8]) -> Option<Ticket> {
        let entry = self.memory.registry().get(channel)?;
        let mapped = self.mapped(channel.index()).filter(|mapped| mapped.channel == channel.0 && !mapped.out.is_null())?;
        // SAFETY: mapped until the channel is closed.
        let lane = unsafe { Lane::at(mapped.out) };
        let (slot, byte) = pair(&entry.device[word::TAIL]);
        let (seen, _) = pair(&entry.device[word::SEEN]);
        if slot.wrapping_sub(seen) >= SLOTS || has(entry, DEAD) || lane.header().closed.0.load(Relaxed) != 0 {
            return None;
        }
        // SAFETY: at most the bytes of a slot.
        unsafe { lane::copy_line(head.as_ptr(), lane.bytes(slot), head.len()) };
        lane.announce(slot, head.len() as u32);
        set_pair(&entry.device[word::TAIL], slot.wrapping_add(1), byte);
        self.wake(entry, lane);
        Some(self.count_sent(head.len()))
    }

    /// Sends any message.
    #[inline(never)]
    fn send_long(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        let registry = self.memory.registry();
        let entry = registry.get(message.channel).ok_or(SendError::Channel)?;
        let gather = Gather::of(message, self.memory.segment_with_extra(), &CAPABILITIES)?;
        let mapped = self.mapped(message.channel.index()).filter(|mapped| mapped.channel == message.channel.0);
        let out = mapped.map_or(core::ptr::null_mut(), |mapped| mapped.out);
        if out.is_null() {
            if has(entry, DEAD) {
                return Err(SendError::Peer);
            }
            self.listen();
            let arrived = self.mapped(message.channel.index()).is_some_and(|mapped| !mapped.out.is_null());
            return if arrived { self.send_long(message) } else { Err(self.refuse(message.channel)) };
        }
        // SAFETY: mapped until the channel is closed.
        let lane = unsafe { Lane::at(out) };
        if has(entry, DEAD) || lane.header().closed.0.load(Relaxed) != 0 {
            return Err(SendError::Peer);
        }
        let length = gather.len();
        let lines = 1 + (length > SLOT_BYTES) as u32;
        let span = (length.saturating_sub(INLINE) as u32).next_multiple_of(GRAIN);
        match Shm::has_room(entry, lane, lines, span) {
            Some(true) => {}
            Some(false) => return Err(self.refuse(message.channel)),
            None => {
                self.give_up(entry, true);
                return Err(SendError::Peer);
            }
        }
        if !self.put(entry, lane, &gather, lines, span) {
            return Err(SendError::Fault);
        }
        self.wake(entry, lane);
        Ok(self.count_sent(length))
    }

    fn count_sent(&self, length: usize) -> Ticket {
        let counters = self.memory.counters();
        let ticket = counters.sent.load(Relaxed) as u32;
        Counters::add(&counters.sent, 1);
        Counters::add(&counters.sent_bytes, length as u64);
        Ticket(ticket)
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
            mapped.channel = 0;
            mapped.out = core::ptr::null_mut();
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
            if self.take(channel, arrival) {
                // The next look begins behind it, so that one channel cannot keep the others waiting.
                self.current = if place + 1 >= self.open { 0 } else { place + 1 };
                let counters = self.memory.counters();
                Counters::add(&counters.received, 1);
                Counters::add(&counters.received_bytes, arrival.length as u64);
                return true;
            }
        }
        self.empty_looks += 1;
        if self.empty_looks > if self.opening { LOOKS_OPENING } else { LOOKS } {
            self.listen();
        }
        false
    }

    #[inline]
    fn release(&mut self, arrival: &mut Arrival) {
        let Some(&Area { offset: channel, length: number }) = arrival.buffers().first() else { return };
        arrival.count = 0;
        let channel = Channel(channel);
        let Some(entry) = self.memory.registry().get(channel) else { return };
        let (next, mut front) = pair(&entry.device[word::BODIES]);
        if number.wrapping_sub(front) >= next.wrapping_sub(front) {
            return;
        }
        let word = self.body(channel.index(), number);
        word.store(word.load(Relaxed) | 1, Relaxed);
        let mut released = entry.device[word::RELEASED].load(Relaxed) as u32;
        while front != next {
            let span = self.body(channel.index(), front).load(Relaxed);
            if span & 1 == 0 {
                break;
            }
            released = released.wrapping_add(span & !1);
            front = front.wrapping_add(1);
        }
        set_pair(&entry.device[word::BODIES], next, front);
        entry.device[word::RELEASED].store(released as u64, Relaxed);
        let (_, told) = pair(&entry.device[word::TOLD]);
        if released.wrapping_sub(told) >= RING / 4 {
            self.tell(entry, self.lane_in(channel.index()));
        }
    }

    fn backlog(&mut self) -> Backlog {
        let mut waiting = 0;
        for (channel, entry) in self.each() {
            let lane = self.lane_in(channel.index());
            let (mut slot, _) = pair(&entry.device[word::NEXT]);
            let (mut here, mut slots) = (0, 0);
            while let Some(word) = lane.announced(slot) {
                slot = slot.wrapping_add(word.lines());
                slots += word.lines();
                here += 1;
                if slots >= SLOTS {
                    break;
                }
            }
            waiting = here.max(waiting);
        }
        Backlog { waiting, capacity: SLOTS / 2 }
    }

    fn descriptor(&self) -> i32 {
        self.socket
    }

    fn arm(&mut self) -> bool {
        self.listen();
        let mut barrier = false;
        for (channel, entry) in self.each() {
            let lane = self.lane_in(channel.index());
            barrier |= bell::arm(&lane.header().wait.0, IN) && lane.header().barrier.0.load(Relaxed) != 0;
            if has(entry, BLOCKED) {
                if let Some(out) = self.mapped(channel.index()).map(|mapped| mapped.out).filter(|out| !out.is_null()) {
                    // SAFETY: mapped until the channel is closed.
                    unsafe { Lane::at(out) }.header().blocked.0.store(1, SeqCst);
                }
            }
        }
        fence(SeqCst);
        if barrier {
            let _ = calls::membarrier(MEMBARRIER_GLOBAL_EXPEDITED, 0, 0);
        }
        let mut quiet = true;
        for (channel, entry) in self.each() {
            let (slot, _) = pair(&entry.device[word::NEXT]);
            let waits = !has(entry, DEAD) && self.lane_in(channel.index()).announced(slot).is_some();
            quiet &= !waits && !(has(entry, BLOCKED) && self.may_go_on(channel, entry));
        }
        if !quiet {
            self.unarm();
        }
        quiet
    }

    fn disarm(&mut self) {
        self.unarm();
        self.listen();
    }

    fn counters(&self) -> &Counters {
        self.memory.counters()
    }
}

impl Shm {
    /// Whether a sender that found no room would find some now: half of everything, or a peer that is gone.
    fn may_go_on(&self, channel: Channel, entry: &ChannelEntry) -> bool {
        let out = self.mapped(channel.index()).map_or(core::ptr::null_mut(), |mapped| mapped.out);
        if out.is_null() {
            return false;
        }
        // SAFETY: mapped until the channel is closed.
        let room = Shm::has_room(entry, unsafe { Lane::at(out) }, 2, LARGEST_BODY) != Some(false);
        if room {
            flag(entry, BLOCKED, false);
        }
        room
    }

    fn unarm(&mut self) {
        for (channel, entry) in self.each() {
            bell::disarm(&self.lane_in(channel.index()).header().wait.0, IN);
            if has(entry, BLOCKED) {
                if let Some(out) = self.mapped(channel.index()).map(|mapped| mapped.out).filter(|out| !out.is_null()) {
                    // SAFETY: mapped until the channel is closed.
                    unsafe { Lane::at(out) }.header().blocked.0.store(0, Relaxed);
                }
            }
        }
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
