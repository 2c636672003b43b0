//! From the owner to a lane, and the receiver out of its sleep.

use super::channel::*;
use super::control;
use super::lane::{self, Lane, GRAIN, RING, SLOTS, SLOT_BYTES};
use super::{Shm, CAPABILITIES, PROBE_NS};
use crate::gather::Gather;
use crate::shared::ChannelEntry;
use crate::{Channel, Counters, Message, SendError, Ticket, INLINE, WORDS};
use core::sync::atomic::{compiler_fence, fence, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};
use shunt_ring::bell;
use shunt_segment::channel::arm::IN;
use shunt_sys::clock;

impl Shm {
    /// What a sender does that finds no room: asks now and then whether the peer lives.
    #[cold]
    pub(super) fn refuse(&mut self, channel: Channel) -> SendError {
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

    /// Whether there is room for so many slots and bytes behind the tail. `None`: the peer writes nonsense.
    #[inline(always)]
    pub(super) fn has_room(entry: &ChannelEntry, lane: Lane, slots: u32, bytes: u32) -> Option<bool> {
        let (slot, byte) = pair(&entry.device[word::TAIL]);
        let fits = |(slot_head, byte_head): (u32, u32)| {
            slot.wrapping_sub(slot_head) + slots <= SLOTS && byte.wrapping_sub(byte_head) + bytes <= RING
        };
        if fits(pair(&entry.device[word::SEEN])) {
            return Some(true);
        }
        let heads = lane.header().heads.0.load(Acquire);
        let (slot_head, byte_head) = (heads as u32, (heads >> 32) as u32);
        if slot.wrapping_sub(slot_head) > SLOTS || byte.wrapping_sub(byte_head) > RING {
            return None;
        }
        entry.device[word::SEEN].store(heads, Relaxed);
        Some(fits((slot_head, byte_head)))
    }

    /// Copies a message into the lane and announces it. False: the program's bytes fault, and nothing was sent.
    #[inline(always)]
    pub(super) fn put(&self, entry: &ChannelEntry, lane: Lane, gather: &Gather<'_>, lines: u32, span: u32) -> bool {
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
    pub(super) fn wake(&self, entry: &ChannelEntry, lane: Lane) {
        if self.fences {
            fence(SeqCst);
        }
        compiler_fence(SeqCst);
        if bell::must_ring(&lane.header().wait.0, IN) {
            self.ring(entry);
        }
    }

    #[cold]
    fn ring(&self, entry: &ChannelEntry) {
        if let Some(peer) = control::number(&entry.address()) {
            let _ = control::ring(self.socket, peer);
        }
    }

    /// The channel's lane, where a message of one line can go straight into its next slot, and which slot that is. `None` if
    /// anything is unusual.
    #[inline(always)]
    fn next_slot(&self, channel: Channel) -> Option<(&ChannelEntry, Lane, u32, u32)> {
        let current = self.memory.header().device_words[1].load(Relaxed) == self.changes;
        let (entry, out) = if current && self.only.channel == channel.0 {
            // SAFETY: the entry lies in the memory, which is mapped as long as the handle lives.
            (unsafe { &*self.only.entry }, self.only.out)
        } else {
            self.one_of_many(channel)?
        };
        if out.is_null() {
            return None;
        }
        // SAFETY: mapped until the channel is closed.
        let lane = unsafe { Lane::at(out) };
        let (slot, byte) = pair(&entry.device[word::TAIL]);
        let (seen, _) = pair(&entry.device[word::SEEN]);
        if slot.wrapping_sub(seen) >= SLOTS || has(entry, DEAD) || lane.header().closed.0.load(Relaxed) != 0 {
            return None;
        }
        Some((entry, lane, slot, byte))
    }

    #[inline(never)]
    fn one_of_many(&self, channel: Channel) -> Option<(&ChannelEntry, *mut u8)> {
        let mapped = self.mapped(channel.index()).filter(|mapped| mapped.channel == channel.0)?;
        Some((self.memory.registry().get(channel)?, mapped.out))
    }

    /// The straight way of a message of one line: `None` if anything is unusual.
    #[inline(always)]
    pub(super) fn send_line(&self, channel: Channel, head: &[u8]) -> Option<Ticket> {
        let (entry, lane, slot, byte) = self.next_slot(channel)?;
        // SAFETY: at most the bytes of a slot.
        unsafe { lane::copy_line(head.as_ptr(), lane.bytes(slot), head.len()) };
        Some(self.sent_line(entry, lane, (slot, byte), head.len()))
    }

    /// The same of words at hand.
    #[inline(always)]
    pub(super) fn send_slot(&self, channel: Channel, words: &[u64; WORDS], count: usize) -> Option<Ticket> {
        let (entry, lane, slot, byte) = self.next_slot(channel)?;
        // SAFETY: the receiver is done with the slot, and does not look there before it is announced.
        unsafe { lane::put_words(words, lane.bytes(slot)) };
        Some(self.sent_line(entry, lane, (slot, byte), count.min(WORDS) * 8))
    }

    #[inline(always)]
    fn sent_line(&self, entry: &ChannelEntry, lane: Lane, (slot, byte): (u32, u32), length: usize) -> Ticket {
        lane.announce_line(slot, length as u32);
        set_pair(&entry.device[word::TAIL], slot.wrapping_add(1), byte);
        self.wake(entry, lane);
        self.count_sent(length)
    }

    /// Sends any message.
    #[inline(never)]
    pub(super) fn send_long(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
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

    #[inline(always)]
    pub(super) fn count_sent(&self, length: usize) -> Ticket {
        let counters = self.memory.counters();
        let ticket = counters.sent.load(Relaxed) as u32;
        Counters::add(&counters.sent, 1);
        Counters::add(&counters.sent_bytes, length as u64);
        Ticket(ticket)
    }
}
