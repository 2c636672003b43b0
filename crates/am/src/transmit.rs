//! Packets into frames: what is sent next, acknowledgements, and the timers.

use crate::check::Sum;
use crate::config::{Nanoseconds, MAXIMUM_WINDOW, MICROSECOND};
use crate::connection::Side;
use crate::dispatch::{Dispatch, Link, Reason, HEAD};
use crate::frame::{Kind, Numbers, Short, FULL, PROMPT, SHORT, TENTATIVE};
use crate::state::{life, sign, slot, Class, NONE};

/// A microsecond clock as it goes into frames: 0 says "none".
pub(crate) fn stamp(now: Nanoseconds) -> u32 {
    ((now / MICROSECOND) as u32).max(1)
}

/// The integrity word of a frame whose first header has 0 in its place. The header is padded to a multiple of 16.
pub(crate) fn integrity(token: u64, head: &[u8], body: &[u8]) -> u32 {
    let mut padded = [0; 48];
    padded[..head.len()].copy_from_slice(head);
    Sum::new(token).add(&padded).add(body).finish()
}

impl Side<'_> {
    /// The first header of a plain frame, which carries the request limit.
    pub(crate) fn plain_header(&self, channel: u16, flags: u8) -> Short {
        let check = self.request_limit();
        Short { kind: Kind::Plain, flags, channel, check, token: self.peer.remote_token }
    }

    /// Sends a frame that has both headers. What it acknowledges needs no frame of its own after that.
    fn send_numbered(
        &mut self,
        now: Nanoseconds,
        short: Short,
        sequence: u64,
        in_channel: u32,
        body: Frame,
        link: &mut dyn Link,
    ) -> bool {
        let limit = self.request_limit();
        let held_back = now.saturating_sub(self.peer.echo_at) / MICROSECOND;
        let numbers = Numbers {
            sequence: sequence as u32,
            acknowledged: self.peer.received as u32,
            limit,
            time: stamp(now),
            echo: if self.peer.echo == 0 { 0 } else { self.peer.echo.wrapping_add(held_back as u32).max(1) },
            in_channel,
        };
        let short = Short { flags: short.flags | if self.peer.sign == sign::CONFIRMED { 0 } else { TENTATIVE }, ..short };
        let (peer, checked) = (self.index, self.shared.config.checked != 0);
        let mut map;
        let frame = match body {
            Frame::Packet(index) => self.frame_of(index),
            Frame::Map => {
                map = [0; FULL + MAXIMUM_WINDOW as usize / 8];
                let length = FULL + self.map(&mut map[FULL..]);
                &mut map[..length]
            }
        };
        short.emit(frame);
        numbers.emit(frame);
        if !checked {
            let check = integrity(short.token, &frame[..FULL], &frame[FULL..]);
            Short { check, ..short }.emit(frame);
        }
        let (head, rest) = frame.split_at(frame.len().min(HEAD));
        if !link.send(peer, head, rest) {
            return false;
        }
        let peer = &mut *self.peer;
        peer.limit_said = limit;
        // Only a map tells of what lies behind a gap.
        if peer.ahead == 0 || matches!(short.kind, Kind::Acknowledge) {
            peer.unacknowledged = 0;
            peer.acknowledge_now = 0;
            peer.acknowledge_at = 0;
        }
        true
    }

    /// Which packets behind the first missing one have arrived: words of 64 bits, the lowest bit of the first being the
    /// packet after the missing one. Gives their length.
    fn map(&self, into: &mut [u8]) -> usize {
        let map = &self.peer.map;
        let mut ahead = self.peer.ahead;
        let mut length = 0;
        for (at, bytes) in into.chunks_exact_mut(8).enumerate() {
            if ahead == 0 {
                break;
            }
            let first = (self.peer.received + 1) as usize + at * 64;
            let (word, shift) = (first / 64, first % 64);
            let mut bits = map[word % map.len()] >> shift;
            if shift != 0 {
                bits |= map[(word + 1) % map.len()] << (64 - shift);
            }
            ahead = ahead.saturating_sub(bits.count_ones());
            bytes.copy_from_slice(&bits.to_le_bytes());
            length = (at + 1) * 8;
        }
        length
    }

    /// Whether no further packet may follow this one before it is acknowledged: then the receiver's delay would be ours; unless so many
    /// are under way that others are acknowledged before.
    #[inline(always)]
    pub(crate) fn is_last(&self, sequence: u64) -> bool {
        let own = self.peer.used[Class::Request as usize] + self.peer.used[Class::Bulk as usize];
        let bound = self.peer.congestion.packets().min(self.peer.window).min(self.own_quota() / 4 * 3);
        let every = self.shared.config.acknowledge_every;
        let (quarter, under_way) = (u64::from(bound.max(every) / 4), self.peer.next_sequence + 1 - self.peer.oldest);
        bound < 4 * every
            && (self.peer.in_flight + 1 >= bound
                || under_way >= bound.into()
                || own >= bound
                || (under_way >= quarter && sequence.is_multiple_of(quarter.max(1))))
    }

    /// Sends a packet under its number, for the first time or again.
    fn send_packet(&mut self, now: Nanoseconds, index: u16, sequence: u64, link: &mut dyn Link) -> bool {
        let slot = self.slots[usize::from(index)];
        let last = self.is_last(sequence);
        let flags = if last || slot.attempts > 0 { PROMPT } else { 0 };
        let short = Short { kind: Kind::Data, flags, channel: slot.channel, check: 0, token: self.peer.remote_token };
        if !self.send_numbered(now, short, sequence, slot.in_channel, Frame::Packet(index), link) {
            return false;
        }
        self.peer.counters.frames_sent += 1;
        let timeout = self.timeout();
        let record = &mut self.slots[usize::from(index)];
        record.sent_at = now;
        record.attempts = record.attempts.saturating_add(1);
        if record.attempts > 1 {
            self.peer.again += u32::from(record.attempts == 2);
            self.peer.counters.retransmissions += 1;
        }
        if self.peer.retransmit_at == 0 {
            self.peer.retransmit_at = now + timeout;
        }
        true
    }

    pub(crate) fn timeout(&self) -> Nanoseconds {
        self.peer.round_trip.timeout(self.shared.config.timeouts(), self.peer.backoff)
    }

    /// Sends packets as far as windows, pace and device allow: lost ones first, then replies, requests, bulk.
    pub(crate) fn send_packets(&mut self, now: Nanoseconds, link: &mut dyn Link) {
        if self.reliable() {
            return self.send_plain_packets(link);
        }
        loop {
            let allowed = self.peer.in_flight < self.peer.congestion.packets();
            if self.peer.lost > 0 {
                if !(allowed || self.peer.in_flight == 0) || !self.send_lost(now, link) {
                    break;
                }
                continue;
            }
            let class = match self.next_class() {
                Some(class) if allowed => class,
                _ => break,
            };
            if self.peer.next_sequence - self.peer.oldest >= u64::from(self.peer.window) || now < self.peer.pace_at {
                break;
            }
            let index = self.peer.queues[class as usize].head;
            let sequence = self.peer.next_sequence;
            if !self.send_packet(now, index, sequence, link) {
                self.mark_busy();
                break;
            }
            self.dequeue(class);
            self.slots[usize::from(index)].state = slot::FLIGHT;
            self.order[self.place(sequence)] = index;
            self.peer.next_sequence += 1;
            self.peer.in_flight += 1;
            self.set_timers(now);
        }
    }

    /// A packet has left for the first time.
    #[inline(always)]
    pub(crate) fn set_timers(&mut self, now: Nanoseconds) {
        if self.peer.retransmit_at == 0 {
            self.peer.retransmit_at = now + self.timeout();
        }
        let round_trip = self.peer.round_trip.estimate();
        self.peer.pace_at = self.peer.congestion.paced(self.peer.pace_at, now, round_trip);
        if self.shared.config.selective != 0 {
            let delay = u64::from(self.shared.config.acknowledge_after) * MICROSECOND;
            self.peer.tail_probe_at = now + 2 * round_trip + delay + 500 * MICROSECOND;
        }
    }

    fn next_class(&self) -> Option<Class> {
        [Class::Reply, Class::Request, Class::Bulk].into_iter().find(|&class| self.peer.queues[class as usize].length > 0)
    }

    fn send_lost(&mut self, now: Nanoseconds, link: &mut dyn Link) -> bool {
        for sequence in self.peer.oldest..self.peer.next_sequence {
            let index = self.order[self.place(sequence)];
            if self.slots[usize::from(index)].state == slot::LOST {
                if !self.send_packet(now, index, sequence, link) {
                    self.mark_busy();
                    return false;
                }
                self.slots[usize::from(index)].state = slot::FLIGHT;
                self.peer.lost -= 1;
                self.peer.in_flight += 1;
                return true;
            }
        }
        self.peer.lost = 0;
        false
    }

    /// Over a device that loses nothing a packet that left is done with.
    fn send_plain_packets(&mut self, link: &mut dyn Link) {
        while let Some(class) = self.next_class() {
            let index = self.peer.queues[class as usize].head;
            let (peer, header) = (self.index, self.plain_header(self.slots[usize::from(index)].channel, 0));
            let frame = self.frame_of(index);
            header.emit(frame);
            let (head, rest) = frame.split_at(frame.len().min(HEAD));
            if !link.send(peer, head, rest) {
                self.mark_busy();
                return;
            }
            self.peer.limit_said = self.request_limit();
            self.peer.counters.frames_sent += 1;
            self.dequeue(class);
            self.release(index);
        }
    }

    /// What the connection does unasked: answers gets, says room, sends packets, acknowledges.
    pub(crate) fn pump(&mut self, now: Nanoseconds, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        if !self.is_up() {
            return;
        }
        if self.peer.serving_live != 0 {
            self.serve(link, dispatch);
        }
        self.say_room(link);
        self.send_packets(now, link);
        self.announce();
        if self.peer.acknowledge_now != 0 && !self.send_acknowledgement(now, link) {
            self.mark_busy();
        }
        self.schedule(now);
    }

    /// Requests that were handled gave credit back: say so before the peer runs dry.
    fn announce(&mut self) {
        let news = self.request_limit().wrapping_sub(self.peer.limit_said) as i32;
        let dry = self.peer.limit_said == self.peer.requests_taken;
        if news >= (self.shared.config.replies / 2).max(1) as i32 || (news > 0 && dry) {
            self.peer.acknowledge_now = 1;
        }
    }

    pub(crate) fn send_acknowledgement(&mut self, now: Nanoseconds, link: &mut dyn Link) -> bool {
        let sent = if self.reliable() {
            let mut head = [0; SHORT];
            self.plain_header(0, 0).emit(&mut head);
            link.send(self.index, &head, &[])
        } else {
            let short = Short { kind: Kind::Acknowledge, flags: 0, channel: 0, check: 0, token: self.peer.remote_token };
            self.send_numbered(now, short, self.peer.next_sequence, 0, Frame::Map, link)
        };
        if sent {
            self.peer.limit_said = self.request_limit();
            self.peer.acknowledge_now = 0;
            self.peer.counters.acknowledgements_sent += 1;
        }
        sent
    }

    /// Asks for a sign of life, and for the request limit.
    fn send_probe(&mut self, now: Nanoseconds, link: &mut dyn Link) {
        if self.reliable() {
            let mut head = [0; SHORT];
            self.plain_header(0, PROMPT).emit(&mut head);
            link.send(self.index, &head, &[]);
        } else {
            let short = Short { kind: Kind::Probe, flags: PROMPT, channel: 0, check: 0, token: self.peer.remote_token };
            self.send_numbered(now, short, self.peer.next_sequence, 0, Frame::Map, link);
        }
    }

    /// Whether a caller here is owed a sign of life.
    fn interested(&self) -> bool {
        let peer = &*self.peer;
        peer.in_flight + peer.lost > 0
            || peer.next_sequence != peer.oldest
            || self.queued() > 0
            || peer.starved != 0
            || peer.watched != 0
            || peer.sign == sign::PROVING
            || peer.room_due != NONE
            || peer.asked_live != 0
    }

    /// Silence that ends a connection. Probes ask a dozen times within it, and a sign may be noticed
    /// a sixteenth of the declared time late: the whole is never more.
    fn patience(&self) -> Nanoseconds {
        self.shared.config.lost_after() / 4 * 3
    }

    /// Whether the oldest packet has not arrived for the declared time, though it was sent again and again, and the peer is heard of: small
    /// frames get through, and this one does not ("black hole", RFC 8899, 4.3).
    fn is_stuck(&mut self, now: Nanoseconds) -> bool {
        /// A network that loses every fifth frame loses so many of one packet's in a row once in 600 times; and that is no second yet.
        const AGAIN: u16 = 4;
        let (oldest, patience) = (self.peer.oldest, self.patience());
        if oldest == self.peer.next_sequence {
            self.peer.stuck_since = 0;
            return false;
        }
        let attempts = self.slots[usize::from(self.order[self.place(oldest)])].attempts;
        let peer = &mut *self.peer;
        if peer.stuck_since == 0 || peer.stuck != oldest {
            (peer.stuck, peer.stuck_since, peer.stuck_attempts) = (oldest, now, attempts.into());
        }
        // A peer that stood still has heard nothing yet; and one that is silent is lost for that.
        peer.last_heard >= peer.stuck_since + patience && u32::from(attempts) >= peer.stuck_attempts + u32::from(AGAIN)
    }

    /// Sets the connection's next deadline from its timers.
    pub(crate) fn schedule(&mut self, now: Nanoseconds) {
        let mut next = Nanoseconds::MAX;
        let mut run = |at: Nanoseconds| {
            if at != 0 {
                next = next.min(at);
            }
        };
        match self.peer.life {
            life::UP => {
                if self.interested() {
                    if self.peer.interested_since == 0 {
                        self.peer.interested_since = now.max(1);
                    }
                    let since = self.peer.last_heard.max(self.peer.interested_since);
                    self.peer.lost_at = since + self.patience();
                    if self.peer.probe_at == 0 {
                        self.peer.probe_at = now + self.shared.config.lost_after() / 16;
                    }
                    // Also if the deadline was set before: what credit was said may have been lost since.
                    if self.peer.starved != 0 {
                        self.peer.probe_at = self.peer.probe_at.min(now + self.timeout());
                    }
                } else {
                    self.peer.interested_since = 0;
                    self.peer.lost_at = 0;
                    self.peer.probe_at = 0;
                }
                run(self.peer.lost_at);
                run(self.peer.probe_at);
                run(self.peer.acknowledge_at);
                if self.peer.sign == sign::PROVING {
                    run(self.peer.connect_at);
                }
                if !self.reliable() {
                    run(self.peer.retransmit_at);
                    run(self.peer.rack_at);
                    if self.peer.in_flight > 0 && self.peer.lost == 0 {
                        run(self.peer.tail_probe_at);
                    }
                    let paced = self.queued() > 0 && self.peer.in_flight < self.peer.congestion.packets();
                    if paced && self.peer.pace_at > now {
                        run(self.peer.pace_at);
                    }
                }
            }
            life::CONNECTING => {
                run(self.peer.connect_at);
                run(self.peer.lost_at);
            }
            _ => {}
        }
        self.peer.deadline = next;
        self.shared.deadline = self.shared.deadline.min(next);
    }

    /// Does what timers that have run out ask for.
    pub(crate) fn fire(&mut self, now: Nanoseconds, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        let over = |at: Nanoseconds| at != 0 && now >= at;
        if self.peer.life == life::CONNECTING {
            if over(self.peer.lost_at) {
                self.lose(now, Reason::Unreachable, dispatch);
            } else if over(self.peer.connect_at) {
                self.insist(now, link);
            }
        }
        if self.is_up() {
            if core::mem::take(&mut self.peer.heard) != 0 {
                self.peer.last_heard = now;
            } else if over(self.peer.lost_at) && now >= self.peer.last_heard.max(self.peer.interested_since) + self.patience() {
                if !dispatch.vouches(self.index) {
                    self.lose(now, Reason::Silent, dispatch);
                    return;
                }
                // A peer that stood still took no packet, either.
                self.peer.interested_since = now;
                self.peer.stuck_since = 0;
            }
            if self.is_stuck(now) {
                self.abandon(now, link, dispatch);
                return;
            }
            if self.peer.sign == sign::PROVING && over(self.peer.connect_at) {
                self.insist(now, link);
            }
            if over(self.peer.probe_at) {
                self.peer.probe_at = 0;
                self.send_probe(now, link);
            }
            if over(self.peer.acknowledge_at) {
                self.peer.acknowledge_at = 0;
                self.peer.acknowledge_now = 1;
            }
            if !self.reliable() {
                if over(self.peer.rack_at) {
                    self.detect_loss(now);
                }
                if over(self.peer.tail_probe_at) && self.peer.lost == 0 && self.peer.in_flight > 0 {
                    self.probe_tail(now, link);
                }
                if over(self.peer.retransmit_at) {
                    self.time_out(now);
                }
            }
        }
        self.pump(now, link, dispatch);
        self.schedule(now);
    }

    /// Sends the newest unacknowledged packet again, so that its acknowledgement shows what is missing (RFC 8985, section 7).
    fn probe_tail(&mut self, now: Nanoseconds, link: &mut dyn Link) {
        self.peer.tail_probe_at = 0;
        for sequence in (self.peer.oldest..self.peer.next_sequence).rev() {
            let index = self.order[self.place(sequence)];
            if self.slots[usize::from(index)].state == slot::FLIGHT {
                if self.send_packet(now, index, sequence, link) {
                    self.peer.retransmit_at = now + self.timeout();
                }
                return;
            }
        }
    }

    /// RFC 6298, 5.4 to 5.6: everything under way counts as lost, and the timer backs off.
    fn time_out(&mut self, now: Nanoseconds) {
        self.peer.retransmit_at = 0;
        if self.peer.in_flight + self.peer.lost == 0 {
            return;
        }
        for sequence in self.peer.oldest..self.peer.next_sequence {
            let index = self.order[self.place(sequence)];
            let slot = &mut self.slots[usize::from(index)];
            if slot.state == slot::FLIGHT {
                slot.state = slot::LOST;
                self.peer.lost += 1;
                self.peer.in_flight -= 1;
            }
        }
        self.peer.congestion.timed_out(now, self.peer.backoff == 0);
        self.peer.counters.timeouts += 1;
        self.peer.backoff += 1;
        self.peer.rack_at = 0;
        self.peer.retransmit_at = now + self.timeout();
    }
}

/// What follows the headers.
#[derive(Clone, Copy)]
enum Frame {
    Packet(u16),
    Map,
}
