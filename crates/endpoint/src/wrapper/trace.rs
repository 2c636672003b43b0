//! Tells what is done with an endpoint, call by call.

use super::pass_on;
use crate::{
    Address, Area, Arrival, Bytes, Channel, DirectAccess, DirectError, Endpoint, Import, Key, Message, OpenError, PostError,
    Rights, SendError, Tags, Ticket,
};

/// One call and what came of it. Calls that did nothing (an empty receive queue, say) are not told.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A channel was asked for.
    Open(&'a Address, Result<Channel, OpenError>),
    /// A channel was closed.
    Close(Channel),
    /// A message of so many bytes was to be sent.
    Send(Channel, usize, Result<Ticket, SendError>),
    /// The send queue was handed over.
    Flush(Result<bool, SendError>),
    /// A buffer was posted.
    Post(Area, Result<(), PostError>),
    /// A message arrived.
    Receive(&'a Arrival),
    /// An arrival was given back.
    Release(Channel),
    /// Asked before sleeping.
    Arm(bool),
    /// After sleeping.
    Disarm,
    /// Memory was to be exported.
    Export(Channel, Area, Result<Key, DirectError>),
    /// An export was taken back.
    Unexport(Key),
    /// Memory of the peer was to be imported.
    Import(Channel, Result<Key, DirectError>),
    /// So many bytes at some offset of imported memory were to be updated.
    Update(Key, u32, usize, Result<Ticket, SendError>),
}

/// An endpoint whose calls are told to `tell`.
pub struct Trace<E, F> {
    inner: E,
    tell: F,
}

impl<E: Endpoint, F: FnMut(Event<'_>)> Trace<E, F> {
    /// Wraps `inner`.
    pub fn new(inner: E, tell: F) -> Trace<E, F> {
        Trace { inner, tell }
    }
}

impl<E: Endpoint, F: FnMut(Event<'_>)> Endpoint for Trace<E, F> {
    pass_on!(capabilities segment address new_tag injected backlog descriptor counters);

    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        let opened = self.inner.open(remote, tags);
        (self.tell)(Event::Open(remote, opened));
        opened
    }

    fn close(&mut self, channel: Channel) {
        self.inner.close(channel);
        (self.tell)(Event::Close(channel));
    }

    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        let sent = self.inner.send(message);
        (self.tell)(Event::Send(message.channel, message.len(), sent));
        sent
    }

    fn flush(&mut self) -> Result<bool, SendError> {
        let flushed = self.inner.flush();
        (self.tell)(Event::Flush(flushed));
        flushed
    }

    fn post(&mut self, buffer: Area) -> Result<(), PostError> {
        let posted = self.inner.post(buffer);
        (self.tell)(Event::Post(buffer, posted));
        posted
    }

    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        let received = self.inner.receive(arrival);
        if received {
            (self.tell)(Event::Receive(arrival));
        }
        received
    }

    fn release(&mut self, arrival: &mut Arrival) {
        self.inner.release(arrival);
        (self.tell)(Event::Release(arrival.channel()));
    }

    fn arm(&mut self) -> bool {
        let armed = self.inner.arm();
        (self.tell)(Event::Arm(armed));
        armed
    }

    fn disarm(&mut self) {
        self.inner.disarm();
        (self.tell)(Event::Disarm);
    }
}

impl<E: DirectAccess, F: FnMut(Event<'_>)> DirectAccess for Trace<E, F> {
    pass_on!(notify);

    fn export(&mut self, channel: Channel, area: Area, rights: Rights) -> Result<Key, DirectError> {
        let exported = self.inner.export(channel, area, rights);
        (self.tell)(Event::Export(channel, area, exported));
        exported
    }

    fn unexport(&mut self, key: Key) {
        self.inner.unexport(key);
        (self.tell)(Event::Unexport(key));
    }

    fn import(&mut self, channel: Channel, key: Key, size: u32) -> Result<Import, DirectError> {
        let imported = self.inner.import(channel, key, size);
        (self.tell)(Event::Import(channel, imported.map(|import| import.key)));
        imported
    }

    fn update(&mut self, import: &Import, offset: u32, bytes: Bytes<'_>, notify: bool) -> Result<Ticket, SendError> {
        let updated = self.inner.update(import, offset, bytes, notify);
        (self.tell)(Event::Update(import.key, offset, bytes.len(), updated));
        updated
    }
}
