//! What a program sends.

use super::{NetworkPort, LONGEST};
use crate::fault;
use crate::memory::Work;
use crate::output::Output;
use crate::policy::Realisation;
use crate::port::{Awaited, Error, Ticket, AT_ONCE};
use crate::semantics::{Allocation, Integrity, Semantics};
use shunt_endpoint::Endpoint;
use shunt_region::{Limit, Region};

/// A region that was not sent.
#[derive(Debug)]
pub struct NotSent {
    /// The program's, as before. None: it cannot be had back from an output that failed half-way.
    pub region: Option<Region>,
    /// Why.
    pub why: Error,
}

impl From<NotSent> for Error {
    fn from(not_sent: NotSent) -> Error {
        not_sent.why
    }
}

impl core::fmt::Display for NotSent {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.why.fmt(to)
    }
}
impl std::error::Error for NotSent {}

impl<E: Endpoint> NetworkPort<'_, E> {
    fn find(&self, address: usize, length: usize) -> Option<(usize, Work)> {
        let works = self.ends.lenders.iter().enumerate().map(|(number, lender)| (number, lender.host.work(address, length)));
        works.into_iter().find(|(_, work)| work.region.is_some())
    }

    fn is_open(&self) -> Result<(), Error> {
        match self.ends.over {
            true => Err(Error::Gone),
            false => Ok(()),
        }
    }

    fn make_room(&mut self, length: usize) -> Result<(), Error> {
        self.progress()?;
        self.is_open()?;
        if length > LONGEST {
            return Err(Error::Length(LONGEST));
        }
        match self.ends.outgoing.has_room(length) {
            true => Ok(()),
            false => self.wait(Awaited::Room, |ends| ends.outgoing.has_room(length)).and_then(|()| self.is_open()),
        }
    }

    /// Whether a message of so many bytes can be sent now without a wait, by any semantics; for one that is copied the pool needs units that the
    /// program's own regions leave. To be asked again after [`NetworkPort::progress`]: what makes room is a word of the peer's, for which the
    /// descriptor becomes readable.
    ///
    /// # Errors
    /// As [`NetworkPort::progress`]; [`Error::Gone`].
    pub fn has_room(&mut self, length: usize) -> Result<bool, Error> {
        self.progress()?;
        self.is_open()?;
        let outgoing = &self.ends.outgoing;
        let copy = outgoing.may_copy(&self.ends.lenders, 0, length) || (self.patience.is_some() && !outgoing.is_keeping());
        Ok(copy && outgoing.has_room(length))
    }

    /// Sends bytes with [`Semantics::COPY`] or [`Semantics::EMULATED_COPY`]: they are the message as they are now, whatever happens to the
    /// buffer. The call returns at once, if the quota and the pool let it; a buffer that lies in a region need not be copied for that (TCOW).
    ///
    /// What is copied has at most half of the pool; beyond that, and beyond the quota, the call waits until the peer has taken some, as far
    /// as its *receives* that takes. Two programs that both send so much before either receives wait for ever, as with a stream's socket,
    /// unless one has less patience ([`NetworkPort::set_patience`]).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Violation`]. [`Error::Length`]: it would be longer than [`LONGEST`]. [`Error::Waited`]: it was not sent.
    pub fn send(&mut self, bytes: &[u8], semantics: Semantics) -> Result<Ticket, Error> {
        assert!(semantics.allocation == Allocation::Application && semantics.integrity == Integrity::Strong);
        self.make_room(bytes.len())?;
        let found = self.find(bytes.as_ptr() as usize, bytes.len());
        let (lender, work) = found.unwrap_or_else(|| (0, self.ends.lenders[0].host.work(bytes.as_ptr() as usize, bytes.len())));
        let mut copy = work.region.is_none().then_some(Limit::Private);
        if let (Semantics::EMULATED_COPY, Some(at)) = (semantics, work.region) {
            copy = match self.ends.outgoing.policy.choose(at.first, at.generation, bytes.len(), true) {
                Realisation::Tcow => fault::ensure().err(),
                Realisation::Copy(limit) => Some(limit),
                Realisation::Waiting => Some(Limit::Short),
            };
        }
        let copies = semantics == Semantics::COPY || copy.is_some();
        if copies && !self.ends.outgoing.may_copy(&self.ends.lenders, lender, bytes.len()) {
            return self.send_otherwise(bytes, semantics);
        }
        match self.begin(lender, work, semantics, copy) {
            // No memory of the system's for a copy.
            Err(Error::Limit(_)) => self.send_otherwise(bytes, semantics),
            sent => sent,
        }
    }

    /// The call lasts as long as the bytes are needed; or, if it may not last so long, they are copied into memory of the port's own, where
    /// one message lies at a time.
    fn send_otherwise(&mut self, bytes: &[u8], semantics: Semantics) -> Result<Ticket, Error> {
        if self.patience.is_none() {
            return self.send_waiting(bytes, semantics);
        }
        self.wait(Awaited::Room, |ends| ends.over || !ends.outgoing.is_keeping())?;
        self.is_open()?;
        self.ends.outgoing.keep(bytes, semantics)?;
        self.progress()?;
        Ok(AT_ONCE)
    }

    fn send_waiting(&mut self, bytes: &[u8], semantics: Semantics) -> Result<Ticket, Error> {
        self.lending(|port| {
            let number = port.ends.outgoing.hold(bytes, semantics);
            let waited = port.wait(Awaited::Room, |ends| ends.outgoing.is_stored(number));
            if waited.is_err() {
                // The bytes are the caller's again.
                port.end();
            }
            waited.map(|()| AT_ONCE)
        })
    }

    /// Sends the first `length` bytes of a region that stays the program's: share semantics. They are not to be changed before the ticket
    /// is completed.
    ///
    /// # Errors
    /// As [`NetworkPort::send`]; [`Error::Limit`] if they can be neither shared nor copied.
    pub fn send_shared(&mut self, region: &Region, length: usize, semantics: Semantics) -> Result<Ticket, Error> {
        assert!(semantics.allocation == Allocation::Application && length <= region.size());
        self.make_room(length)?;
        match self.find(region.pointer() as usize, length) {
            Some((lender, work)) => self.begin(lender, work, semantics, None),
            None => self.send_foreign(region, length),
        }
    }

    /// A region of a pool that was not offered.
    fn send_foreign(&mut self, region: &Region, length: usize) -> Result<Ticket, Error> {
        self.note(Limit::Private);
        self.send(&region.bytes()[..length], Semantics::COPY)
    }

    /// Sends the first `length` bytes of a region and gives it away: move semantics, weak or not.
    ///
    /// # Errors
    /// As [`NetworkPort::send_shared`], with the region.
    pub fn send_region(&mut self, region: Region, length: usize, semantics: Semantics) -> Result<Ticket, NotSent> {
        assert!(semantics.allocation == Allocation::System && length <= region.size());
        if let Err(why) = self.make_room(length) {
            return Err(NotSent { region: Some(region), why });
        }
        let Some((lender, work)) = self.find(region.pointer() as usize, length) else {
            return self.send_foreign(&region, length).map_err(|why| NotSent { region: Some(region), why });
        };
        let (pool, at) = region.leave();
        self.begin(lender, work, semantics, None).map_err(|why| NotSent { region: Region::regain(pool, at).ok(), why })
    }

    /// Prepares an output and queues it.
    fn begin(&mut self, lender: usize, work: Work, asked: Semantics, copy: Option<Limit>) -> Result<Ticket, Error> {
        let ends = &mut self.ends;
        let host = &mut ends.lenders[lender].host;
        let pool = host.pool().clone();
        if let Some(at) = &work.region {
            // Before writing is taken away.
            pool.touch(at, work.length)?;
        }
        let mut output = Output::prepare(asked, work, copy, host)?;
        if output.realised() != Semantics::COPY {
            let settled = output.work.region.map_or(Ok(()), |at| pool.settled(&at));
            if let Err(limit) = settled {
                output.fail(host);
                output = Output::prepare(asked, work, Some(limit), host)?;
            }
        }
        if let Err(limit) = output.work.system.map_or(Ok(()), |at| pool.touch(&at, work.length)) {
            output.fail(host);
            return Err(limit.into());
        }
        let why = output.why();
        let number = ends.outgoing.lend(&ends.lenders, lender, output, asked);
        if let Some(limit) = why.filter(|_| asked != Semantics::COPY) {
            self.note(limit);
        }
        self.progress()?;
        Ok(Ticket::of_number(number))
    }

    /// Whether an output's buffer is the program's again: its bytes are in packets, which are kept until the peer has them.
    ///
    /// # Errors
    /// As [`NetworkPort::progress`].
    pub fn completed(&mut self, ticket: Ticket) -> Result<bool, Error> {
        self.progress()?;
        Ok(ticket == AT_ONCE || ticket.number() < self.ends.outgoing.first())
    }

    /// Waits until all messages are in the peer's process, which may need its receives, as [`NetworkPort::send`] may. What is not when a port is dropped may be lost.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Violation`]. [`Error::Waited`]: the rest is still under way.
    pub fn drain(&mut self) -> Result<(), Error> {
        self.wait(Awaited::Arrival, |ends| ends.outgoing.all_arrived())
    }
}
