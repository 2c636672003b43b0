//! Handler tables, as GAM has them: 256 entries, each a function of the program.

use super::regions::{Regions, Shows};
use crate::dispatch::{within, Access, Dispatch, Event, Message, Replier};

type OnRequest<C> = fn(&mut C, Message<'_>, Replier<'_>);
type OnReply<C> = fn(&mut C, Message<'_>);

/// Handlers, the memory shown to peers, and what the handlers work on.
pub struct Table<C> {
    requests: [Option<OnRequest<C>>; 256],
    replies: [Option<OnReply<C>>; 256],
    returned: Option<OnReply<C>>,
    /// What handlers are given.
    pub context: C,
    /// What peers may store to and get from. Empty at first.
    pub segment: Vec<u8>,
    /// The regions that peers are shown beside that.
    pub regions: Regions,
    /// What happened to connections, oldest first.
    pub events: Vec<(u32, Event)>,
}

impl<C> Table<C> {
    /// No handlers.
    pub fn new(context: C) -> Self {
        let (requests, replies) = ([None; 256], [None; 256]);
        Self { requests, replies, returned: None, context, segment: vec![], regions: Regions::default(), events: vec![] }
    }

    /// Sets the handler of a request or of a store that is complete.
    pub fn on_request(&mut self, number: u8, handler: OnRequest<C>) -> &mut Self {
        self.requests[usize::from(number)] = Some(handler);
        self
    }

    /// Sets the handler of a reply or of a get that is complete.
    pub fn on_reply(&mut self, number: u8, handler: OnReply<C>) -> &mut Self {
        self.replies[usize::from(number)] = Some(handler);
        self
    }

    /// Sets the handler of requests that come back: GAM's handler 0.
    pub fn on_return(&mut self, handler: OnReply<C>) -> &mut Self {
        self.returned = Some(handler);
        self
    }
}

impl<C> Dispatch for Table<C> {
    #[inline]
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        match self.requests[usize::from(message.handler)] {
            Some(handler) => handler(&mut self.context, message, replier),
            None => replier.refuse(),
        }
    }

    #[inline]
    fn reply(&mut self, message: Message<'_>) {
        if message.bulk.is_some() && self.regions.heed(&message, true) {
            return;
        }
        if let Some(handler) = self.replies[usize::from(message.handler)] {
            handler(&mut self.context, message);
        }
    }

    fn returned(&mut self, message: Message<'_>) {
        if self.regions.heed(&message, false) {
            return;
        }
        if let Some(handler) = self.returned {
            handler(&mut self.context, message);
        }
    }

    fn segment(&mut self, _peer: u32) -> &mut [u8] {
        &mut self.segment
    }

    fn place(&mut self, peer: u32, access: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        match Regions::has(at) {
            true => self.regions.place(peer, access, at, length),
            false => within(&mut self.segment, at, length),
        }
    }

    fn event(&mut self, peer: u32, event: Event) {
        if matches!(event, Event::Lost(_)) {
            self.regions.lapse(peer);
        }
        self.events.push((peer, event));
    }
}

impl<C> Shows for Table<C> {
    fn regions(&mut self) -> &mut Regions {
        &mut self.regions
    }
}
