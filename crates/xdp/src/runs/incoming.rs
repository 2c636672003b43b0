//! Runs that arrive: one packet in several chunks, of which each frame becomes an arrival.
//!
//! A chunk is the arrivals' together: it goes back to the fill ring with the last of them. How many there are is counted in its
//! first word, in front of where the kernel writes.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use shunt_endpoint::shared::Memory;
use shunt_endpoint::{Area, Arrival, ArrivalParts, Channel, Counters, Drop as Reason, Tag, INLINE, SCATTER};
use shunt_wire::endpoint::{Frame, Repr, HEADER};

use crate::own::Own;
use crate::ring::Descriptor;
use crate::state::State;

/// Bytes of a frame that are copied before they are believed.
const START: usize = HEADER + INLINE;

/// The run that is taken apart.
#[repr(C)]
pub struct Cut {
    /// Bytes of it that were not taken; 0: there is none.
    left: AtomicU32,
    /// Bytes of each frame but the last.
    each: AtomicU32,
    /// The next byte, counted from the start of the registered memory.
    at: AtomicU32,
    /// Bytes from there on in this chunk.
    here: AtomicU32,
    /// 1: the packet has further chunks, which wait in the receive ring.
    goes_on: AtomicU32,
    /// Where the receive ring stood when the last chunk had been taken from it.
    position: AtomicU32,
    /// The tag in its first frame, whose source was judged.
    tag: AtomicU64,
}

/// A run, or a frame of several chunks, as its first chunk shows it.
pub(crate) struct Run {
    /// First byte of the datagram in its first chunk, and bytes of it.
    pub at: usize,
    pub length: usize,
    /// Bytes of each frame but the last.
    pub each: usize,
    pub tag: u64,
}

impl Cut {
    /// Whether something is left of a run.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.left.load(Relaxed) != 0
    }

    /// How many frames are left of it.
    pub(crate) fn frames(&self) -> u32 {
        self.left.load(Relaxed).div_ceil(self.each.load(Relaxed).max(1))
    }
}

impl Own {
    /// Begins with a run that starts in this descriptor's chunk.
    pub(crate) fn begin_cut(&mut self, state: &State, descriptor: &Descriptor, run: &Run) {
        let cut = &state.receiving;
        self.enter(cut, descriptor);
        cut.at.store(descriptor.offset as u32 + run.at as u32, Relaxed);
        cut.here.store(descriptor.length.saturating_sub(run.at as u32), Relaxed);
        cut.each.store(run.each as u32, Relaxed);
        cut.tag.store(run.tag, Relaxed);
        cut.left.store(run.length as u32, Relaxed);
    }

    /// The next message of the run; false: it is over.
    pub(crate) fn take_from_cut(&mut self, memory: &Memory, arrival: &mut Arrival) -> bool {
        let cut = &State::of(memory).receiving;
        while cut.is_there() {
            let left = cut.left.load(Relaxed) as usize;
            let size = (cut.each.load(Relaxed).max(1) as usize).min(left);
            let (mut start, mut taken) = ([0u8; START], 0);
            let (mut areas, mut buffers, mut count) = ([Area::default(); SCATTER], [Area::default(); SCATTER], 0);
            while taken < size {
                if cut.here.load(Relaxed) == 0 && !self.next_chunk(memory, cut) {
                    break;
                }
                let (at, part) = (cut.at.load(Relaxed), (cut.here.load(Relaxed) as usize).min(size - taken));
                let bytes = self.socket.umem().at(at.into(), part).filter(|_| at >= self.segment && count < SCATTER);
                let Some(bytes) = bytes else { break };
                let known = START.saturating_sub(taken).min(part);
                // SAFETY: inside the memory, and no more than the buffer has.
                unsafe { core::ptr::copy_nonoverlapping(bytes, start[taken.min(START)..].as_mut_ptr(), known) };
                if part > known {
                    areas[count] = Area::new(at + known as u32 - self.segment, (part - known) as u32);
                    buffers[count] = self.share(at);
                    count += 1;
                }
                cut.at.store(at + part as u32, Relaxed);
                cut.here.store(cut.here.load(Relaxed) - part as u32, Relaxed);
                taken += part;
            }
            // Chunks are missing, or are no such: what is left cannot be found.
            let whole = taken == size;
            cut.left.store(if whole { (left - size) as u32 } else { 0 }, Relaxed);
            if !cut.is_there() {
                self.leave(cut);
                self.pass_rest(cut.goes_on.swap(0, Relaxed) != 0);
            }
            let judged = if whole { judge(memory, cut, &start[..size.min(START)], size) } else { Err(Reason::Violation) };
            let (repr, channel) = match judged {
                Ok(valid) => valid,
                Err(reason) => {
                    memory.counters().drop(reason);
                    buffers[..count].iter().for_each(|buffer| self.give_back(*buffer));
                    continue;
                }
            };
            let length = repr.length as usize;
            let head = &start[HEADER..][..length.min(INLINE)];
            let parts = ArrivalParts { channel, length: repr.length, head, areas: &areas[..count], buffers: &buffers[..count] };
            if self.hand_over(memory, repr.kind, &parts, arrival) {
                return true;
            }
        }
        false
    }

    /// Goes on in the packet's next chunk.
    fn next_chunk(&mut self, memory: &Memory, cut: &Cut) -> bool {
        let mut bad = 0;
        self.leave(cut);
        if cut.goes_on.load(Relaxed) == 0 {
            return false;
        }
        if self.socket.position() != cut.position.load(Relaxed) {
            // A process died between the ring and this: it is not known which chunk comes next.
            cut.goes_on.store(0, Relaxed);
            self.drop_waiting();
            return false;
        }
        let next = self.socket.take(&mut bad);
        Counters::add(&memory.counters().dropped[Reason::Violation as usize], bad);
        match next {
            Some(descriptor) => self.enter(cut, &descriptor),
            None => {
                cut.goes_on.store(0, Relaxed);
                false
            }
        }
    }

    /// Goes on in this descriptor's chunk; false if that is one for frames to be sent, which a process of ours posted.
    fn enter(&mut self, cut: &Cut, descriptor: &Descriptor) -> bool {
        cut.goes_on.store(descriptor.goes_on().into(), Relaxed);
        cut.position.store(self.socket.position(), Relaxed);
        let at = u32::try_from(descriptor.offset).ok().filter(|at| *at >= self.segment);
        cut.here.store(at.map_or(0, |_| descriptor.length), Relaxed);
        cut.at.store(at.unwrap_or(0), Relaxed);
        if let Some(shares) = at.and_then(|at| self.shares(at)) {
            shares.store(1, Relaxed);
        }
        at.is_some()
    }

    /// Drops what waits in the ring. The kernel announces packets as a whole, so the next one begins with its first chunk.
    #[cold]
    pub(crate) fn drop_waiting(&mut self) {
        let (mut bad, end) = (0, self.socket.position().wrapping_add(self.socket.arrived()));
        while (end.wrapping_sub(self.socket.position()) as i32) > 0 {
            let Some(descriptor) = self.socket.take(&mut bad) else { return };
            self.give_chunk(descriptor.offset as u32);
        }
    }

    /// After a driver died with the endpoint: what it had begun to take apart or to collect is lost, as on a network.
    pub fn recover(&mut self, memory: &Memory) {
        let state = State::of(memory);
        state.sending.clear();
        state.receiving.left.store(0, Relaxed);
        state.receiving.goes_on.store(0, Relaxed);
        self.leave(&state.receiving);
        self.drop_waiting();
    }

    /// Nothing more is taken from the chunk that was gone through.
    fn leave(&mut self, cut: &Cut) {
        // The next byte may be the first one behind it.
        if let Some(last) = cut.at.load(Relaxed).checked_sub(1) {
            self.drop_share(last);
        }
        cut.at.store(0, Relaxed);
    }

    /// Gives back the chunks that follow in a packet of which nothing more is wanted.
    pub(crate) fn pass_rest(&mut self, mut goes_on: bool) {
        let mut bad = 0;
        while goes_on {
            let Some(descriptor) = self.socket.take(&mut bad) else { return };
            goes_on = descriptor.goes_on();
            self.give_chunk(descriptor.offset as u32);
        }
    }

    /// How many arrivals, and the run, have the chunk in which this byte lies; `None` if it is not of the segment.
    fn shares(&self, at: u32) -> Option<&AtomicU32> {
        let chunk = at & !(self.socket.shape().chunk - 1);
        let word = self.socket.umem().at(chunk.into(), size_of::<AtomicU32>()).filter(|_| chunk >= self.segment)?;
        // SAFETY: inside the memory, aligned to a chunk, and never anything but atomic integers to us.
        Some(unsafe { &*word.cast::<AtomicU32>() })
    }

    /// One more of them: the buffer of an arrival. A length of 0 says that the chunk is not the arrival's alone.
    fn share(&mut self, at: u32) -> Area {
        if let Some(shares) = self.shares(at) {
            shares.store(shares.load(Relaxed).wrapping_add(1), Relaxed);
        }
        Area::new((at & !(self.socket.shape().chunk - 1)).wrapping_sub(self.segment), 0)
    }

    /// One less; the last one gives the chunk back.
    pub(crate) fn drop_share(&mut self, at: u32) {
        let left = self.shares(at).map(|shares| {
            let left = shares.load(Relaxed).wrapping_sub(1);
            shares.store(left, Relaxed);
            left
        });
        if left == Some(0) {
            self.give_chunk(at);
        }
    }
}

/// Judges a frame of the run: its channel is that of the first, which came from the same place.
fn judge(memory: &Memory, cut: &Cut, start: &[u8], size: usize) -> Result<(Repr, Channel), Reason> {
    let repr = Repr::parse_start(&Frame::new(start), size)?;
    if repr.tag != cut.tag.load(Relaxed) {
        return Err(Reason::Tag);
    }
    let (channel, _) = memory.registry().by_tag(Tag(repr.tag)).ok_or(Reason::Tag)?;
    Ok((repr, channel))
}
