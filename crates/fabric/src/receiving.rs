//! From the provider to the receive queue.
//!
//! Buffers of the free queue are given to the provider, which puts one message into each. It holds what comes when it has
//! none: senders are refused in the end, and nothing is lost. What has come is judged as a stranger's: the provider says how
//! many bytes there are and, where it can, who sent them; all else stands in the frame.

use crate::interface::{Completion, Interface, Memory as Registered, Queue, Taken, BATCH};
use crate::peers::Peers;
use shunt_endpoint::direct::apply_and_queue;
use shunt_endpoint::shared::Memory;
use shunt_endpoint::{Area, Arrival, ArrivalParts, Drop as Reason, Tag, INLINE};
use shunt_sys::Errno;
use shunt_wire::endpoint::{Frame, Kind, Repr, HEADER};

/// Bytes of a frame that are read before its message is known: header and head.
const START: usize = HEADER + INLINE;

/// The buffers that the provider has.
pub struct Receiving {
    /// By slot: what was given.
    given: Vec<Option<Area>>,
    /// Slots without a buffer.
    idle: Vec<u32>,
    /// Bytes of the longest frame.
    longest: usize,
}

/// What receiving works with, besides its own state.
pub struct Means<'a> {
    pub interface: &'a Interface,
    pub memory: &'a Memory,
    pub registered: &'a Registered,
    pub peers: &'a Peers,
}

impl Receiving {
    /// For as many buffers, and messages of at most `largest` bytes.
    pub fn new(slots: u32, largest: u32) -> Receiving {
        Receiving { given: vec![None; slots as usize], idle: (0..slots).rev().collect(), longest: largest as usize + HEADER }
    }

    /// How many buffers the provider has.
    pub fn given(&self) -> u32 {
        (self.given.len() - self.idle.len()) as u32
    }

    /// Gives buffers of the free queue to the provider, as many as it takes.
    ///
    /// # Errors
    /// What libfabric answers.
    pub fn replenish(&mut self, means: &Means<'_>) -> Result<(), Errno> {
        let free = means.memory.free_queue();
        while let (Some(buffer), Some(slot)) = (free.peek(0), self.idle.last().copied()) {
            // Nonsense on the free queue is forgotten.
            if self.give(means, buffer, slot)? == Some(Taken::Later) {
                break;
            }
            free.advance(1);
        }
        Ok(())
    }

    /// Gives one buffer to the provider; `None` if it does not lie in the segment.
    fn give(&mut self, means: &Means<'_>, buffer: Area, slot: u32) -> Result<Option<Taken>, Errno> {
        let Some(base) = means.memory.segment().pointer(buffer) else { return Ok(None) };
        // SAFETY: inside the segment; a buffer on the free queue is the device's until its message is released. The slot is idle.
        let taken = unsafe { means.interface.receive(base, buffer.length as usize, means.registered, slot) }?;
        if taken == Taken::Yes {
            self.idle.pop();
            self.given[slot as usize] = Some(buffer);
        }
        Ok(Some(taken))
    }

    /// Whether the receive queue takes what one look may give.
    #[inline(always)]
    pub fn has_room(&self, memory: &Memory) -> bool {
        let queue = memory.receive_queue();
        queue.capacity() - queue.len() >= BATCH as u32
    }

    /// Takes what has come, as much as the receive queue has room for and one look gives.
    ///
    /// # Errors
    /// What libfabric answers: the endpoint receives no more.
    #[inline]
    pub fn take_in(&mut self, means: &Means<'_>) -> Result<(), Errno> {
        // What finds no room waits where it is.
        if !self.has_room(means.memory) {
            return Ok(());
        }
        let mut completions = [Completion::default(); BATCH];
        let count = means.interface.completions(Queue::Received, &mut completions)?;
        for completion in &completions[..count] {
            let slot = completion.slot;
            let Some(buffer) = self.given.get_mut(slot as usize).and_then(Option::take) else { continue };
            self.idle.push(slot);
            if !self.judge(means, buffer, completion) {
                // It is free again, and goes back where it came from.
                let _ = means.memory.free_queue().put(&buffer);
            }
        }
        if count > 0 {
            self.replenish(means)?;
        }
        Ok(())
    }

    /// Puts the message on the receive queue, or counts why not. True: it refers to the buffer.
    fn judge(&self, means: &Means<'_>, buffer: Area, completion: &Completion) -> bool {
        let memory = means.memory;
        let refused = |reason: Reason| {
            memory.counters().drop(reason);
            false
        };
        let length = completion.length.min(buffer.length.into()) as usize;
        if completion.error != 0 {
            // The buffers that were given are as long as any frame, so what did not fit is no frame; what was not received at
            // all (an endpoint that is closed) is no loss of a message.
            return completion.error == shunt_sys::libc::ECANCELED || refused(Reason::Oversized);
        }
        if length == 0 {
            // What opens the way: see `device`.
            return false;
        }
        if length > self.longest {
            return refused(Reason::Oversized);
        }
        let frame = buffer.first(length as u32);
        let mut start = [0u8; START];
        let head = length.min(START);
        memory.segment().read(frame, &mut start[..head]);
        let repr = match Repr::parse_start(&Frame::new(&start[..head]), length) {
            Ok(repr) => repr,
            Err(rejection) => return refused(rejection.into()),
        };
        let Some((channel, entry)) = memory.registry().by_tag(Tag(repr.tag)) else { return refused(Reason::Tag) };
        let told = means.interface.facts().source != 0;
        if told && completion.source != means.peers.number(crate::device::peer_of(entry)) {
            return refused(Reason::Source);
        }
        let rest = frame.without(START as u32);
        let refers = rest.length > 0;
        let (areas, buffers) = ([rest], [buffer]);
        let count = refers as usize;
        let parts = ArrivalParts {
            channel,
            length: repr.length,
            head: &start[HEADER..head],
            areas: &areas[..count],
            buffers: &buffers[..count],
        };
        if repr.kind != Kind::Message {
            apply_and_queue(memory, &parts, repr.kind == Kind::UpdateNotify);
            return false;
        }
        let mut arrival = Arrival::empty();
        arrival.fill(&parts);
        if memory.receive_queue().put(&arrival).is_err() {
            return refused(Reason::QueueFull);
        }
        refers
    }
}
