//! A port over an endpoint of a network: `udp`, `xdp`, `fabric`, or any other. What memory that both processes have makes free, a reference,
//! costs a copy here at each end; everything else of the paper's is as it is between its two hosts.
//!
//! ```text
//! sender      prepare (table 2) ─ its region is referenced ─ bytes into packets ─ dispose
//! engine      packets that are kept until they are acknowledged; each byte stored once, in order (`shunt-am`)
//! receiver    an input that is posted: its bytes go to their places in it (table 3: early demultiplexing)
//!             none yet: an overlay (table 4: pooled), or the message waits in the sender's region (outboard)
//! ```
//!
//! Losses, repetitions and order are the engine's business. A message of up to 64 KiB goes unasked as long as its receiver has overlays
//! for such; a longer one is announced with its length, and goes when its receiver has room: an input that is posted, or an overlay.
//!
//! One thread uses a port at a time, and drives it: bytes come and go in its calls, [`NetworkPort::progress`] at least.
//!
//! ```
//! use shunt_buffers::port::network::{memory, NetworkPort};
//! use shunt_buffers::Semantics;
//! use shunt_endpoint::device::udp::{ipv4, Options, Udp};
//! use shunt_region::{Audience, Pages, Pool, Shape};
//! let endpoint = || Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap();
//! let pool = || Pool::create(Shape { unit: 64 << 10, units: 64 }, Pages::Small, Audience::Anyone).unwrap();
//! let (a, b, ours, theirs) = (endpoint(), endpoint(), pool(), pool());
//! let (mut for_a, mut for_b) = (memory(&a), memory(&b));
//! // Between two processes: NetworkPort::over, with a connection that they have.
//! let (mut here, mut there) = NetworkPort::pair((a, &mut for_a, &ours), (b, &mut for_b, &theirs))?;
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(move || {
//!         let (region, length) = there.receive_region(Semantics::EMULATED_WEAK_MOVE).unwrap();
//!         assert_eq!((length, &region.bytes()[..5]), (1 << 20, &b"hello"[..]));
//!         let _ = there.send(b"thanks", Semantics::COPY);
//!         let _ = there.drain();
//!     });
//!     let mut region = ours.allocate(1 << 20)?;
//!     region.bytes_mut()[..5].copy_from_slice(b"hello");
//!     here.send_region(region, 1 << 20, Semantics::EMULATED_MOVE)?; // returns at once
//!     assert_eq!(here.receive(&mut [0; 9], Semantics::EMULATED_COPY)?, 6); // the message goes meanwhile
//!     Ok::<(), shunt_buffers::port::Error>(())
//! })?;
//! # Ok::<(), shunt_buffers::port::Error>(())
//! ```

mod agree;
mod incoming;
mod inputs;
mod notice;
mod outgoing;
mod owned;
mod window;

use super::stream::Stream;
use super::{setup, Error, Ticket, AT_ONCE, QUOTA};
use crate::align::Alignment;
use crate::calibrate;
use crate::costs::Costs;
use crate::fault;
use crate::memory::Work;
use crate::output::Output;
use crate::policy::{Policy, Realisation};
use crate::semantics::{Allocation, Integrity, Semantics};
use core::mem::ManuallyDrop;
use core::time::Duration;
use incoming::{Incoming, Next};
use notice::Notice;
use outgoing::{Lender, Outgoing};
use shunt_am::port::{config_for, Port as Messages};
use shunt_am::{Access, Config, Dispatch, Event, Message, Replier, Store};
use shunt_endpoint::Endpoint;
use shunt_region::{Limit, Pool, Region, Violation};

pub use notice::LONGEST;
pub use owned::UdpPort;
pub use window::Window;

/// The ordered channel of notices: a message is announced after those in front of it.
const NOTICES: u16 = 1;
/// Between two looks whether the peer's process is still there, of a call that waits.
const LOOK: Duration = Duration::from_millis(20);

/// The shape of the engine below a port over `endpoint`.
pub fn config<E: Endpoint>(endpoint: &E) -> Config {
    Config { channels: NOTICES.into(), ..config_for(endpoint, 1) }
}

/// Memory for that engine, which outlives the port.
pub fn memory<E: Endpoint>(endpoint: &E) -> Vec<u64> {
    shunt_am::port::memory(&config(endpoint))
}

/// One process's end.
pub struct NetworkPort<'m, E: Endpoint> {
    messages: ManuallyDrop<Messages<'m, E>>,
    peer: u32,
    ends: Ends,
    /// A connection to the peer's process, which ends with it.
    beside: Option<Stream>,
    forks: u32,
    costs: Option<Costs>,
    /// From this length on pages are swapped into windows.
    swap_from: usize,
    copied: [u64; 64],
}

/// Both halves, as the engine meets them.
struct Ends {
    /// The first one's pool is that of inputs.
    lenders: Vec<Lender>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// What the peer did that no honest one does.
    violation: bool,
    /// No byte comes or goes any more.
    over: bool,
    /// What is to be said as soon as there is credit for it.
    unsaid: Option<Notice>,
}

impl Dispatch for Ends {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let host = &mut self.lenders[0].host;
        let sound = match Notice::of(message.handler, message.words) {
            _ if self.over => return,
            Some(Notice::Whole { number, semantics }) => {
                let whole = message.bulk.is_some_and(|bulk| self.incoming.whole(host, number, semantics, bulk));
                // Its sender may wait for that before it ends.
                whole && replier.reply(message.handler, &[], &[]).is_ok()
            }
            Some(Notice::Announce { number, length }) => self.incoming.announce(number, length),
            Some(Notice::Room { below, each, number, bytes }) => {
                self.outgoing.room(below, each, number, bytes);
                true
            }
            None => {
                replier.refuse();
                false
            }
        };
        self.is_sound(sound);
    }

    fn reply(&mut self, _message: Message<'_>) {
        let sound = self.outgoing.arrived();
        self.is_sound(sound);
    }

    /// What this side sends, an honest peer takes.
    fn returned(&mut self, _message: Message<'_>) {
        self.is_sound(false);
    }

    fn place(&mut self, _peer: u32, access: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        if access != Access::Store || self.over {
            return None;
        }
        let place = self.incoming.place(&self.lenders[0].host, at, length);
        self.violation |= place.is_none();
        self.over |= place.is_none();
        place
    }

    fn event(&mut self, _peer: u32, event: Event) {
        self.over |= matches!(event, Event::Lost(_));
    }
}

impl Ends {
    fn is_sound(&mut self, sound: bool) {
        self.violation |= !sound;
        self.over |= !sound;
    }
}

impl<'m, E: Endpoint> NetworkPort<'m, E> {
    fn new(endpoint: E, memory: &'m mut [u64], pool: &Pool) -> Result<Self, Error> {
        setup::hear_of_forks();
        let config = config(&endpoint);
        let messages = Messages::new(endpoint, memory, &config).map_err(agree::error_of_port)?;
        let lender = Lender::new(pool)?;
        let incoming = Incoming::new(&lender.host, QUOTA);
        let outgoing = Outgoing::new(Policy::new(&Costs::USUAL), QUOTA);
        let ends = Ends { lenders: vec![lender], incoming, outgoing, violation: false, over: false, unsaid: None };
        Ok(NetworkPort {
            messages: ManuallyDrop::new(messages),
            peer: 0,
            ends,
            beside: None,
            forks: setup::forks(),
            costs: None,
            // Swapping ordinary pages takes longer than copying them, whatever the length; a huge one is swapped sooner.
            swap_from: if pool.is_huge() { window::page(pool) / 2 + 1 } else { usize::MAX },
            copied: [0; 64],
        })
    }

    /// From now on regions of `pool` can be sent here, too. (Of others they are copied.)
    ///
    /// # Errors
    /// [`Error::Limit`]: it cannot be mapped a second time.
    pub fn offer(&mut self, pool: &Pool) -> Result<(), Error> {
        self.own()?;
        self.ends.lenders.push(Lender::new(pool)?);
        Ok(())
    }

    /// The most bytes of regions that outputs under way may refer to: a call that would exceed it waits.
    pub fn set_quota(&mut self, bytes: usize) {
        self.ends.outgoing.quota = bytes;
    }

    /// The most bytes that messages may have here whose inputs are not posted: longer ones, and more of them, wait at their sender. 64 MiB,
    /// unless this is called; and the pool.
    pub fn set_pooled(&mut self, bytes: usize) {
        self.ends.incoming.set_quota(bytes);
    }

    /// From now on nothing is pooled: each message waits in its sender's region, the outboard buffer, until its input is called for. To be
    /// called before anything is received.
    pub fn set_outboard(&mut self) {
        self.ends.incoming.set_outboard();
    }

    /// Decides by these costs from now on, instead of this machine's.
    pub fn set_costs(&mut self, costs: Costs) {
        self.ends.outgoing.policy = Policy::new(&costs);
        self.costs = Some(costs);
    }

    /// What it decides by; may be changed.
    pub fn policy(&mut self) -> &mut Policy {
        &mut self.ends.outgoing.policy
    }

    /// How many outputs were copied for this reason, although their semantics need no copy.
    pub fn copied(&self, limit: Limit) -> u64 {
        self.copied[limit as usize]
    }

    fn note(&mut self, limit: Limit) {
        self.copied[limit as usize] += 1;
        shunt_region::told::note(limit);
    }

    /// Bytes and number of messages that are not all in packets yet: their regions are referenced.
    pub fn queued(&self) -> (usize, usize) {
        self.ends.outgoing.queued()
    }

    /// Bytes of the pool that overlays have: those that are kept for what may come, and those of messages that wait for their inputs.
    pub fn pooled(&self) -> usize {
        self.ends.incoming.held()
    }

    /// The input alignment query (section 5.2): which buffers pages can be swapped into. Headers are stripped before, so messages begin where
    /// pages do; a [`Window`] is aligned so.
    pub fn alignment(&self) -> Alignment {
        let pool = self.ends.lenders[0].host.pool();
        Alignment { granularity: window::page(pool), offset: 0, preferred: pool.shape().unit, copy_below: self.swap_from }
    }

    /// From this length on pages are swapped into windows, and fewer bytes are copied: at first never for ordinary pages, and from half a page on
    /// for huge ones.
    pub fn set_swap_from(&mut self, bytes: usize) {
        self.swap_from = bytes;
    }

    /// A buffer of at least `length` bytes into which pages can be swapped ([`NetworkPort::receive_into`]).
    ///
    /// # Errors
    /// [`Limit::Untrusted`]: the port's pool is sealed, so it is mapped once; one for [`shunt_region::Audience::Trusted`] is not, and
    /// nobody else maps a pool of this port's. [`Limit::PoolFull`], [`Limit::TooLarge`], [`Limit::Memory`], [`Limit::Protection`].
    pub fn window(&self, length: usize) -> Result<Window, Limit> {
        Window::new(self.ends.lenders[0].host.pool(), length)
    }

    /// The endpoint below: for its descriptor and counters.
    pub fn endpoint(&mut self) -> &mut E {
        self.messages.endpoint()
    }

    fn own(&self) -> Result<(), Limit> {
        match self.forks == setup::forks() {
            true => Ok(()),
            false => Err(Limit::Forked),
        }
    }

    // Driving.

    /// Takes what has come, and sends what may go.
    ///
    /// # Errors
    /// [`Error::Violation`]. That the peer has gone is said by calls that need it: messages that came from it are there to be received.
    pub fn progress(&mut self) -> Result<(), Error> {
        self.own()?;
        self.messages.poll(&mut self.ends);
        if self.ends.over {
            self.ends.outgoing.end(&mut self.ends.lenders);
        } else {
            self.say();
            self.go_on()?;
        }
        match self.ends.violation {
            true => Err(Violation::Record.into()),
            false => Ok(()),
        }
    }

    fn send_notice(&mut self, notice: Notice) -> bool {
        let (handler, words, count) = notice.words();
        let peer = self.peer;
        self.messages.with(|engine, now, link| engine.request(now, peer, NOTICES, handler, &words[..count], &[], link)).is_ok()
    }

    fn say(&mut self) {
        loop {
            let notice = self.ends.unsaid.take().or_else(|| self.ends.incoming.notice(&mut self.ends.lenders[0].host));
            let Some(notice) = notice else { break };
            if !self.send_notice(notice) {
                self.ends.unsaid = Some(notice);
                return;
            }
        }
        while let Some(notice) = self.ends.outgoing.announcement() {
            let Notice::Announce { number, .. } = notice else { break };
            if !self.send_notice(notice) {
                return;
            }
            self.ends.outgoing.announced(number);
        }
    }

    fn go_on(&mut self) -> Result<(), Error> {
        let (messages, ends, peer) = (&mut self.messages, &mut self.ends, self.peer);
        loop {
            let more = ends.outgoing.go_on(&mut ends.lenders, |offset, end, length, copy, done| {
                let (handler, words, count) = end.words();
                let store = Store { offset, handler, words: &words[..count] };
                messages.with(|engine, now, link| engine.store_with(now, peer, &store, length, copy, done, link)) == Ok(true)
            });
            if !more.map_err(Error::Violation)? {
                return Ok(());
            }
        }
    }

    /// Drives the port until `done`, or until the connection is over.
    fn wait(&mut self, done: impl Fn(&Ends) -> bool) -> Result<(), Error> {
        self.progress()?;
        if done(&self.ends) {
            return Ok(());
        }
        let (now, peer) = (self.messages.now(), self.peer);
        let _ = self.messages.engine().watch(now, peer, true);
        let ended = self.wait_watched(done);
        let now = self.messages.now();
        let _ = self.messages.engine().watch(now, peer, false);
        ended
    }

    fn wait_watched(&mut self, done: impl Fn(&Ends) -> bool) -> Result<(), Error> {
        loop {
            self.progress()?;
            if done(&self.ends) {
                return Ok(());
            }
            if self.ends.over {
                return Err(Error::Gone);
            }
            if !self.messages.wait(&mut self.ends, LOOK) && self.beside.as_ref().is_some_and(Stream::is_over) {
                // What it sent before it ended is here, or never comes: there is nobody to send it again.
                while self.messages.poll(&mut self.ends) > 0 {}
                self.ends.over = true;
            }
        }
    }

    // Output.

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
            false => self.wait(|ends| ends.outgoing.has_room(length)),
        }
    }

    /// Sends bytes with [`Semantics::COPY`] or [`Semantics::EMULATED_COPY`]: they are the message as they are now, whatever happens to the
    /// buffer. The call returns at once, if the quota and the pool let it; a buffer that lies in a region need not be copied for that (TCOW).
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Violation`]. [`Error::Length`]: it would be longer than [`LONGEST`].
    pub fn send(&mut self, bytes: &[u8], semantics: Semantics) -> Result<Ticket, Error> {
        assert!(semantics.allocation == Allocation::Application && semantics.integrity == Integrity::Strong);
        self.make_room(bytes.len())?;
        let found = self.find(bytes.as_ptr() as usize, bytes.len());
        let (lender, work) = found.unwrap_or_else(|| (0, self.ends.lenders[0].host.work(bytes.as_ptr() as usize, bytes.len())));
        let mut copy = work.region.is_none().then_some(Limit::Private);
        if let (Semantics::EMULATED_COPY, Some(at)) = (semantics, work.region) {
            if self.costs.is_none() {
                self.set_costs(*calibrate::once());
            }
            copy = match self.ends.outgoing.policy.choose(at.first, at.generation, bytes.len(), true) {
                Realisation::Tcow => fault::ensure().err(),
                Realisation::Copy(limit) => Some(limit),
                Realisation::Waiting => Some(Limit::Short),
            };
        }
        match self.begin(lender, work, semantics, copy) {
            // No memory of the system's for a copy: the call lasts as long as the bytes are needed.
            Err(Error::Limit(_)) => self.send_waiting(bytes, semantics),
            sent => sent,
        }
    }

    fn send_waiting(&mut self, bytes: &[u8], semantics: Semantics) -> Result<Ticket, Error> {
        let number = self.ends.outgoing.hold(bytes, semantics);
        let waited = self.wait(|ends| ends.outgoing.first() > number);
        if waited.is_err() {
            // The bytes are the caller's again.
            self.ends.over = true;
            self.ends.outgoing.end(&mut self.ends.lenders);
        }
        waited.map(|()| AT_ONCE)
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
            None => self.send(&region.bytes()[..length], Semantics::COPY),
        }
    }

    /// Sends the first `length` bytes of a region and gives it away: move semantics, weak or not.
    ///
    /// # Errors
    /// As [`NetworkPort::send_shared`]; the region is free then.
    pub fn send_region(&mut self, region: Region, length: usize, semantics: Semantics) -> Result<Ticket, Error> {
        assert!(semantics.allocation == Allocation::System && length <= region.size());
        self.make_room(length)?;
        let Some((lender, work)) = self.find(region.pointer() as usize, length) else {
            return self.send(&region.bytes()[..length], Semantics::COPY);
        };
        let (pool, at) = region.leave();
        let begun = self.begin(lender, work, semantics, None);
        if begun.is_err() {
            drop(Region::regain(pool, at));
        }
        begun
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
        if let Some(at) = &output.work.system {
            pool.touch(at, work.length)?;
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

    /// Waits until all messages are in the peer's process. What is not when a port is dropped may be lost.
    ///
    /// # Errors
    /// [`Error::Gone`], [`Error::Violation`].
    pub fn drain(&mut self) -> Result<(), Error> {
        self.wait(|ends| ends.outgoing.all_arrived())
    }

    // Input.

    /// Whether a message is here, or announced.
    ///
    /// # Errors
    /// As [`NetworkPort::progress`].
    pub fn has_message(&mut self) -> Result<bool, Error> {
        self.progress()?;
        Ok(self.ends.incoming.state() != Next::Nothing)
    }

    /// How long the next message is; waits for it, or for its announcement.
    ///
    /// # Errors
    /// [`Error::Gone`]: none comes any more. [`Error::Violation`].
    pub fn next_length(&mut self) -> Result<usize, Error> {
        self.wait(|ends| ends.incoming.state() != Next::Nothing)?;
        match self.ends.incoming.state() {
            Next::Waits(length) | Next::Comes(length) | Next::Whole(length) => Ok(length),
            Next::Nothing => Err(Error::Gone),
        }
    }

    /// Posts an input of at most `length` bytes into a region of the program's, which the port has until the message is there
    /// ([`NetworkPort::posted`]): share or copy semantics. Inputs that are posted take the next messages, in order.
    ///
    /// # Errors
    /// The region, and what is missing. [`Limit::Loans`]: as many are posted as can be.
    pub fn post_region(&mut self, region: Region, length: usize, semantics: Semantics) -> Result<(), (Region, Limit)> {
        assert!(semantics.allocation == Allocation::Application && length <= region.size());
        let host = &mut self.ends.lenders[0].host;
        let work = host.work(region.pointer() as usize, length);
        match self.ends.incoming.post(host, semantics, work, Some(region), false) {
            Ok(()) => {
                self.tell();
                Ok(())
            }
            Err((Some(region), limit)) => Err((region, limit)),
            Err((None, _)) => unreachable!("it was given"),
        }
    }

    /// Posts an input of at most `length` bytes into a region that the system chooses: move semantics, weak or not.
    ///
    /// # Errors
    /// What is missing, as for [`NetworkPort::post_region`].
    pub fn post(&mut self, length: usize, semantics: Semantics) -> Result<(), Limit> {
        assert!(semantics.allocation == Allocation::System);
        let work = Work { length, ..Work::default() };
        self.ends.incoming.post(&mut self.ends.lenders[0].host, semantics, work, None, false).map_err(|(_, limit)| limit)?;
        self.tell();
        Ok(())
    }

    /// The peer learns at once of room that was posted.
    fn tell(&mut self) {
        if !self.ends.over {
            self.say();
        }
    }

    /// The first posted input, when its message is there: its region, and the message's length. Waits for it.
    ///
    /// # Errors
    /// [`Limit::State`]: none is posted for the next message. [`Error::Length`]: the message is longer; the input is still posted, and can be
    /// taken back: then the message is to be received, and those behind it have their inputs.
    /// [`Error::Gone`], [`Error::Violation`].
    pub fn posted(&mut self) -> Result<(Region, usize), Error> {
        if !self.ends.incoming.is_posted() {
            return Err(Limit::State.into());
        }
        self.wait_whole()?;
        let host = &mut self.ends.lenders[0].host;
        let pool = host.pool().clone();
        let (work, region, length) = self.ends.incoming.complete(host, None, None)?;
        match region {
            Some(region) => Ok((region, length)),
            None => Ok((Region::regain(pool, work.region.ok_or(Limit::State)?)?, length)),
        }
    }

    /// Takes the first posted input back: its region, if it is the program's.
    ///
    /// # Errors
    /// [`Limit::State`]: none is posted, or the peer was told of it, and may be filling it.
    pub fn take_back(&mut self) -> Result<Option<Region>, Limit> {
        if !self.ends.over && self.ends.incoming.is_promised() {
            return Err(Limit::State);
        }
        self.ends.incoming.unpost(&mut self.ends.lenders[0].host).ok_or(Limit::State)
    }

    /// Until the next message is whole; an error if it is too long for the first posted input.
    fn wait_whole(&mut self) -> Result<(), Error> {
        let too_long = |ends: &Ends| match ends.incoming.state() {
            Next::Waits(length) => ends.incoming.is_short(length).then_some(length),
            _ => None,
        };
        self.wait(|ends| matches!(ends.incoming.state(), Next::Whole(_)) || too_long(ends).is_some())?;
        match too_long(&self.ends) {
            Some(length) => Err(Error::Length(length)),
            None => Ok(()),
        }
    }

    fn nothing_posted(&self) -> Result<(), Error> {
        match self.ends.incoming.is_posted() {
            false => Ok(()),
            true => Err(Limit::State.into()),
        }
    }

    /// Receives the next message into `buffer`, by a semantics of application-allocated buffers; gives its length. With weak integrity
    /// and nothing here yet its bytes go straight to their places; if it fails then, some may be there.
    ///
    /// # Errors
    /// [`Error::Length`]: it is longer, and waits for another buffer. [`Limit::State`]: its input is posted.
    /// [`Error::Limit`]: something is missing for this semantics, and the message waits. [`Error::Gone`], [`Error::Violation`].
    pub fn receive(&mut self, buffer: &mut [u8], semantics: Semantics) -> Result<usize, Error> {
        let work = self.ends.lenders[0].host.work(buffer.as_mut_ptr() as usize, buffer.len());
        self.input_into(work, semantics, None)
    }

    /// The same, into a window: pages of a message that came before its input are swapped, and so are those of strong integrity's buffers
    /// ([`NetworkPort::set_swap_from`]).
    ///
    /// # Errors
    /// As [`NetworkPort::receive`]. [`Limit::OtherPeer`]: the window is of another port's pool.
    pub fn receive_into(&mut self, window: &mut Window, semantics: Semantics) -> Result<usize, Error> {
        window.is_of(self.ends.lenders[0].host.pool())?;
        let bytes = window.bytes_mut();
        let work = Work { address: bytes.as_mut_ptr() as usize, length: bytes.len(), ..Work::default() };
        self.input_into(work, semantics, Some(window))
    }

    fn input_into(&mut self, work: Work, semantics: Semantics, window: Option<&mut Window>) -> Result<usize, Error> {
        assert!(semantics.allocation == Allocation::Application);
        self.nothing_posted()?;
        self.progress()?;
        let straight = semantics.integrity == Integrity::Weak && !self.ends.incoming.is_outboard();
        if !straight {
            // A short message is in an overlay, and a long one announced: then a buffer of the system's is as long as it is.
            let length = self.next_length()?;
            if length > work.length {
                return Err(Error::Length(length));
            }
        }
        self.input(semantics, work, straight, window).map(|(_, length)| length)
    }

    /// Receives the next message into a region of the pool, which the system chooses: any semantics of system-allocated buffers. What has
    /// come into an overlay is that region, without a copy. Gives the region and the message's length.
    ///
    /// # Errors
    /// As [`NetworkPort::receive`].
    pub fn receive_region(&mut self, semantics: Semantics) -> Result<(Region, usize), Error> {
        assert!(semantics.allocation == Allocation::System);
        self.nothing_posted()?;
        let length = self.next_length()?;
        let pool = self.ends.lenders[0].host.pool().clone();
        let (work, length) = self.input(semantics, Work { length, ..Work::default() }, false, None)?;
        Ok((Region::regain(pool, work.region.ok_or(Limit::State)?)?, length))
    }

    /// An input that is posted for the length of a call, if it is wanted.
    fn input(
        &mut self,
        semantics: Semantics,
        work: Work,
        straight: bool,
        window: Option<&mut Window>,
    ) -> Result<(Work, usize), Error> {
        let window = window.map(|window| (window, self.swap_from));
        let waits = match self.ends.incoming.state() {
            Next::Nothing => straight,
            Next::Waits(length) if length > work.length => return Err(Error::Length(length)),
            Next::Waits(_) => true,
            Next::Comes(_) | Next::Whole(_) => false,
        };
        if !waits {
            self.wait(|ends| matches!(ends.incoming.state(), Next::Whole(_)))?;
            let done = self.ends.incoming.complete(&mut self.ends.lenders[0].host, Some((semantics, work)), window)?;
            return Ok((done.0, done.2));
        }
        let exact = match self.ends.incoming.state() {
            // Buffers of the system's are as long as the message.
            Next::Waits(length) => Work { length, ..work },
            _ => work,
        };
        let host = &mut self.ends.lenders[0].host;
        self.ends.incoming.post(host, semantics, exact, None, true).map_err(|(_, limit)| limit)?;
        let whole = self.wait_whole();
        let done = whole.and_then(|()| self.ends.incoming.complete(&mut self.ends.lenders[0].host, None, window));
        let done = done.map(|(work, _, length)| (work, length));
        if done.is_err() && self.ends.incoming.is_posted() {
            // The buffer is the caller's again: where the peer could still believe in it, nothing comes any more.
            self.ends.over |= self.ends.incoming.is_promised() || self.ends.violation;
            self.ends.incoming.unpost(&mut self.ends.lenders[0].host);
        }
        done
    }

    /// What the sender of the next message promised, when the message is here.
    pub fn semantics(&self) -> Option<Semantics> {
        self.ends.incoming.semantics()
    }
}

/// What a hostile peer can do, for tests.
#[doc(hidden)]
impl<'m, E: Endpoint> NetworkPort<'m, E> {
    pub fn raw(&mut self) -> (&mut Messages<'m, E>, u32) {
        (&mut self.messages, self.peer)
    }
}

impl<E: Endpoint> Drop for NetworkPort<'_, E> {
    fn drop(&mut self) {
        self.ends.over = true;
        self.ends.outgoing.end(&mut self.ends.lenders);
        self.ends.incoming.end(&mut self.ends.lenders[0].host);
        if self.own().is_ok() {
            // SAFETY: once, and it is not used after this. A child's copy would say its parent's farewell.
            unsafe { ManuallyDrop::drop(&mut self.messages) };
        }
    }
}
