//! One connection: the parts of the engine's memory that belong to it, and the lists of its packets.

use crate::config::{store_channel, Nanoseconds, SHORT_FRAMES};
use crate::dispatch::{Dispatch, Refused};
use crate::frame::{FULL, SHORT};
use crate::handshake::pair_token;
use crate::state::{life, slot, Channel, Class, Fetch, Held, Parameters, Peer, Queue, Shared, Slot, NONE};
use bytemuck::Zeroable;
use shunt_path::{Congestion, Law, RoundTrip};

/// A connection's memory. All slices are this peer's own.
pub struct Side<'a> {
    pub(crate) index: u32,
    pub(crate) shared: &'a mut Shared,
    pub(crate) peer: &'a mut Peer,
    pub(crate) channels: &'a mut [Channel],
    pub(crate) slots: &'a mut [Slot],
    /// Slot of each packet that was sent and not acknowledged, by its number modulo the window.
    pub(crate) order: &'a mut [u16],
    pub(crate) holds: &'a mut [Held],
    pub(crate) payload: &'a mut [u8],
    pub(crate) held: &'a mut [u8],
}

/// The full number that `wire` stands for, near `base`.
pub(crate) fn expand(base: u64, wire: u32) -> u64 {
    base.wrapping_add(i64::from(wire.wrapping_sub(base as u32) as i32) as u64)
}

impl Side<'_> {
    /// The same connection, borrowed for a while.
    pub(crate) fn reborrow(&mut self) -> Side<'_> {
        Side {
            index: self.index,
            shared: &mut *self.shared,
            peer: &mut *self.peer,
            channels: &mut *self.channels,
            slots: &mut *self.slots,
            order: &mut *self.order,
            holds: &mut *self.holds,
            payload: &mut *self.payload,
            held: &mut *self.held,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.peer.life == life::UP
    }

    pub(crate) fn reliable(&self) -> bool {
        self.shared.config.reliable != 0
    }

    /// Bytes of a packet's headers. They are written right before its messages, so that a frame lies in one piece.
    pub(crate) fn header(&self) -> usize {
        if self.reliable() {
            SHORT
        } else {
            FULL
        }
    }

    /// Bytes of the largest frame that this side wants: where large ones did not arrive, those of which every path is believed to let
    /// through the packet.
    pub(crate) fn wanted_frame(&self) -> u32 {
        let frame = self.shared.config.frame;
        SHORT_FRAMES[..SHORT_FRAMES.len().min(self.peer.short as usize)].last().map_or(frame, |short| frame.min(*short))
    }

    /// How short the next connection's frames are where those of this one do not arrive: the longest that are shorter.
    pub(crate) fn shorter(&self) -> u32 {
        let longer = SHORT_FRAMES.iter().filter(|short| **short >= self.peer.frame).count();
        (longer + 1).min(SHORT_FRAMES.len()) as u32
    }

    /// Bytes of messages that a packet takes.
    pub(crate) fn capacity(&self) -> usize {
        (self.peer.frame as usize).saturating_sub(self.header())
    }

    /// Where the slot of a packet that is under way stands in `order`, whose length is a power of two.
    pub(crate) fn place(&self, sequence: u64) -> usize {
        sequence as usize & (self.order.len() - 1)
    }

    /// Something is to be sent: `transmit` will look here.
    pub(crate) fn mark_busy(&mut self) {
        self.shared.mark_busy(self.index);
    }

    /// A number that no other side can guess, never 0.
    pub(crate) fn draw(&mut self) -> u64 {
        self.shared.drawn += 1;
        shunt_secret::siphash(self.shared.secret, &[self.shared.drawn]).max(1)
    }

    /// Forgets everything of the last connection but its counters and what the next one's set-up needs, except the lists: of
    /// memory that is all 0 they need not be touched before a connection begins.
    pub(crate) fn blank(&mut self) {
        let Peer { counters, watched, next_name, offered, asker, short, .. } = *self.peer;
        *self.peer = Peer { counters, watched, next_name, offered, asker, short, ..Peer::zeroed() };
        let peer = &mut *self.peer;
        peer.life = life::IDLE;
        peer.queues = [Queue { head: NONE, tail: NONE, length: 0 }; 3];
        peer.room_due = NONE;
        peer.news = NONE;
        peer.congestion = Congestion::new(self.shared.config.initial_window, Law::Cubic);
        peer.round_trip = RoundTrip::default();
        peer.asked = [Fetch::zeroed(); crate::config::FETCHES];
        peer.serving = peer.asked;
    }

    /// The same, and the lists.
    pub(crate) fn clear(&mut self) {
        self.blank();
        let peer = &mut *self.peer;
        peer.free = chain(self.slots.iter_mut().map(|slot| {
            *slot = Slot::zeroed();
            &mut slot.next
        }));
        peer.free_held = chain(self.holds.iter_mut().map(|held| {
            *held = Held::zeroed();
            &mut held.next
        }));
        for channel in self.channels.iter_mut() {
            *channel = Channel { held: NONE, next_room: NONE, next_news: NONE, ..Channel::zeroed() };
        }
    }

    /// Begins a connection whose names are known: ours, and the peer's with what its hello said.
    pub(crate) fn install(&mut self, now: Nanoseconds, own_name: u64, remote: Parameters) {
        self.clear();
        let (config, frame) = (self.shared.config, self.wanted_frame());
        let peer = &mut *self.peer;
        peer.life = life::UP;
        peer.straight = u32::from(config.reliable != 0 && config.combine == 0);
        peer.replies = config.replies;
        peer.own_name = own_name;
        peer.token = pair_token(own_name, remote.name);
        peer.remote_token = pair_token(remote.name, own_name);
        peer.remote = remote;
        peer.frame = remote.frame.min(frame);
        peer.window = remote.window.min(config.window);
        peer.channels = remote.channels.min(config.channels);
        peer.limit = remote.limit;
        peer.limit_said = config.replies;
        // Packets are numbered from somewhere unguessable; the upper part leaves room to count back.
        peer.next_sequence = (1 << 32) + (peer.remote_token >> 32);
        peer.oldest = peer.next_sequence;
        peer.received = (1 << 32) + (peer.token >> 32);
        peer.last_heard = now;
        let bulk = usize::from(store_channel(&config));
        for channel in &mut self.channels[bulk..] {
            channel.limit = u64::MAX;
            channel.room = u64::MAX;
            channel.room_said = u64::MAX;
        }
    }

    /// Packets that this side's own requests and bytes may use; the rest is for replies.
    pub(crate) fn own_quota(&self) -> u32 {
        self.shared.config.window - self.shared.config.replies
    }

    #[inline(always)]
    pub(crate) fn quota_left(&self, class: Class, channel: u16) -> bool {
        let own = self.own_quota();
        let used = self.peer.used;
        match class {
            Class::Reply => used[Class::Reply as usize] < self.shared.config.replies,
            Class::Request => used[Class::Request as usize] + used[Class::Bulk as usize] < own,
            // Neither all channels together nor one of them may take everything.
            Class::Bulk => {
                used[Class::Request as usize] + used[Class::Bulk as usize] < own
                    && used[Class::Bulk as usize] < own - own / 8
                    && self.channels[usize::from(channel)].queued < own - own / 4
            }
        }
    }

    /// A queued packet of the class with room for at least `least` bytes of messages, and how many it has. A packet of a
    /// channel takes only that channel's messages, so that it can be delivered or held as a whole.
    pub(crate) fn open_packet(&mut self, class: Class, channel: u16, least: usize) -> Option<(u16, usize)> {
        let capacity = self.capacity();
        let tail = self.peer.queues[class as usize].tail;
        if let Some(slot) = self.slots.get(usize::from(tail)) {
            let room = capacity.saturating_sub(slot.length as usize);
            if slot.channel == channel && room >= least {
                return Some((tail, room));
            }
        }
        if least > capacity || !self.quota_left(class, channel) {
            return None;
        }
        let index = self.peer.free;
        let slot = self.slots.get_mut(usize::from(index))?;
        self.peer.free = slot.next;
        *slot = Slot { channel, next: NONE, state: slot::QUEUED, class: class as u8, ..Slot::zeroed() };
        if channel != 0 {
            let channel = &mut self.channels[usize::from(channel)];
            slot.in_channel = channel.next_sent;
            slot.generation = channel.generation;
            channel.next_sent = channel.next_sent.wrapping_add(1);
            channel.queued += 1;
        }
        self.peer.used[class as usize] += 1;
        let queue = &mut self.peer.queues[class as usize];
        let last = core::mem::replace(&mut queue.tail, index);
        queue.length += 1;
        match self.slots.get_mut(usize::from(last)) {
            Some(slot) => slot.next = index,
            None => self.peer.queues[class as usize].head = index,
        }
        Some((index, capacity))
    }

    /// The free bytes of a packet, behind what it has.
    pub(crate) fn tail_of(&mut self, index: u16) -> &mut [u8] {
        let stride = self.shared.config.stride();
        let from = usize::from(index) * stride + self.header() + self.slots[usize::from(index)].length as usize;
        &mut self.payload[from..(usize::from(index) + 1) * stride]
    }

    /// A packet's frame: room for its headers, and its messages.
    pub(crate) fn frame_of(&mut self, index: u16) -> &mut [u8] {
        let from = usize::from(index) * self.shared.config.stride();
        let length = self.header() + self.slots[usize::from(index)].length as usize;
        &mut self.payload[from..][..length]
    }

    /// Takes the first packet off a queue.
    pub(crate) fn dequeue(&mut self, class: Class) {
        let queue = &mut self.peer.queues[class as usize];
        if let Some(slot) = self.slots.get_mut(usize::from(queue.head)) {
            queue.head = core::mem::replace(&mut slot.next, NONE);
            queue.length -= 1;
            if queue.head == NONE {
                queue.tail = NONE;
            }
        }
    }

    /// A packet needs to be kept no longer.
    pub(crate) fn release(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(usize::from(index)) else { return };
        let (class, channel, bytes, generation) = (Class::of(slot.class), slot.channel, slot.bytes, slot.generation);
        *slot = Slot { next: self.peer.free, state: slot::FREE, ..Slot::zeroed() };
        self.peer.free = index;
        self.peer.used[class as usize] = self.peer.used[class as usize].saturating_sub(1);
        if channel != 0 {
            let record = &mut self.channels[usize::from(channel)];
            record.queued = record.queued.saturating_sub(1);
            if bytes > 0 && record.generation == generation {
                record.acknowledged += u64::from(bytes);
                if core::mem::replace(&mut record.news, 1) == 0 {
                    record.next_news = core::mem::replace(&mut self.peer.news, channel);
                }
            }
        }
        if class == Class::Reply {
            self.peer.replies_owed = self.peer.replies_owed.saturating_sub(1);
        }
    }

    /// Tells the program of bytes that were acknowledged.
    pub(crate) fn tell_acknowledged(&mut self, dispatch: &mut dyn Dispatch) {
        while let Some(record) = self.channels.get_mut(usize::from(self.peer.news)) {
            let channel = core::mem::replace(&mut self.peer.news, core::mem::replace(&mut record.next_news, NONE));
            record.news = 0;
            dispatch.acknowledged(self.index, channel, record.acknowledged);
        }
    }

    /// Begins another use of a channel: both directions count from 0 again.
    pub(crate) fn renew(&mut self, channel: u16, generation: u32) -> Result<(), Refused> {
        if !self.is_up() {
            return Err(Refused::NotConnected);
        }
        if channel == 0 || u32::from(channel) > self.peer.channels {
            return Err(Refused::Argument);
        }
        let record = &mut self.channels[usize::from(channel)];
        (record.sent, record.limit, record.received, record.acknowledged) = (0, 0, 0, 0);
        (record.room, record.room_said, record.generation) = (0, 0, generation);
        Ok(())
    }

    pub(crate) fn queued(&self) -> u32 {
        self.peer.queues.iter().map(|queue| queue.length).sum()
    }

    /// Up to where we take requests: each may need a reply packet.
    pub(crate) fn request_limit(&self) -> u32 {
        let free = self.shared.config.replies.saturating_sub(self.peer.replies_owed);
        self.peer.requests_taken.wrapping_add(free)
    }
}

/// Links all of a list's members, first to last; gives the first.
fn chain<'a>(nexts: impl ExactSizeIterator<Item = &'a mut u16>) -> u16 {
    let count = nexts.len();
    for (at, next) in nexts.enumerate() {
        *next = if at + 1 < count { at as u16 + 1 } else { NONE };
    }
    if count == 0 {
        NONE
    } else {
        0
    }
}
