//! Handler tables, as GAM has them: 256 entries, each a function of the program.

use crate::dispatch::{Dispatch, Event, Message, Replier};

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
    /// What happened to connections, oldest first.
    pub events: Vec<(u32, Event)>,
}

impl<C> Table<C> {
    /// No handlers.
    pub fn new(context: C) -> Self {
        Self { requests: [None; 256], replies: [None; 256], returned: None, context, segment: vec![], events: vec![] }
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
        if let Some(handler) = self.replies[usize::from(message.handler)] {
            handler(&mut self.context, message);
        }
    }

    fn returned(&mut self, message: Message<'_>) {
        if let Some(handler) = self.returned {
            handler(&mut self.context, message);
        }
    }

    fn segment(&mut self, _peer: u32) -> &mut [u8] {
        &mut self.segment
    }

    fn event(&mut self, peer: u32, event: Event) {
        self.events.push((peer, event));
    }
}
