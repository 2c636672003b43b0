//! Messages from the program into packets; or, on a device that loses nothing, straight into the device.

use crate::config::{store_channel, Nanoseconds, FETCHES};
use crate::connection::Side;
use crate::dispatch::{Access, Dispatch, Link, Refused};
use crate::frame::{write_opening, Opening, Task, LAST, MESSAGE, WIRE_WORDS, WORDS};
use crate::state::{Class, Fetch};

/// Where bytes of the program come from: copies the next ones into all of the slice; false if they cannot be read.
pub type Fill<'a> = &'a mut dyn FnMut(&mut [u8]) -> bool;

/// Where the bytes of a store come from.
pub(crate) enum Source<'a> {
    /// Memory that stays as it is until the store is complete.
    Bytes(&'a [u8]),
    /// So many bytes: those at an offset are copied into a packet, all that the slice takes.
    Copied(usize, &'a mut dyn FnMut(usize, &mut [u8])),
}

impl Source<'_> {
    fn length(&self) -> usize {
        match self {
            Source::Bytes(bytes) => bytes.len(),
            Source::Copied(length, _) => *length,
        }
    }
}

/// A store: where its bytes go, and the handler that runs there when all have arrived.
#[derive(Clone, Copy, Debug)]
pub struct Store<'a> {
    /// First byte in the peer's segment.
    pub offset: u64,
    /// The handler.
    pub handler: u8,
    /// Its words, at most eight.
    pub words: &'a [u64],
}

/// A get: bytes of the peer's segment to ours.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// First byte in the peer's segment.
    pub from: u64,
    /// First byte in ours.
    pub to: u64,
    /// Bytes.
    pub length: u64,
    /// The handler that runs here when all have arrived.
    pub handler: u8,
    /// Its words, at most eight.
    pub words: &'a [u64],
}

/// The first word of a room message: the channel, and which use of it is meant.
fn room_name(channel: u16, generation: u32) -> u64 {
    u64::from(channel) | u64::from(generation) << 32
}

impl Side<'_> {
    /// Whether the peer takes one more request; if not, it will be asked.
    fn take_credit(&mut self) -> Result<(), Refused> {
        if self.peer.limit.wrapping_sub(self.peer.requests_sent) as i32 <= 0 {
            self.peer.starved = 1;
            self.mark_busy();
            return Err(Refused::NoCredit);
        }
        Ok(())
    }

    /// Sends one message by the short way, if it may go; false: nothing was done.
    #[inline]
    fn goes_alone(
        &mut self,
        now: Nanoseconds,
        (class, channel): (Class, u16),
        opening: &Opening,
        data: &[u8],
        link: &mut dyn Link,
    ) -> bool {
        let (opening, length) = (opening.bytes(), opening.bytes().len() + data.len());
        let Some(lone) = self.lone(now, class, channel, length) else { return false };
        let (first, second) = self.lone_message(lone, length).split_at_mut(opening.len());
        first.copy_from_slice(opening);
        second.copy_from_slice(data);
        self.send_lone(now, lone, length, 0, link);
        true
    }

    /// Puts one message into a packet of the class.
    fn enqueue(&mut self, class: Class, channel: u16, opening: &[u8], data: &[u8]) -> Result<(), Refused> {
        self.enqueue_copied(class, channel, opening, data.len(), |into| into.copy_from_slice(data))
    }

    /// The same, of `count` bytes of data that `copy` writes into the packet.
    #[inline]
    fn enqueue_copied(
        &mut self,
        class: Class,
        channel: u16,
        opening: &[u8],
        count: usize,
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refused> {
        let length = opening.len() + count;
        if length > self.capacity() {
            return Err(Refused::TooLong);
        }
        let (index, _) = self.open_packet(class, channel, length).ok_or(Refused::NoRoom)?;
        let tail = self.tail_of(index);
        tail[..opening.len()].copy_from_slice(opening);
        copy(&mut tail[opening.len()..length]);
        self.slots[usize::from(index)].length += length as u32;
        self.mark_busy();
        Ok(())
    }

    /// Sends what may be sent now, unless messages are to be combined. Timers are set by the `transmit` that follows: the call
    /// that put a message into a packet marked the peer as busy.
    fn push(&mut self, now: Nanoseconds, link: &mut dyn Link) {
        if self.shared.config.combine == 0 {
            self.send_packets(now, link);
        }
    }

    /// One message straight into the device. The device takes 112 bytes of head: all of this protocol's.
    #[inline]
    fn send_plain(&mut self, channel: u16, opening: &mut Opening, data: &[u8], link: &mut dyn Link) -> bool {
        let header = self.plain_header(channel, 0);
        if !link.send(self.index, opening.plain(&header), data) {
            return false;
        }
        self.peer.limit_said = header.check;
        self.peer.counters.frames_sent += 1;
        true
    }

    pub(crate) fn request(
        &mut self,
        now: Nanoseconds,
        channel: u16,
        handler: u8,
        words: &[u64],
        data: &[u8],
        link: &mut dyn Link,
    ) -> Result<(), Refused> {
        if !self.is_up() {
            return Err(Refused::NotConnected);
        }
        if words.len() > WORDS || u32::from(channel) > self.peer.channels {
            return Err(Refused::Argument);
        }
        if MESSAGE + words.len() * 8 + data.len() > self.capacity() {
            return Err(Refused::TooLong);
        }
        self.take_credit()?;
        let mut opening = Opening::new(Task::Request, handler, 0, words, data.len());
        if self.reliable() && self.shared.config.combine == 0 {
            // What waits in packets goes first, or order would be lost.
            if self.queued() > 0 || !self.send_plain(channel, &mut opening, data, link) {
                self.mark_busy();
                return Err(Refused::NoRoom);
            }
        } else {
            // All of a channel is one queue: numbers in it are given before packets leave.
            let class = if channel == 0 { Class::Request } else { Class::Bulk };
            if !self.goes_alone(now, (class, channel), &opening, data, link) {
                self.enqueue(class, channel, opening.bytes(), data)?;
                self.push(now, link);
            }
        }
        self.peer.requests_sent = self.peer.requests_sent.wrapping_add(1);
        Ok(())
    }

    /// A reply to a request that is being handled: `replies_owed` counts it already.
    pub(crate) fn reply(
        &mut self,
        now: Nanoseconds,
        task: Task,
        handler: u8,
        words: &[u64],
        data: &[u8],
        link: &mut dyn Link,
    ) -> Result<(), Refused> {
        if MESSAGE + words.len() * 8 + data.len() > self.capacity() {
            return Err(Refused::TooLong);
        }
        let mut opening = Opening::new(task, handler, 0, words, data.len());
        if self.reliable() && self.peer.queues[Class::Reply as usize].length == 0 && self.shared.config.combine == 0 {
            // Counted as answered before it leaves, so that the frame carries the credit.
            self.peer.replies_owed = self.peer.replies_owed.saturating_sub(1);
            if self.send_plain(0, &mut opening, data, link) {
                return Ok(());
            }
            self.peer.replies_owed += 1;
            return self.enqueue_reply(opening.bytes(), data);
        }
        if !self.goes_alone(now, (Class::Reply, 0), &opening, data, link) {
            self.enqueue_reply(opening.bytes(), data)?;
            self.push(now, link);
        }
        Ok(())
    }

    fn enqueue_reply(&mut self, opening: &[u8], data: &[u8]) -> Result<(), Refused> {
        let before = self.peer.used[Class::Reply as usize];
        self.enqueue(Class::Reply, 0, opening, data)?;
        if self.peer.used[Class::Reply as usize] == before {
            // It joined a packet that is counted already.
            self.peer.replies_owed = self.peer.replies_owed.saturating_sub(1);
        }
        Ok(())
    }

    /// Bytes for an ordered channel: as many as the peer has room for and packets take. The program's bytes are copied
    /// straight into packets by `fill`, or sent from where `bytes` lie on a device that loses nothing.
    pub(crate) fn send(
        &mut self,
        now: Nanoseconds,
        channel: u16,
        length: usize,
        bytes: Option<&[u8]>,
        fill: Fill<'_>,
        link: &mut dyn Link,
    ) -> Result<usize, Refused> {
        if !self.is_up() {
            return Err(Refused::NotConnected);
        }
        if channel == 0 || u32::from(channel) > self.peer.channels {
            return Err(Refused::Argument);
        }
        let at = usize::from(channel);
        let room = self.channels[at].limit.saturating_sub(self.channels[at].sent);
        let length = length.min(usize::try_from(room).unwrap_or(usize::MAX));
        if length > 0 {
            if let Some(lone) = self.lone(now, Class::Bulk, channel, MESSAGE + length) {
                let into = self.lone_message(lone, MESSAGE + length);
                write_opening(into, Task::Stream, 0, 0, &[], length);
                let into = &mut into[MESSAGE..];
                let filled = match bytes {
                    Some(bytes) => {
                        into.copy_from_slice(&bytes[..length]);
                        true
                    }
                    None => fill(into),
                };
                if !filled {
                    return Err(Refused::NoRoom);
                }
                self.send_lone(now, lone, MESSAGE + length, length, link);
                return Ok(length);
            }
        }
        let mut done = 0;
        while done < length {
            let wanted = length - done;
            if let Some(bytes) = bytes.filter(|_| self.reliable() && self.queued() == 0) {
                let part = wanted.min(self.capacity() - MESSAGE);
                let mut opening = Opening::new(Task::Stream, 0, 0, &[], part);
                if !self.send_plain(channel, &mut opening, &bytes[done..done + part], link) {
                    self.mark_busy();
                    break;
                }
                done += part;
                self.channels[at].sent += part as u64;
                continue;
            }
            let least = MESSAGE + wanted.min(64);
            let Some((index, space)) = self.open_packet(Class::Bulk, channel, least) else { break };
            let part = wanted.min(space - MESSAGE);
            let tail = self.tail_of(index);
            write_opening(tail, Task::Stream, 0, 0, &[], part);
            let into = &mut tail[MESSAGE..MESSAGE + part];
            let filled = match bytes {
                Some(bytes) => {
                    into.copy_from_slice(&bytes[done..done + part]);
                    true
                }
                None => fill(into),
            };
            if !filled {
                // What could not be read is a message without bytes, so that its packet has some meaning.
                write_opening(self.tail_of(index), Task::Stream, 0, 0, &[], 0);
                self.slots[usize::from(index)].length += MESSAGE as u32;
                break;
            }
            let slot = &mut self.slots[usize::from(index)];
            slot.length += (MESSAGE + part) as u32;
            slot.bytes += part as u32;
            done += part;
            self.channels[at].sent += part as u64;
            self.mark_busy();
            if self.shared.config.combine == 0 && self.peer.queues[Class::Bulk as usize].length >= 8 {
                self.send_packets(now, link);
            }
        }
        if done > 0 {
            self.push(now, link);
        }
        if done == 0 && length > 0 {
            Err(Refused::NoRoom)
        } else {
            Ok(done)
        }
    }

    /// The peer may send up to `limit` bytes on the channel, counted from the connection's beginning. Never taken back.
    /// Said to the peer with the next packet once `step` bytes are new to it; sooner if nothing is left of the old limit.
    pub(crate) fn grant(&mut self, channel: u16, limit: u64, step: u64) -> Result<(), Refused> {
        if !self.is_up() {
            return Err(Refused::NotConnected);
        }
        if channel == 0 || u32::from(channel) > self.peer.channels {
            return Err(Refused::Argument);
        }
        let record = &mut self.channels[usize::from(channel)];
        record.room = record.room.max(limit);
        if record.room - record.room_said >= step.max(1) {
            self.owe_room(channel);
        }
        self.offer_room(channel);
        Ok(())
    }

    /// A sender that used up what it was told of would wait for ever for news that are too small to be told. Looked at when room
    /// is granted and when bytes arrive: nothing else makes it so.
    pub(crate) fn offer_room(&mut self, channel: u16) {
        let Some(record) = self.channels.get(usize::from(channel)) else { return };
        if record.room > record.room_said && record.received >= record.room_said {
            self.owe_room(channel);
        }
    }

    /// The channel's room will be said.
    fn owe_room(&mut self, channel: u16) {
        let record = &mut self.channels[usize::from(channel)];
        if record.room_due == 0 {
            record.room_due = 1;
            record.next_room = core::mem::replace(&mut self.peer.room_due, channel);
            self.mark_busy();
        }
    }

    /// Turns room that is due into messages, as far as packets are free.
    pub(crate) fn say_room(&mut self, link: &mut dyn Link) {
        while self.peer.room_due != crate::state::NONE {
            let channel = self.peer.room_due;
            let Some(record) = self.channels.get(usize::from(channel)) else { break };
            let mut opening = Opening::new(Task::Room, 0, 0, &[room_name(channel, record.generation), record.room], 0);
            let plain = self.reliable() && self.queued() == 0;
            if !(plain && self.send_plain(0, &mut opening, &[], link)) {
                let record = &self.channels[usize::from(channel)];
                let words = [room_name(channel, record.generation), record.room];
                let opening = Opening::new(Task::Room, 0, 0, &words, 0);
                if self.enqueue(Class::Request, 0, opening.bytes(), &[]).is_err() {
                    break;
                }
            }
            let record = &mut self.channels[usize::from(channel)];
            record.room_said = record.room;
            record.room_due = 0;
            self.peer.room_due = record.next_room;
        }
    }

    /// Goes on with a store whose first `done` bytes are sent; true: all are. Ends with the message that runs the handler,
    /// which needs a request's credit.
    pub(crate) fn store(
        &mut self,
        now: Nanoseconds,
        store: &Store<'_>,
        source: &mut Source<'_>,
        done: &mut usize,
        link: &mut dyn Link,
    ) -> Result<bool, Refused> {
        if !self.is_up() {
            return Err(Refused::NotConnected);
        }
        let length = source.length();
        if store.words.len() > WORDS || *done > length {
            return Err(Refused::Argument);
        }
        let channel = store_channel(&self.shared.config);
        let mut words = [0; WIRE_WORDS];
        words[1..3].copy_from_slice(&[store.offset, length as u64]);
        words[3..3 + store.words.len()].copy_from_slice(store.words);
        loop {
            words[0] = store.offset.wrapping_add(*done as u64);
            let wanted = length - *done;
            let most = self.capacity() - MESSAGE - WIRE_WORDS * 8;
            let last = wanted <= most;
            let (count, part) = if last { (3 + store.words.len(), wanted) } else { (1, self.capacity() - MESSAGE - 8) };
            if last {
                self.take_credit()?;
            }
            let (at, part) = (*done, part.min(wanted));
            let mut opening = Opening::new(Task::Store, store.handler, u8::from(last) * LAST, &words[..count], part);
            let queued = match source {
                Source::Bytes(bytes) if self.reliable() && self.queued() == 0 => {
                    if !self.send_plain(channel, &mut opening, &bytes[at..at + part], link) {
                        self.mark_busy();
                        return Ok(false);
                    }
                    Ok(())
                }
                Source::Bytes(bytes) => self.enqueue(Class::Bulk, channel, opening.bytes(), &bytes[at..at + part]),
                Source::Copied(_, copy) => {
                    self.enqueue_copied(Class::Bulk, channel, opening.bytes(), part, |into| copy(at, into))
                }
            };
            if queued.is_err() {
                self.push(now, link);
                return Ok(false);
            }
            *done += part;
            if last {
                self.peer.requests_sent = self.peer.requests_sent.wrapping_add(1);
                self.push(now, link);
                return Ok(true);
            }
            if self.peer.queues[Class::Bulk as usize].length >= 8 && self.shared.config.combine == 0 {
                self.send_packets(now, link);
            }
        }
    }

    pub(crate) fn get(&mut self, now: Nanoseconds, get: &Get<'_>, link: &mut dyn Link) -> Result<(), Refused> {
        if !self.is_up() {
            return Err(Refused::NotConnected);
        }
        if get.words.len() > WORDS {
            return Err(Refused::Argument);
        }
        self.take_credit()?;
        let name = self.peer.fetch_name;
        let record = &self.peer.asked[name as usize % FETCHES];
        if record.live != 0 {
            return Err(Refused::NoRoom);
        }
        let mut opening = Opening::new(Task::Get, 0, 0, &[get.from, get.length, name], 0);
        if self.reliable() && self.queued() == 0 {
            if !self.send_plain(0, &mut opening, &[], link) {
                self.mark_busy();
                return Err(Refused::NoRoom);
            }
        } else {
            self.enqueue(Class::Request, 0, opening.bytes(), &[])?;
        }
        let mut words = [0; WORDS];
        words[..get.words.len()].copy_from_slice(get.words);
        self.peer.asked[name as usize % FETCHES] = Fetch {
            name,
            offset: get.to,
            length: get.length,
            done: 0,
            words,
            count: get.words.len() as u32,
            handler: u32::from(get.handler),
            live: 1,
            refused: 0,
        };
        self.peer.asked_live += 1;
        self.peer.fetch_name += 1;
        self.peer.requests_sent = self.peer.requests_sent.wrapping_add(1);
        self.push(now, link);
        // From now on a caller waits for the peer, also where the question left without a packet.
        self.schedule(now);
        Ok(())
    }

    /// Answers gets, as far as packets are free.
    pub(crate) fn serve(&mut self, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        let channel = crate::config::fetch_channel(&self.shared.config);
        for turn in 0..FETCHES {
            let at = self.peer.serve_next.wrapping_add(turn as u64) as usize % FETCHES;
            while self.peer.serving[at].live != 0 {
                let fetch = self.peer.serving[at];
                let rest = fetch.length.saturating_sub(fetch.done) as usize;
                let part = if fetch.refused != 0 { 0 } else { rest.min(self.capacity() - MESSAGE - 16) };
                let from = fetch.offset.saturating_add(fetch.done);
                // What is refused may have asked for bytes that lie nowhere.
                let found =
                    if part == 0 { Some(&mut [][..]) } else { dispatch.place(self.index, Access::Get, from, part as u64) };
                let Some(data) = found else {
                    // The segment shrank, or a region was taken back, since the request was checked.
                    self.peer.serving[at].refused = 1;
                    continue;
                };
                let last = part == rest || fetch.refused != 0;
                let flags = (u8::from(last) * LAST) | (u8::from(fetch.refused != 0) * crate::frame::REFUSED);
                let mut opening = Opening::new(Task::Fetched, 0, flags, &[fetch.name, fetch.done], part);
                let sent = if self.reliable() && self.queued() == 0 {
                    self.send_plain(channel, &mut opening, data, link)
                } else {
                    self.enqueue(Class::Bulk, channel, opening.bytes(), data).is_ok()
                };
                if !sent {
                    self.mark_busy();
                    return;
                }
                self.peer.serving[at].done += part as u64;
                if last {
                    self.peer.serving[at].live = 0;
                    self.peer.serving_live = self.peer.serving_live.saturating_sub(1);
                    // The name is the peer's, and may be the last there is.
                    self.peer.serve_next = fetch.name.wrapping_add(1);
                }
            }
        }
    }
}
