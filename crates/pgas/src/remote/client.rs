//! A rank's way to the keepers of other hosts: what is under way, what it waits for, and the order that `fence` and `quiet` promise.
//!
//! Puts of a packet, atomic operations and signals go on one ordered channel to each host, and keep their order. What is larger is a
//! store in bulk, on a channel of its own; where a fence lies between the two, the second waits until the first was answered.
//! `quiet` asks each host that was written to for an answer on that channel, and waits for all answers that are due.

use super::device;
use super::hello::{Answer, Card, Hello};
use super::hosts::Hosts;
use super::wire::{Operation, Request, Signal, DONE, REFUSED};
use super::ORDERED;
use crate::error::{Error, Result};
use crate::world::World;
use shunt_am::port::{memory, Port, Trouble};
use shunt_am::{Access, Dispatch, Event, Get, Message, Refused, Replier, Store};
use shunt_endpoint::{Endpoint, Tag, Tags};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Looks at the endpoint before the clock is read: a hundred microseconds and more.
const LOOKS: u32 = 320;
/// Looks between two offers of the processor: the keeper of this host, which has none of its own, may be what the other host waits for.
const OFFERED: u32 = 8;
/// How long a rank looks after that before it sleeps.
const SPIN: Duration = Duration::from_micros(5);
/// The longest sleep between two looks at whether the job ends.
const SLEEP: Duration = Duration::from_millis(2);
/// Silence of a keeper while an answer is due, after which its host counts as lost: its thread waits for nothing but frames.
const LOST: Duration = Duration::from_secs(10);
/// Before a keeper that has ended a connection is asked again.
const AGAIN: Duration = Duration::from_millis(20);
/// Frames that may wait.
const DEPTH: u32 = 256;
/// Bits of an offset within the memory that a get in bulk fills; above them is the number of its slot.
const OFFSET: u32 = 40;

/// Where the parts of an answer go.
#[derive(Clone, Copy, Default, Debug)]
struct Into {
    at: usize,
    bytes: usize,
    /// Elements of `size` bytes lie `step` bytes apart; all in one piece if `size` is 0.
    step: usize,
    size: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Due,
    Done(u64),
    Refused,
}

/// An answer that is due.
#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    /// How often it was used; a token names one use.
    turn: u32,
    host: usize,
    into: Into,
    /// No call waits for this one alone.
    loose: bool,
    /// Of a store in bulk.
    stores: bool,
}

/// What is due, and the handlers of answers.
#[derive(Default)]
struct Waiting {
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Loose ones that are due.
    loose: usize,
    /// By host: stores in bulk that are not answered.
    stores: Vec<usize>,
    /// A keeper refused what no call waits for.
    refused: bool,
    lost: bool,
}

impl Waiting {
    fn begin(&mut self, host: usize, into: Into, loose: bool, stores: bool) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { state: State::Free, turn: 0, host, into, loose, stores });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        let turn = slot.turn.wrapping_add(1).max(1);
        *slot = Slot { state: State::Due, turn, host, into, loose, stores };
        self.loose += usize::from(loose);
        self.stores[host] += usize::from(stores);
        index as u64 | u64::from(turn) << 32
    }

    fn slot(&mut self, token: u64) -> Option<&mut Slot> {
        let (index, turn) = (token as u32 as usize, (token >> 32) as u32);
        self.slots.get_mut(index).filter(|slot| slot.turn == turn && slot.state == State::Due)
    }

    fn end(&mut self, token: u64, state: State) {
        let Some(slot) = self.slot(token) else { return };
        slot.state = state;
        let Slot { host, loose, stores, .. } = *slot;
        self.stores[host] -= usize::from(stores);
        if loose {
            self.loose -= 1;
            self.refused |= state == State::Refused;
            self.give(token);
        }
    }

    fn is_due(&self, token: u64) -> bool {
        self.slots[token as u32 as usize].state == State::Due
    }

    /// Answers that come from now on are dropped: the calls that waited for them return errors, and their buffers are the program's again.
    fn forget(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.into = Into::default());
    }

    /// A host that has not answered.
    fn silent(&self) -> usize {
        self.slots.iter().find(|slot| slot.state == State::Due).map_or(usize::MAX, |slot| slot.host)
    }

    fn give(&mut self, token: u64) {
        let index = token as u32 as usize;
        self.slots[index].state = State::Free;
        self.free.push(index);
    }
}

impl Dispatch for Waiting {
    fn request(&mut self, _: Message<'_>, replier: Replier<'_>) {
        replier.refuse();
    }

    fn reply(&mut self, message: Message<'_>) {
        let Some(&token) = message.words.first() else { return };
        let Some(slot) = self.slot(token) else { return };
        let state = match message.handler {
            DONE => State::Done(message.words.get(1).copied().unwrap_or(0)),
            _ => State::Refused,
        };
        let into = slot.into;
        let wanted = state != State::Refused && message.bulk.is_none() && into.bytes > 0;
        if wanted && message.data.len() != into.bytes {
            return self.end(token, State::Refused);
        }
        if wanted {
            let pieces = message.data.chunks_exact(if into.size == 0 { into.bytes } else { into.size });
            for (number, piece) in pieces.enumerate() {
                // SAFETY: memory of the program's that it leaves to the call until it is complete; the lengths are those it gave.
                unsafe { super::shown::copy(piece.as_ptr(), (into.at + number * into.step) as *mut u8, piece.len()) };
            }
        }
        self.end(token, state);
    }

    fn returned(&mut self, message: Message<'_>) {
        let token = match message.bulk {
            Some(_) => message.words.first().copied().unwrap_or(0),
            None => Request::decode(message.handler, message.words).map_or(0, |request| request.token()),
        };
        match token {
            0 => self.refused = true,
            token => self.end(token, State::Refused),
        }
    }

    fn segment(&mut self, _: u32) -> &mut [u8] {
        &mut []
    }

    fn place(&mut self, _: u32, access: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        if access != Access::Fetch {
            return None;
        }
        let (index, offset) = ((at >> OFFSET) as usize, at & ((1 << OFFSET) - 1));
        let slot = self.slots.get(index).filter(|slot| slot.state == State::Due && slot.into.size == 0)?;
        let end = offset.checked_add(length).filter(|end| *end <= slot.into.bytes as u64)?;
        // SAFETY: as in `reply`.
        Some(unsafe { std::slice::from_raw_parts_mut((slot.into.at as u64 + offset) as *mut u8, (end - offset) as usize) })
    }

    fn event(&mut self, _: u32, event: Event) {
        self.lost |= matches!(event, Event::Lost(_));
    }
}

/// The keeper of a host.
#[derive(Clone, Copy, Default, Debug)]
struct Peer {
    number: u32,
    /// Something was sent on the ordered channel since the last answer there.
    written: bool,
    /// A fence was called since.
    fenced: bool,
}

struct Inner {
    port: Port<'static, Box<dyn Endpoint + Send>>,
    waiting: Waiting,
    /// By host; this one's is not used.
    peers: Vec<Peer>,
    spin: u32,
}

/// All of it, for one call at a time.
pub struct Remote {
    hosts: Hosts,
    own: usize,
    inner: Mutex<Inner>,
    /// Something is under way.
    busy: AtomicBool,
}

fn setup(what: impl std::fmt::Display) -> Error {
    Error::Setup(what.to_string())
}

/// Whether a connection ended without a word.
fn is_end(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

impl Remote {
    /// Meets the keepers of all other hosts.
    pub(crate) fn join(hosts: Hosts, me: usize, data_bytes: usize, crowded: bool) -> Result<Remote> {
        let own = hosts.of(me);
        let address = hosts.list[own].address;
        let broken = |what: &dyn std::fmt::Display| setup(format!("rank {me} cannot reach the other hosts of the job: {what}"));
        let others = hosts.list.len() as u32 - 1;
        let endpoint = device::open(hosts.device, address, others, DEPTH).map_err(|error| broken(&error))?;
        let config = super::config(&endpoint, others);
        let mut port = Port::new(endpoint, memory(&config).leak(), &config).map_err(|error| broken(&error))?;
        port.set_spin(SPIN);
        let mut waiting = Waiting { stores: vec![0; hosts.list.len()], ..Waiting::default() };
        let mut peers = vec![Peer::default(); hosts.list.len()];
        let others = hosts.list.iter().enumerate().filter(|(index, _)| *index != own);
        for (number, (index, host)) in (0u32..).zip(others) {
            let at = SocketAddr::new(host.address, host.port);
            let trouble = |what: &dyn std::fmt::Display| broken(&format!("the keeper at {at}: {what}"));
            let tag: Tag = port.endpoint().new_tag().map_err(|error| trouble(&error.0))?;
            let offer = port.engine().offer(number).map_err(|error| trouble(&error))?;
            let card = Card { address: port.endpoint().address(), tag, offer };
            let hello = Hello { secret: hosts.secret, rank: me as u64, data_bytes: data_bytes as u64, card };
            let ask = || {
                let mut stream = TcpStream::connect_timeout(&at, LOST)?;
                stream.set_read_timeout(Some(LOST))?;
                stream.set_nodelay(true)?;
                hello.write(&mut stream)?;
                Answer::read(&mut stream)
            };
            // Strangers may fill the places for those who have not said yet who they are: an end without an answer is none.
            let limit = Instant::now() + LOST;
            let answer = loop {
                match ask() {
                    Err(error) if is_end(&error) && Instant::now() < limit => std::thread::sleep(AGAIN),
                    answer => break answer,
                }
            };
            let theirs = match answer.map_err(|error| trouble(&error))? {
                Answer::Welcome(card) => card,
                Answer::Full => return Err(trouble(&"has no room for another program of this rank")),
                Answer::Program(bytes) => {
                    return Err(setup(format!(
                        "rank {me} runs another program than the ranks of other hosts: {data_bytes} bytes of static data, not {bytes}"
                    )))
                }
            };
            let opened = port
                .open(&theirs.address, Tags { receive: tag, send: theirs.tag })
                .map_err(|error| trouble(&format!("{error:?}")))?;
            let now = port.now();
            port.engine().adopt(now, opened, &theirs.offer, &mut waiting).map_err(|error| trouble(&error))?;
            peers[index].number = opened;
        }
        let spin = if crowded { 4 } else { LOOKS };
        Ok(Remote { hosts, own, inner: Mutex::new(Inner { port, waiting, peers, spin }), busy: AtomicBool::new(false) })
    }

    /// The hosts.
    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// This rank's.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// For a call that may leave something under way. Only its owner says that nothing is (`quiet`), so a thread says so once it is that.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.busy.store(true, Release);
        inner
    }

    /// The program needs no other host any more.
    pub(crate) fn leave(&self) {
        let mut inner = self.lock();
        let Inner { port, waiting, peers, .. } = &mut *inner;
        for (_, peer) in peers.iter().enumerate().filter(|(index, _)| *index != self.own) {
            port.disconnect(peer.number, waiting);
        }
    }

    /// Sends again what was lost, and takes what has come: to be called now and then by a rank that waits for something else.
    pub(crate) fn progress(&self) {
        if self.busy.load(Acquire) {
            if let Ok(mut inner) = self.inner.try_lock() {
                let Inner { port, waiting, .. } = &mut *inner;
                while port.poll(waiting) > 0 {}
                // A second look is one that looks after timers.
                port.now();
                port.poll(waiting);
            }
        }
    }

    /// Bytes of this process become those at a place of another host's, in this order to others of the same host.
    ///
    /// # Safety
    /// So many bytes can be read there.
    pub(crate) unsafe fn put(&self, world: &World, host: usize, place: u64, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: by the caller.
        let data = unsafe { std::slice::from_raw_parts(from, bytes) };
        let mut inner = self.lock();
        match bytes <= inner.medium() {
            true => inner.send(world, host, &Request::Put { place }, data),
            false => inner.store(world, host, place, data, None),
        }
    }

    /// The same, and then a signal to the same rank.
    ///
    /// # Safety
    /// As [`Remote::put`].
    pub(crate) unsafe fn put_signal(
        &self,
        world: &World,
        host: usize,
        place: u64,
        (from, bytes): (*const u8, usize),
        signal: Signal,
    ) -> Result<()> {
        // SAFETY: by the caller.
        let data = unsafe { std::slice::from_raw_parts(from, bytes) };
        let mut inner = self.lock();
        match bytes <= inner.medium() {
            true => inner.send(world, host, &Request::PutSignal { place, signal }, data),
            false => inner.store(world, host, place, data, Some(signal)),
        }
    }

    /// Bytes at a place of another host's become those of this process; when it returns, or when `quiet` does.
    ///
    /// # Safety
    /// So many bytes can be written there, until then.
    pub(crate) unsafe fn get(&self, world: &World, host: usize, place: u64, to: *mut u8, bytes: usize, now: bool) -> Result<()> {
        let mut inner = self.lock();
        let into = Into { at: to as usize, bytes, ..Into::default() };
        let token = inner.waiting.begin(host, into, !now, false);
        if bytes <= inner.medium() {
            inner.ask(world, host, 0, &Request::Get { place, length: bytes as u64, token }, &[])?;
        } else {
            let index = u64::from(token as u32);
            let get = Get { from: place, to: index << OFFSET, length: bytes as u64, handler: DONE, words: &[token] };
            inner.insist(world, host, |port, waiting, peer| port.get(peer, &get, waiting))?;
        }
        if now {
            inner.wait_for(world, token)?;
        }
        Ok(())
    }

    /// Elements of `size` bytes, `from_step` bytes apart here, become those at a place that lie `step` bytes apart.
    ///
    /// # Safety
    /// They can be read.
    pub(crate) unsafe fn scatter(
        &self,
        world: &World,
        (host, place, step): (usize, u64, usize),
        (from, from_step): (*const u8, isize),
        (size, count): (usize, usize),
    ) -> Result<()> {
        let mut inner = self.lock();
        let most = (inner.medium() / size).max(1);
        let mut packed = Vec::with_capacity(most * size);
        for first in (0..count).step_by(most) {
            packed.clear();
            for number in first..count.min(first + most) {
                // SAFETY: by the caller.
                packed.extend_from_slice(unsafe { std::slice::from_raw_parts(from.offset(number as isize * from_step), size) });
            }
            let at = place + (first * step) as u64;
            inner.send(world, host, &Request::Scatter { place: at, step: step as u64, size: size as u64 }, &packed)?;
        }
        Ok(())
    }

    /// The other direction.
    ///
    /// # Safety
    /// They can be written.
    pub(crate) unsafe fn gather(
        &self,
        world: &World,
        (host, place, step): (usize, u64, usize),
        (to, to_step): (*mut u8, isize),
        (size, count): (usize, usize),
    ) -> Result<()> {
        let mut inner = self.lock();
        let most = (inner.medium() / size).max(1);
        for first in (0..count).step_by(most) {
            let elements = most.min(count - first);
            let at = to.wrapping_offset(first as isize * to_step) as usize;
            let into = Into { at, bytes: elements * size, step: to_step as usize, size };
            let token = inner.waiting.begin(host, into, false, false);
            let at = place + (first * step) as u64;
            let request = Request::Gather { place: at, step: step as u64, size: size as u64, count: elements as u64, token };
            inner.ask(world, host, 0, &request, &[])?;
            inner.wait_for(world, token)?;
        }
        Ok(())
    }

    /// An atomic operation; the value before, if it is wanted.
    pub(crate) fn atomic(
        &self,
        world: &World,
        (host, place, wide): (usize, u64, bool),
        operation: Operation,
        (value, expected): (u64, u64),
        wanted: bool,
    ) -> Result<u64> {
        let mut inner = self.lock();
        let token = if wanted { inner.waiting.begin(host, Into::default(), false, false) } else { 0 };
        inner.send(world, host, &Request::Atomic { place, operation, wide, value, expected, token }, &[])?;
        if wanted {
            inner.wait_for(world, token)
        } else {
            Ok(0)
        }
    }

    /// What needs no answer of its own.
    pub(crate) fn tell(&self, world: &World, host: usize, request: &Request) -> Result<()> {
        self.lock().send(world, host, request, &[])
    }

    /// What is answered without a value; waits for that.
    pub(crate) fn ask(&self, world: &World, host: usize, request: impl FnOnce(u64) -> Request) -> Result<()> {
        let mut inner = self.lock();
        let token = inner.waiting.begin(host, Into::default(), false, false);
        inner.send(world, host, &request(token), &[])?;
        inner.wait_for(world, token).map(|_| ())
    }

    /// Puts and atomic operations before it come before those after it, to each rank.
    pub(crate) fn fence(&self) {
        if self.busy.load(Acquire) {
            let mut inner = self.lock();
            inner.peers.iter_mut().for_each(|peer| peer.fenced = true);
        }
    }

    /// Everything that was begun is done.
    pub(crate) fn quiet(&self, world: &World) -> Result<()> {
        if !self.busy.load(Acquire) {
            return Ok(());
        }
        let mut inner = self.lock();
        for host in 0..inner.peers.len() {
            inner.ask_for_fence(world, host)?;
        }
        inner.wait(world, |waiting| waiting.loose == 0)?;
        if std::mem::take(&mut inner.waiting.refused) {
            return Err(setup("the keeper of another host has refused a put or an atomic operation"));
        }
        self.busy.store(false, Release);
        Ok(())
    }
}

impl Inner {
    /// Bytes of data that a request takes at most.
    fn medium(&mut self) -> usize {
        self.port.engine().medium_maximum()
    }

    /// A call of the port that ends early only if the connection is gone.
    fn insist(
        &mut self,
        world: &World,
        host: usize,
        mut call: impl FnMut(&mut Port<'static, Box<dyn Endpoint + Send>>, &mut Waiting, u32) -> std::result::Result<(), Trouble>,
    ) -> Result<()> {
        let outcome = call(&mut self.port, &mut self.waiting, self.peers[host].number);
        if outcome.is_err() {
            self.waiting.forget();
        }
        match outcome {
            Ok(()) => Ok(()),
            Err(Trouble::Refused(Refused::TooLong)) => {
                Err(setup("the path to another host takes shorter packets than its device"))
            }
            Err(trouble) => Err(gone(world, host, &trouble)),
        }
    }

    fn ask(&mut self, world: &World, host: usize, channel: u16, request: &Request, data: &[u8]) -> Result<()> {
        let (handler, words, count) = request.encode();
        self.insist(world, host, |port, waiting, peer| port.request_on(peer, channel, handler, &words[..count], data, waiting))
    }

    /// A request on the ordered channel.
    fn send(&mut self, world: &World, host: usize, request: &Request, data: &[u8]) -> Result<()> {
        if self.peers[host].fenced && self.waiting.stores[host] > 0 {
            self.wait(world, |waiting| waiting.stores[host] == 0)?;
        }
        self.peers[host].written = true;
        self.ask(world, host, ORDERED, request, data)
    }

    fn store(&mut self, world: &World, host: usize, place: u64, data: &[u8], signal: Option<Signal>) -> Result<()> {
        if std::mem::take(&mut self.peers[host].fenced) && self.peers[host].written {
            self.ask_for_fence(world, host)?;
            self.wait(world, |waiting| waiting.loose == 0)?;
        }
        let token = self.waiting.begin(host, Into::default(), true, true);
        let (handler, words, count) = Request::Stored { signal, token }.encode();
        let store = Store { offset: place, handler, words: &words[..count] };
        self.insist(world, host, |port, waiting, peer| port.store(peer, &store, data, waiting))
    }

    fn ask_for_fence(&mut self, world: &World, host: usize) -> Result<()> {
        self.peers[host].fenced = false;
        if std::mem::take(&mut self.peers[host].written) {
            let token = self.waiting.begin(host, Into::default(), true, false);
            self.ask(world, host, ORDERED, &Request::Fence { token }, &[])?;
        }
        Ok(())
    }

    fn wait_for(&mut self, world: &World, token: u64) -> Result<u64> {
        self.wait(world, |waiting| !waiting.is_due(token))?;
        let state = self.waiting.slots[token as u32 as usize].state;
        self.waiting.give(token);
        match state {
            State::Done(value) => Ok(value),
            _ => Err(setup("the keeper of another host has refused what was asked for")),
        }
    }

    fn wait(&mut self, world: &World, done: impl Fn(&Waiting) -> bool) -> Result<()> {
        let Inner { port, waiting, spin, .. } = self;
        for look in 1..=*spin {
            if done(waiting) {
                return Ok(());
            }
            if port.poll(waiting) == 0 && look % OFFERED == 0 {
                std::thread::yield_now();
            }
        }
        let mut heard = Instant::now();
        loop {
            if done(waiting) {
                return Ok(());
            }
            if let Some(cause) = world.ended() {
                waiting.forget();
                return Err(Error::Ended(cause));
            }
            if waiting.lost || heard.elapsed() > LOST {
                waiting.forget();
                return Err(gone(world, waiting.silent(), &"no answer"));
            }
            if port.wait(waiting, SLEEP) {
                heard = Instant::now();
            }
        }
    }
}

/// The launcher speaks of a host that is gone; a rank that has learnt it sooner gives it some time.
fn gone(world: &World, host: usize, why: &dyn std::fmt::Display) -> Error {
    let limit = Instant::now() + Duration::from_secs(3);
    while Instant::now() < limit {
        if let Some(cause) = world.ended() {
            return Error::Ended(cause);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let known = world.other_hosts().and_then(|way| way.hosts().list.get(host));
    let name = known.map_or("a host of the job".into(), |host| match host.ranks {
        1 => format!("the host of rank {} ({})", host.first, host.address),
        ranks => format!("the host of ranks {} to {} ({})", host.first, host.first + ranks - 1, host.address),
    });
    setup(format!("the keeper of {name} is lost: {why}"))
}

/// Answers that refuse are told apart from others by their handler alone.
const _: () = assert!(REFUSED != DONE);
