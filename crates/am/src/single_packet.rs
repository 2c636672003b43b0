//! The short way of a lone packet over a device that may lose frames: nothing waits before it, nothing is missing, and one message
//! fills it. So is each of two messages that answer each other, and the one who gets it waits.
//!
//! As on the [straight way](crate::lossless) all is decided before anything is changed: what is unusual in any way is left as it was,
//! and takes the general way, of which this is what is left where nothing is unusual.

use crate::config::{Nanoseconds, MAXIMUM_WINDOW, MICROSECOND};
use crate::connection::Side;
use crate::dispatch::{Data, Dispatch, Link, HEAD};
use crate::frame::{u64_at, Kind, Numbers, Task, FULL, MESSAGE, PROMPT, TENTATIVE, VERSION};
use crate::messages::Single;
use crate::state::{sign, slot, Class, Queue, Slot, NONE};
use crate::transmit::stamp;

/// A frame's first byte.
const DATA: u8 = VERSION << 4 | Kind::Data as u8;

/// A packet that is about to leave.
#[derive(Clone, Copy)]
pub(crate) struct Lone {
    index: u16,
    class: Class,
    channel: u16,
}

/// What a lone packet brings.
enum Brought<'a> {
    Bytes(&'a [u8]),
    Single(Single<'a>),
}

impl Side<'_> {
    /// A packet for one message of `length` bytes that may leave at once, before which nothing is to be sent.
    #[inline(always)]
    pub(crate) fn lone(&self, now: Nanoseconds, class: Class, channel: u16, length: usize) -> Option<Lone> {
        let (config, peer) = (&self.shared.config, &*self.peer);
        let usual = config.reliable == 0 && config.checked != 0 && config.combine == 0 && length <= self.capacity();
        let waiting = peer.queues[0].length | peer.queues[1].length | peer.queues[2].length | peer.lost;
        let leaves = peer.in_flight < peer.congestion.packets()
            && peer.next_sequence - peer.oldest < u64::from(peer.window)
            && now >= peer.pace_at;
        let free = usize::from(peer.free) < self.slots.len();
        let goes = usual && waiting == 0 && leaves && free && self.quota_left(class, channel);
        goes.then_some(Lone { index: peer.free, class, channel })
    }

    /// Where its message of `length` bytes is to be written.
    #[inline(always)]
    pub(crate) fn lone_message(&mut self, lone: Lone, length: usize) -> &mut [u8] {
        let from = usize::from(lone.index) * self.shared.config.stride() + FULL;
        &mut self.payload[from..from + length]
    }

    /// Sends it, with a message of `length` bytes, `bytes` of them its channel's. If the device has no room it is the first that waits.
    #[inline(always)]
    pub(crate) fn send_lone(&mut self, now: Nanoseconds, lone: Lone, length: usize, bytes: usize, link: &mut dyn Link) {
        let Lone { index, class, channel } = lone;
        let slot = &mut self.slots[usize::from(index)];
        self.peer.free = slot.next;
        *slot = Slot {
            length: length as u32,
            bytes: bytes as u32,
            channel,
            next: NONE,
            state: slot::FLIGHT,
            class: class as u8,
            sent_at: now,
            attempts: 1,
            ..Slot::default()
        };
        if channel != 0 {
            let record = &mut self.channels[usize::from(channel)];
            (slot.in_channel, slot.generation) = (record.next_sent, record.generation);
            record.next_sent = record.next_sent.wrapping_add(1);
            record.queued += 1;
            record.sent += bytes as u64;
        }
        let in_channel = slot.in_channel;
        self.peer.used[class as usize] += 1;
        self.mark_busy();
        let (sequence, limit) = (self.peer.next_sequence, self.request_limit());
        let prompt = u8::from(self.is_last(sequence)) * PROMPT;
        let peer = &mut *self.peer;
        let flags = prompt | if peer.sign == sign::CONFIRMED { 0 } else { TENTATIVE };
        let held_back = now.saturating_sub(peer.echo_at) / MICROSECOND;
        let numbers = Numbers {
            sequence: sequence as u32,
            acknowledged: peer.received as u32,
            limit,
            time: stamp(now),
            echo: if peer.echo == 0 { 0 } else { peer.echo.wrapping_add(held_back as u32).max(1) },
            in_channel,
        };
        let from = usize::from(index) * self.shared.config.stride();
        let frame = &mut self.payload[from..from + FULL + length];
        let first = u64::from(DATA) | u64::from(flags) << 8 | u64::from(channel) << 16;
        frame[..8].copy_from_slice(&first.to_le_bytes());
        frame[8..16].copy_from_slice(&peer.remote_token.to_le_bytes());
        numbers.emit(frame);
        let (head, rest) = frame.split_at(frame.len().min(HEAD));
        if !link.send(self.index, head, rest) {
            let slot = &mut self.slots[usize::from(index)];
            (slot.state, slot.attempts, slot.sent_at) = (slot::QUEUED, 0, 0);
            peer.queues[class as usize] = Queue { head: index, tail: index, length: 1 };
            return;
        }
        peer.limit_said = limit;
        // Only a map tells of what lies behind a gap.
        if peer.ahead == 0 {
            peer.unacknowledged = 0;
            peer.acknowledge_now = 0;
            peer.acknowledge_at = 0;
        }
        peer.counters.frames_sent += 1;
        peer.next_sequence += 1;
        peer.in_flight += 1;
        let place = self.place(sequence);
        self.order[place] = index;
        self.set_timers(now);
    }

    /// Takes a frame that is one of those; false: nothing was done.
    #[inline(always)]
    pub(crate) fn receive_lone(
        &mut self,
        now: Nanoseconds,
        frame: &[u8],
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> bool {
        let Some((head, messages)) = frame.split_first_chunk::<FULL>() else { return false };
        let (config, peer) = (&self.shared.config, &*self.peer);
        let (flags, channel) = (head[1], u16::from_le_bytes([head[2], head[3]]));
        let Ok(numbers) = Numbers::parse(head) else { return false };
        // The token is 0 when nothing is up.
        let usual = head[0] == DATA
            && u64_at(head, 8) == peer.token
            && peer.token != 0
            && config.reliable == 0
            && config.checked != 0
            && config.selective != 0
            && numbers.sequence == peer.received as u32
            && peer.ahead | peer.arrived | peer.again | peer.lost == 0;
        // At most one packet is acknowledged: in the usual case the one that this answers.
        let news = numbers.acknowledged.wrapping_sub(peer.oldest as u32);
        if !usual || news > 1 || u64::from(news) > peer.next_sequence - peer.oldest {
            return false;
        }
        if news == 1 {
            let slot = &self.slots[usize::from(self.order[self.place(peer.oldest)])];
            if slot.state != slot::FLIGHT || slot.attempts != 1 {
                return false;
            }
        }
        let raised = peer.limit.wrapping_sub(numbers.limit) as i32 <= 0;
        let ahead = numbers.limit.wrapping_sub(peer.requests_sent) as i32;
        if raised && ahead > MAXIMUM_WINDOW as i32 {
            return false;
        }
        let Some(brought) = self.brings(channel, &numbers, messages) else { return false };

        let peer = &mut *self.peer;
        peer.sign = sign::CONFIRMED;
        peer.last_heard = now;
        peer.counters.frames_received += 1;
        if raised {
            peer.limit = numbers.limit;
            if ahead > 0 {
                peer.starved = 0;
            }
        }
        if news == 1 {
            self.acknowledge_lone(now, numbers.echo);
        }
        self.note_time(now, &numbers);
        self.mark_received(now, self.peer.received, flags);
        match brought {
            Brought::Single(single) => self.run_single(now, &single, link, dispatch),
            Brought::Bytes(bytes) => {
                let record = &mut self.channels[usize::from(channel)];
                record.received += bytes.len() as u64;
                record.next_delivered = record.next_delivered.wrapping_add(1);
                self.offer_room(channel);
                dispatch.stream(self.index, channel, Data { bytes, rest: None });
            }
        }
        self.tell_acknowledged(dispatch);
        true
    }

    /// What a frame brings, if it is one message that belongs here and is the next one.
    #[inline(always)]
    fn brings<'b>(&self, channel: u16, numbers: &Numbers, messages: &'b [u8]) -> Option<Brought<'b>> {
        if channel == 0 {
            return self.single(messages).ok()?.map(Brought::Single);
        }
        let (head, bytes) = messages.split_first_chunk::<MESSAGE>()?;
        let record = self.channels.get(usize::from(channel))?;
        // Without words or flags.
        let usual = head[0] == Task::Stream as u8
            && head[2] == 0
            && u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize == bytes.len()
            && !bytes.is_empty();
        let next = u32::from(channel) <= self.shared.config.channels
            && numbers.in_channel == record.next_delivered
            && record.held == NONE
            && record.room_said.saturating_sub(record.received) >= bytes.len() as u64;
        (usual && next).then_some(Brought::Bytes(bytes))
    }

    /// The oldest packet, which was sent once, has arrived.
    #[inline(always)]
    fn acknowledge_lone(&mut self, now: Nanoseconds, echo: u32) {
        let sequence = self.peer.oldest;
        let index = self.order[self.place(sequence)];
        let sent_at = self.slots[usize::from(index)].sent_at;
        let limited = self.peer.in_flight + 1 >= self.peer.congestion.packets();
        self.release(index);
        let lost_after = self.shared.config.lost_after();
        let peer = &mut *self.peer;
        peer.in_flight -= 1;
        peer.oldest += 1;
        if sequence < peer.rack_sequence {
            peer.reordering = 1;
        }
        if (sent_at, sequence) > (peer.rack_sent_at, peer.rack_sequence) {
            (peer.rack_sent_at, peer.rack_sequence) = (sent_at, sequence);
        }
        peer.measure(now, echo, lost_after);
        peer.backoff = 0;
        peer.duplicate_acknowledgements = 0;
        let (round_trip, window) = (peer.round_trip.estimate(), peer.window);
        peer.congestion.acknowledged(now, 1, limited, round_trip, window);
        let at = if peer.in_flight == 0 { 0 } else { now + self.timeout() };
        self.peer.retransmit_at = at;
    }
}
