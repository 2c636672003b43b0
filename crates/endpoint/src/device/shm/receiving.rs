//! From a lane to the owner, and the lane back to its sender.

use super::channel::*;
use super::control;
use super::lane::{self, Lane, GRAIN, RING, SLOTS, SLOT_BYTES};
use super::{Shm, BODIES, CAPABILITIES};
use crate::shared::ChannelEntry;
use crate::{Area, Arrival, Channel, INLINE};
use core::sync::atomic::{fence, AtomicU32, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};

/// Lines that are fetched ahead of the one that is read.
const AHEAD: u32 = 6;

impl Shm {
    /// Takes the next message of a channel.
    ///
    /// The way of a message of one line is straight: the next position does not depend on what the line says, so the
    /// processor already fetches the next line while it waits for this one.
    #[inline(always)]
    pub(super) fn take(&self, channel: Channel, entry: &ChannelEntry, lane: Lane, arrival: &mut Arrival) -> bool {
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
        lane.prefetch(slot.wrapping_add(AHEAD));
        self.taken(entry, lane, slot.wrapping_add(1), byte);
        true
    }

    /// Notes that everything before `slot` has been copied: the sender may have it.
    #[inline(always)]
    pub(super) fn taken(&self, entry: &ChannelEntry, lane: Lane, slot: u32, byte: u32) {
        set_pair(&entry.device[word::NEXT], slot, byte);
        let (told, _) = pair(&entry.device[word::TOLD]);
        if slot.wrapping_sub(told) >= SLOTS / 4 {
            self.tell(entry, lane);
        }
    }

    /// Takes a message of two lines, or with a body.
    #[inline(never)]
    pub(super) fn take_long(
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
    pub(super) fn hold(&self, channel: Channel, entry: &ChannelEntry, byte: u32, body: u32, arrival: &mut Arrival) -> bool {
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
    pub(super) fn body(&self, index: usize, number: u32) -> &AtomicU32 {
        let place = index as u32 * BODIES + number % BODIES;
        // SAFETY: inside the device's part, which has a word for each body of each channel.
        unsafe { &*self.memory.device_part().cast::<AtomicU32>().add(place as usize) }
    }

    /// Tells the sender what is free again, and wakes it if it waits for that.
    #[cold]
    pub(super) fn tell(&self, entry: &ChannelEntry, lane: Lane) {
        let (slot, _) = pair(&entry.device[word::NEXT]);
        let released = entry.device[word::RELEASED].load(Relaxed) as u32;
        set_pair(&entry.device[word::TOLD], slot, released);
        lane.header().heads.0.store(slot as u64 | (released as u64) << 32, Release);
        // Either the sender's look, which comes after its flag, sees this, or we see the flag.
        fence(SeqCst);
        if lane.header().blocked.0.load(Relaxed) != 0 && lane.header().blocked.0.swap(0, SeqCst) != 0 {
            if let Some(peer) = control::number(&entry.address()) {
                let _ = control::ring(self.socket, peer);
            }
        }
    }

    /// Gives bodies back to the ring, and the ring to the sender, in order.
    #[inline]
    pub(super) fn give_back(&self, arrival: &mut Arrival) {
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

    /// Messages that wait in the fullest lane.
    pub(super) fn look_ahead(&self) -> u32 {
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
        waiting
    }
}
