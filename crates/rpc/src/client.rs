//! A caller: bound to one server, used by one thread at a time.

use crate::address::Address;
use crate::calls::{one_line, Calls, State, Words};
use crate::clock::now;
use crate::device::{End, PEER};
use crate::error::{Error, Fault, Kind, Ran, Side};
use crate::onc::caller::{Caller, Manner};
use crate::onc::Claim;
use crate::reference::{How, Lent, Reference, Scalar, Shared};
use crate::rendezvous::{Process, Socket};
use crate::window::{Pieces, Window};
use crate::wire::{flag, handler, status, Card, Head, Hello, Name, Piece, Purpose, Welcome, LINE, PROTOCOL, RECORD_BYTES};
use crate::xdr::{Decoder, Encoder, Xdr};
use shunt_am::{Get, Refused, Store};
use std::cell::{RefCell, RefMut};
use std::fmt;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Empty looks between two looks at the clock.
const LOOKS: u32 = 64;
/// Looks before the first of them: some microseconds. Awake on both sides, the answer is there before.
const FIRST: u32 = 1024;
/// How often a caller that looks asks whether its server lives.
const HEARTBEAT: u64 = 100_000;
/// How long a caller that sleeps waits at most for the end of its server: both descriptors wake it, so this guards against nothing else.
const NAP: Duration = Duration::from_secs(1);

/// How a caller binds and calls.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to look for the server, whose start may come later. 5 seconds at first.
    pub patience: Duration,
    /// Bytes of the window. 4 MiB at first; pages that are never used cost nothing.
    pub window: usize,
    /// Bytes that are set aside for results longer than a message, where the definition has no bound. 1 MiB at first.
    pub room: usize,
    /// How long a call may take; `None`, as at first: until the server ends.
    pub deadline: Option<Duration>,
    /// How long a waiting call looks before it sleeps. 50 microseconds at first.
    pub spin: Duration,
    /// The user that the server must run as; `None`: this one, or root. Of no meaning between hosts.
    pub server_user: Option<u32>,
    /// What a server by SunRPC is told of the caller: AUTH_SYS, a claim. `None`, as at first: nothing, AUTH_NONE.
    pub claim: Option<Claim>,
    /// Bytes of an answer by SunRPC at most. 16 MiB at first.
    pub record: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            window: 4 << 20,
            room: 1 << 20,
            deadline: None,
            spin: Duration::from_micros(50),
            server_user: None,
            claim: None,
            record: 16 << 20,
        }
    }
}

/// A caller.
pub struct Client {
    core: RefCell<Route>,
    address: Address,
    program: u32,
    versions: RangeInclusive<u32>,
    options: Options,
}

/// The way to the server.
enum Route {
    /// Over active messages.
    Own(Box<Core>),
    /// By SunRPC.
    Onc(Box<Caller>),
}

struct Core {
    end: End,
    calls: Calls,
    socket: Socket,
    epoll: OwnedFd,
    peer: String,
    process: Option<Process>,
    version: u32,
    spin: u64,
    deadline: Option<u64>,
    room: usize,
    medium: usize,
    scratch: Vec<u8>,
    dead: Option<String>,
    forks: u32,
    seen: u64,
}

/// Forks of this process so far: a child has its parent's number plus one, and none of its parent's ends.
pub(crate) mod forks {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::sync::Once;

    static COUNT: AtomicU32 = AtomicU32::new(0);
    static WATCH: Once = Once::new();

    extern "C" fn count() {
        COUNT.fetch_add(1, Relaxed);
    }

    pub fn watch() -> u32 {
        WATCH.call_once(|| {
            // SAFETY: the handler touches an atomic and nothing else.
            unsafe { libc::pthread_atfork(None, None, Some(count)) };
        });
        number()
    }

    #[inline(always)]
    pub fn number() -> u32 {
        COUNT.load(Relaxed)
    }
}

/// A record from a socket with a time-out.
fn receive_record(socket: &mut Socket, until: Instant) -> io::Result<[u8; RECORD_BYTES]> {
    let mut record = [0; RECORD_BYTES];
    let mut filled = 0;
    while filled < RECORD_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !readable(&[socket.as_fd()], left) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match socket.receive(&mut record[filled..], &mut None) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(record)
}

/// Sleeps until one of the descriptors is readable, or for so long. True: one is.
pub(crate) fn readable(descriptors: &[BorrowedFd<'_>], limit: Duration) -> bool {
    let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 2];
    for (poll, descriptor) in polls.iter_mut().zip(descriptors) {
        poll.fd = descriptor.as_raw_fd();
    }
    let limit = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: as many entries as are said, and a time.
    unsafe { libc::ppoll(polls.as_mut_ptr(), descriptors.len() as u64, &limit, std::ptr::null()) > 0 }
}

/// Connects, and asks for something, until the time is over: servers may start later than their callers, and go away meanwhile.
fn rendezvous(
    address: &Address,
    options: &Options,
    purpose: Purpose,
    program: u32,
    versions: &RangeInclusive<u32>,
) -> Result<(Socket, Option<(End, Window)>, Welcome), Error> {
    let until = Instant::now() + options.patience;
    let fail = |kind, side, detail: &dyn fmt::Display| Error::new(kind, side, Ran::No, address, detail);
    let mut pause = Duration::from_millis(1);
    loop {
        let again = match attempt(address, options, purpose, program, versions, until) {
            Ok(found) => return Ok(found),
            Err(Attempt::Final(error)) => return Err(error),
            Err(Attempt::System(error)) => error,
        };
        use io::ErrorKind as K;
        let waits = matches!(
            again.kind(),
            K::ConnectionRefused
                | K::NotFound
                | K::UnexpectedEof
                | K::ConnectionReset
                | K::BrokenPipe
                | K::Interrupted
                | K::WouldBlock
        );
        if !waits {
            let kind = if again.kind() == K::TimedOut { Kind::Unreachable } else { Kind::System };
            return Err(fail(kind, Side::Between, &again));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(fail(Kind::Unreachable, Side::Between, &again));
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

enum Attempt {
    System(io::Error),
    Final(Error),
}

impl From<io::Error> for Attempt {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

fn attempt(
    address: &Address,
    options: &Options,
    purpose: Purpose,
    program: u32,
    versions: &RangeInclusive<u32>,
    until: Instant,
) -> Result<(Socket, Option<(End, Window)>, Welcome), Attempt> {
    let mut socket = Socket::connect(address)?;
    if let Some(process) = socket.process() {
        // SAFETY: it only asks.
        let own = unsafe { libc::geteuid() };
        let wanted = options.server_user.map_or(process.uid == own || process.uid == 0, |user| process.uid == user);
        if !wanted {
            let detail = format!("the server there runs as user {}", process.uid);
            return Err(Attempt::Final(Error::new(Kind::Denied, Side::Caller, Ran::No, address, detail)));
        }
    }
    // Questions need no end, and may be asked where none can be had.
    let mut made = None;
    if purpose == Purpose::Call {
        let over = socket.over()?;
        let failed = |why| Attempt::Final(Error::new(Kind::System, Side::Caller, Ran::No, address, why));
        let end = End::new(address, over).map_err(failed)?;
        made = Some((end, if over.is_none() { Window::create(options.window)? } else { Window::mirror(options.window as u64)? }));
    }
    let (lowest, highest) = (*versions.start(), *versions.end());
    let (window, card) = match &mut made {
        Some((end, window)) => (window.size() as u64, end.card()?),
        None => (0, Card::NONE),
    };
    let hello = Hello { purpose, program, lowest, highest, window, card };
    socket.send(&hello.emit(), made.as_ref().and_then(|(_, window)| window.descriptor()))?;
    let record = receive_record(&mut socket, until)?;
    let Some(welcome) = Welcome::parse(&record) else {
        let detail = "its first record is none of ours";
        return Err(Attempt::Final(Error::new(Kind::Protocol, Side::Server, Ran::No, address, detail)));
    };
    Ok((socket, made, welcome))
}

/// A server, as tools see it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its process and user, on one host.
    pub process: Option<Process>,
    /// What it has.
    pub interfaces: Vec<crate::service::Listed>,
}

/// What a server has: the interfaces, as it tells them.
///
/// # Errors
/// As [`Client::connect`].
pub fn list(address: &Address, options: &Options) -> Result<Vec<crate::service::Listed>, Error> {
    look(address, options).map(|seen| seen.interfaces)
}

/// The same, and who it is.
///
/// # Errors
/// As [`Client::connect`].
pub fn look(address: &Address, options: &Options) -> Result<Seen, Error> {
    let (process, list) = ask(address, options, Purpose::List, 0, 0)?;
    let interfaces = crate::xdr::from_bytes::<crate::xdr::List<crate::service::Listed, 4096>>(&list)
        .map_err(|error| Error::new(Kind::Protocol, Side::Server, Ran::No, address, error))?;
    Ok(Seen { process, interfaces: interfaces.0 })
}

/// The definition of a version of a program that a server has, in the language: what its stubs were made of. Empty where it was made
/// by hand.
///
/// # Errors
/// As [`Client::connect`].
pub fn describe(address: &Address, options: &Options, program: u32, version: u32) -> Result<String, Error> {
    let (_, text) = ask(address, options, Purpose::Describe, program, version)?;
    String::from_utf8(text).map_err(|error| Error::new(Kind::Protocol, Side::Server, Ran::No, address, error))
}

/// Watches the calls of a server of this host: [`crate::trace::CALLS`], [`crate::trace::SUMS`], or both.
///
/// # Errors
/// As [`Client::connect`]; `Denied` where the server is another user's.
pub fn watch(address: &Address, options: &Options, what: u32) -> Result<crate::trace::Watch, Error> {
    let (socket, _, welcome) = rendezvous(address, options, Purpose::Watch, 0, &(what..=what))?;
    match welcome {
        Welcome::Watching => Ok(crate::trace::Watch::new(socket)),
        other => Err(refusal(address, 0, &(0..=0), other)),
    }
}

/// Asks for something that is told in one piece.
fn ask(
    address: &Address,
    options: &Options,
    purpose: Purpose,
    program: u32,
    version: u32,
) -> Result<(Option<Process>, Vec<u8>), Error> {
    let versions = version..=version;
    let (mut socket, _, welcome) = rendezvous(address, options, purpose, program, &versions)?;
    let fail = |detail: &dyn fmt::Display| Error::new(Kind::Protocol, Side::Server, Ran::No, address, detail);
    let Welcome::List { bytes } = welcome else { return Err(refusal(address, program, &versions, welcome)) };
    if bytes > 1 << 20 {
        return Err(fail(&"what it tells is too long"));
    }
    let mut list = vec![0; bytes as usize];
    let mut filled = 0;
    while filled < list.len() {
        if !readable(&[socket.as_fd()], options.patience) {
            return Err(fail(&"what it tells does not come"));
        }
        match socket.receive(&mut list[filled..], &mut None) {
            Ok(0) => return Err(fail(&"what it tells ends too early")),
            Ok(count) => filled += count,
            Err(error) => return Err(fail(&error)),
        }
    }
    Ok((socket.process(), list))
}

/// What a server answered instead of binding.
fn refusal(address: &Address, program: u32, versions: &RangeInclusive<u32>, welcome: Welcome) -> Error {
    let fail = |kind, detail: String| Error::new(kind, Side::Server, Ran::No, address, detail);
    let wanted = match (versions.start(), versions.end()) {
        (one, other) if one == other => format!("version {one}"),
        (one, other) => format!("versions {one} to {other}"),
    };
    match welcome {
        Welcome::Versions { lowest, highest } => {
            fail(Kind::Version, format!("program {program:#x}: {wanted} asked for, {lowest} to {highest} there"))
        }
        Welcome::Program => fail(Kind::Version, format!("program {program:#x} is not served there")),
        Welcome::Denied => fail(Kind::Denied, "this user may not call it".into()),
        Welcome::Full => fail(Kind::Busy, "it takes no more callers".into()),
        Welcome::NoEnd => fail(Kind::System, "it has no end of the device: xdp needs an agent on its interface, too".into()),
        Welcome::Protocol { version } => fail(Kind::Protocol, format!("it speaks version {version}, we {PROTOCOL}")),
        Welcome::Bound { .. } | Welcome::List { .. } | Welcome::Watching => {
            fail(Kind::Protocol, "an answer to another question".into())
        }
    }
}

impl Core {
    fn bind(address: &Address, options: &Options, program: u32, versions: &RangeInclusive<u32>) -> Result<Self, Error> {
        let forks = forks::watch();
        let (socket, end, welcome) = rendezvous(address, options, Purpose::Call, program, versions)?;
        let (Welcome::Bound { version, card }, Some((end, window))) = (welcome, end) else {
            return Err(refusal(address, program, versions, welcome));
        };
        let process = socket.process();
        let peer = match process {
            Some(process) => format!("{address} (process {})", process.pid),
            None => address.to_string(),
        };
        let fail = |error: io::Error| Error::new(Kind::System, Side::Caller, Ran::No, &peer, error);
        if !versions.contains(&version) {
            return Err(Error::new(Kind::Protocol, Side::Server, Ran::No, &peer, "a version that was not asked for"));
        }
        Self::assemble(socket, end, window, &card, options, (peer.clone(), process, version, forks)).map_err(fail)
    }

    fn assemble(
        socket: Socket,
        mut end: End,
        window: Window,
        card: &Card,
        options: &Options,
        (peer, process, version, forks): (String, Option<Process>, u32, u32),
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let direct = end.is_direct();
        let mut calls = Calls::new(window, direct);
        end.adopt(card, &mut calls)?;
        // SAFETY: a number.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and of no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        for descriptor in [socket.as_raw_fd(), end.endpoint_descriptor()] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: descriptors of ours, and an event.
            if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &mut event) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let medium = end.engine().medium_maximum();
        let spin = options.spin.as_nanos() as u64;
        let deadline = options.deadline.map(|limit| limit.as_nanos() as u64);
        let (room, scratch) = (options.room, vec![0; medium]);
        let (dead, seen) = (None, 0);
        Ok(Self { end, calls, socket, epoll, peer, process, version, spin, deadline, room, medium, scratch, dead, forks, seen })
    }

    #[cold]
    fn fail(&self, kind: Kind, side: Side, ran: Ran, detail: impl fmt::Display) -> Error {
        Error::new(kind, side, ran, &self.peer, detail)
    }

    #[cold]
    fn gone(&self, ran: Ran) -> Error {
        self.fail(Kind::Lost, Side::Between, ran, self.dead.as_deref().unwrap_or("its connection ended"))
    }

    /// Polls; gives the number of frames.
    #[inline(always)]
    fn poll(&mut self) -> usize {
        let taken = self.end.poll(&mut self.calls);
        if !self.calls.fetches.is_empty() {
            self.fetch();
        }
        taken
    }

    /// Asks for what calls wait for, where memory is not shared.
    #[inline(never)]
    fn fetch(&mut self) {
        for slot in std::mem::take(&mut self.calls.fetches) {
            let place = &mut self.calls.slots[usize::from(slot)];
            let name = Name { slot, generation: place.generation };
            let mut wanted: Vec<Piece> = place.large.into_iter().collect();
            let held = place.held[..usize::from(place.count)].iter().filter(|held| held.back);
            wanted.extend(held.map(|held| self.calls.pieces.get(held.number)));
            place.fetching = wanted.len() as u8;
            for piece in wanted {
                let at = u64::from(piece.offset);
                let words = [Head { name, code: 0, flags: 0 }.word()];
                let get = Get { from: at, to: at, length: u64::from(piece.length), handler: handler::FETCHED, words: &words };
                if self.end.get(PEER, &get, &mut self.calls).is_err() {
                    self.die("it does not give its results".into());
                    return;
                }
            }
        }
    }

    /// The server is gone, or as good as that. What it answered before is taken; all else ends.
    #[cold]
    fn die(&mut self, why: String) {
        if self.dead.is_some() {
            return;
        }
        self.dead = Some(why);
        if self.calls.direct {
            while self.end.poll(&mut self.calls) > 0 {}
        }
        self.calls.end();
    }

    /// Whether the server lives, as far as can be seen.
    fn look_after(&mut self) {
        if self.dead.is_some() {
            return;
        }
        if self.socket.is_over() {
            self.die("its process ended, or closed the connection".into());
        } else if let Some(reason) = self.calls.lost {
            self.die(format!("its end was lost: {reason:?}"));
        }
    }

    /// Sends one request. `Busy`: the server has as many as it takes, or the device is full.
    #[inline(always)]
    fn send(&mut self, words: &[u64], data: &[u8]) -> Result<(), Refused> {
        self.end.try_request(PEER, handler::CALL, words, data)
    }

    /// Begins a call.
    #[inline(always)]
    fn begin<A: Xdr, R: Xdr>(&mut self, procedure: u16, arguments: &A, how: &How<'_>, flags: u16) -> Result<Name, Error> {
        let plain = A::MOST <= LINE && R::MOST <= self.medium && how.lent.is_empty();
        let timed = how.deadline.is_some() || self.deadline.is_some();
        if plain && !timed && self.dead.is_none() && self.forks == forks::number() {
            let Some(name) = self.calls.take() else { return Err(self.full()) };
            let mut line = [0; LINE / 8];
            let mut encoder = Encoder::new(bytemuck::cast_slice_mut(&mut line));
            arguments.encode(&mut encoder);
            let length = encoder.needed();
            if encoder.is_over() {
                self.calls.give_back(name.slot);
                return Err(self.over());
            }
            let (line, count) = one_line(Head { name, code: procedure, flags }, line, length);
            if self.send(&line[..count], &[]).is_ok() {
                return Ok(name);
            }
            let mut words = Words { words: [0; 8], count };
            words.words[..count].copy_from_slice(&line[..count]);
            return self.send_again(name, &words, 0, None);
        }
        self.begin_in_general(procedure, &|to| arguments.encode(to), A::MOST, R::MOST, how, flags)
    }

    #[cold]
    fn over(&self) -> Error {
        self.fail(Kind::TooLong, Side::Caller, Ran::No, "an argument has more elements than its definition allows")
    }

    #[cold]
    fn full(&self) -> Error {
        self.fail(Kind::Busy, Side::Caller, Ran::No, format_args!("{} calls are outstanding", self.calls.outstanding()))
    }

    #[inline(never)]
    fn begin_in_general(
        &mut self,
        procedure: u16,
        encode: &dyn Fn(&mut Encoder<'_>),
        _most: usize,
        results: usize,
        how: &How<'_>,
        flags: u16,
    ) -> Result<Name, Error> {
        if self.forks != forks::number() {
            return Err(self.fail(Kind::Forked, Side::Caller, Ran::No, "bind anew in the child"));
        }
        if self.dead.is_some() {
            return Err(self.gone(Ran::No));
        }
        let Some(name) = self.calls.take() else { return Err(self.full()) };
        match self.prepare(name, procedure, encode, results, how, flags) {
            Ok((words, data, until)) => self.send_again(name, &words, data, until),
            Err(error) => {
                self.calls.give_back(name.slot);
                Err(error)
            }
        }
    }

    /// A piece of the window for a call.
    fn piece(&mut self, name: Name, length: usize, what: &str) -> Result<u32, Error> {
        let Some(number) = self.calls.pieces.take(length) else {
            let (free, size) = (self.calls.pieces.longest(), self.calls.window.size());
            let kind = if length > size - crate::window::CANCELS { Kind::TooLong } else { Kind::Busy };
            let detail = format_args!("{what} of {length} bytes; {free} of the window's {size} are free in one piece");
            return Err(self.fail(kind, Side::Caller, Ran::No, detail));
        };
        self.calls.hold(name.slot, number, false);
        Ok(number)
    }

    /// Puts arguments where they belong: into words, into data (so many bytes of the scratch), into the window.
    fn prepare(
        &mut self,
        name: Name,
        procedure: u16,
        encode: &dyn Fn(&mut Encoder<'_>),
        results: usize,
        how: &How<'_>,
        mut flags: u16,
    ) -> Result<(Words, usize, Option<u64>), Error> {
        let mut words = Words::new();
        let mut until = None;
        if let Some(limit) = how.deadline.map(|limit| limit.as_nanos() as u64).or(self.deadline) {
            let end = now().saturating_add(limit);
            until = Some(end);
            flags |= flag::DEADLINE;
            words.push(if self.calls.direct { end } else { limit });
        }
        for lent in how.lent {
            self.calls.pieces.hold(lent.number);
            if !self.calls.hold(name.slot, lent.number, lent.from_server && !self.calls.direct) {
                self.calls.pieces.release(lent.number);
                return Err(self.fail(Kind::TooLong, Side::Caller, Ran::No, "too many parameters by reference"));
            }
        }
        let mut encoder = Encoder::new(&mut self.scratch);
        encode(&mut encoder);
        let length = encoder.needed();
        if encoder.is_over() {
            return Err(self.over());
        }
        // Where memory is not shared, pieces travel as a store, and the call behind the last of them.
        let stores = !self.calls.direct && how.lent.iter().any(|lent| lent.to_server);
        let large = length > self.medium || stores && length > LINE;
        let mut piece = None;
        if large {
            let number = self.piece(name, length, "arguments")?;
            let place = self.calls.pieces.get(number);
            let at = self.calls.window.pointer(place).expect("a piece of the window");
            // SAFETY: the piece is this call's alone. The server may write there, and then reads what it wrote.
            let into = unsafe { std::slice::from_raw_parts_mut(at, length) };
            encode(&mut Encoder::new(into));
            words.push(place.word());
            flags = flags & !flag::ONE_WAY | flag::LARGE;
            piece = Some(place);
        }
        if results > self.medium {
            let number = self.piece(name, results.min(self.room), "room for results")?;
            let room = self.calls.pieces.get(number);
            self.calls.slots[usize::from(name.slot)].room = room;
            words.push(room.word());
            flags |= flag::ROOM;
        }
        let mut data = 0;
        if !large {
            match words.put(&self.scratch[..length]) {
                Some(half) => flags |= half,
                None if stores => {
                    // Eight words go with a store.
                    for eight in self.scratch[..length].chunks(8) {
                        let mut word = [0; 8];
                        word[..eight.len()].copy_from_slice(eight);
                        words.push(u64::from_ne_bytes(word));
                    }
                    flags |= if length.is_multiple_of(8) { 0 } else { flag::HALF };
                }
                None => data = length,
            }
        }
        words.words[0] = Head { name, code: procedure, flags }.word();
        if !self.calls.direct && (stores || piece.is_some()) {
            let mut parts: Vec<Piece> = how.lent.iter().filter(|lent| lent.to_server).map(|lent| lent.piece).collect();
            parts.extend(piece);
            self.store(&parts, &words)?;
            words.count = 0;
        }
        Ok((words, data, until))
    }

    /// Brings pieces to the server, and the call with the last.
    fn store(&mut self, parts: &[Piece], words: &Words) -> Result<(), Error> {
        for (at, part) in parts.iter().enumerate() {
            let last = at + 1 == parts.len();
            let from = self.calls.window.pointer(*part).expect("a piece of the window");
            // SAFETY: the window is this process's, and nothing writes to a piece that is lent: gets of this call come later.
            let bytes = unsafe { std::slice::from_raw_parts(from, part.length as usize) };
            let (handler, words) = if last { (handler::CALL, words.as_slice()) } else { (handler::PART, &[][..]) };
            let store = Store { offset: u64::from(part.offset), handler, words };
            if let Err(trouble) = self.end.store(PEER, &store, bytes, &mut self.calls) {
                self.die(format!("it takes no arguments: {trouble}"));
                return Err(self.gone(Ran::No));
            }
        }
        Ok(())
    }

    /// Sends what was refused at first, when the server takes it: back-pressure is waiting here.
    #[inline(never)]
    fn send_again(&mut self, name: Name, words: &Words, data: usize, until: Option<u64>) -> Result<Name, Error> {
        if words.count == 0 {
            return Ok(name);
        }
        let mut waiting = Waiting::new();
        loop {
            let refused = match self.end.try_request(PEER, handler::CALL, words.as_slice(), &self.scratch[..data]) {
                Ok(()) => return Ok(name),
                Err(refused) => refused,
            };
            let error = match refused {
                Refused::NoCredit | Refused::NoRoom => match self.step(&mut waiting, until) {
                    Ok(()) => continue,
                    Err(Stop::TimedOut) => {
                        self.fail(Kind::TimedOut, Side::Server, Ran::No, "it took no more calls until the deadline")
                    }
                    Err(Stop::Dead) => self.gone(Ran::No),
                },
                Refused::NotConnected => {
                    self.look_after();
                    if self.dead.is_none() {
                        self.die("its end was closed".into());
                    }
                    self.gone(Ran::No)
                }
                Refused::TooLong | Refused::Argument => {
                    self.fail(Kind::TooLong, Side::Caller, Ran::No, format_args!("{data} bytes: {refused}"))
                }
            };
            self.calls.give_back(name.slot);
            return Err(error);
        }
    }

    /// The same without waiting, of a call that was just begun.
    fn is_done(&mut self, name: Name) -> bool {
        !matches!(self.calls.place(name), Some(place) if matches!(place.state, State::Waiting | State::Fetching))
    }

    /// Waits for a call's answer.
    #[inline(always)]
    fn wait(&mut self, name: Name, until: Option<u64>) -> Result<(), Error> {
        for _ in 0..FIRST {
            if self.calls.slots[usize::from(name.slot)].state == State::Done {
                return Ok(());
            }
            self.poll();
        }
        self.wait_longer(name, until)
    }

    #[inline(never)]
    fn wait_longer(&mut self, name: Name, until: Option<u64>) -> Result<(), Error> {
        let mut waiting = Waiting::new();
        // Between hosts its silence is all that tells of a death, and probes ask for a sign; here the socket tells.
        let watched = !self.calls.direct;
        if watched {
            let now = self.end.now();
            let _ = self.end.engine().watch(now, PEER, true);
        }
        let mut result = Ok(());
        while !self.is_done(name) {
            match self.step(&mut waiting, until) {
                // What the last look brought counts, also if it was late.
                Err(Stop::TimedOut) if !self.is_done(name) => {
                    self.cancel(name);
                    result = Err(self.fail(Kind::TimedOut, Side::Server, Ran::Maybe, "no answer until the deadline"));
                    break;
                }
                Ok(()) | Err(_) => {}
            }
        }
        if watched {
            let now = self.end.now();
            let _ = self.end.engine().watch(now, PEER, false);
        }
        result
    }

    /// One look, or a nap.
    fn step(&mut self, waiting: &mut Waiting, until: Option<u64>) -> Result<(), Stop> {
        if self.dead.is_some() {
            return Err(Stop::Dead);
        }
        if self.poll() > 0 {
            waiting.looks = 0;
            waiting.spin_until = 0;
            // Even where answers to other calls come all the time, the clock is looked at.
            waiting.crowd += 1;
            if waiting.crowd < LOOKS {
                return Ok(());
            }
            waiting.crowd = 0;
        } else {
            waiting.looks += 1;
            if waiting.looks < LOOKS {
                std::hint::spin_loop();
                return Ok(());
            }
            waiting.looks = 0;
        }
        let time = now();
        if until.is_some_and(|until| time >= until) {
            return Err(Stop::TimedOut);
        }
        if time >= self.seen + HEARTBEAT {
            self.seen = time;
            self.look_after();
            if self.dead.is_some() {
                return Err(Stop::Dead);
            }
        }
        if waiting.spin_until == 0 {
            waiting.spin_until = time + self.spin;
        } else if time >= waiting.spin_until {
            self.nap(until.map(|until| Duration::from_nanos(until - time)));
            self.seen = 0;
        }
        Ok(())
    }

    /// Sleeps until the server answers, or ends.
    fn nap(&mut self, limit: Option<Duration>) {
        if let Some(pause) = self.end.arm() {
            let pause = pause.min(limit.unwrap_or(NAP)).min(NAP);
            if !pause.is_zero() {
                let descriptor = self.end.endpoint_descriptor();
                // SAFETY: the endpoint's, which lives as long as the end.
                let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
                readable(&[descriptor, self.socket.as_fd()], pause);
            }
            self.end.disarm();
        }
        if self.socket.is_over() || self.calls.lost.is_some() {
            self.look_after();
        }
    }

    /// Takes a call back.
    fn cancel(&mut self, name: Name) {
        if !self.calls.abandon(name) || self.dead.is_some() {
            return;
        }
        if self.calls.direct {
            self.calls.window.set_cancelled(name.slot, name.generation);
        } else {
            // Without credit it is not told; the answer comes all the same.
            let _ = self.end.try_request(PEER, handler::CANCEL, &[Head { name, code: 0, flags: 0 }.word()], &[]);
        }
    }

    /// The results of a call that is done; its place is free then.
    #[inline(always)]
    fn take<R: Xdr>(&mut self, name: Name) -> Result<R, Error> {
        let place = &mut self.calls.slots[usize::from(name.slot)];
        if place.state == State::Done && place.status == status::OK && place.large.is_none() {
            let line: &[u8] = bytemuck::cast_slice(&place.line);
            let bytes = if usize::from(place.length) <= LINE { &line[..usize::from(place.length)] } else { &place.bytes[..] };
            let mut decoder = Decoder::new(bytes);
            let result = R::decode(&mut decoder).and_then(|value| decoder.end().map(|()| value));
            self.calls.give_back(name.slot);
            return result.map_err(|error| self.bad(error));
        }
        self.take_in_general(name)
    }

    #[cold]
    fn bad(&self, error: crate::xdr::Error) -> Error {
        self.fail(Kind::BadResults, Side::Server, Ran::Yes, error)
    }

    #[inline(never)]
    fn take_in_general<R: Xdr>(&mut self, name: Name) -> Result<R, Error> {
        let place = &mut self.calls.slots[usize::from(name.slot)];
        let (state, code, large) = (place.state, place.status, place.large);
        let mut bytes = std::mem::take(&mut place.bytes);
        if usize::from(place.length) <= LINE {
            bytes.clear();
            bytes.extend_from_slice(&bytemuck::cast_slice::<u64, u8>(&place.line)[..usize::from(place.length)]);
        }
        if let Some(piece) = large {
            self.calls.window.copy_out(piece, &mut bytes);
        }
        self.calls.give_back(name.slot);
        let fail = |kind, ran, detail: &dyn fmt::Display| Err(self.fail(kind, Side::Server, ran, detail));
        let text = || crate::xdr::from_bytes::<crate::xdr::Bytes<4096>>(&bytes).unwrap_or_default();
        let said = || String::from_utf8_lossy(&text().0).into_owned();
        let result = match (state, code) {
            (State::Done, status::OK) => crate::xdr::from_bytes(&bytes).map_err(|error| self.bad(error)),
            (State::Lost, _) => Err(self.gone(Ran::Maybe)),
            (_, status::NO_PROCEDURE) => fail(Kind::NoProcedure, Ran::No, &said()),
            (_, status::BAD_ARGUMENTS) => fail(Kind::BadArguments, Ran::No, &said()),
            (_, status::DEADLINE) => fail(Kind::TimedOut, Ran::No, &"the deadline passed before its turn came"),
            (_, status::CANCELLED) => fail(Kind::Cancelled, Ran::No, &""),
            (_, status::TOO_LONG) => fail(Kind::TooLong, Ran::Yes, &said()),
            (_, status::PANICKED) => fail(Kind::Panicked, Ran::Maybe, &said()),
            (_, status::APPLICATION) => match crate::xdr::from_bytes::<(i32, crate::xdr::Bytes<4096>)>(&bytes) {
                Ok((code, text)) => {
                    let fault = Fault { code, text: String::from_utf8_lossy(&text.0).into_owned() };
                    Err(self.fail(Kind::Application, Side::Server, Ran::Yes, &fault).with_fault(fault))
                }
                Err(error) => Err(self.bad(error)),
            },
            (_, other) => fail(Kind::Protocol, Ran::Maybe, &format_args!("status {other}")),
        };
        if let Some(place) = self.calls.place(name) {
            place.bytes = bytes;
        }
        result
    }
}

impl Core {
    /// Sends a call of which the caller does not want to hear any more.
    #[inline(always)]
    fn tell<A: Xdr>(&mut self, procedure: u16, arguments: &A) -> Result<(), Error> {
        let name = self.begin::<A, ()>(procedure, arguments, &How::default(), flag::ONE_WAY)?;
        let place = &mut self.calls.slots[usize::from(name.slot)];
        if place.count == 0 {
            self.calls.give_back(name.slot);
        } else if place.state == State::Waiting {
            // Arguments in the window stay there until the server says that it has read them.
            place.state = State::Abandoned;
        } else {
            self.calls.give_back(name.slot);
        }
        Ok(())
    }
}

impl Route {
    fn bind(address: &Address, options: &Options, program: u32, versions: &RangeInclusive<u32>) -> Result<Self, Error> {
        let Address::SunRpc(place) = address else {
            return Ok(Self::Own(Box::new(Core::bind(address, options, program, versions)?)));
        };
        let Options { patience, window, deadline, claim, record, .. } = options.clone();
        let manner = Manner { patience, window, deadline, record, claim, forks: forks::watch() };
        Ok(Self::Onc(Box::new(Caller::connect(place, program, versions, &manner)?)))
    }

    #[inline(always)]
    fn deadline(&self) -> Option<u64> {
        match self {
            Self::Own(core) => core.deadline,
            Self::Onc(caller) => caller.deadline,
        }
    }

    fn fail(&self, kind: Kind, ran: Ran, detail: impl fmt::Display) -> Error {
        match self {
            Self::Own(core) => core.fail(kind, Side::Caller, ran, detail),
            Self::Onc(caller) => caller.fail(kind, Side::Caller, ran, detail),
        }
    }

    /// The memory for parameters by reference, and what of it is in use.
    fn memory(&mut self) -> Result<(&Window, &mut Pieces), Error> {
        match self {
            Self::Own(core) => Ok((&core.calls.window, &mut core.calls.pieces)),
            Self::Onc(caller) => caller.memory(),
        }
    }
}

/// Why waiting ended.
enum Stop {
    TimedOut,
    Dead,
}

/// A call that waits.
struct Waiting {
    looks: u32,
    crowd: u32,
    spin_until: u64,
}

impl Waiting {
    fn new() -> Self {
        Self { looks: 0, crowd: 0, spin_until: 0 }
    }
}

impl Client {
    /// Binds to the server at an address: one that has the program, in one of these versions; the highest that both have is taken.
    ///
    /// # Errors
    /// `Unreachable`, `Denied`, `Version`, `Busy`, `Protocol`, `System`.
    pub fn connect(address: &Address, program: u32, versions: RangeInclusive<u32>, options: Options) -> Result<Self, Error> {
        let core = RefCell::new(Route::bind(address, &options, program, &versions)?);
        Ok(Self { core, address: address.clone(), program, versions, options })
    }

    /// Binds anew, to the server that has the address now. Calls that are outstanding end as lost.
    ///
    /// # Errors
    /// As [`Client::connect`]; the old binding stays then.
    pub fn reconnect(&mut self) -> Result<(), Error> {
        let core = Route::bind(&self.address, &self.options, self.program, &self.versions)?;
        self.core = RefCell::new(core);
        Ok(())
    }

    #[inline(always)]
    fn core(&self) -> RefMut<'_, Route> {
        self.core.borrow_mut()
    }

    /// The version that both agreed on.
    #[must_use]
    pub fn version(&self) -> u32 {
        match &*self.core() {
            Route::Own(core) => core.version,
            Route::Onc(caller) => caller.version,
        }
    }

    /// The server's process, on one host; by SunRPC it is not known.
    #[must_use]
    pub fn server(&self) -> Option<Process> {
        match &*self.core() {
            Route::Own(core) => core.process,
            Route::Onc(_) => None,
        }
    }

    /// Calls whose place is not free: outstanding ones, and those taken back whose answer has not come.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        match &*self.core() {
            Route::Own(core) => core.calls.outstanding(),
            Route::Onc(caller) => caller.outstanding(),
        }
    }

    /// Answers that belong to no call. A server that keeps to the protocol sends none; by SunRPC, late ones count.
    #[must_use]
    pub fn strangers(&self) -> u64 {
        match &*self.core() {
            Route::Own(core) => core.calls.strangers,
            Route::Onc(caller) => caller.strangers,
        }
    }

    /// Calls a procedure, and waits.
    ///
    /// # Errors
    /// [`Error`].
    #[inline]
    pub fn call<A: Xdr, R: Xdr>(&self, procedure: u16, arguments: &A) -> Result<R, Error> {
        let mut route = self.core();
        let Route::Own(core) = &mut *route else {
            drop(route);
            return self.call_with(procedure, arguments, &How::default());
        };
        let name = core.begin::<A, R>(procedure, arguments, &How::default(), 0)?;
        let until = core.deadline.map(|limit| now().saturating_add(limit));
        core.wait(name, until)?;
        core.take(name)
    }

    /// The same, with a deadline of its own, or with buffers.
    ///
    /// # Errors
    /// [`Error`].
    pub fn call_with<A: Xdr, R: Xdr>(&self, procedure: u16, arguments: &A, how: &How<'_>) -> Result<R, Error> {
        let pending = self.begin_with(procedure, arguments, how)?;
        pending.wait()
    }

    /// Begins a call, and waits only while the server takes no more of them.
    ///
    /// # Errors
    /// [`Error`]; the call has not begun then.
    #[inline]
    pub fn begin<A: Xdr, R: Xdr>(&self, procedure: u16, arguments: &A) -> Result<Pending<'_, R>, Error> {
        self.begin_with(procedure, arguments, &How::default())
    }

    /// The same, with a deadline of its own, or with buffers.
    ///
    /// # Errors
    /// [`Error`]; the call has not begun then.
    #[inline]
    pub fn begin_with<A: Xdr, R: Xdr>(&self, procedure: u16, arguments: &A, how: &How<'_>) -> Result<Pending<'_, R>, Error> {
        let mut route = self.core();
        let limit = how.deadline.map(|limit| limit.as_nanos() as u64).or(route.deadline());
        let until = limit.map(|limit| now().saturating_add(limit));
        let name = match &mut *route {
            Route::Own(core) => core.begin::<A, R>(procedure, arguments, how, 0)?,
            Route::Onc(caller) => caller.begin(procedure, &|to| arguments.encode(to), how, false)?,
        };
        Ok(Pending { client: self, name, until, results: PhantomData })
    }

    /// Calls a procedure of which the caller does not want to hear any more. It runs at most once; whether it did, the caller is
    /// not told.
    ///
    /// # Errors
    /// [`Error`]: it was not sent.
    #[inline]
    pub fn tell<A: Xdr>(&self, procedure: u16, arguments: &A) -> Result<(), Error> {
        match &mut *self.core() {
            Route::Own(core) => core.tell(procedure, arguments),
            Route::Onc(caller) => caller.begin(procedure, &|to| arguments.encode(to), &How::default(), true).map(|_| ()),
        }
    }

    /// Takes what has come, without waiting. For programs with a loop of their own.
    pub fn progress(&self) {
        let wakers = match &mut *self.core() {
            Route::Own(core) => {
                while core.dead.is_none() && core.poll() > 0 {}
                core.look_after();
                std::mem::take(&mut core.calls.wakers)
            }
            Route::Onc(caller) => {
                caller.poll();
                std::mem::take(&mut caller.wakers)
            }
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Before sleeping on the descriptor, after [`Client::progress`]: how long at most. `None`: something is there already.
    #[must_use]
    pub fn arm(&self) -> Option<Duration> {
        match &mut *self.core() {
            Route::Own(core) => core.end.arm(),
            Route::Onc(caller) => caller.arm(),
        }
    }

    /// After sleeping; [`Client::progress`] follows.
    pub fn disarm(&self) {
        if let Route::Own(core) = &mut *self.core() {
            core.end.disarm();
        }
    }

    /// Memory of the window for `count` elements, zeros or what was there before: to be passed by reference.
    ///
    /// # Errors
    /// `Busy`, `TooLong`.
    pub fn buffer<T: Scalar>(&self, count: usize) -> Result<Buffer<'_, T>, Error> {
        let mut route = self.core();
        let bytes = count.saturating_mul(size_of::<T>());
        let (window, pieces) = route.memory()?;
        let Some(number) = pieces.take(bytes) else {
            let (free, size) = (pieces.longest(), window.size());
            let kind = if bytes > size - crate::window::CANCELS { Kind::TooLong } else { Kind::Busy };
            let detail = format_args!("a buffer of {bytes} bytes; {free} of the window's {size} are free in one piece");
            return Err(route.fail(kind, Ran::No, detail));
        };
        let piece = pieces.get(number);
        let at = window.pointer(piece).expect("a piece of the window").cast();
        Ok(Buffer { client: self, number, piece, at, count })
    }
}

/// One descriptor for poll, select and epoll: readable when an answer comes after [`Client::arm`], and when the server ends.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let descriptor = match &*self.core() {
            Route::Own(core) => core.epoll.as_raw_fd(),
            Route::Onc(caller) => caller.descriptor(),
        };
        // SAFETY: it lives as long as the client is borrowed, which `reconnect` cannot be called meanwhile.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }
}

/// A call under way. To be waited for, polled, or awaited; dropped, it is cancelled.
#[must_use = "a call that is dropped is cancelled"]
pub struct Pending<'c, R> {
    client: &'c Client,
    name: Name,
    until: Option<u64>,
    results: PhantomData<fn() -> R>,
}

impl<'c, R: Xdr> Pending<'c, R> {
    /// Waits for the results.
    ///
    /// # Errors
    /// [`Error`].
    #[inline]
    pub fn wait(self) -> Result<R, Error> {
        let pending = std::mem::ManuallyDrop::new(self);
        match &mut *pending.client.core() {
            Route::Own(core) => {
                core.wait(pending.name, pending.until)?;
                core.take(pending.name)
            }
            Route::Onc(caller) => {
                caller.wait(pending.name, pending.until)?;
                caller.take(pending.name)
            }
        }
    }

    /// The same call, of which the results are another type.
    pub(crate) fn of<T: Xdr>(self) -> Pending<'c, T> {
        let this = std::mem::ManuallyDrop::new(self);
        Pending { client: this.client, name: this.name, until: this.until, results: PhantomData }
    }

    /// Whether [`Pending::wait`] would not wait. Takes what has come.
    pub fn is_done(&self) -> bool {
        let done = match &mut *self.client.core() {
            Route::Own(core) => {
                core.poll();
                if !core.is_done(self.name) {
                    core.look_after();
                }
                core.is_done(self.name)
            }
            Route::Onc(caller) => {
                caller.poll();
                caller.is_done(self.name)
            }
        };
        done || self.until.is_some_and(|until| now() >= until)
    }
}

impl<R: Xdr> Future for Pending<'_, R> {
    type Output = Result<R, Error>;

    /// The thread that drives the client ([`Client::progress`], on its descriptor) wakes it.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.client.progress();
        let (name, until) = (self.name, self.until);
        let mut route = self.client.core();
        let core = match &mut *route {
            Route::Own(core) => core,
            Route::Onc(caller) => {
                assert!(caller.has(name), "polled after it was ready");
                if caller.is_done(name) {
                    return Poll::Ready(caller.take(name));
                }
                if until.is_none_or(|until| now() < until) {
                    caller.set_waker(name, context.waker().clone());
                    return Poll::Pending;
                }
                caller.cancel(name);
                let detail = "no answer until the deadline";
                return Poll::Ready(Err(caller.fail(Kind::TimedOut, Side::Server, Ran::Maybe, detail)));
            }
        };
        let Some(place) = core.calls.place(name).filter(|place| place.state != State::Free) else {
            panic!("polled after it was ready");
        };
        if matches!(place.state, State::Waiting | State::Fetching) {
            if until.is_none_or(|until| now() < until) {
                place.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            core.cancel(name);
            return Poll::Ready(Err(core.fail(Kind::TimedOut, Side::Server, Ran::Maybe, "no answer until the deadline")));
        }
        Poll::Ready(core.take(name))
    }
}

impl<R> Drop for Pending<'_, R> {
    fn drop(&mut self) {
        let mut route = self.client.core();
        let core = match &mut *route {
            Route::Own(core) => core,
            Route::Onc(caller) => return caller.cancel(self.name),
        };
        // A future that was ready has no call any more.
        if core.calls.place(self.name).is_some_and(|place| place.state != State::Free && place.state != State::Abandoned) {
            core.cancel(self.name);
        }
    }
}

/// Memory of a client's window. Its server can write there whenever it likes, so there is no slice of it: elements are read and
/// written one by one, or copied.
pub struct Buffer<'c, T: Scalar> {
    client: &'c Client,
    number: u32,
    piece: Piece,
    at: *mut T,
    count: usize,
}

impl<T: Scalar> Buffer<'_, T> {
    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements, for reading and writing.
    #[must_use]
    pub fn view(&mut self) -> Shared<'_, T> {
        // SAFETY: the piece is the buffer's, in the mapping that lives as long as its client.
        unsafe { Shared::new(self.at, self.count) }
    }

    /// What a call is lent: a server that reads it (IN), writes it (OUT), or both (INOUT).
    ///
    /// # Errors
    /// `Busy`: a call that was given up may still write there.
    pub fn lend(&self, to_server: bool, from_server: bool) -> Result<Lent, Error> {
        let mut route = self.client.core();
        if route.memory()?.1.holders(self.number) > 1 {
            return Err(route.fail(Kind::Busy, Ran::No, "the buffer is lent to a call that has not ended"));
        }
        Ok(Lent { number: self.number, piece: self.piece, form: T::FORM, to_server, from_server })
    }

    /// Offset and bytes, as arguments have them.
    #[must_use]
    pub fn name(&self) -> [u32; 2] {
        [self.piece.offset, self.piece.length]
    }

    /// How arguments name it.
    #[must_use]
    pub fn reference(&self) -> Reference<T> {
        Reference::to(self.piece)
    }
}

impl<T: Scalar> Drop for Buffer<'_, T> {
    fn drop(&mut self) {
        if let Ok((_, pieces)) = self.client.core().memory() {
            pieces.release(self.number);
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Client({}, program {:#x})", self.address, self.program)
    }
}
