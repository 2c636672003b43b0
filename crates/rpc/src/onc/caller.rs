//! A caller by SunRPC: many calls outstanding, told apart by their numbers.
//!
//! Over a stream a call is sent once. A datagram may be lost, so there it is sent again, with the same number, until an answer comes; a
//! server that has forgotten the first may run it twice.

use crate::address::{Address, Place, Transport};
use crate::clock::{nanos, now};
use crate::error::{Error, Fault, Kind, Ran, Side};
use crate::forks::{self, Kept};
use crate::onc::message::{Call, Claim, Credential, Outcome, Reply};
use crate::onc::record::{mark, Broken, Reader};
use crate::reference::{How, Lent};
use crate::value::ByValue;
use crate::window::{Pieces, Window, PLACES};
use crate::wire::Name;
use crate::xdr::{Decoder, Encoder, Xdr};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::task::Waker;
use std::time::Duration;

/// Bytes of a datagram at most: those of IPv4.
const DATAGRAM: usize = 65_507;
/// When a datagram is sent again at first, and at the latest: each time after twice as long.
const AGAIN: u64 = 500_000_000;
const LATEST: u64 = 8_000_000_000;
/// How long a call over UDP takes at most if it has no deadline: nothing else tells that its server is gone.
const PATIENCE: u64 = 25_000_000_000;
/// How often is read before the clock is looked at.
const READS: u32 = 16;
/// Bytes that are not sent yet, beyond which a call waits.
const CROWD: usize = 256 << 10;

/// A server that ends the connection of a longer call may have done so for that.
const LONG: usize = 1 << 20;

/// What messages go through.
pub(crate) enum Link {
    Tcp(TcpStream),
    Unix(UnixStream),
    Udp(UdpSocket),
}

impl Link {
    pub fn connect(transport: Transport, host: &str, port: u16, limit: Duration) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs()? {
            let tried = match transport {
                Transport::Tcp => TcpStream::connect_timeout(&address, limit.max(Duration::from_millis(1))).and_then(|stream| {
                    stream.set_nodelay(true)?;
                    Ok(Self::Tcp(stream))
                }),
                Transport::Udp => {
                    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                    UdpSocket::bind(any).and_then(|socket| socket.connect(address).map(|()| Self::Udp(socket)))
                }
            };
            match tried {
                Ok(link) => return Ok(link),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn descriptor(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Udp(socket) => socket.as_raw_fd(),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Udp(socket) => socket.set_nonblocking(true),
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
            Self::Udp(socket) => socket.recv(into),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::Udp(socket) => socket.send(bytes),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum State {
    #[default]
    Free,
    Waiting,
    Done,
    Lost,
}

#[derive(Default)]
struct Slot {
    state: State,
    generation: u16,
    xid: u32,
    /// The whole reply; before that, of a datagram, the call.
    bytes: Vec<u8>,
    lent: Vec<Lent>,
    waker: Option<Waker>,
    again: u64,
    pause: u64,
}

/// A caller, bound to one server.
pub(crate) struct Caller {
    _kept: Kept,
    link: Link,
    epoll: OwnedFd,
    reader: Reader,
    outgoing: Vec<u8>,
    /// What is begun is kept, to leave together.
    held: bool,
    /// Bytes of the longest call so far.
    longest: usize,
    slots: Vec<Slot>,
    free: Vec<u16>,
    numbers: HashMap<u32, u16>,
    next: u32,
    peer: String,
    program: u32,
    pub version: u32,
    credential: Credential,
    pub deadline: Option<u64>,
    pub strangers: u64,
    pub wakers: Vec<Waker>,
    window_size: usize,
    window: Option<(Window, Pieces)>,
    dead: Option<String>,
    forks: u32,
    room: Vec<u8>,
}

/// What a caller is told beside its server's place.
pub(crate) struct Manner {
    pub patience: Duration,
    pub window: usize,
    pub deadline: Option<Duration>,
    pub record: usize,
    pub claim: Option<Claim>,
    /// What tells of forks.
    pub forks: u32,
}

/// The error for a call that was answered without results.
fn refusal(outcome: Outcome<'_>) -> (Kind, Ran) {
    match outcome {
        Outcome::Success(_) => (Kind::Protocol, Ran::Yes),
        Outcome::NoProgram | Outcome::NoVersion { .. } => (Kind::Version, Ran::No),
        Outcome::NoProcedure => (Kind::NoProcedure, Ran::No),
        Outcome::BadArguments => (Kind::BadArguments, Ran::No),
        Outcome::SystemError => (Kind::Application, Ran::Maybe),
        Outcome::RpcVersion { .. } => (Kind::Protocol, Ran::No),
        Outcome::Denied(_) => (Kind::Denied, Ran::No),
    }
}

impl Caller {
    /// Binds to the server at a place, which may start later: its null procedure tells that it is there and has a version.
    pub fn connect(place: &Place, program: u32, versions: &RangeInclusive<u32>, manner: &Manner) -> Result<Self, Error> {
        let until = now().saturating_add(nanos(manner.patience));
        let mut pause = Duration::from_millis(1);
        loop {
            let left = Duration::from_nanos(until.saturating_sub(now()));
            let error = match Self::attempt(place, program, versions, manner, left) {
                Ok(caller) => return Ok(caller),
                Err(error) => error,
            };
            if error.kind() != Kind::Unreachable || left.is_zero() {
                return Err(error);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    fn attempt(
        place: &Place,
        program: u32,
        versions: &RangeInclusive<u32>,
        manner: &Manner,
        left: Duration,
    ) -> Result<Self, Error> {
        let fail =
            |kind, detail: &dyn fmt::Display| Error::new(kind, Side::Between, Ran::No, Address::SunRpc(place.clone()), detail);
        let port = match place.port {
            Some(port) => port,
            None => crate::onc::rpcbind::port(place, program, *versions.end(), left)
                .map_err(|error| fail(Kind::Unreachable, &error))?,
        };
        let link = Link::connect(place.transport, &place.host, port, left).map_err(|error| fail(Kind::Unreachable, &error))?;
        let at = Address::SunRpc(Place { port: Some(port), ..place.clone() }).to_string();
        let mut caller = Self::over(link, at, program, *versions.end(), manner).map_err(|error| fail(Kind::System, &error))?;
        loop {
            let name = caller.begin(0, &|_| (), &How::default(), false)?;
            match caller.wait(name, Some(now().saturating_add(nanos(left)))) {
                Err(error) if matches!(error.kind(), Kind::TimedOut | Kind::Lost) => return Err(fail(Kind::Unreachable, &error)),
                other => other?,
            }
            let slot = &caller.slots[usize::from(name.slot)];
            let range = match Reply::parse(&slot.bytes).map(|reply| reply.outcome) {
                _ if slot.state == State::Lost => return Err(fail(Kind::Unreachable, &"it closed the connection")),
                Some(Outcome::NoVersion { low, high }) => low..=high,
                _ => {
                    caller.take::<()>(name)?;
                    return Ok(caller);
                }
            };
            caller.give_back(name.slot);
            let next = (*range.end()).min(caller.version.saturating_sub(1));
            if next < *versions.start().max(range.start()) || next == caller.version {
                let (start, end, low, high) = (versions.start(), versions.end(), range.start(), range.end());
                let detail = format_args!("program {program:#x}: versions {start} to {end} asked for, {low} to {high} there");
                return Err(fail(Kind::Version, &detail));
            }
            caller.version = next;
        }
    }

    /// Over a link that is there.
    pub fn over(link: Link, peer: String, program: u32, version: u32, manner: &Manner) -> io::Result<Self> {
        link.set_nonblocking()?;
        // SAFETY: a number.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and of no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: descriptors of ours, and an event.
        if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, link.descriptor(), &mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // Numbers of this caller do not begin where those of the last one at this port did: servers know duplicates by them.
        let next = (now() as u32).rotate_left(16) ^ std::process::id();
        let patience = matches!(link, Link::Udp(_)).then_some(PATIENCE);
        Ok(Self {
            _kept: Kept::new(&link.descriptor()),
            link,
            epoll,
            reader: Reader::new(manner.record),
            outgoing: vec![],
            held: false,
            longest: 0,
            slots: (0..PLACES).map(|_| Slot::default()).collect(),
            free: (0..PLACES as u16).rev().collect(),
            numbers: HashMap::new(),
            next,
            peer,
            program,
            version,
            credential: manner.claim.clone().map_or(Credential::None, Credential::Sys),
            deadline: manner.deadline.map(nanos).or(patience),
            strangers: 0,
            wakers: vec![],
            window_size: manner.window,
            window: None,
            dead: None,
            forks: manner.forks,
            room: vec![0; 65_536],
        })
    }

    #[cold]
    pub fn fail(&self, kind: Kind, side: Side, ran: Ran, detail: impl fmt::Display) -> Error {
        Error::new(kind, side, ran, &self.peer, detail)
    }

    fn is_datagrams(&self) -> bool {
        matches!(self.link, Link::Udp(_))
    }

    pub fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    pub fn outstanding(&self) -> usize {
        PLACES - self.free.len()
    }

    /// Memory for parameters by reference, made when it is first asked for.
    pub fn memory(&mut self) -> Result<(&Window, &mut Pieces), Error> {
        if self.window.is_none() {
            let window =
                Window::mirror(self.window_size as u64).map_err(|error| self.fail(Kind::System, Side::Caller, Ran::No, error))?;
            let pieces = Pieces::new(window.size());
            self.window = Some((window, pieces));
        }
        let (window, pieces) = self.window.as_mut().expect("just made");
        Ok((window, pieces))
    }

    /// In a child of the process that bound, calls and connection are its parent's.
    fn is_own(&self) -> Result<(), Error> {
        match self.forks == forks::number() {
            true => Ok(()),
            false => Err(self.fail(Kind::Forked, Side::Caller, Ran::No, "bind anew in the child")),
        }
    }

    fn gone(&self, ran: Ran) -> Error {
        self.fail(Kind::Lost, Side::Between, ran, self.dead.as_deref().unwrap_or("its connection ended"))
    }

    fn die(&mut self, why: String) {
        if self.dead.is_some() {
            return;
        }
        let long = self.longest > LONG && !self.is_datagrams();
        let hint =
            if long { format!("; a call had {} bytes, and it may take no record so long", self.longest) } else { String::new() };
        self.dead = Some(why + &hint);
        self.outgoing.clear();
        for slot in &mut self.slots {
            if slot.state == State::Waiting {
                slot.state = State::Lost;
                self.wakers.extend(slot.waker.take());
            }
        }
    }

    /// Begins a call; without an answer, it has no place afterwards.
    pub fn begin(
        &mut self,
        procedure: u16,
        arguments: &dyn Fn(&mut Encoder<'_>),
        how: &How<'_>,
        one_way: bool,
    ) -> Result<Name, Error> {
        self.is_own()?;
        let until = how.deadline.map(nanos).or(self.deadline).map(|limit| now().saturating_add(limit));
        // Back-pressure is waiting here; what comes meanwhile is taken, or both sides could wait for each other.
        while self.outgoing.len() > CROWD && self.dead.is_none() {
            self.poll();
            if self.outgoing.len() > CROWD && !self.sleep(until) {
                return Err(self.fail(Kind::TimedOut, Side::Server, Ran::No, "it took no more calls until the deadline"));
            }
        }
        if self.dead.is_some() {
            return Err(self.gone(Ran::No));
        }
        let xid = self.next;
        self.next = self.next.wrapping_add(1);
        let call = Call {
            xid,
            program: self.program,
            version: self.version,
            procedure: procedure.into(),
            credential: self.credential.clone(),
            arguments: &[],
        };
        let write = |into: &mut [u8]| {
            let values;
            let mut to = match &self.window {
                Some((window, _)) if !how.lent.is_empty() => {
                    values = ByValue { window, lent: how.lent };
                    Encoder::by_value(into, &values)
                }
                _ => Encoder::new(into),
            };
            call.emit_header(&mut to);
            arguments(&mut to);
            (to.needed(), to.is_over())
        };
        let (length, over) = write(&mut []);
        let most = if self.is_datagrams() { DATAGRAM } else { u32::MAX as usize >> 1 };
        if over || length > most {
            let detail = if over {
                "an argument has more elements than its definition allows, or is nested too deeply".into()
            } else {
                format!("a message of {length} bytes, of {most} at most")
            };
            return Err(self.fail(Kind::TooLong, Side::Caller, Ran::No, detail));
        }
        let mut message = vec![0; length];
        write(&mut message);
        if !self.lend(how.lent) {
            return Err(self.fail(
                Kind::Busy,
                Side::Caller,
                Ran::No,
                "a buffer that is lent already, or is none of this client's",
            ));
        }
        let Some(number) = self.free.pop() else {
            self.take_back(how.lent);
            return Err(self.fail(Kind::Busy, Side::Caller, Ran::No, format_args!("{} calls are outstanding", PLACES)));
        };
        let slot = &mut self.slots[usize::from(number)];
        slot.generation = slot.generation.wrapping_add(1);
        (slot.state, slot.xid, slot.lent) = (State::Waiting, xid, how.lent.to_vec());
        let name = Name { slot: number, generation: slot.generation };
        self.numbers.insert(xid, number);
        if self.is_datagrams() {
            // One that finds no room is as one that was lost.
            let sent = self.link.send(&message);
            let slot = &mut self.slots[usize::from(number)];
            (slot.pause, slot.again, slot.bytes) = (AGAIN, now() + AGAIN, message);
            if sent.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                self.die("nothing listens at its port".into());
            }
        } else {
            self.outgoing.extend_from_slice(&mark(length as u32));
            self.outgoing.extend_from_slice(&message);
            self.longest = self.longest.max(length);
            if !self.held {
                self.flush();
            }
        }
        if one_way {
            self.give_back(number);
            if self.dead.is_some() {
                return Err(self.gone(Ran::Maybe)); // not all of it was sent, or it came back
            }
        }
        Ok(name)
    }

    /// Counts a call to the buffers that it is lent. False: not all of them are there to be lent, and none is counted.
    fn lend(&mut self, lent: &[Lent]) -> bool {
        let Some((_, pieces)) = &mut self.window else { return lent.is_empty() };
        let counted = lent.iter().take_while(|lent| pieces.lend(lent.number, lent.piece)).count();
        if counted < lent.len() {
            self.take_back(&lent[..counted]);
        }
        counted == lent.len()
    }

    fn take_back(&mut self, lent: &[Lent]) {
        if let Some((_, pieces)) = &mut self.window {
            lent.iter().for_each(|lent| pieces.release(lent.number));
        }
    }

    /// What is begun from now on leaves together, at the end of this or when a call is waited for.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
        if !held && self.forks == forks::number() && self.dead.is_none() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let mut sent = 0;
        let mut broken = None;
        while sent < self.outgoing.len() {
            match self.link.send(&self.outgoing[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    broken = Some(error.to_string());
                    break;
                }
            }
        }
        self.outgoing.drain(..sent);
        if let Some(why) = broken {
            self.receive();
            self.die(why);
        }
    }

    /// Takes and sends what can be.
    pub fn poll(&mut self) {
        if self.dead.is_none() {
            self.receive();
        }
        if self.dead.is_none() && !self.outgoing.is_empty() {
            self.flush();
        }
        if self.dead.is_none() && self.is_datagrams() {
            self.send_again();
        }
    }

    fn receive(&mut self) {
        let mut room = std::mem::take(&mut self.room);
        // So often at once: a server that never stops sending does not keep its caller from looking at the clock.
        for _ in 0..READS {
            if self.dead.is_some() {
                break;
            }
            match self.link.receive(&mut room) {
                Ok(count) if self.is_datagrams() => self.answer(room[..count].to_vec()),
                Ok(0) => self.die("it closed the connection".into()),
                Ok(count) => self.take_in(&room[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.die(error.to_string()),
            }
        }
        self.room = room;
    }

    fn take_in(&mut self, mut bytes: &[u8]) {
        loop {
            match self.reader.take(&mut bytes) {
                Ok(Some(record)) => self.answer(record),
                Ok(None) => return,
                Err(Broken::TooLong) => return self.die("an answer is longer than Options::record".into()),
                Err(broken) => return self.die(broken.to_string()),
            }
        }
    }

    /// Takes a message: an answer to a call that waits, or nothing.
    fn answer(&mut self, message: Vec<u8>) {
        let number = message.first_chunk().map(|xid| u32::from_be_bytes(*xid));
        let Some(slot) = number.and_then(|xid| self.numbers.remove(&xid)) else {
            self.strangers += 1;
            return;
        };
        let slot = &mut self.slots[usize::from(slot)];
        (slot.state, slot.bytes) = (State::Done, message);
        self.wakers.extend(slot.waker.take());
    }

    fn send_again(&mut self) {
        let time = now();
        for &number in self.numbers.values() {
            let slot = &mut self.slots[usize::from(number)];
            if slot.again <= time {
                slot.pause = (slot.pause * 2).min(LATEST);
                slot.again = time + slot.pause;
                let _ = self.link.send(&slot.bytes);
            }
        }
    }

    /// How long nothing is to be done, as far as can be known.
    pub fn idle(&self) -> Option<u64> {
        let again = self.numbers.values().map(|&number| self.slots[usize::from(number)].again).min();
        again.filter(|_| self.is_datagrams()).map(|again| again.saturating_sub(now()))
    }

    /// Before a loop sleeps on the descriptor.
    pub fn arm(&mut self) -> Option<Duration> {
        self.poll();
        let events = libc::EPOLLIN | if self.outgoing.is_empty() { 0 } else { libc::EPOLLOUT };
        let mut event = libc::epoll_event { events: events as u32, u64: 0 };
        // SAFETY: descriptors of ours, and an event.
        unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_MOD, self.link.descriptor(), &mut event) };
        if self.dead.is_some() || !self.wakers.is_empty() || self.slots.iter().any(|slot| slot.state == State::Done) {
            return None;
        }
        Some(Duration::from_nanos(self.idle().unwrap_or(1_000_000_000)))
    }

    /// Sleeps until something can be done. False: the time is over.
    fn sleep(&mut self, until: Option<u64>) -> bool {
        let left = until.map(|until| until.saturating_sub(now()));
        if left == Some(0) {
            return false;
        }
        let pause = left.unwrap_or(u64::MAX).min(self.idle().unwrap_or(u64::MAX)).min(1_000_000_000);
        let events = libc::POLLIN | if self.outgoing.is_empty() { 0 } else { libc::POLLOUT };
        let mut poll = libc::pollfd { fd: self.link.descriptor(), events, revents: 0 };
        let limit = libc::timespec { tv_sec: (pause / 1_000_000_000) as i64, tv_nsec: (pause % 1_000_000_000) as i64 };
        // SAFETY: one entry, and a time.
        unsafe { libc::ppoll(&mut poll, 1, &limit, std::ptr::null()) };
        true
    }

    pub fn is_done(&self, name: Name) -> bool {
        self.slots[usize::from(name.slot)].state != State::Waiting
    }

    pub fn wait(&mut self, name: Name, until: Option<u64>) -> Result<(), Error> {
        self.is_own()?;
        loop {
            self.poll();
            if self.is_done(name) {
                return Ok(());
            }
            if !self.sleep(until) {
                self.give_back(name.slot);
                return Err(self.fail(Kind::TimedOut, Side::Server, Ran::Maybe, "no answer until the deadline"));
            }
        }
    }

    /// Whether a call still has its place.
    pub fn has(&self, name: Name) -> bool {
        let slot = &self.slots[usize::from(name.slot)];
        slot.generation == name.generation && slot.state != State::Free
    }

    /// Gives the last one.
    pub fn set_waker(&mut self, name: Name, waker: Waker) -> Option<Waker> {
        self.slots[usize::from(name.slot)].waker.replace(waker)
    }

    /// Takes a call back: an answer that comes later is a stranger. Gives wakers that are to be dropped when this is not borrowed.
    pub fn cancel(&mut self, name: Name) -> Vec<Waker> {
        let waker = self.slots[usize::from(name.slot)].waker.take().filter(|_| self.has(name));
        if self.has(name) {
            self.give_back(name.slot);
        }
        waker.into_iter().collect()
    }

    fn give_back(&mut self, number: u16) {
        let slot = &mut self.slots[usize::from(number)];
        if slot.state == State::Free {
            return;
        }
        slot.state = State::Free;
        slot.waker = None;
        slot.bytes = vec![];
        self.numbers.remove(&slot.xid);
        let lent = std::mem::take(&mut slot.lent);
        self.take_back(&lent);
        self.free.push(number);
    }

    /// The results of a call that is done; its place is free then.
    pub fn take<R: Xdr>(&mut self, name: Name) -> Result<R, Error> {
        let slot = &mut self.slots[usize::from(name.slot)];
        let (state, bytes, lent) = (slot.state, std::mem::take(&mut slot.bytes), slot.lent.clone());
        let result = if state == State::Lost { Err(self.gone(Ran::Maybe)) } else { self.results(&bytes, &lent) };
        self.give_back(name.slot);
        result
    }

    fn results<R: Xdr>(&mut self, message: &[u8], lent: &[Lent]) -> Result<R, Error> {
        let Some(reply) = Reply::parse(message) else {
            return Err(self.fail(Kind::Protocol, Side::Server, Ran::Maybe, "its answer is no reply of RFC 5531"));
        };
        let Outcome::Success(results) = reply.outcome else {
            let (kind, ran) = refusal(reply.outcome);
            let error = self.fail(kind, Side::Server, ran, reply.outcome);
            return Err(match kind {
                Kind::Application => error.with_fault(Fault::new(5, "SYSTEM_ERR")),
                _ => error,
            });
        };
        let mut from = Decoder::new(results);
        let mut read = || {
            for lent in lent.iter().filter(|lent| lent.from_server) {
                let bytes = lent.form.decode(&mut from, lent.piece.length as usize)?;
                let at = self.window.as_ref().and_then(|(window, _)| window.pointer(lent.piece)).expect("a piece of the window");
                // SAFETY: a piece of the window, at least as long; the window is this thread's alone.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
            }
            let value = R::decode(&mut from)?;
            from.end().map(|()| value)
        };
        read().map_err(|error| self.fail(Kind::BadResults, Side::Server, Ran::Yes, error))
    }

    /// Calls, and waits, with a limit.
    pub fn call<A: Xdr, R: Xdr>(&mut self, procedure: u16, arguments: &A, limit: Duration) -> Result<R, Error> {
        let until = Some(now().saturating_add(nanos(limit)));
        let name = self.begin(procedure, &|to| arguments.encode(to), &How::default(), false)?;
        self.wait(name, until)?;
        self.take(name)
    }
}
