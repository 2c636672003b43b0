//! Packets at an endpoint with a queue of its own: runs of frames in several chunks, from peers and from strangers, whole, damaged and
//! cut off. What was sent in good order arrives, and each chunk goes back to the kernel once. And a program of the family that
//! writes anything into what it shares: nothing outside the segment is ever shown.

use crate::input::Input;
use shunt_endpoint::shared::Memory;
use shunt_endpoint::{Area, Arrival, Tag, Tags};
use shunt_sys::libc;
use shunt_wire::endpoint::{Kind as FrameKind, Repr, HEADER};
use shunt_xdp::address::encode;
use shunt_xdp::own::Own;
use shunt_xdp::packet::{Path, Sum, LONGEST};
use shunt_xdp::played::{self, Kernel};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::ring::Descriptor;
use shunt_xdp::socket::{Shape, Umem, KERNEL_HEADROOM};
use shunt_xdp::state::{memory_shape, News, State, DEVICE};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Slots of each ring, and chunks for frames to come.
const DEPTH: u32 = 16;
/// Bytes of the largest datagram that is one frame.
const LARGEST: usize = 1472;
/// Arrivals that the program keeps at most.
const KEPT: usize = 24;

struct Laboratory {
    own: Own,
    kernel: Kernel,
    umem: Umem,
    memory: Memory,
    shape: Shape,
    /// How peers' packets come: to each address one.
    paths: [(Path, Tag); 2],
    /// Messages that are on their way, in order.
    expected: VecDeque<Vec<u8>>,
    /// What arrived and was not released, with what it was.
    kept: Vec<(Arrival, Vec<u8>)>,
    messages: u32,
    /// No packet was lost or left unfinished; no other process wrote into what is shared.
    complete: bool,
    sane: bool,
}

fn path(source: &str, destination: &str) -> Path {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    Path { from: [2; 6], to: [4; 6], source: address(source), destination: address(destination) }
}

impl Laboratory {
    fn new() -> Laboratory {
        let shape = Shape::for_frames(1514, DEPTH).expect("a shape");
        let sizes = Sizes { channels: 4, depth: DEPTH, segment: DEPTH * shape.chunk };
        let memory = Memory::create(DEVICE, memory_shape(Kind::Own, &sizes, shape.chunk).expect("a shape")).expect("memory");
        let paths = [(path("10.0.0.2:7", "10.0.0.1:9"), Tag(5)), (path("[fd77::2]:7", "[fd77::1]:9"), Tag(6))];
        State::of(&memory).write(&News {
            kind: Kind::Own,
            mode: 1,
            largest: LARGEST as u32,
            rings: shape,
            lead: 0,
            owner: sizes.segment,
            queue: 0,
            address: encode(&paths[0].0.destination, 0),
            mac: [4; 6],
        });
        for (path, tag) in &paths {
            let tags = Tags { receive: *tag, send: *tag };
            memory.registry().insert(&encode(&path.source, 0), tags).expect("a channel");
        }
        let size = memory.shape().device as usize + memory.shape().segment as usize;
        // SAFETY: device part and segment follow each other, page-aligned, in a mapping that is dropped after the socket.
        let umem = unsafe { Umem::new(memory.device_part(), size) };
        let (socket, kernel) = played::socket(umem, shape).expect("rings");
        let mut own = Own::new(socket, None, memory.shape().device);
        for index in 0..DEPTH {
            own.post(&memory, Area::new(index * shape.chunk, shape.chunk)).expect("room");
        }
        let (expected, kept) = (VecDeque::new(), Vec::new());
        Laboratory { own, kernel, umem, memory, shape, paths, expected, kept, messages: 0, complete: true, sane: true }
    }

    /// The kernel's part: a packet into the chunks that come next, or nowhere if there are too few.
    fn deliver(&mut self, packet: &[u8], pieces: &[usize], is_unfinished: bool) -> bool {
        let count = pieces.len() as u32;
        if self.kernel.fill.waiting() < count || self.kernel.receive.room(count) < count {
            return false;
        }
        let mut rest = packet;
        for (index, length) in pieces.iter().enumerate() {
            let (piece, behind) = rest.split_at(*length);
            rest = behind;
            let chunk = self.kernel.fill.pop().expect("a chunk");
            let offset = chunk + u64::from(KERNEL_HEADROOM);
            // What another process wrote into the ring is no chunk, perhaps.
            if let Some(place) = self.umem.at(offset, piece.len()) {
                // SAFETY: inside the memory.
                unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), place, piece.len()) };
            }
            let goes_on = index + 1 < pieces.len() || is_unfinished;
            let options = if goes_on { libc::XDP_PKT_CONTD } else { 0 };
            self.kernel.receive.push(Descriptor { offset, length: piece.len() as u32, options });
        }
        true
    }

    /// A packet as `input` has it. `None`: no bytes are left.
    fn send(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (how, count) = (input.byte()?, usize::from(input.byte()? % 48).max(1));
        let (each, last) = (input.length(LARGEST - HEADER)?, input.length(LARGEST - HEADER)?);
        let (mut path, tag) = self.paths[usize::from(how & 1)];
        let is_strange = how & 2 != 0;
        if is_strange {
            path.source.set_port(8);
        }
        let mut messages = Vec::new();
        let mut datagram = Vec::new();
        for index in 0..count {
            let length = if index + 1 < count { each } else { last.min(if count > 1 { each } else { last }) };
            if datagram.len() + HEADER + length > usize::from(u16::MAX) - LONGEST {
                break;
            }
            self.messages += 1;
            let message: Vec<u8> = self.messages.to_le_bytes().into_iter().cycle().take(length).collect();
            let mut header = [0; HEADER];
            Repr { kind: FrameKind::Message, tag: tag.0, length: length as u32 }.emit(&mut header);
            datagram.extend(header);
            datagram.extend(&message);
            messages.push(message);
        }
        let room = (self.shape.chunk - KERNEL_HEADROOM) as usize;
        let is_long = path.header() + datagram.len() > room;
        let sum = (how & 4 != 0).then(|| Sum::default().add(&datagram));
        let mut packet = path.headers(datagram.len(), sum)[..path.header()].to_vec();
        packet.extend(&datagram);
        let damages = how >> 3 & 3;
        for _ in 0..damages {
            let (at, value) = (usize::from(input.half()?), input.byte()?);
            let at = at % packet.len();
            packet[at] ^= value;
        }
        let is_odd = how & 32 != 0;
        let mut pieces = Vec::new();
        let mut left = packet.len();
        while left > 0 {
            let piece = if is_odd { input.length(room)?.max(1) } else { room }.min(left);
            pieces.push(piece);
            left -= piece;
        }
        let is_unfinished = how & 64 != 0;
        let is_refused = is_strange || damages > 0 || is_odd || is_unfinished || (is_long && sum.is_some());
        if self.deliver(&packet, &pieces, is_unfinished) {
            self.complete &= !is_unfinished;
            if !is_refused {
                self.expected.extend(messages);
            }
        }
        Some(())
    }

    /// Looks once; whether something came.
    fn receive(&mut self) -> bool {
        let mut arrival = Arrival::empty();
        if !self.own.receive(&self.memory, &mut arrival) {
            return false;
        }
        assert!(arrival.areas().iter().all(|area| self.memory.segment().contains(*area)), "an area outside the segment");
        let bytes = self.bytes(&arrival);
        if self.expected.front() == Some(&bytes) {
            self.expected.pop_front();
        }
        self.kept.push((arrival, bytes));
        if self.kept.len() > KEPT {
            self.release(0);
        }
        true
    }

    fn bytes(&self, arrival: &Arrival) -> Vec<u8> {
        let mut bytes = vec![0; arrival.len().min(1 << 17)];
        let copied = arrival.copy_to(&self.memory.segment(), 0, &mut bytes);
        assert!(!self.sane || copied == arrival.len(), "{copied} bytes of {} are there", arrival.len());
        bytes
    }

    fn release(&mut self, which: usize) {
        if self.kept.is_empty() {
            return;
        }
        let (arrival, bytes) = self.kept.swap_remove(which % self.kept.len());
        assert!(!self.sane || self.bytes(&arrival) == bytes, "a chunk that was in use was written");
        arrival.buffers().iter().for_each(|buffer| self.own.give_back(*buffer));
    }

    /// What a program that shares the memory may do.
    fn scribble(&mut self, input: &mut Input<'_>) -> Option<()> {
        self.sane = false;
        let (what, word) = (input.byte()?, input.word()?);
        let words: &[AtomicU32] = {
            let cut = &State::of(&self.memory).receiving;
            // SAFETY: a structure of atomic integers, the smallest of which have 32 bits.
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(cut).cast(), size_of_val(cut) / 4) }
        };
        match what >> 6 {
            0 => words[usize::from(what) % words.len()].store(word as u32, Relaxed),
            1 => {
                let chunk = self.memory.shape().device + u32::from(what) % DEPTH * self.shape.chunk;
                let place = self.umem.at(chunk.into(), 4).expect("a chunk's first word");
                // SAFETY: inside the memory and aligned; all treat it as an atomic integer.
                unsafe { &*place.cast::<AtomicU32>() }.store(word as u32, Relaxed);
            }
            2 => self.own.give_back(Area::new(word as u32 >> 1, (word >> 32) as u32)),
            _ => {
                let options = if what & 1 != 0 { libc::XDP_PKT_CONTD } else { 0 };
                let offset = if what & 2 != 0 { word & 0x1ffff } else { word };
                self.kernel.receive.push(Descriptor { offset, length: (word >> 40) as u32, options });
            }
        }
        Some(())
    }

    /// Everything that came is taken and given back.
    fn end(mut self) {
        while self.receive() {}
        while !self.kept.is_empty() {
            self.release(0);
        }
        assert!(!self.sane || !self.complete || self.expected.is_empty(), "{} messages are missing", self.expected.len());
        let mut chunks: Vec<u64> = std::iter::from_fn(|| self.kernel.fill.pop()).collect();
        chunks.sort_unstable();
        let first = u64::from(self.memory.shape().device);
        let posted = (0..u64::from(DEPTH)).map(|index| first + index * u64::from(self.shape.chunk));
        assert!(!self.sane || chunks.iter().copied().eq(posted), "chunks with the kernel: {chunks:?}");
    }
}

pub fn run(data: &[u8]) {
    let mut laboratory = Laboratory::new();
    let mut input = Input(data);
    while let Some(operation) = input.byte() {
        let done = match operation & 7 {
            0..=2 => laboratory.send(&mut input),
            3 | 4 => {
                (0..operation >> 3).take_while(|_| laboratory.receive()).for_each(drop);
                Some(())
            }
            5 => {
                laboratory.release(usize::from(operation >> 3));
                Some(())
            }
            6 => {
                laboratory.own.recover(&laboratory.memory);
                laboratory.complete = false;
                Some(())
            }
            _ => laboratory.scribble(&mut input),
        };
        if done.is_none() {
            break;
        }
    }
    laboratory.end();
}
