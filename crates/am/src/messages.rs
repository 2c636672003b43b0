//! What the messages of a frame ask for. All of them are judged, and accounted, before any of it is done.

use crate::config::{fetch_channel, store_channel, Nanoseconds, FETCHES};
use crate::connection::Side;
use crate::dispatch::{Access, Body, Data, Dispatch, Link, Message, Replier};
use crate::frame::{Item, Rejection, Task, LAST, REFUSED, WIRE_WORDS, WORDS};
use crate::lossless::AtHand;
use crate::state::Fetch;

/// What the messages of one frame would use up.
#[derive(Default)]
pub(crate) struct Need {
    pub requests: u32,
    replies: u32,
    bytes: u64,
    gets: u32,
}

/// A request or a reply, alone in its frame.
pub(crate) struct Single<'a> {
    item: Item<'a>,
    words: [u64; WIRE_WORDS],
    count: usize,
}

impl Side<'_> {
    /// One request or reply that fills its frame: what almost all frames hold. Judged; `None`: it is something else.
    #[inline]
    pub(crate) fn single<'b>(&self, messages: &'b [u8]) -> Result<Option<Single<'b>>, Rejection> {
        let (item, behind) = Item::parse(messages)?;
        let (words, count) = item.words();
        let expected = match item.task {
            Task::Request => self.peer.limit_said != self.peer.requests_taken,
            Task::Reply => self.peer.requests_sent != self.peer.replies_received,
            _ => false,
        };
        Ok((expected && behind.is_empty() && count <= WORDS).then_some(Single { item, words, count }))
    }

    /// Does what it asks for.
    #[inline]
    pub(crate) fn run_single(&mut self, now: Nanoseconds, single: &Single<'_>, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        let Single { item, words, count } = single;
        let message =
            Message { peer: self.index, channel: 0, handler: item.handler, words: &words[..*count], data: item.data, bulk: None };
        if item.task == Task::Request {
            self.peer.requests_taken = self.peer.requests_taken.wrapping_add(1);
            self.peer.replies_owed += 1;
            self.run_request(now, message, link, dispatch);
        } else {
            self.peer.replies_received = self.peer.replies_received.wrapping_add(1);
            self.peer.counters.handled += 1;
            dispatch.reply(message);
        }
    }

    /// Reads all messages of a frame: are they well-formed, do they belong on this channel, what do they need?
    pub(crate) fn judge(&self, channel: u16, mut messages: &[u8], rest: Option<&dyn Body>) -> Result<Need, Rejection> {
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

    pub(crate) fn affords(&self, channel: u16, need: &Need) -> bool {
        let peer = &*self.peer;
        let requests = peer.limit_said.wrapping_sub(peer.requests_taken) >= need.requests;
        let replies = peer.requests_sent.wrapping_sub(peer.replies_received) >= need.replies;
        // A frame without messages was not judged by them.
        let Some(record) = self.channels.get(usize::from(channel)) else { return false };
        let bytes = record.room_said.saturating_sub(record.received) >= need.bytes;
        let gets = need.gets as usize + usize::from(peer.serving_live) <= FETCHES;
        requests && replies && (bytes || need.bytes == 0) && gets
    }

    pub(crate) fn account(&mut self, channel: u16, need: &Need) {
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
    pub(crate) fn deliver(
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
                Task::Request | Task::Reply | Task::Returned => {
                    let message = Message {
                        peer: self.index,
                        channel,
                        handler: item.handler,
                        words: &words[..count],
                        data: item.data,
                        bulk: None,
                    };
                    if item.task == Task::Request {
                        self.run_request(now, message, link, dispatch);
                    } else {
                        self.peer.counters.handled += 1;
                        match item.task {
                            Task::Reply => dispatch.reply(message),
                            _ => dispatch.returned(message),
                        }
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
        let index = self.index;
        let mut asker = AtHand { side: self, link };
        dispatch.request(message, Replier { index, asker: &mut asker, now, done: &mut done, request });
        if !done {
            self.peer.replies_owed = self.peer.replies_owed.saturating_sub(1);
        }
    }

    /// A piece of a store: straight to its place. What does not fit the segment spoils the whole store.
    fn stored(&mut self, now: Nanoseconds, item: &Item<'_>, data: Data<'_>, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        let (words, count) = item.words();
        let place = dispatch.place(self.index, Access::Store, words[0], data.len() as u64);
        if !place.is_some_and(|place| data.copy_to(0, place)) {
            self.peer.store_refused = 1;
        }
        if item.flags & LAST == 0 {
            return;
        }
        let refused = core::mem::take(&mut self.peer.store_refused) != 0;
        let whole = dispatch.place(self.index, Access::Store, words[1], words[2]).is_some();
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
    fn asked(&mut self, words: [u64; WIRE_WORDS], dispatch: &mut dyn Dispatch) {
        let [offset, length, name, ..] = words;
        self.peer.replies_owed = self.peer.replies_owed.saturating_sub(1);
        let refused = u32::from(dispatch.place(self.index, Access::Get, offset, length).is_none());
        let at = name as usize % FETCHES;
        if self.peer.serving[at].live != 0 {
            self.peer.counters.violations += 1;
            return;
        }
        self.peer.serving[at] =
            Fetch { name, offset, length, done: 0, words: [0; WORDS], count: 0, handler: 0, live: 1, refused };
        self.peer.serving_live += 1;
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
        let copied = dispatch
            .place(self.index, Access::Fetch, fetch.offset.saturating_add(done), data.len() as u64)
            .is_some_and(|place| data.copy_to(0, place));
        self.peer.asked[at].done += data.len() as u64;
        if !copied || item.flags & REFUSED != 0 {
            self.peer.asked[at].refused = 1;
        }
        if item.flags & LAST == 0 {
            return;
        }
        self.peer.asked[at].live = 0;
        self.peer.asked_live = self.peer.asked_live.saturating_sub(1);
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
