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
mod receiving;
mod sending;

use super::stream::Stream;
use super::{setup, window, Awaited, Error, QUOTA};
use crate::align::Alignment;
use crate::calibrate;
use crate::costs::Costs;
use crate::policy::Policy;
use core::mem::ManuallyDrop;
use core::time::Duration;
use incoming::Incoming;
use notice::Notice;
use outgoing::{Lender, Outgoing};
use shunt_am::port::{config_for, Port as Messages};
use shunt_am::{Access, Config, Dispatch, Event, Message, Replier, Store};
use shunt_endpoint::Endpoint;
use shunt_region::{Limit, Pool, Violation};

pub use super::window::Window;
pub use notice::LONGEST;
pub use owned::{beside, Owned, UdpPort};
pub use sending::NotSent;

/// The ordered channel of notices: a message is announced after those in front of it.
const NOTICES: u16 = 1;
/// The most batches of frames that one call takes.
const POLLS: usize = 8;
/// Between two looks whether the peer's process is still there.
const LOOK: Duration = Duration::from_millis(20);

/// The shape of the engine below a port over `endpoint`.
fn config<E: Endpoint>(endpoint: &E) -> Config {
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
    /// When that is looked at again.
    look_at: u64,
    forks: u32,
    /// The peer was told of the end.
    parted: bool,
    /// How long a call waits.
    patience: Option<Duration>,
    /// From this length on pages are swapped into windows.
    swap_from: usize,
    copied: [u64; 64],
    /// What the engine lies in, if it is the port's own: the last field, and it goes with the engine wherever that is moved to.
    memory: Option<owned::Memory>,
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
        // Before anything is said: it takes a while, once in a process.
        let policy = Policy::new(calibrate::once());
        let config = config(&endpoint);
        let messages = Messages::new(endpoint, memory, &config).map_err(agree::error_of_port)?;
        let lender = Lender::new(pool)?;
        let incoming = Incoming::new(&lender.host, QUOTA);
        let outgoing = Outgoing::new(policy, QUOTA);
        let ends = Ends { lenders: vec![lender], incoming, outgoing, violation: false, over: false, unsaid: None };
        Ok(NetworkPort {
            messages: ManuallyDrop::new(messages),
            peer: 0,
            ends,
            beside: None,
            look_at: 0,
            forks: setup::forks(),
            parted: false,
            patience: None,
            // Swapping ordinary pages takes longer than copying them, whatever the length; a whole huge one is swapped sooner.
            swap_from: if pool.is_huge() { window::page(pool) } else { usize::MAX },
            copied: [0; 64],
            memory: None,
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

    /// From now on a call waits for the peer no longer than this, each time that it has to, and fails by [`Error::Waited`] then; with nothing,
    /// as at first, it waits as long as the peer's process lives. Zero: it does not wait, as on a socket that is not blocking.
    ///
    /// A message that the peer has begun to send is not begun anew: the next call goes on with it. For that, what is received lies in the
    /// pool first, whatever its input's semantics are ([`Limit::PoolFull`]: there is no room). And a copy that is longer than the pool has room
    /// for is made in memory of the port's own, one at a time.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience;
    }

    /// A call that does not wait, whatever the patience: `port.at_once(|port| port.send(bytes, semantics))`.
    pub fn at_once<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        let patience = self.patience.replace(Duration::ZERO);
        let result = call(self);
        self.patience = patience;
        result
    }

    /// The most bytes of regions that outputs under way may refer to: a call that would exceed it waits.
    pub fn set_quota(&mut self, bytes: usize) {
        self.ends.outgoing.quota = bytes;
    }

    /// The most bytes that messages may have here whose inputs are not posted: longer ones, and more of them, wait at their sender. 64 MiB,
    /// unless this is called; and never more than half of the pool.
    pub fn set_pooled(&mut self, bytes: usize) {
        self.ends.incoming.set_quota(bytes);
    }

    /// From now on nothing is pooled: each message waits in its sender's region, the outboard buffer, until its input is called for. To be
    /// called before any other call of the port: the first one tells the peer of room.
    pub fn set_outboard(&mut self) {
        self.ends.incoming.set_outboard();
    }

    /// Decides by these costs from now on, instead of this machine's.
    pub fn set_costs(&mut self, costs: Costs) {
        self.ends.outgoing.policy = Policy::new(&costs);
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

    /// From this length on pages are swapped into windows, and fewer bytes are copied: at first never for ordinary pages, and from a page on
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

    /// What the time asks for: what was lost is sent again, however seldom the program calls, as an empty poll looks at the clock once in a
    /// number of times. And whether the peer's process is still there, now and then.
    fn look(&mut self) {
        let now = self.messages.now();
        let (messages, ends) = (&mut self.messages, &mut self.ends);
        if messages.engine().is_due(now) {
            messages.with(|engine, now, link| engine.transmit(now, link, ends));
        }
        let Some(beside) = self.beside.as_ref().filter(|_| !self.ends.over) else { return };
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK.as_nanos() as u64;
        if beside.waits() {
            // An honest peer says nothing there any more; its end would be hidden behind that.
            self.ends.is_sound(false);
        } else if beside.is_over() {
            // What it sent before it ended is here, or never comes: there is nobody to send it again. Strangers' frames have no end.
            while self.messages.poll(&mut self.ends) > 0 && self.messages.now() < self.look_at {}
            self.ends.over = true;
        }
    }

    /// Takes what has come, and sends what may go. True: more may be here, of which the descriptor does not tell. It is to be called again
    /// before the program sleeps.
    ///
    /// # Errors
    /// [`Error::Violation`]. That the peer has gone is said by calls that need it: messages that came from it are there to be received.
    pub fn progress(&mut self) -> Result<bool, Error> {
        self.own()?;
        // The endpoint has taken a run of frames from the kernel, whose descriptor is not readable for them any more.
        let more = (0..POLLS).all(|_| self.messages.poll(&mut self.ends) > 0);
        self.look();
        if self.ends.over {
            self.end();
            self.part();
        } else {
            self.say();
            self.go_on()?;
        }
        match self.ends.violation {
            true => Err(Violation::Record.into()),
            false => Ok(more),
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
        loop {
            let (messages, ends, peer) = (&mut self.messages, &mut self.ends, self.peer);
            let more = ends.outgoing.go_on(&mut ends.lenders, |offset, end, length, copy, done| {
                let (handler, words, count) = end.words();
                let store = Store { offset, handler, words: &words[..count] };
                messages.with(|engine, now, link| engine.store_with(now, peer, &store, length, copy, done, link)) == Ok(true)
            });
            match more {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(limit) => {
                    // Messages keep their order: behind one that cannot be read nothing goes.
                    self.end();
                    return Err(limit.into());
                }
            }
        }
    }

    /// No byte comes or goes any more, and every buffer is its program's.
    fn end(&mut self) {
        self.ends.over = true;
        self.ends.outgoing.end(&mut self.ends.lenders);
    }

    /// Tells the peer, which would take it for a refusal that nothing has a place here.
    fn part(&mut self) {
        if !core::mem::replace(&mut self.parted, true) {
            self.messages.disconnect(self.peer, &mut self.ends);
        }
    }

    /// Drives the port until `done`, or until the connection or the patience is over.
    fn wait(&mut self, what: Awaited, done: impl Fn(&Ends) -> bool) -> Result<(), Error> {
        self.progress()?;
        if done(&self.ends) {
            return Ok(());
        }
        if self.patience == Some(Duration::ZERO) {
            return Err(if self.ends.over { Error::Gone } else { Error::Waited(what) });
        }
        let watched = Watched::new(self);
        watched.0.wait_watched(what, done)
    }

    fn watch(&mut self, watched: bool) {
        let (now, peer) = (self.messages.now(), self.peer);
        let _ = self.messages.engine().watch(now, peer, watched);
    }

    fn wait_watched(&mut self, what: Awaited, done: impl Fn(&Ends) -> bool) -> Result<(), Error> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = self.patience.map(|patience| self.messages.now().saturating_add(nanoseconds(patience)));
        loop {
            self.progress()?;
            if done(&self.ends) {
                return Ok(());
            }
            if self.ends.over {
                return Err(Error::Gone);
            }
            let left = until.map_or(LOOK, |until| Duration::from_nanos(until.saturating_sub(self.messages.now())));
            if left.is_zero() {
                return Err(Error::Waited(what));
            }
            self.messages.wait(&mut self.ends, left.min(LOOK));
        }
    }

    /// A call during which what is under way refers to its caller's memory. If it unwinds the port ends, and refers to it no more.
    fn lending<T>(&mut self, call: impl FnOnce(&mut Self) -> T) -> T {
        struct Lending<'p, 'm, E: Endpoint>(&'p mut NetworkPort<'m, E>);
        impl<E: Endpoint> Drop for Lending<'_, '_, E> {
            fn drop(&mut self) {
                self.0.end();
                // The first one is the call's, if it posts any.
                self.0.ends.incoming.unpost(&mut self.0.ends.lenders[0].host);
            }
        }
        let lending = Lending(self);
        let result = call(&mut *lending.0);
        core::mem::forget(lending);
        result
    }
}

/// The engine asks the peer for signs of life, until this is dropped.
struct Watched<'p, 'm, E: Endpoint>(&'p mut NetworkPort<'m, E>);

impl<'p, 'm, E: Endpoint> Watched<'p, 'm, E> {
    fn new(port: &'p mut NetworkPort<'m, E>) -> Self {
        port.watch(true);
        Watched(port)
    }
}

impl<E: Endpoint> Drop for Watched<'_, '_, E> {
    fn drop(&mut self) {
        self.0.watch(false);
    }
}

/// What a hostile peer can do, for tests.
#[doc(hidden)]
impl<'m, E: Endpoint> NetworkPort<'m, E> {
    /// # Safety
    /// The engine stays where it is: it is not exchanged for another's.
    pub unsafe fn raw(&mut self) -> (&mut Messages<'m, E>, u32) {
        (&mut self.messages, self.peer)
    }
}

impl<E: Endpoint> Drop for NetworkPort<'_, E> {
    fn drop(&mut self) {
        self.end();
        self.ends.incoming.end(&mut self.ends.lenders[0].host);
        if self.own().is_ok() {
            // SAFETY: once, and it is not used after this. A child's copy would say its parent's farewell.
            unsafe { ManuallyDrop::drop(&mut self.messages) };
        }
    }
}
