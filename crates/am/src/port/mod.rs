//! Active messages for programs: an engine, an endpoint and a clock in one, with calls that block.
//!
//! A call that blocks polls, so handlers run in it (U-Net 5.1.2). It ends with an error in the declared time at the latest
//! ([`Config::lost_after`]) if its peer dies or stalls. Handlers may reply; they cannot make other calls, because the port
//! is borrowed while they run.
//!
//! A handler that panics unwinds to the caller of the poll. Its message counts as handled, a request as not answered unless it was, and
//! the port is as good as before: a caller that catches the panic may poll again.

mod blocking;
mod device_adapter;
mod join;
mod panics;
mod regions;
mod table;

pub use blocking::Trouble;
pub use join::join;
pub use regions::{Name, Regions, Shows, SHOWN};
pub use table::Table;

use crate::config::{Nanoseconds, MILLISECOND};
use crate::{Config, Dispatch, Engine, MemoryError, Status};
use device_adapter::{DeviceAdapter, Rest};
use panics::{Caught, Panic, Unwinding};
use shunt_endpoint::{Address, Arrival, Endpoint, OpenError, PostError, Tag, Tags, INLINE};
use shunt_sys::clock;
use std::time::Duration;

/// Frames taken in one poll: acknowledgements and sends get their turn after so many.
const BATCH: usize = 64;
/// Empty looks between two looks at the clock.
const LOOKS: u32 = 64;

/// Why a port was not made.
#[derive(Debug)]
pub enum PortError {
    /// The memory or the configuration.
    Memory(MemoryError),
    /// The system gave no random numbers, or the like.
    System(shunt_sys::Errno),
    /// The device loses frames and is said to be reliable, or takes shorter frames than the configuration says.
    Device,
    /// No buffer could be posted.
    Post(PostError),
}

impl std::fmt::Display for PortError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(error) => error.fmt(to),
            Self::System(errno) => errno.fmt(to),
            Self::Device => to.write_str("the configuration asks for more than the device does: see config_for"),
            Self::Post(error) => error.fmt(to),
        }
    }
}

impl std::error::Error for PortError {}

/// An endpoint that speaks active messages. `'m` is its engine's memory.
pub struct Port<'m, E: Endpoint> {
    engine: Engine<'m>,
    adapter: DeviceAdapter<E>,
    arrival: Arrival,
    scratch: Vec<u8>,
    began: Nanoseconds,
    now: Nanoseconds,
    looks: u32,
    /// The last poll took something: where messages come closely, all that are there are taken.
    crowded: bool,
    /// Requests wait for others to leave with.
    held: bool,
    spin: Duration,
}

/// A configuration that fits the device of an endpoint.
pub fn config_for<E: Endpoint>(endpoint: &E, peers: u32) -> Config {
    let capabilities = endpoint.capabilities();
    let frame = capabilities.largest.min(crate::config::MAXIMUM_FRAME);
    if capabilities.lossy || !capabilities.ordered {
        Config::lossy(peers, frame)
    } else {
        Config::reliable(peers, frame)
    }
}

/// Memory for an engine. Zeroed pages cost nothing until they are used.
#[must_use]
pub fn memory(config: &Config) -> Vec<u64> {
    vec![0; config.words()]
}

impl<'m, E: Endpoint> Port<'m, E> {
    /// A port over an endpoint. Buffers are posted, from byte 0 of its segment on, where the device wants them.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn new(mut endpoint: E, memory: &'m mut [u64], config: &Config) -> Result<Self, PortError> {
        let capabilities = *endpoint.capabilities();
        if config.reliable != 0 && (capabilities.lossy || !capabilities.ordered) || config.frame > capabilities.largest {
            return Err(PortError::Device);
        }
        if let shunt_endpoint::Buffers::Posted { smallest, .. } = capabilities.buffers {
            // A device may take buffers of which it needs several for a frame, and there are few: each is to hold a whole one.
            let size = smallest.max(config.frame);
            let size = size.next_multiple_of(4096.min(size.next_power_of_two()));
            let mut offset = 0;
            while offset + size <= endpoint.segment().size() {
                match endpoint.post(shunt_endpoint::Area::new(offset, size)) {
                    Ok(()) => offset += size,
                    Err(PostError::Full) => break,
                    // The end of a segment may be the device's own.
                    Err(PostError::Area) if offset > 0 => break,
                    Err(error) => return Err(PortError::Post(error)),
                }
            }
        }
        let secret = [(); 2].map(|()| Tag::random().map(|tag| tag.0));
        let secret = [secret[0].map_err(PortError::System)?, secret[1].map_err(PortError::System)?];
        clock::start_once();
        Ok(Self {
            engine: Engine::format(memory, config, secret).map_err(PortError::Memory)?,
            adapter: DeviceAdapter::new(endpoint, config.peers),
            arrival: Arrival::empty(),
            scratch: vec![0; capabilities.largest as usize],
            began: clock::monotonic_ns(),
            now: 1,
            looks: 0,
            crowded: false,
            held: false,
            spin: Duration::from_micros(50),
        })
    }

    /// How long a blocking call looks before it sleeps on the endpoint's descriptor.
    pub fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// Requests from now on leave together, where the device takes several at once: when this is ended, or when the port is polled for a
    /// while.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
        if !held {
            self.adapter.flush();
        }
    }

    /// Registers a peer; gives its number. Both sides do so, with the other's address and tags.
    ///
    /// # Errors
    /// [`OpenError`]; `Full` too when the configuration has no more peers.
    pub fn open(&mut self, remote: &Address, tags: Tags) -> Result<u32, OpenError> {
        self.adapter.open(remote, tags)
    }

    /// The endpoint, for its address, tags and counters.
    pub fn endpoint(&mut self) -> &mut E {
        &mut self.adapter.endpoint
    }

    /// The engine, for what this type does not offer. Its clock is [`Port::now`].
    pub fn engine(&mut self) -> &mut Engine<'m> {
        &mut self.engine
    }

    /// The time, for calls of the engine.
    pub fn now(&mut self) -> Nanoseconds {
        // By the processor's counter, once its rate is known; that moment may be some nanoseconds before the one before.
        self.now = self.now.max(clock::monotonic_ns().saturating_sub(self.began) + 1);
        self.now
    }

    /// What is known of a connection.
    pub fn status(&mut self, peer: u32) -> Option<Status> {
        self.engine.status(peer)
    }

    /// Calls of the engine with the device at hand.
    pub fn with<T>(&mut self, act: impl FnOnce(&mut Engine<'m>, Nanoseconds, &mut dyn crate::Link) -> T) -> T {
        let result = act(&mut self.engine, self.now, &mut self.adapter);
        self.adapter.flush();
        result
    }

    /// Takes what has arrived and runs its handlers, sends what may be sent, looks after timers. Gives the number of frames. One
    /// that comes after an empty poll is taken alone: a caller that waits for a single message has it before another look.
    #[inline]
    pub fn poll<P: Dispatch + ?Sized>(&mut self, mut program: &mut P) -> usize {
        if !self.adapter.endpoint.receive(&mut self.arrival) {
            return self.nothing_came(&mut program);
        }
        if self.engine.config().reliable == 0 {
            self.now();
        }
        self.take_arrival(program);
        let mut taken = 1;
        if core::mem::replace(&mut self.crowded, true) {
            taken += self.take_others(program);
        }
        // Replies leave before anything is written down about them.
        self.adapter.flush();
        if self.engine.is_busy() || self.engine.is_due(self.now) || self.adapter.has_gone() {
            self.go_on(&mut program);
        }
        taken
    }

    /// The common case of a caller that waits: nothing came, nothing is to be done, and time need not be known so well.
    #[inline]
    fn nothing_came(&mut self, program: &mut dyn Dispatch) -> usize {
        self.crowded = false;
        self.looks += 1;
        if self.looks >= LOOKS || self.engine.is_busy() {
            if self.looks >= LOOKS {
                self.looks = 0;
                self.now();
            }
            self.go_on(program);
        }
        0
    }

    /// Takes what is there behind a first frame.
    #[inline(never)]
    fn take_others<P: Dispatch + ?Sized>(&mut self, program: &mut P) -> usize {
        let mut taken = 0;
        while taken + 1 < BATCH && self.adapter.endpoint.receive(&mut self.arrival) {
            self.take_arrival(program);
            taken += 1;
        }
        taken
    }

    /// Sends what may be sent, and looks after timers and peers that are gone.
    #[inline(never)]
    fn go_on(&mut self, program: &mut dyn Dispatch) {
        let mut caught = Caught::new(program);
        if self.engine.is_busy() || self.engine.is_due(self.now) {
            self.engine.transmit(self.now, &mut self.adapter, &mut caught);
        }
        self.adapter.flush();
        while let Some(peer) = self.adapter.gone() {
            let _ = self.engine.disconnect(self.now, peer, &mut self.adapter, &mut caught);
        }
        panics::go_on(caught.end());
    }

    #[inline(always)]
    fn take_arrival<P: Dispatch + ?Sized>(&mut self, mut program: &mut P) {
        let unwinding = Unwinding(self);
        let port = &mut *unwinding.0;
        let length = port.arrival.len();
        if let Some(peer) = port.adapter.peer_of(port.arrival.channel()) {
            let short = length <= INLINE;
            if !(short && port.engine.receive_straight(port.now, peer, port.arrival.head(), &mut port.adapter, program)) {
                panics::go_on(port.take_in_general(peer, &mut program));
            }
        }
        port.adapter.endpoint.release(&mut port.arrival);
        std::mem::forget(unwinding);
    }

    /// Takes a frame that is unusual in any way.
    #[inline(never)]
    fn take_in_general(&mut self, peer: u32, program: &mut dyn Dispatch) -> Panic {
        let mut caught = Caught::new(program);
        if self.arrival.len() <= INLINE {
            self.engine.receive_in_general(self.now, peer, self.arrival.head(), &mut self.adapter, &mut caught);
        } else {
            self.take_long(peer, &mut caught);
        }
        caught.end()
    }

    /// Takes a frame of which the descriptor has not all.
    fn take_long(&mut self, peer: u32, program: &mut dyn Dispatch) {
        let (head, length) = (self.arrival.head(), self.arrival.len());
        if self.engine.config().checked != 0 && crate::frame::is_bulk(head, length) {
            let rest = Rest { arrival: &self.arrival, segment: self.adapter.endpoint.segment() };
            self.engine.receive_split(self.now, peer, head, &rest, &mut self.adapter, program);
        } else {
            // Into private memory once; what is judged there cannot change.
            let length = length.min(self.scratch.len());
            let copied = self.arrival.copy_to(&self.adapter.endpoint.segment(), 0, &mut self.scratch[..length]);
            self.engine.receive_in_general(self.now, peer, &self.scratch[..copied], &mut self.adapter, program);
        }
    }

    /// Polls, and sleeps when nothing comes, until a frame came or the time is over. True: something came.
    pub fn wait(&mut self, program: &mut dyn Dispatch, limit: Duration) -> bool {
        self.wait_while(program, limit, |_| true)
    }

    /// The same, until a timer has changed what is asked of the port: a connection that ends brings no frame.
    fn wait_while(&mut self, program: &mut dyn Dispatch, limit: Duration, go_on: impl Fn(&Self) -> bool) -> bool {
        let start = self.now();
        let end = start + limit.as_nanos() as u64;
        let spin_until = start + self.spin.as_nanos() as u64;
        loop {
            if self.poll(program) > 0 {
                return true;
            }
            if self.now >= spin_until {
                if self.now() >= end || !go_on(self) {
                    return false;
                }
                self.sleep(end);
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// For programs with a loop of their own: the endpoint's descriptor becomes readable when something arrives. To be called
    /// after a poll that took nothing; gives how long to sleep at most, for timers. `None`: something is there already. After the
    /// sleep comes [`Port::disarm`], and a poll.
    pub fn arm(&mut self) -> Option<Duration> {
        self.adapter.flush(); // what was sent since that poll
        if !self.adapter.endpoint.arm() {
            return None;
        }
        let now = self.now();
        let mut until = self.engine.deadline().unwrap_or(Nanoseconds::MAX);
        if self.engine.is_busy() || self.adapter.is_unflushed() {
            // The device had no room: asked again soon.
            until = until.min(now + MILLISECOND);
        }
        Some(Duration::from_nanos(until.saturating_sub(now)))
    }

    /// The program is awake again.
    pub fn disarm(&mut self) {
        self.adapter.endpoint.disarm();
        self.now();
    }

    /// Sleeps on the endpoint's descriptor until something arrives, a timer runs out, or `end`.
    fn sleep(&mut self, end: Nanoseconds) {
        let Some(pause) = self.arm() else { return };
        let pause = (pause.as_nanos() as u64).min(end.saturating_sub(self.now));
        if pause > 0 {
            let _ = shunt_sys::calls::poll_one(self.adapter.endpoint.descriptor(), shunt_sys::libc::POLLIN, pause as i64);
        }
        self.disarm();
    }

    /// Ends a connection and tells the peer.
    pub fn disconnect(&mut self, peer: u32, program: &mut dyn Dispatch) {
        let mut caught = Caught::new(program);
        let _ = self.engine.disconnect(self.now, peer, &mut self.adapter, &mut caught);
        self.adapter.flush();
        panics::go_on(caught.end());
    }
}

/// A program that is over.
struct Nobody;

impl Dispatch for Nobody {
    fn request(&mut self, _message: crate::Message<'_>, replier: crate::Replier<'_>) {
        replier.refuse();
    }
    fn reply(&mut self, _message: crate::Message<'_>) {}
}

/// Peers are told that the port is gone, so that they need not wait for the declared time.
impl<E: Endpoint> Drop for Port<'_, E> {
    fn drop(&mut self) {
        for peer in 0..self.engine.config().peers {
            self.disconnect(peer, &mut Nobody);
        }
    }
}
