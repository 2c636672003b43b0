//! What the device keeps in an endpoint's memory, in front of the communication segment.
//!
//! ```text
//! device part   State (two pages) │ chunks for frames to be sent, or bytes of the program on their way to the agent
//!               a run that is collected (own queue only) │ frames that are noted (where the agent captures)
//! segment       the owner's part  │ chunks for frames that came on another queue (own queue only)
//! ```
//!
//! Of an endpoint with a queue of its own, all this is registered with the socket, so a chunk's offset there is counted
//! from the start of the device part. State is written under the endpoint's lock by those who own the endpoint, and once by
//! the agent before any process has it. It is never more than a hint to others.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use shunt_endpoint::shared::{Memory, Shape as MemoryShape};
use shunt_endpoint::Address;

use crate::notes::{self, Notes};
use crate::protocol::{Kind, Sizes};
use crate::runs::{Collected, Cut, ROOM};
use crate::socket::Shape;

/// The device's number in the endpoint's memory.
pub const DEVICE: u32 = shunt_endpoint::Family::Xdp as u32;
/// Bytes of [`State`].
pub const STATE: usize = 8192;
/// Most chunks for frames to be sent.
pub const MOST: u32 = 1024;
/// Chunks for frames that came on another queue.
pub const ASTRAY: u32 = 32;

/// The first pages of the device part.
#[repr(C, align(4096))]
pub struct State {
    /// [`Kind`].
    pub kind: AtomicU32,
    /// 0 for zero-copy, 1 for copy.
    pub mode: AtomicU32,
    /// Bytes of the largest datagram.
    pub largest: AtomicU32,
    /// Bytes of a chunk, slots of the receive ring, slots of the transmit ring.
    pub rings: [AtomicU32; 3],
    /// Bytes of the owner's part of the segment.
    pub owner: AtomicU32,
    /// The queue.
    pub queue: AtomicU32,
    /// Where the endpoint is.
    pub address: [AtomicU64; 6],
    /// The interface's Ethernet address.
    pub mac: AtomicU64,
    /// Chunks that are in the fill ring, with the kernel, or with the owner as an arrival.
    pub posted: AtomicU32,
    /// Where in its chunk a frame to be sent begins.
    pub lead: AtomicU32,
    /// How many entries of `stack` count.
    pub free: AtomicU32,
    /// Messages sent.
    pub ticket: AtomicU32,
    /// The chunks that can be written: offsets.
    pub stack: [AtomicU32; MOST as usize],
    /// The run that is collected, to be sent as one packet.
    pub sending: Collected,
    /// The run that is taken apart.
    pub receiving: Cut,
    /// Where in the device part frames are noted ([`crate::notes`]); 0: nowhere.
    pub notes: AtomicU32,
}

const _: () = assert!(size_of::<State>() == STATE);

impl State {
    /// The state in an endpoint's memory.
    #[inline(always)]
    pub fn of(memory: &Memory) -> &State {
        debug_assert!(memory.shape().device as usize >= STATE);
        // SAFETY: the device part has at least so many bytes (the process that makes or attaches the memory sees to it), is
        // aligned to pages, and lives as long as the handle; atomics accept any bytes.
        unsafe { &*memory.device_part().cast() }
    }

    /// Where frames are noted, if the agent captures; `None` also for a place that is none.
    pub(crate) fn notes(memory: &Memory) -> Option<Notes> {
        let at = State::of(memory).notes.load(Relaxed) as usize;
        let is_one = at >= STATE && at.is_multiple_of(4096) && at + notes::SIZE <= memory.shape().device as usize;
        // SAFETY: inside the device part, which begins with a page and is mapped as long as the endpoint's socket, which has the value.
        is_one.then(|| unsafe { Notes::new(memory.device_part().add(at)) })
    }

    /// The shape of the rings.
    pub fn rings(&self) -> Shape {
        let [chunk, receive, transmit] = [0, 1, 2].map(|index: usize| self.rings[index].load(Relaxed));
        Shape { chunk, receive, transmit }
    }

    /// Where the endpoint is.
    pub fn address(&self) -> Address {
        Address::from_words(core::array::from_fn(|index| self.address[index].load(Relaxed)))
    }

    /// Writes everything, for a new endpoint whose memory no other process has.
    pub fn write(&self, news: &News) {
        self.kind.store(news.kind as u32, Relaxed);
        self.mode.store(news.mode, Relaxed);
        self.largest.store(news.largest, Relaxed);
        for (word, value) in self.rings.iter().zip([news.rings.chunk, news.rings.receive, news.rings.transmit]) {
            word.store(value, Relaxed);
        }
        self.owner.store(news.owner, Relaxed);
        self.queue.store(news.queue, Relaxed);
        self.lead.store(news.lead, Relaxed);
        for (word, value) in self.address.iter().zip(news.address.to_words()) {
            word.store(value, Relaxed);
        }
        self.set_mac(news.mac);
        for (index, entry) in self.stack[..news.rings.transmit.min(MOST) as usize].iter().enumerate() {
            entry.store((STATE + index * news.rings.chunk as usize) as u32, Relaxed);
        }
        self.free.store(news.rings.transmit.min(MOST), Relaxed);
    }

    /// The interface has another Ethernet address.
    pub fn set_mac(&self, mac: [u8; 6]) {
        self.mac.store(mac_to_word(mac, 0), Relaxed);
    }

    /// A chunk to write a frame into: its offset from the start of the device part.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        let left = self.free.load(Relaxed).min(MOST).checked_sub(1)?;
        self.free.store(left, Relaxed);
        Some(self.stack[left as usize].load(Relaxed))
    }

    /// Gives it back.
    #[inline]
    pub fn push(&self, chunk: u32) {
        let count = self.free.load(Relaxed);
        if let Some(entry) = self.stack.get(count as usize) {
            entry.store(chunk, Relaxed);
            self.free.store(count + 1, Relaxed);
        }
    }
}

/// What a new endpoint is told.
pub struct News {
    /// Own or multiplexed.
    pub kind: Kind,
    /// 0 for zero-copy, 1 for copy.
    pub mode: u32,
    /// Bytes of the largest datagram.
    pub largest: u32,
    /// The rings, or what they would be.
    pub rings: Shape,
    /// Where in its chunk a frame to be sent begins ([`crate::socket::Socket::lead`]).
    pub lead: u32,
    /// Bytes of the owner's part of the segment.
    pub owner: u32,
    /// The queue.
    pub queue: u32,
    /// Where the endpoint is.
    pub address: Address,
    /// The interface's Ethernet address.
    pub mac: [u8; 6],
}

/// The shape of the memory of an endpoint; `None` if the sizes are none. The rest is judged by [`Memory::create`].
pub fn memory_shape(kind: Kind, sizes: &Sizes, chunk: u32) -> Option<MemoryShape> {
    if sizes.depth > MOST || !sizes.depth.is_power_of_two() || !sizes.segment.is_multiple_of(4096) || sizes.segment > 1 << 28 {
        return None;
    }
    let (astray, run) = if kind == Kind::Own { (ASTRAY * chunk, ROOM) } else { (0, 0) };
    Some(MemoryShape {
        channels: sizes.channels,
        send: sizes.depth,
        receive: sizes.depth,
        free: sizes.depth.max(ASTRAY),
        segment: sizes.segment + astray,
        device: (STATE as u32 + sizes.depth * chunk).next_multiple_of(4096) + run,
    })
}

/// An Ethernet address in a word; never 0, which stands for "not known yet". `turn`: another one makes another word of it, and frames to it
/// are prepared anew.
pub fn mac_to_word(mac: [u8; 6], turn: u8) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 1, turn])
}

/// Stands for a next hop that does not answer: what is sent there is lost, and counted.
pub const UNREACHABLE: u64 = 2 << 48;

/// The Ethernet address in a word.
#[inline(always)]
pub fn mac_of_word(word: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, _, _] = word.to_le_bytes();
    [a, b, c, d, e, f]
}
