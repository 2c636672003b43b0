//! From the send queue to the provider.
//!
//! An entry stays on the queue until its bytes are the owner's again: for what the provider takes at once (`fi_inject`) that
//! is now, for others when their completion comes. The provider may take no more for one peer (a connection is being set up,
//! a receiver is slow): then what is for others goes on, each peer's messages in order.

use crate::interface::{Completion, Interface, Memory as Registered, Queue, Taken, BATCH};
use crate::peers::Peers;
use shunt_endpoint::shared::{Memory, SendDescriptor};
use shunt_endpoint::{Area, Channel, Counters, Gather, SendError, Ticket, INLINE, SCATTER};
use shunt_sys::libc::iovec;
use shunt_sys::Errno;
use shunt_wire::endpoint::{Kind, Repr, HEADER};
use std::mem::offset_of;

/// In [`SendDescriptor::kind`]: the one area lies in the device's part of the memory.
const STAGED: u32 = 1 << 31;

/// What an entry of the send queue waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The provider has not taken it.
    Waiting,
    /// The provider has it.
    Posted,
    /// Nothing: it may leave the queue.
    Done,
}

#[derive(Clone, Copy)]
struct Slot {
    stage: Stage,
    peer: u32,
}

/// The private half of the send queue.
pub struct Sending {
    slots: Vec<Slot>,
    /// Entries whose stage is `Waiting`.
    waiting: u32,
    /// Entries whose stage is `Posted`.
    posted: u32,
    /// Looks at them so far.
    looks: u64,
    /// Bytes of the staging place that belongs to each entry.
    stride: u32,
}

/// What sending works with, besides its own state.
pub struct Means<'a> {
    pub interface: &'a Interface,
    pub memory: &'a Memory,
    pub registered: &'a Registered,
    pub peers: &'a mut Peers,
}

/// Bytes of the staging place of each entry, for messages of at most `largest`.
pub fn stride(largest: u32) -> u32 {
    (largest + HEADER as u32).next_multiple_of(64)
}

impl Sending {
    /// For a queue of `entries`.
    pub fn new(entries: u32, largest: u32) -> Sending {
        let slot = Slot { stage: Stage::Done, peer: 0 };
        Sending { slots: vec![slot; entries as usize], waiting: 0, posted: 0, looks: 0, stride: stride(largest) }
    }

    /// Whether messages wait that the provider did not take.
    pub fn is_stuck(&self) -> bool {
        self.waiting > 0
    }

    /// Whether the provider has nothing to be asked for.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.posted == 0
    }

    fn index(&self, position: u32) -> usize {
        position as usize & (self.slots.len() - 1)
    }

    /// Puts a frame on the queue, and hands it to the provider if that takes it.
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn put(&mut self, means: &mut Means<'_>, channel: Channel, gather: &Gather<'_>, kind: Kind) -> Result<Ticket, SendError> {
        let memory = means.memory;
        let entry = memory.registry().get(channel).ok_or(SendError::Channel)?;
        let (queue, counters) = (memory.send_queue(), memory.counters());
        let peer = crate::device::peer_of(entry);
        // One peer that takes nothing may fill a part of the queue, and no more: the rest is for the others.
        let share = (queue.capacity() / 4).max(1);
        let crowded = means.peers.get(peer).is_some_and(|peer| peer.waiting >= share);
        if queue.len() == queue.capacity() {
            self.collect(means)?;
        }
        if crowded || queue.len() == queue.capacity() {
            Counters::add(&counters.refused, 1);
            return Err(SendError::NoResource);
        }
        let mut descriptor = match gather.descriptor(channel.0, 0) {
            Some(descriptor) if descriptor.count < means.interface.facts().parts => descriptor,
            _ => self.staged(memory, channel, gather)?,
        };
        Repr { kind, tag: entry.tags().send.0, length: gather.len() as u32 }.emit(&mut descriptor.wire);
        let position = queue.tail();
        queue.put(&descriptor).map_err(|_| SendError::NoResource)?;
        Counters::add(&counters.sent, 1);
        Counters::add(&counters.sent_bytes, gather.len() as u64);
        let index = self.index(position);
        self.slots[index] = Slot { stage: Stage::Waiting, peer: peer as u32 };
        self.waiting += 1;
        let first = means.peers.get(peer).is_none_or(|peer| {
            peer.waiting += 1;
            peer.waiting == 1
        });
        if first {
            self.hand_over_one(means, position);
            self.advance(memory);
        }
        Ok(Ticket(position))
    }

    /// Copies what cannot stay where it is into the place that belongs to the next entry.
    fn staged(&self, memory: &Memory, channel: Channel, gather: &Gather<'_>) -> Result<SendDescriptor, SendError> {
        let mut descriptor = SendDescriptor::empty();
        let head = gather.len().min(INLINE);
        let rest = gather.len() - head;
        (descriptor.channel, descriptor.head_length) = (channel.0, head as u32);
        // SAFETY: at most INLINE bytes.
        if !unsafe { gather.copy_to(0, descriptor.head.as_mut_ptr(), head) } {
            return Err(SendError::Fault);
        }
        if rest > 0 {
            let area = Area::new(self.index(memory.send_queue().tail()) as u32 * self.stride, rest as u32);
            // SAFETY: one stride for each entry, and the rest is no longer than one.
            if !unsafe { gather.copy_to(head, memory.device_part().add(area.offset as usize), rest) } {
                return Err(SendError::Fault);
            }
            (descriptor.areas[0], descriptor.count, descriptor.kind) = (area, 1, STAGED);
        }
        Ok(descriptor)
    }

    /// Hands over what waits, and takes back what is over. True: nothing waits any more.
    ///
    /// # Errors
    /// [`SendError::Device`].
    pub fn hand_over(&mut self, means: &mut Means<'_>) -> Result<bool, SendError> {
        self.collect(means)?;
        if self.waiting == 0 {
            return Ok(true);
        }
        self.looks += 1;
        let queue = means.memory.send_queue();
        for number in 0..queue.len() {
            let position = queue.head().wrapping_add(number);
            let slot = self.slots[self.index(position)];
            let refused = means.peers.get(slot.peer as usize).is_some_and(|peer| peer.refused_in == self.looks);
            if slot.stage == Stage::Waiting && !refused {
                self.hand_over_one(means, position);
            }
        }
        self.advance(means.memory);
        Ok(self.waiting == 0)
    }

    /// Offers an entry that waits to the provider.
    fn hand_over_one(&mut self, means: &mut Means<'_>, position: u32) {
        let (memory, index) = (means.memory, self.index(position));
        let peer = self.slots[index].peer as usize;
        let (stage, lost) = match offer(means, position, index as u32, peer) {
            Some(Ok((Taken::Yes, stage))) => (stage, 0),
            Some(Ok((Taken::Later, _))) => {
                if let Some(peer) = means.peers.get(peer) {
                    peer.refused_in = self.looks;
                }
                return;
            }
            // Its channel was closed, another owner wrote nonsense, or the peer cannot be reached: the network loses it.
            None | Some(Err(_)) => (Stage::Done, 1),
        };
        Counters::add(&memory.counters().unsent, lost);
        self.slots[index].stage = stage;
        self.waiting -= 1;
        self.posted += (stage == Stage::Posted) as u32;
        if let Some(peer) = means.peers.get(peer) {
            peer.waiting -= 1;
            peer.posted += (stage == Stage::Posted) as u32;
        }
    }

    /// Takes back what is over.
    ///
    /// # Errors
    /// [`SendError::Device`]: the provider's queue is broken.
    pub fn collect(&mut self, means: &mut Means<'_>) -> Result<(), SendError> {
        let mut completions = [Completion::default(); BATCH];
        loop {
            let count = means.interface.completions(Queue::Sent, &mut completions).map_err(SendError::Device)?;
            for completion in &completions[..count] {
                let Some(slot) = self.slots.get_mut(completion.slot as usize).filter(|slot| slot.stage == Stage::Posted) else {
                    continue;
                };
                slot.stage = Stage::Done;
                self.posted -= 1;
                if let Some(peer) = means.peers.get(slot.peer as usize) {
                    peer.posted = peer.posted.saturating_sub(1);
                }
                // The peer is gone, or the way to it.
                Counters::add(&means.memory.counters().unsent, (completion.error != 0) as u64);
            }
            if count < BATCH {
                break;
            }
        }
        self.advance(means.memory);
        Ok(())
    }

    /// Lets entries leave the front of the queue.
    fn advance(&self, memory: &Memory) {
        let queue = memory.send_queue();
        while !queue.is_empty() && self.slots[self.index(queue.head())].stage == Stage::Done {
            queue.advance(1);
        }
    }
}

/// Offers the entry at `position` to the provider; `None` if it leads nowhere.
fn offer(means: &Means<'_>, position: u32, slot: u32, peer: usize) -> Option<Result<(Taken, Stage), Errno>> {
    let (memory, interface) = (means.memory, means.interface);
    let queue = memory.send_queue();
    let number = position.wrapping_sub(queue.head());
    let descriptor = queue.peek(number)?;
    memory.registry().get(Channel(descriptor.channel))?;
    let to = means.peers.number(peer);
    // SAFETY: the entry of the queue, which no other thread takes before we advance.
    let start = unsafe { queue.place(number).cast::<u8>().add(offset_of!(SendDescriptor, wire)) };
    let head = HEADER + descriptor.head().len();
    let mut parts = [iovec { iov_base: start.cast(), iov_len: head }; 1 + SCATTER];
    let (mut count, mut length) = (1, head);
    for area in descriptor.areas().iter().filter(|area| area.length > 0) {
        let base = if descriptor.kind & STAGED != 0 { staging(memory, *area)? } else { memory.segment().pointer(*area)? };
        parts[count] = iovec { iov_base: base.cast(), iov_len: area.length as usize };
        count += 1;
        length += area.length as usize;
    }
    if count == 1 && length as u64 <= interface.facts().inject {
        let mut bytes = [0; HEADER + INLINE];
        bytes[..HEADER].copy_from_slice(&descriptor.wire);
        bytes[HEADER..head].copy_from_slice(descriptor.head());
        return Some(interface.inject(&bytes[..head], to).map(|taken| (taken, Stage::Done)));
    }
    // SAFETY: inside the endpoint's memory; the entry and its areas stay as they are until the completion: the queue keeps the
    // one, the owner's promise the others. The slot belongs to the entry.
    let sent = unsafe { interface.send(&parts[..count], means.registered, to, slot) };
    Some(sent.map(|taken| (taken, Stage::Posted)))
}

fn staging(memory: &Memory, area: Area) -> Option<*mut u8> {
    // SAFETY: inside the device's part.
    (area.end() <= memory.shape().device.into()).then(|| unsafe { memory.device_part().add(area.offset as usize) })
}
