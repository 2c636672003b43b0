//! Frames from the device: who sent them, whether they are new, and what their messages ask for.
//!
//! A frame is judged as a whole before anything of it is done: one that is not all in order has no effect but a count.

use crate::config::{fetch_channel, store_channel, Nanoseconds, FETCHES, MAXIMUM_WINDOW, MICROSECOND};
use crate::connection::{expand, Side};
use crate::dispatch::{Body, Data, Dispatch, Link, Message, Reason, Replier};
use crate::frame::{Hello, Item, Kind, Numbers, Rejection, Short, Task, FULL, LAST, PROMPT, REFUSED, SHORT, WORDS};
use crate::handshake::greeting_check;
use crate::state::{life, Fetch, NONE};
use crate::transmit::integrity;

/// What the messages of one frame would use up.
#[derive(Default)]
struct Need {
    requests: u32,
    replies: u32,
    bytes: u64,
    gets: u32,
}

impl Side<'_> {
    /// One frame, `bytes` and then `rest`.
    pub(crate) fn receive(
        &mut self,
        now: Nanoseconds,
        bytes: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) {
        let outcome = match Short::parse(bytes) {
            Ok(short) if short.kind == Kind::Plain && self.reliable() => {
                self.receive_plain(now, &short, bytes, rest, link, dispatch)
            }
            Ok(short) => self.receive_other(now, &short, bytes, rest, link, dispatch),
            Err(rejection) => Err(rejection),
        };
        if outcome.is_err() {
            self.peer.counters.rejected += 1;
        }
    }

    /// A frame over a device that loses nothing.
    fn receive_plain(
        &mut self,
        now: Nanoseconds,
        short: &Short,
        bytes: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<(), Rejection> {
        if !self.addressed(now, short, link, dispatch) {
            return Ok(());
        }
        self.peer.heard = 1;
        self.peer.counters.frames_received += 1;
        let ahead = short.check.wrapping_sub(self.peer.requests_sent) as i32;
        if ahead > MAXIMUM_WINDOW as i32 {
            return self.violation();
        }
        if self.peer.limit.wrapping_sub(short.check) as i32 <= 0 {
            self.peer.limit = short.check;
            if ahead > 0 {
                self.peer.starved = 0;
            }
        }
        let messages = &bytes[SHORT..];
        if messages.is_empty() {
            if short.flags & PROMPT != 0 {
                self.peer.acknowledge_now = 1;
                self.mark_busy();
            }
            return Ok(());
        }
        if short.channel == 0 && rest.is_none() && self.receive_single(now, messages, link, dispatch)? {
            return Ok(());
        }
        let need = self.judge(short.channel, messages, rest)?;
        if !self.affords(short.channel, &need) {
            return self.violation();
        }
        self.account(short.channel, &need);
        self.deliver(now, short.channel, messages, rest, link, dispatch);
        if need.requests > 0 {
            let news = self.request_limit().wrapping_sub(self.peer.limit_said) as i32;
            if news >= (self.shared.config.replies / 2).max(1) as i32 {
                self.mark_busy();
            }
        }
        Ok(())
    }

    /// The way of almost all plain frames: one request or reply, judged and done at once. False: it is something else.
    #[inline]
    fn receive_single(
        &mut self,
        now: Nanoseconds,
        messages: &[u8],
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<bool, Rejection> {
        let (item, behind) = Item::parse(messages)?;
        let (words, count) = item.words();
        let single = behind.is_empty() && count <= WORDS;
        let message =
            Message { peer: self.index, channel: 0, handler: item.handler, words: &words[..count], data: item.data, bulk: None };
        match item.task {
            Task::Request if single && self.peer.limit_said != self.peer.requests_taken => {
                self.peer.requests_taken = self.peer.requests_taken.wrapping_add(1);
                self.peer.replies_owed += 1;
                self.run_request(now, message, link, dispatch);
                let news = self.request_limit().wrapping_sub(self.peer.limit_said) as i32;
                if news >= (self.shared.config.replies / 2).max(1) as i32 {
                    self.mark_busy();
                }
            }
            Task::Reply if single && self.peer.requests_sent != self.peer.replies_received => {
                self.peer.replies_received = self.peer.replies_received.wrapping_add(1);
                self.peer.counters.handled += 1;
                dispatch.reply(message);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn violation(&mut self) -> Result<(), Rejection> {
        self.peer.counters.violations += 1;
        Ok(())
    }

    fn receive_other(
        &mut self,
        now: Nanoseconds,
        short: &Short,
        bytes: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<(), Rejection> {
        if short.kind == Kind::Data {
            return self.receive_numbered(now, short, bytes, rest, link, dispatch);
        }
        if rest.is_some() {
            return Err(Rejection::Message);
        }
        let body = &bytes[SHORT..];
        let hello = matches!(short.kind, Kind::Ask | Kind::Answer | Kind::Prove | Kind::Confirm);
        if hello || matches!(short.kind, Kind::Reset | Kind::Bye) {
            let head = bytes.first_chunk::<SHORT>().ok_or(Rejection::Short)?;
            if greeting_check(head, body) != short.check {
                return Err(Rejection::Check);
            }
        }
        match short.kind {
            Kind::Ask | Kind::Answer | Kind::Prove | Kind::Confirm => {
                self.greeted(now, short.kind, short.token, Hello::parse(body)?, link, dispatch);
            }
            Kind::Reset if self.is_up() && short.token == self.peer.remote_token => self.lose(now, Reason::Reset, dispatch),
            Kind::Bye if self.is_up() && short.token == self.peer.token => self.lose(now, Reason::Closed, dispatch),
            Kind::Reset | Kind::Bye => self.peer.counters.stale += 1,
            Kind::Plain => return Err(Rejection::Kind),
            Kind::Data | Kind::Acknowledge | Kind::Probe => {
                return self.receive_numbered(now, short, bytes, None, link, dispatch)
            }
        }
        Ok(())
    }

    fn receive_numbered(
        &mut self,
        now: Nanoseconds,
        short: &Short,
        bytes: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<(), Rejection> {
        let numbers = Numbers::parse(bytes)?;
        let body = &bytes[FULL..];
        if self.reliable() {
            return self.violation();
        }
        if self.shared.config.checked == 0 {
            if rest.is_some() {
                // What is not in private memory cannot be judged.
                return Err(Rejection::Check);
            }
            let mut head = *bytes.first_chunk::<FULL>().ok_or(Rejection::Short)?;
            head[4..8].fill(0);
            if integrity(short.token, &head, body) != short.check {
                return Err(Rejection::Check);
            }
        }
        if !self.addressed(now, short, link, dispatch) {
            return Ok(());
        }
        self.peer.last_heard = now;
        self.peer.counters.frames_received += 1;
        let map = (short.kind == Kind::Acknowledge).then_some(body);
        let sane = self.acknowledge(now, &numbers, map);
        self.tell_acknowledged(dispatch);
        if !sane {
            return self.violation();
        }
        match short.kind {
            Kind::Data => self.receive_packet(now, short, &numbers, body, rest, link, dispatch),
            Kind::Probe => {
                self.note_time(now, &numbers);
                self.peer.acknowledge_now = 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn note_time(&mut self, now: Nanoseconds, numbers: &Numbers) {
        self.peer.echo = numbers.time;
        self.peer.echo_at = now;
    }

    #[allow(clippy::too_many_arguments)] // a packet has so many parts
    fn receive_packet(
        &mut self,
        now: Nanoseconds,
        short: &Short,
        numbers: &Numbers,
        body: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<(), Rejection> {
        let sequence = expand(self.peer.received, numbers.sequence);
        let (word, bit) = (sequence as usize / 64 % self.peer.map.len(), 1u64 << (sequence % 64));
        if sequence < self.peer.received || self.peer.map[word] & bit != 0 {
            // Our acknowledgement was lost, or the network doubles frames.
            self.peer.counters.duplicates += 1;
            self.note_time(now, numbers);
            self.peer.acknowledge_now = 1;
            return Ok(());
        }
        let window = u64::from(self.shared.config.window);
        let in_order = self.shared.config.selective != 0 || sequence == self.peer.received;
        if sequence >= self.peer.received + window || !in_order {
            self.peer.counters.overruns += 1;
            self.peer.acknowledge_now = 1;
            return Ok(());
        }
        let need = self.judge(short.channel, body, rest)?;
        if !self.affords(short.channel, &need) {
            return self.violation();
        }
        let lane = usize::from(short.channel);
        let early = match self.channels.get(lane) {
            _ if short.channel == 0 => 0,
            Some(channel) => numbers.in_channel.wrapping_sub(channel.next_delivered) as i32,
            None => return self.violation(),
        };
        if early < 0 || early > window as i32 {
            return self.violation();
        }
        if early > 0 && !self.hold(short.channel, numbers.in_channel, Data { bytes: body, rest }) {
            self.peer.counters.overruns += 1;
            return Ok(());
        }
        self.note_time(now, numbers);
        self.mark_received(now, sequence, short.flags);
        self.account(short.channel, &need);
        if early == 0 {
            self.deliver(now, short.channel, body, rest, link, dispatch);
            if short.channel != 0 && self.is_up() {
                self.channels[lane].next_delivered = self.channels[lane].next_delivered.wrapping_add(1);
                self.deliver_held(now, short.channel, link, dispatch);
            }
        }
        Ok(())
    }

    fn mark_received(&mut self, now: Nanoseconds, sequence: u64, flags: u8) {
        let peer = &mut *self.peer;
        let at = |sequence: u64| (sequence as usize / 64 % (MAXIMUM_WINDOW as usize / 64), 1u64 << (sequence % 64));
        let gap = peer.ahead > 0;
        if sequence == peer.received {
            peer.received += 1;
            loop {
                let (word, bit) = at(peer.received);
                if peer.map[word] & bit == 0 {
                    break;
                }
                peer.map[word] &= !bit;
                peer.ahead -= 1;
                peer.received += 1;
            }
        } else {
            let (word, bit) = at(sequence);
            peer.map[word] |= bit;
            peer.ahead += 1;
        }
        peer.unacknowledged += 1;
        let at_once = gap || peer.ahead > 0 || flags & PROMPT != 0;
        if at_once || peer.unacknowledged >= self.shared.config.acknowledge_every {
            peer.acknowledge_now = 1;
        } else if peer.acknowledge_at == 0 {
            peer.acknowledge_at = now + u64::from(self.shared.config.acknowledge_after) * MICROSECOND;
        }
        self.mark_busy();
    }

    /// Keeps a packet until those before it in its channel have come. The list is in order.
    fn hold(&mut self, channel: u16, in_channel: u32, body: Data<'_>) -> bool {
        let index = self.peer.free_held;
        let stride = self.shared.config.stride();
        let Some(record) = self.holds.get_mut(usize::from(index)) else { return false };
        let Some(place) = self.held.get_mut(usize::from(index) * stride..).and_then(|held| held.get_mut(..body.len())) else {
            return false;
        };
        if !body.copy_to(0, place) {
            return false;
        }
        self.peer.free_held = record.next;
        record.length = body.len() as u32;
        record.in_channel = in_channel;
        let delivered = self.channels[usize::from(channel)].next_delivered;
        let distance = |other: u32| other.wrapping_sub(delivered);
        let (mut before, mut next) = (NONE, self.channels[usize::from(channel)].held);
        while let Some(other) = self.holds.get(usize::from(next)) {
            if distance(other.in_channel) > distance(in_channel) {
                break;
            }
            (before, next) = (next, other.next);
        }
        self.holds[usize::from(index)].next = next;
        match self.holds.get_mut(usize::from(before)) {
            Some(other) => other.next = index,
            None => self.channels[usize::from(channel)].held = index,
        }
        self.peer.held_count += 1;
        true
    }

    fn deliver_held(&mut self, now: Nanoseconds, channel: u16, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        let lane = usize::from(channel);
        let stride = self.shared.config.stride();
        loop {
            let index = self.channels[lane].held;
            let Some(&record) = self.holds.get(usize::from(index)) else { return };
            if record.in_channel != self.channels[lane].next_delivered {
                if (record.in_channel.wrapping_sub(self.channels[lane].next_delivered) as i32) < 0 {
                    // Two packets with one number: the peer lies. The second is dropped.
                    self.peer.counters.violations += 1;
                    self.drop_held(lane, index, record.next);
                    continue;
                }
                return;
            }
            // The bytes are lent out while handlers run, so that they may use the connection.
            let held = core::mem::take(&mut self.held);
            let from = usize::from(index) * stride;
            let body = held.get(from..).and_then(|held| held.get(..record.length as usize)).unwrap_or_default();
            self.deliver(now, channel, body, None, link, dispatch);
            self.held = held;
            if !self.is_up() {
                return;
            }
            self.channels[lane].next_delivered = self.channels[lane].next_delivered.wrapping_add(1);
            self.drop_held(lane, index, record.next);
        }
    }

    fn drop_held(&mut self, lane: usize, index: u16, next: u16) {
        self.channels[lane].held = next;
        self.holds[usize::from(index)].next = core::mem::replace(&mut self.peer.free_held, index);
        self.peer.held_count = self.peer.held_count.saturating_sub(1);
    }

    /// Reads all messages of a frame: are they well-formed, do they belong on this channel, what do they need?
    fn judge(&self, channel: u16, mut messages: &[u8], rest: Option<&dyn Body>) -> Result<Need, Rejection> {
        let mut need = Need::default();
        let config = &self.shared.config;
        while !messages.is_empty() {
            let (item, behind, data) = parse(messages, rest)?;
            let count = item.words().1;
            let ordinary = u32::from(channel) <= config.channels;
            let (fits, words) = match item.task {
                Task::Request => (ordinary && rest.is_none(), count <= WORDS),
                Task::Reply | Task::Returned => (channel == 0 && rest.is_none(), count <= WORDS),
                Task::Stream => (ordinary && channel != 0, count == 0),
                Task::Store if item.flags & LAST != 0 => (channel == store_channel(config), count >= 3),
                Task::Store => (channel == store_channel(config), count == 1),
                Task::Get => (channel == 0, count == 3),
                Task::Fetched => (channel == fetch_channel(config), count == 2),
                Task::Room => (channel == 0, count == 2),
            };
            if !fits || !words {
                return Err(Rejection::Message);
            }
            match item.task {
                Task::Request => need.requests += 1,
                Task::Store if item.flags & LAST != 0 => need.requests += 1,
                Task::Get => {
                    need.requests += 1;
                    need.gets += 1;
                }
                Task::Reply | Task::Returned => need.replies += 1,
                Task::Stream => need.bytes += data as u64,
                _ => {}
            }
            messages = behind;
        }
        Ok(need)
    }

    fn affords(&self, channel: u16, need: &Need) -> bool {
        let peer = &*self.peer;
        let requests = peer.limit_said.wrapping_sub(peer.requests_taken) >= need.requests;
        let replies = peer.requests_sent.wrapping_sub(peer.replies_received) >= need.replies;
        // A frame without messages was not judged by them.
        let Some(record) = self.channels.get(usize::from(channel)) else { return false };
        let bytes = record.room_said.saturating_sub(record.received) >= need.bytes;
        let gets = need.gets as usize <= peer.serving.iter().filter(|fetch| fetch.live == 0).count();
        requests && replies && (bytes || need.bytes == 0) && gets
    }

    fn account(&mut self, channel: u16, need: &Need) {
        let peer = &mut *self.peer;
        peer.requests_taken = peer.requests_taken.wrapping_add(need.requests);
        peer.replies_owed += need.requests;
        peer.replies_received = peer.replies_received.wrapping_add(need.replies);
        if need.bytes > 0 {
            self.channels[usize::from(channel)].received += need.bytes;
            self.offer_room(channel);
        }
    }

    /// Does what the messages of a judged frame ask for. Stops where a handler's event ends the connection.
    fn deliver(
        &mut self,
        now: Nanoseconds,
        channel: u16,
        mut messages: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) {
        while !messages.is_empty() && self.is_up() {
            let Ok((item, behind, _)) = parse(messages, rest) else { return };
            messages = behind;
            let data = Data { bytes: item.data, rest };
            let (words, count) = item.words();
            match item.task {
                Task::Request => {
                    let message = Message {
                        peer: self.index,
                        channel,
                        handler: item.handler,
                        words: &words[..count],
                        data: item.data,
                        bulk: None,
                    };
                    self.run_request(now, message, link, dispatch);
                }
                Task::Reply | Task::Returned => {
                    let message = Message {
                        peer: self.index,
                        channel,
                        handler: item.handler,
                        words: &words[..count],
                        data: item.data,
                        bulk: None,
                    };
                    self.peer.counters.handled += 1;
                    match item.task {
                        Task::Reply => dispatch.reply(message),
                        _ => dispatch.returned(message),
                    }
                }
                Task::Stream => {
                    if !data.is_empty() {
                        dispatch.stream(self.index, channel, data);
                    }
                }
                Task::Store => self.stored(now, &item, data, link, dispatch),
                Task::Get => self.asked(words, dispatch),
                Task::Fetched => self.fetched(&item, data, dispatch),
                Task::Room => {
                    // Room for an earlier use of the channel may come late.
                    let (channel, generation) = (words[0] as u32 as usize, (words[0] >> 32) as u32);
                    if let Some(record) = self.channels.get_mut(channel).filter(|record| record.generation == generation) {
                        record.limit = record.limit.max(words[1]);
                    }
                }
            }
        }
    }

    fn run_request(&mut self, now: Nanoseconds, message: Message<'_>, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        let mut done = false;
        self.peer.counters.handled += 1;
        let request = (message.handler, message.words);
        let replier = Replier { index: self.index, sides: self, link, now, done: &mut done, request };
        dispatch.request(message, replier);
        if !done {
            self.peer.replies_owed = self.peer.replies_owed.saturating_sub(1);
        }
    }

    /// A piece of a store: straight to its place. What does not fit the segment spoils the whole store.
    fn stored(&mut self, now: Nanoseconds, item: &Item<'_>, data: Data<'_>, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        let (words, count) = item.words();
        let place = place(dispatch.segment(self.index), words[0], data.len() as u64);
        if !place.is_some_and(|place| data.copy_to(0, place)) {
            self.peer.store_refused = 1;
        }
        if item.flags & LAST == 0 {
            return;
        }
        let refused = core::mem::take(&mut self.peer.store_refused) != 0;
        let whole = place_exists(dispatch.segment(self.index), words[1], words[2]);
        let words_of_handler = &words[3..count];
        if refused || !whole {
            if self.reply(now, Task::Returned, item.handler, words_of_handler, &[], link).is_err() {
                self.peer.replies_owed = self.peer.replies_owed.saturating_sub(1);
            }
            return;
        }
        let message = Message {
            peer: self.index,
            channel: 0,
            handler: item.handler,
            words: words_of_handler,
            data: &[],
            bulk: Some((words[1], words[2])),
        };
        self.run_request(now, message, link, dispatch);
    }

    /// The peer wants bytes of our segment. They go with the next `transmit`.
    fn asked(&mut self, words: [u64; crate::frame::WIRE_WORDS], dispatch: &mut dyn Dispatch) {
        let [offset, length, name, ..] = words;
        self.peer.replies_owed = self.peer.replies_owed.saturating_sub(1);
        let refused = u32::from(!place_exists(dispatch.segment(self.index), offset, length));
        let at = name as usize % FETCHES;
        if self.peer.serving[at].live != 0 {
            self.peer.counters.violations += 1;
            return;
        }
        self.peer.serving[at] =
            Fetch { name, offset, length, done: 0, words: [0; WORDS], count: 0, handler: 0, live: 1, refused };
        self.mark_busy();
    }

    /// Bytes that we asked for. The peer names the get; where they go is our record's.
    fn fetched(&mut self, item: &Item<'_>, data: Data<'_>, dispatch: &mut dyn Dispatch) {
        let ([name, done, ..], _) = item.words();
        let at = name as usize % FETCHES;
        let fetch = self.peer.asked[at];
        let fits = fetch.live != 0 && fetch.name == name && fetch.done == done && data.len() as u64 <= fetch.length - fetch.done;
        if !fits {
            self.peer.counters.violations += 1;
            return;
        }
        let copied = place(dispatch.segment(self.index), fetch.offset.saturating_add(done), data.len() as u64)
            .is_some_and(|place| data.copy_to(0, place));
        self.peer.asked[at].done += data.len() as u64;
        if !copied || item.flags & REFUSED != 0 {
            self.peer.asked[at].refused = 1;
        }
        if item.flags & LAST == 0 {
            return;
        }
        let fetch = core::mem::replace(&mut self.peer.asked[at].live, 0);
        debug_assert_eq!(fetch, 1);
        let fetch = self.peer.asked[at];
        let message = Message {
            peer: self.index,
            channel: 0,
            handler: fetch.handler as u8,
            words: &fetch.words[..(fetch.count as usize).min(WORDS)],
            data: &[],
            bulk: Some((fetch.offset, fetch.done)),
        };
        self.peer.counters.handled += 1;
        if fetch.refused != 0 || fetch.done != fetch.length {
            dispatch.returned(message);
        } else {
            dispatch.reply(message);
        }
    }

    pub(crate) fn is_connecting(&self) -> bool {
        self.peer.life == life::CONNECTING
    }
}

/// The next message, what lies behind it, and how many bytes of data it has. With a rest there is one message only, whose
/// data ends with the rest.
fn parse<'a>(messages: &'a [u8], rest: Option<&dyn Body>) -> Result<(Item<'a>, &'a [u8], usize), Rejection> {
    match rest {
        None => {
            let (item, behind) = Item::parse(messages)?;
            Ok((item, behind, item.data.len()))
        }
        Some(rest) => {
            let (item, data) = Item::parse_split(messages, rest.len())?;
            Ok((item, &[], data))
        }
    }
}

fn place_exists(segment: &[u8], offset: u64, length: u64) -> bool {
    offset.checked_add(length).is_some_and(|end| end <= segment.len() as u64)
}

fn place(segment: &mut [u8], offset: u64, length: u64) -> Option<&mut [u8]> {
    if !place_exists(segment, offset, length) {
        return None;
    }
    segment.get_mut(offset as usize..(offset + length) as usize)
}
