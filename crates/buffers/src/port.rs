//! A port between two processes: messages whose bytes go through rings (`shunt-ring`), or stay in regions.
//!
//! ```text
//! socket (AF_UNIX)  the link and pools as descriptors, a byte for whoever sleeps, the hang-up of a process that died
//! link, channel 0   records, and bytes that are copied
//! link, channel 1   tickets that come back
//! link, last page   one pull each way
//! ```
//!
//! Or there is no link, and records and bytes go by a connection that both have, of which all is copied ([`Port::over`]).
//!
//! A child of fork(3) has a copy of its parent's ports that can do nothing but be dropped ([`Limit::Forked`]), unless its parent leaves one to
//! it ([`Port::inherit`]).
//!
//! One thread uses a port at a time. `send` waits for room in the ring, `receive` for a message.

mod forward;
mod link;
pub mod network;
mod over;
mod pulling;
mod setup;
mod stream;
mod swapping;
mod timing;
mod window;

use crate::calibrate;
use crate::costs::Costs;
use crate::fault;
use crate::input::Input;
use crate::learned::Against;
use crate::linux::Host;
use crate::memory::Work;
use crate::output::Output;
use crate::policy::{Policy, Realisation};
use crate::record::{Kind, Record};
use crate::semantics::{Allocation, Integrity, Semantics};
use crate::tables::Architecture;
use link::Link;
use setup::Foreign;
use shunt_region::{Account, Attached, Audience, Limit, Located, Pool, Reference, Region, Span, Violation};
use shunt_sys::Errno;
use std::sync::Arc;
use timing::Timing;

pub use window::Window;

/// Why a port cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The peer process has ended, or closed its port.
    Gone,
    /// It sent what no honest peer sends.
    Violation(Violation),
    /// Something is missing, and copying does not help.
    Limit(Limit),
    /// The message is longer than the buffer.
    Length(usize),
    /// The kernel refused.
    System(Errno),
    /// The peer did not do what the call waited for, as long as the port's patience went. Nothing is lost: see there.
    Waited(Awaited),
}

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// Room for what was to be sent, which the peer's receives make. It was not sent: its buffer is the program's as before.
    Room,
    /// That the peer's process has what was sent. It is still under way.
    Arrival,
    /// The next message, or the rest of it. It can be received when it is here; what is posted is still posted.
    Message,
}

impl core::fmt::Display for Error {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(to, "{self:?}")
    }
}
impl std::error::Error for Error {}
impl From<Limit> for Error {
    fn from(limit: Limit) -> Error {
        Error::Limit(limit)
    }
}
impl From<Violation> for Error {
    fn from(violation: Violation) -> Error {
        Error::Violation(violation)
    }
}
impl From<Errno> for Error {
    fn from(error: Errno) -> Error {
        Error::System(error)
    }
}

/// What a peer may hold of this process's regions, until a port is told otherwise.
pub const QUOTA: usize = 64 << 20;

/// What an output stands for until its bytes have been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// As a number, for other languages.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The ticket of a number. One that was never given stands for nothing: it is completed.
    pub const fn of_number(number: u64) -> Ticket {
        Ticket(number)
    }
}

/// The ticket of a message that was copied into the ring: completed at once.
pub const AT_ONCE: Ticket = Ticket(u64::MAX);

/// One process's end.
pub struct Port {
    link: Link,
    /// The connection over which the link was agreed on, kept for its end.
    beside: Option<stream::Stream>,
    account: Account,
    id: u64,
    /// Of the process that made it.
    forks: u32,
    hosts: Vec<Host>,
    /// The numbers that their pools have at the peer's.
    numbers: Vec<u32>,
    /// Pools that the peer was passed.
    passed: u32,
    attached: Vec<Foreign>,
    forwards: Vec<forward::Forward>,
    finished: Vec<forward::Forward>,
    forwarded: u64,
    outputs: Vec<(u64, usize, Output)>,
    policy: Policy,
    timing: Timing,
    /// None before it has a pool, and so a choice.
    costs: Option<Costs>,
    serial: u16,
    /// The tickets of messages that were pulled last.
    pulls: [u64; setup::PULLS],
    next: Option<Record>,
    /// Outputs that were copied although they need not have been, by reason.
    copied: [u64; 64],
    largest: usize,
    swapping: swapping::Swapping,
}

/// A message in a region of the peer's. It counts against the peer's quota of it until it is given back.
#[must_use = "a message is given back"]
#[derive(Debug)]
pub struct Message {
    record: Record,
    /// The port that it came by.
    port: u64,
    bytes: Vec<u8>,
    at: Option<(*const u8, usize)>,
    /// The mapping that it lies in; kept, also when the port has gone.
    _mapped: Option<Arc<Attached>>,
}

// SAFETY: bytes of its own, or where bytes of a mapping are that any thread may read.
unsafe impl Send for Message {}

impl Message {
    /// How many bytes it has.
    pub fn length(&self) -> usize {
        self.at.map_or(self.bytes.len(), |at| at.1)
    }

    /// What its sender promised.
    pub fn semantics(&self) -> Semantics {
        self.record.semantics
    }

    /// Where it lies in the peer's memory, if it does: to be read in place. The sender can still change it, unless it sent it with
    /// a move and is honest. Valid until the message is given back, or dropped.
    pub fn in_place(&self) -> Option<(*const u8, usize)> {
        self.at
    }

    /// Its first byte, in the peer's memory or in its own.
    pub fn start(&self) -> *const u8 {
        self.at.map_or(self.bytes.as_ptr(), |at| at.0)
    }

    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        match self.at {
            // SAFETY: checked when it came; mapped as long as the message.
            Some((start, length)) => unsafe {
                let mut bytes = Vec::with_capacity(length);
                core::ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), length);
                bytes.set_len(length);
                bytes
            },
            None => self.bytes.clone(),
        }
    }
}

/// The most bytes of a message that [`Port::receive_reference`] copies, unless [`Port::set_largest`] says otherwise: a peer names the length
/// of what it sends, and this process's memory is not its to take.
pub const LARGEST: usize = 64 << 20;

impl Port {
    /// The peer could change this process's memory anyway (it made this process, say, and both run as one user with the same rights), so
    /// pools for trusted peers may be passed in both directions: memory that both write, and that could shrink under its reader.
    ///
    /// Nothing that this process could ask the kernel proves that: what it can find out is whether *it* may change the peer, and the
    /// peer's word would be a stranger's. So it is the program's to say.
    ///
    /// A window ([`Port::receive_into`]) into which a moved region was swapped *is* that region as long as it is lent: what this process writes there
    /// can be seen, and changed, by its owner and by all to whom the owner has offered that pool, also those that this process does not know.
    pub fn trust(&mut self) {
        if let Ok(link) = self.link.shared() {
            link.trusts = true;
        }
    }

    /// In a child of fork(3): the port is this process's from now on. Its parent has lent nothing by it, uses it no more, and drops its own
    /// copy.
    pub fn inherit(&mut self) {
        self.forks = self.forks_now();
    }

    /// The most bytes of a message that [`Port::receive_reference`] copies ([`LARGEST`]).
    pub fn set_largest(&mut self, bytes: usize) {
        self.largest = bytes;
    }

    /// Whether messages can go by reference: there is memory that both processes have. Else all is copied.
    pub fn shares(&self) -> bool {
        self.link.is_shared()
    }

    /// From now on regions of `pool` can be sent here. The peer sees all of the pool.
    ///
    /// # Errors
    /// [`Limit::OtherPeer`]: it sees it alone, and that is another. [`Limit::Untrusted`]: the pool is for trusted peers,
    /// and the program has not said that this one is ([`Port::trust`]).
    pub fn offer(&mut self, pool: &Pool) -> Result<(), Error> {
        self.own()?;
        if self.link.is_shared() {
            self.account.room(pool, 0)?;
        }
        self.link.pass_pool(pool)?;
        if self.costs.is_none() && self.link.is_shared() {
            self.set_costs(*calibrate::once());
            self.policy.learns = true;
        }
        self.hosts.push(Host::new(pool.clone()));
        self.numbers.push(self.passed);
        self.passed += 1;
        Ok(())
    }

    /// What the peer may hold; for a port by which nothing has been lent.
    ///
    /// # Errors
    /// [`Limit::Memory`]. [`Limit::State`]: the peer holds something.
    pub fn set_quota(&mut self, bytes: usize) -> Result<(), Error> {
        if self.account.held() > 0 {
            return Err(Limit::State.into());
        }
        self.account = Account::new(bytes)?;
        Ok(())
    }

    /// Decides by these costs from now on, and by nothing else. Until then, and from the first pool that is offered, it begins with what this
    /// machine was measured to cost ([`calibrate::once`]), and goes on with what its messages take ([`crate::learned`]).
    pub fn set_costs(&mut self, costs: Costs) {
        self.policy = Policy::new(&costs);
        self.timing = Timing::new(&costs);
        self.costs = Some(costs);
    }

    /// What it decides by; may be changed.
    pub fn policy(&mut self) -> &mut Policy {
        &mut self.policy
    }

    /// How many outputs were copied for this reason.
    pub fn copied(&self, limit: Limit) -> u64 {
        self.copied[limit as usize]
    }

    fn note(&mut self, limit: Limit) {
        self.copied[limit as usize] += 1;
        shunt_region::told::note(limit);
    }

    /// What the peer holds, in bytes and references.
    pub fn lent(&self) -> (usize, usize) {
        (self.account.lent(), self.account.held())
    }

    fn host_of(&self, address: usize, length: usize) -> Option<(usize, Work)> {
        let works = self.hosts.iter().enumerate().map(|(number, host)| (number, host.work(address, length)));
        works.into_iter().find(|(_, work)| work.region.is_some())
    }

    /// Sends bytes with copy semantics: they are the message as they are now, whatever happens to the buffer. `defer`: the call need
    /// not wait for the receiver, nor copy, if the buffer lies in a region ([`Semantics::EMULATED_COPY`] by TCOW).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Violation`].
    pub fn send(&mut self, bytes: &[u8], defer: bool) -> Result<Ticket, Error> {
        self.progress()?;
        let Some((number, work)) = self.host_of(bytes.as_ptr() as usize, bytes.len()) else {
            return self.send_copied(bytes, Limit::Private);
        };
        let at = work.region.expect("found by it");
        let against = match (defer, self.hosts[number].pool().is_huge()) {
            (false, _) => Against::Waiting,
            (true, false) => Against::Tcow,
            (true, true) => Against::HugeTcow,
        };
        let (realisation, timed) = self.policy.choose_learning(at.first, at.generation, bytes.len(), against);
        if timed {
            return self.send_timed(bytes, number, work, realisation, against);
        }
        match self.send_by(realisation, number, work)? {
            // What a call that waited has lent is nothing that the program waits for.
            Ok(ticket) => Ok(if defer { ticket } else { AT_ONCE }),
            Err(limit) => self.send_copied(bytes, limit),
        }
    }

    /// Sends a buffer of a region without copying it into the ring; or why not.
    fn send_by(&mut self, realisation: Realisation, number: usize, work: Work) -> Result<Result<Ticket, Limit>, Error> {
        let sent = match realisation {
            Realisation::Copy(limit) => return Ok(Err(limit)),
            Realisation::Waiting => return self.send_waiting(number, &work),
            Realisation::Tcow => self.begin(number, work, Semantics::EMULATED_COPY, false),
        };
        match sent {
            Err(Error::Limit(limit)) => Ok(Err(limit)),
            sent => {
                self.timing.protected();
                sent.map(Ok)
            }
        }
    }

    fn send_copied(&mut self, bytes: &[u8], why: Limit) -> Result<Ticket, Error> {
        self.note(why);
        self.send_bytes(bytes, Semantics::COPY)?;
        Ok(AT_ONCE)
    }

    fn send_bytes(&mut self, bytes: &[u8], semantics: Semantics) -> Result<(), Error> {
        let reference = Reference { offset: 0, length: bytes.len() as u64, generation: 0, pool: 0, ticket: 0 };
        self.link.message(&Record { kind: Kind::Bytes, semantics, serial: 0, reference, source: 0 }.to_bytes(), bytes)
    }

    /// Sends the first `length` bytes of a region that stays the program's: share semantics. They are not to be changed before the
    /// ticket is completed.
    ///
    /// # Errors
    /// As [`Port::send`]; [`Error::Limit`] if they can be neither shared nor copied.
    pub fn send_shared(&mut self, region: &Region, length: usize, semantics: Semantics) -> Result<Ticket, Error> {
        assert!(semantics.allocation == Allocation::Application && length <= region.size());
        self.progress()?;
        let (number, work) = self.host_of(region.pointer() as usize, length).ok_or(Limit::Private)?;
        let why = match length < self.policy.share_from {
            true => Limit::Short,
            false => match self.begin(number, work, semantics, true) {
                Err(Error::Limit(limit)) => limit,
                sent => return sent,
            },
        };
        self.note(why);
        self.send_bytes(&region.bytes()[..length], semantics)?;
        Ok(AT_ONCE)
    }

    /// Sends the first `length` bytes of a region and gives it away: move semantics, weak or not.
    ///
    /// # Errors
    /// As [`Port::send_shared`].
    pub fn send_region(&mut self, region: Region, length: usize, semantics: Semantics) -> Result<Ticket, Error> {
        assert!(semantics.allocation == Allocation::System && length <= region.size());
        self.progress()?;
        let (number, work) = self.host_of(region.pointer() as usize, length).ok_or(Limit::Private)?;
        let (pool, at) = region.leave();
        match self.begin(number, work, semantics, false) {
            Err(Error::Limit(limit)) => {
                let region = Region::regain(pool, at)?;
                self.note(limit);
                self.send_bytes(&region.bytes()[..length], semantics)?;
                Ok(AT_ONCE)
            }
            sent => sent,
        }
    }

    /// Prepares an output, lends what is to be read, and says so. `weak`: readers in place are the program's business.
    fn begin(&mut self, number: usize, work: Work, semantics: Semantics, weak: bool) -> Result<Ticket, Error> {
        let _ = weak;
        self.link.shared()?;
        if semantics == Semantics::EMULATED_COPY {
            fault::ensure()?;
        }
        let host = &mut self.hosts[number];
        let pool = host.pool().clone();
        self.account.room(&pool, work.length)?;
        if let Some(at) = &work.region {
            // Before writing is taken away.
            pool.touch(at, work.length)?;
        }
        // The receiver of what is moved may write there, in a pool that it can write; readers of earlier outputs are to see nothing of that.
        let is_read = |at: &Located| pool.audience() == Audience::Trusted && pool.value(at.first).outputs() > 0;
        let moved = work.region.filter(|_| semantics.allocation == Allocation::System);
        let copy = moved.filter(is_read).map(|_| Limit::Read);
        let output = Output::prepare(semantics, work, copy, host)?;
        if let Some(limit) = output.why() {
            self.note(limit);
        }
        let at = if output.realised() == Semantics::COPY { output.work.system } else { output.work.region };
        let at = at.expect("what is read lies in a region");
        let mut reference = match self.account.lend_located(&pool, &at, work.length) {
            Ok(reference) => reference,
            Err(limit) => {
                output.fail(&mut self.hosts[number]);
                return Err(limit.into());
            }
        };
        reference.pool = self.numbers[number];
        self.outputs.push((reference.ticket, number, output));
        let record = Record { kind: Kind::Region, semantics, serial: 0, reference, source: 0 };
        self.link.put(0, &record.to_bytes())?;
        Ok(Ticket(reference.ticket))
    }

    /// Whether the peer has finished with an output.
    ///
    /// # Errors
    /// [`Error::Gone`]: with all of them; [`Error::Violation`].
    pub fn completed(&mut self, ticket: Ticket) -> Result<bool, Error> {
        self.progress()?;
        Ok(ticket == AT_ONCE || !self.account.holds(ticket.0))
    }

    /// Takes tickets that came back.
    ///
    /// # Errors
    /// [`Error::Violation`]; [`Error::Gone`]: the peer has ended, and what it has not given back comes no more ([`Port::abandon`]). That is
    /// looked for once in a number of calls in vain.
    pub fn progress(&mut self) -> Result<(), Error> {
        self.own()?;
        self.pass_back();
        while let Some(ticket) = self.link.ticket(self.account.held() > 0 || !self.forwards.is_empty())? {
            if forward::is_one(ticket) {
                self.finish(ticket)?;
                continue;
            }
            self.account.give_back(ticket)?;
            self.complete(ticket);
        }
        Ok(())
    }

    fn complete(&mut self, ticket: u64) {
        let Some(place) = self.outputs.iter().position(|output| output.0 == ticket) else { return };
        let (_, number, output) = self.outputs.remove(place);
        let (host, region) = (&mut self.hosts[number], output.work.region);
        let guarded = output.realised() == Semantics::EMULATED_COPY;
        output.complete(host);
        if let Some(at) = region.filter(|_| guarded) {
            // What was not written stays as it is: sent again it costs nothing.
            if host.pool().was_written(&at) {
                host.pool().disarm(&at);
                self.policy.rewritten(at.first, at.generation);
            }
        }
    }

    /// The peer is gone, or to be treated as if it were: all outputs are completed, and its regions are forgotten.
    pub fn abandon(&mut self) {
        self.account.forfeit(|_| {});
        while let Some((ticket, ..)) = self.outputs.last() {
            self.complete(*ticket);
        }
        self.finished.append(&mut self.forwards);
    }

    /// The next message's record. One that cannot be read now, as its pool cannot be mapped, stays the next one.
    fn record(&mut self) -> Result<Record, Error> {
        self.own()?;
        self.pass_back();
        let record = match self.next {
            Some(record) => record,
            None => {
                let mut bytes = [0; Record::SIZE];
                self.link.take(&mut bytes)?;
                *self.next.insert(Record::from_bytes(&bytes)?)
            }
        };
        if record.kind != Kind::Bytes {
            self.attach(record.reference.pool)?;
            self.span(&record.reference)?;
        }
        Ok(record)
    }

    fn attach(&mut self, number: u32) -> Result<(), Error> {
        while self.attached.len() <= number as usize {
            let attached = self.link.next_pool()?;
            self.attached.push(attached);
        }
        Ok(())
    }

    fn span(&self, reference: &Reference) -> Result<Span<'_>, Violation> {
        self.attached.get(reference.pool as usize).ok_or(Violation::Pool)?.attached.check(reference)
    }

    /// Whether part of a message is there, at least: then what waits for one will not wait long. A process that passes messages on asks,
    /// and settles, as long as there is none ([`Port::settle`]): its peer may be waiting for what came back.
    pub fn has_message(&self) -> bool {
        self.own().is_ok() && (self.next.is_some() || self.link.waits())
    }

    /// How long the next message is; waits for it.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Violation`].
    pub fn next_length(&mut self) -> Result<usize, Error> {
        Ok(self.record()?.reference.length as usize)
    }

    /// Receives a message into `buffer`: copy semantics, with the sender's region as outboard buffer if it sent one. Gives its length.
    ///
    /// # Errors
    /// As [`Port::next_length`]; [`Error::Length`]: it waits for a longer buffer.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let record = self.record()?;
        let length = usize::try_from(record.reference.length).map_err(|_| Violation::Outside)?;
        let target = buffer.get_mut(..length).ok_or(Error::Length(length))?;
        match record.kind {
            Kind::Bytes => self.link.take(target)?,
            Kind::Region => {
                self.span(&record.reference)?.copy_to(0, target);
                self.link.put(1, &record.reference.ticket.to_le_bytes())?;
            }
            Kind::Forwarded => {
                let span = self.span(&record.reference)?;
                span.copy_to(0, target);
                let whole = self.is_fresh(&record.reference);
                self.link.put(1, &record.reference.ticket.to_le_bytes())?;
                if !whole {
                    self.next = None;
                    return Err(Limit::Stale.into());
                }
            }
            Kind::Pull => {
                self.pull(&record, target)?;
                self.link.put(1, &record.reference.ticket.to_le_bytes())?;
            }
        }
        self.next = None;
        Ok(length)
    }

    /// Receives a message where it lies, with weak integrity. What is not a region, or is read under TCOW, is copied.
    ///
    /// # Errors
    /// As [`Port::next_length`].
    pub fn receive_reference(&mut self) -> Result<Message, Error> {
        let record = self.record()?;
        let copied = record.semantics.allocation == Allocation::Application && record.semantics.integrity == Integrity::Strong;
        if matches!(record.kind, Kind::Region | Kind::Forwarded) && !copied {
            let span = self.span(&record.reference)?;
            let at = Some((span.pointer().cast_const(), span.length()));
            let mapped = self.attached.get(record.reference.pool as usize).map(|pool| pool.attached.clone());
            self.next = None;
            return Ok(Message { record, port: self.id, bytes: Vec::new(), at, _mapped: mapped });
        }
        let mut bytes = Vec::new();
        let length = usize::try_from(record.reference.length).map_err(|_| Violation::Outside)?;
        if length > self.largest {
            return Err(Limit::TooLong.into()); // it can still be received into a buffer of the program's
        }
        bytes.try_reserve_exact(length).map_err(|_| Limit::Memory)?;
        bytes.resize(length, 0);
        self.receive(&mut bytes)?;
        Ok(Message { record, port: self.id, bytes, at: None, _mapped: None })
    }

    /// Whether a message came by this port, which alone can give it back.
    ///
    /// # Errors
    /// [`Limit::WrongPort`].
    pub fn has_brought(&self, message: &Message) -> Result<(), Limit> {
        match message.port == self.id {
            true => Ok(()),
            false => Err(Limit::WrongPort),
        }
    }

    /// The program has finished with a message.
    ///
    /// # Errors
    /// [`Error::Gone`]. [`Limit::WrongPort`]: its sender has not got it back, and counts it until the port ends that it came by; to ask first
    /// there is [`Port::has_brought`].
    pub fn give_back(&mut self, message: Message) -> Result<(), Error> {
        self.own()?;
        self.has_brought(&message)?;
        match message.at {
            Some(_) => self.link.put(1, &message.record.reference.ticket.to_le_bytes()),
            None => Ok(()),
        }
    }

    /// Receives a message into a region of this process's own, which the system chooses: any semantics of system-allocated
    /// buffers. Strong integrity by one copy, as the peer's memory is the outboard buffer. Gives the region and the message's length.
    ///
    /// # Errors
    /// As [`Port::receive`]; [`Error::Limit`]: no pool was offered, or it is full.
    pub fn receive_region(&mut self, semantics: Semantics) -> Result<(Region, usize), Error> {
        assert!(semantics.allocation == Allocation::System);
        let length = self.next_length()?;
        let host = self.hosts.first_mut().ok_or(Limit::Private)?;
        let pool = host.pool().clone();
        let mut input = Input::post(semantics, Work { length, ..Work::default() }, host)?;
        if let Err(limit) = input.ready(Architecture::Pooled, host) {
            input.fail(host);
            return Err(limit.into());
        }
        let at = input.work.system.expect("the overlay");
        let place = pool.pointer(&at);
        // SAFETY: as long; no other thread has it.
        let received = self.receive(unsafe { core::slice::from_raw_parts_mut(place, length) });
        let host = &mut self.hosts[0];
        if let Err(error) = received {
            input.fail(host);
            return Err(error);
        }
        let work = input.complete(host)?;
        Ok((Region::regain(pool, work.region.ok_or(Limit::State)?)?, length))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.abandon();
    }
}
