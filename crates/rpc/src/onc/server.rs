//! A server by SunRPC. Each thread has a service and connections of its own; the datagrams' socket is all threads'.

use crate::address::{Place, Transport};
use crate::forks::{self, Kept};
use crate::onc::message::{Call, Credential, Outcome, Refused, Reply};
use crate::onc::record::{mark, Reader};
use crate::onc::rpcbind::Registered;
use crate::rendezvous::{keep_alive, used_up, REST};
use crate::service::{Answer, Context, Interface, Place as Where, Refusal, Service};
use crate::value::{ways, Inlet};
use crate::window::Window;
use crate::wire::{Name, LINE};
use crate::xdr::{Decoder, Encoder};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Bytes of answers that wait for a caller to read them, beyond which its calls are not read.
const CROWD: usize = 1 << 20;
/// Bytes that each connection may make its server keep before they count among those of all.
const OWN: usize = 64 << 10;
/// Bytes of a datagram at most: those of IPv4.
const DATAGRAM: usize = 65_507;
/// Answers that are kept for datagrams that come again: so many, for so long.
const ANSWERS: usize = 256;
const KEPT: Duration = Duration::from_secs(60);
/// How long a call may take to come, and an answer to be taken; and a caller may be silent where others find no room. libtirpc's own time.
const LATE: Duration = Duration::from_secs(35);

/// What callers come to.
#[derive(Debug)]
pub(crate) enum Door {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Door {
    pub fn bind(place: &Place) -> io::Result<Self> {
        let at = (place.host.as_str(), place.port.unwrap_or(0));
        let door = match place.transport {
            Transport::Tcp => Self::Tcp(TcpListener::bind(at)?),
            Transport::Udp => Self::Udp(UdpSocket::bind(at)?),
        };
        match &door {
            Self::Tcp(listener) => listener.set_nonblocking(true)?,
            Self::Udp(socket) => socket.set_nonblocking(true)?,
        }
        Ok(door)
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Udp(socket) => socket.local_addr(),
        }
    }

    fn descriptor(&self) -> RawFd {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Udp(socket) => socket.as_raw_fd(),
        }
    }
}

/// What all threads of a server have.
pub(crate) struct Common<'a> {
    pub door: &'a Door,
    pub callers: usize,
    /// Bytes of a call at most.
    pub record: usize,
    /// Bytes for parameters by reference.
    pub window: u64,
    pub stopped: &'a AtomicBool,
    /// Readable once the server is to stop.
    pub bell: RawFd,
    pub connections: AtomicUsize,
    /// Bytes that all connections may make the server keep, and those that they do.
    pub memory: u64,
    pub held: AtomicUsize,
    pub duplicates: Mutex<Duplicates>,
}

/// Registers what a service has, where the address has no port.
pub(crate) fn register(place: &Place, door: &Door, interfaces: &[Interface]) -> io::Result<Option<Registered>> {
    if place.port.is_some() {
        return Ok(None);
    }
    let versions: Vec<_> = interfaces.iter().map(|one| (one.program, one.version)).collect();
    Registered::new(place.transport, door.address()?, &versions).map(Some)
}

type Key = (SocketAddr, Vec<u8>);

/// Datagrams that were taken lately: one that comes again is not run again, but answered as before.
#[derive(Default)]
pub(crate) struct Duplicates {
    answers: HashMap<Key, Option<Vec<u8>>>,
    order: VecDeque<(Instant, Key)>,
}

enum Seen {
    New,
    Running,
    Answered(Vec<u8>),
}

impl Duplicates {
    fn look(&mut self, key: &Key, time: Instant) -> Seen {
        while self.order.len() >= ANSWERS || self.order.front().is_some_and(|(since, _)| time.duration_since(*since) > KEPT) {
            let Some((_, old)) = self.order.pop_front() else { break };
            self.answers.remove(&old);
        }
        match self.answers.get(key) {
            Some(Some(answer)) => Seen::Answered(answer.clone()),
            Some(None) => Seen::Running,
            None => {
                self.answers.insert(key.clone(), None);
                self.order.push_back((time, key.clone()));
                Seen::New
            }
        }
    }

    fn done(&mut self, key: &Key, answer: Vec<u8>) {
        if let Some(place) = self.answers.get_mut(key) {
            *place = Some(answer);
        }
    }
}

/// Runs calls of one service.
struct Desk<S> {
    service: S,
    interfaces: Vec<Interface>,
    /// For calls without parameters by reference: nothing is in it, and nothing is cancelled.
    empty: Window,
    window: u64,
    scratch: Vec<u8>,
    most: usize,
}

impl<S: Service> Desk<S> {
    /// The answer to a message; `None`: it has none.
    fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let call = match Call::parse(message) {
            Ok(call) => call,
            Err(Refused::Garbage) => return None,
            Err(Refused::Answer(xid, outcome)) => return Some(Reply { xid, outcome }.to_bytes()),
        };
        let results = self.run(&call);
        let outcome = match &results {
            Ok(results) => Outcome::Success(results),
            Err(outcome) => *outcome,
        };
        Some(Reply { xid: call.xid, outcome }.to_bytes())
    }

    fn run(&mut self, call: &Call<'_>) -> Result<Vec<u8>, Outcome<'static>> {
        let there = || self.interfaces.iter().filter(|one| one.program == call.program).map(|one| one.version);
        let Some(interface) = self.interfaces.iter().find(|one| (one.program, one.version) == (call.program, call.version))
        else {
            return Err(match (there().min(), there().max()) {
                (Some(low), Some(high)) => Outcome::NoVersion { low, high },
                _ => Outcome::NoProgram,
            });
        };
        let procedure = u16::try_from(call.procedure).map_err(|_| Outcome::NoProcedure)?;
        let known = interface.procedures.iter().find(|one| one.number == procedure);
        let ways = known.map_or(vec![], |known| ways(known.definition));
        // Fresh pages for each call: none shows what was in another caller's.
        let fresh = if ways.is_empty() { None } else { Some(Window::mirror(self.window).map_err(|_| Outcome::SystemError)?) };
        let window = fresh.as_ref().unwrap_or(&self.empty);
        let inlet = Inlet::new(window, ways, self.most);
        let claim = match &call.credential {
            Credential::Sys(claim) => Some(claim),
            Credential::None => None,
        };
        let name = Name { slot: 0, generation: 0 };
        let context = Context { interface, caller: None, window, name, deadline: None, claim, socket: None };
        let (scratch, grows) = (&mut self.scratch, self.most);
        let mut answer =
            Answer { line: [0; LINE / 8], length: 0, scratch, near: 0, room: None, window, place: Where::Line, grows };
        let arguments = Decoder::by_value(call.arguments, &inlet);
        let service = &mut self.service;
        let result = catch_unwind(AssertUnwindSafe(|| service.call(&context, procedure, arguments, &mut answer)));
        match (result, answer.place) {
            (Ok(Ok(())), Where::Line | Where::Scratch) => {
                let line = bytemuck::cast_slice(&answer.line);
                let results = if answer.place == Where::Line { &line[..answer.length] } else { &answer.scratch[..answer.length] };
                // What a caller says that it has room for is not made before it is known to fit.
                match inlet.bytes().saturating_add(results.len()) > self.most {
                    true => Err(Outcome::SystemError),
                    false => Ok(crate::onc::message::encoded(&|to: &mut Encoder<'_>| {
                        inlet.encode(to);
                        to.fixed(results);
                    })),
                }
            }
            (Ok(Err(Refusal::NoProcedure)), _) => Err(Outcome::NoProcedure),
            (Ok(Err(Refusal::BadArguments(_))), _) => Err(Outcome::BadArguments),
            _ => Err(Outcome::SystemError),
        }
    }
}

struct Connection {
    _kept: Kept,
    stream: TcpStream,
    reader: Reader,
    /// What was read and is not taken yet, as too many answers wait.
    come: Vec<u8>,
    outgoing: Vec<u8>,
    over: bool,
    /// Bytes of it that count among those of all.
    counted: usize,
    /// When a call last began or ended, or some of an answer was taken.
    since: Instant,
}

impl Connection {
    /// Whether no call has begun to come, and no answer waits to be taken.
    fn is_idle(&self) -> bool {
        !self.reader.has_begun() && self.outgoing.is_empty()
    }

    /// Whether its caller has let a call or an answer lie for too long; in a server that has no room for others, also where it only does
    /// nothing.
    fn is_late(&self, time: Instant, full: bool) -> bool {
        (full || !self.is_idle()) && time.saturating_duration_since(self.since) > LATE
    }

    /// Takes what came, a room full at most: other connections have their turn.
    fn serve<S: Service>(&mut self, desk: &mut Desk<S>, room: &mut [u8]) {
        let count = match self.stream.read(room) {
            Ok(0) => return self.over = true,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_) => return self.over = true,
        };
        if !self.reader.has_begun() {
            self.since = Instant::now();
        }
        self.come.extend_from_slice(&room[..count]);
        self.run(desk);
    }

    /// Runs calls of what has come, until as many bytes of answers wait as may: a caller that sends and does not read keeps its calls.
    fn run<S: Service>(&mut self, desk: &mut Desk<S>) {
        let come = std::mem::take(&mut self.come);
        let mut bytes = &come[..];
        while self.outgoing.len() < CROWD && !self.over {
            match self.reader.take(&mut bytes) {
                Ok(Some(record)) => {
                    self.since = Instant::now();
                    match desk.answer(&record) {
                        Some(answer) => {
                            self.outgoing.extend_from_slice(&mark(answer.len() as u32));
                            self.outgoing.extend_from_slice(&answer);
                            self.flush();
                        }
                        None => self.over = true,
                    }
                }
                Ok(None) => break,
                Err(_) => self.over = true,
            }
        }
        self.come.extend_from_slice(bytes);
    }

    /// Counts what is kept for it: a call that has not come whole, calls behind it, answers that are not taken. One by which it becomes too
    /// much for the server is answered as what no room was found for, as far as its caller listens, and the connection ends.
    fn count(&mut self, common: &Common<'_>) {
        let kept = self.reader.held() + self.come.len() + self.outgoing.len();
        let kept = if self.over { 0 } else { kept.saturating_sub(OWN) };
        let all = if kept > self.counted {
            common.held.fetch_add(kept - self.counted, Ordering::Relaxed) + kept - self.counted
        } else {
            common.held.fetch_sub(self.counted - kept, Ordering::Relaxed);
            0
        };
        self.counted = kept;
        if all as u64 > common.memory {
            if let Some(xid) = self.reader.begun().first_chunk() {
                let answer = Reply { xid: u32::from_be_bytes(*xid), outcome: Outcome::SystemError }.to_bytes();
                self.outgoing.extend_from_slice(&mark(answer.len() as u32));
                self.outgoing.extend_from_slice(&answer);
                self.flush();
            }
            self.over = true;
            self.count(common);
        }
    }

    fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.outgoing.len() {
            match self.stream.write(&self.outgoing[sent..]) {
                Ok(count) => {
                    sent += count;
                    self.since = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.over |= error.kind() != io::ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        self.outgoing.drain(..sent);
    }
}

/// Serves until the server is stopped.
pub(crate) fn work<S: Service>(common: &Common<'_>, service: S) -> io::Result<()> {
    let interfaces = service.interfaces();
    let most = if matches!(common.door, Door::Udp(_)) { DATAGRAM } else { common.record };
    let empty = Window::mirror(8192)?;
    let mut desk = Desk { service, interfaces, empty, window: common.window, scratch: vec![0; 4096], most };
    let mut connections: Vec<Connection> = vec![];
    let mut room = vec![0; 65_536];
    let mut polls = vec![];
    let _kept = Kept::new(&common.door.descriptor());
    let forks = forks::number();
    // Descriptors were used up: until then the queue is left alone.
    let mut tired = None;
    while !common.stopped.load(Ordering::SeqCst) && forks == forks::number() {
        polls.clear();
        let want = |fd, events| libc::pollfd { fd, events, revents: 0 };
        polls.push(want(common.bell, libc::POLLIN));
        // A server that has as many callers as it may leaves the next ones in the queue.
        let full = common.connections.load(Ordering::Relaxed) >= common.callers;
        let rests = tired.is_some_and(|until| Instant::now() < until);
        polls.push(want(if full || rests { -1 } else { common.door.descriptor() }, libc::POLLIN));
        for connection in &connections {
            let read = if connection.outgoing.len() < CROWD { libc::POLLIN } else { 0 };
            let write = if connection.outgoing.is_empty() { 0 } else { libc::POLLOUT };
            polls.push(want(connection.stream.as_raw_fd(), read | write));
        }
        // A full server looks now and then whether another thread's caller has gone.
        let limit = match full || rests {
            true => 50,
            // Callers that only do nothing are not late.
            false if connections.iter().all(Connection::is_idle) => -1,
            false => 1000,
        };
        // SAFETY: as many entries as are said.
        if unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as u64, limit) } < 0 {
            continue;
        }
        for (connection, poll) in connections.iter_mut().zip(&polls[2..]) {
            if poll.revents & libc::POLLOUT != 0 {
                connection.flush();
                connection.run(&mut desk);
            }
            if poll.revents & !libc::POLLOUT != 0 {
                connection.serve(&mut desk, &mut room);
            }
            connection.count(common);
        }
        let before = connections.len();
        let time = Instant::now();
        connections.iter_mut().filter(|connection| connection.is_late(time, full)).for_each(|connection| {
            connection.over = true;
            connection.count(common);
        });
        connections.retain(|connection| !connection.over);
        common.connections.fetch_sub(before - connections.len(), Ordering::Relaxed);
        if polls[1].revents != 0 {
            match common.door {
                Door::Tcp(listener) => match accept(common, listener) {
                    Ok(connection) => connections.push(connection),
                    Err(error) if used_up(&error) => tired = Some(time + REST),
                    Err(_) => {}
                },
                Door::Udp(socket) => datagram(common, socket, &mut desk, &mut room),
            }
        }
    }
    Ok(())
}

fn accept(common: &Common<'_>, listener: &TcpListener) -> io::Result<Connection> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    common.connections.fetch_add(1, Ordering::Relaxed);
    let reader = Reader::new(common.record);
    let (_kept, since) = (Kept::new(&stream), Instant::now());
    Ok(Connection { _kept, stream, reader, come: vec![], outgoing: vec![], over: false, counted: 0, since })
}

fn datagram<S: Service>(common: &Common<'_>, socket: &UdpSocket, desk: &mut Desk<S>, room: &mut [u8]) {
    let Ok((count, from)) = socket.recv_from(room) else { return };
    let message = &room[..count];
    let key = (from, message.to_vec());
    let lock = || common.duplicates.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seen = lock().look(&key, Instant::now());
    let answer = match seen {
        Seen::Running => None,
        Seen::Answered(answer) => Some(answer),
        Seen::New => desk.answer(message).inspect(|answer| lock().done(&key, answer.clone())),
    };
    if let Some(answer) = answer {
        let _ = socket.send_to(&answer, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_that_comes_again_is_answered_as_before() {
        let mut duplicates = Duplicates::default();
        let start = Instant::now();
        let key = |number: u32| ("127.0.0.1:7".parse().unwrap(), number.to_be_bytes().to_vec());
        assert!(matches!(duplicates.look(&key(1), start), Seen::New));
        assert!(matches!(duplicates.look(&key(1), start), Seen::Running));
        duplicates.done(&key(1), vec![9]);
        assert!(matches!(duplicates.look(&key(1), start), Seen::Answered(answer) if answer == [9]));
        for number in 2..=ANSWERS as u32 + 1 {
            assert!(matches!(duplicates.look(&key(number), start), Seen::New));
        }
        assert!(duplicates.order.len() <= ANSWERS && duplicates.answers.len() == duplicates.order.len());
        assert!(matches!(duplicates.look(&key(1), start), Seen::New));
        assert!(matches!(duplicates.look(&key(9), start + KEPT * 2), Seen::New));
        assert_eq!(duplicates.answers.len(), 1);
    }

    #[test]
    fn a_caller_may_be_silent_for_a_while() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        let (_kept, reader, since) = (Kept::new(&stream), Reader::new(100), Instant::now());
        let mut connection = Connection { _kept, stream, reader, come: vec![], outgoing: vec![], over: false, counted: 0, since };
        let late = since + LATE + Duration::from_millis(1);
        assert!(!connection.is_late(late, false), "nothing has begun");
        assert!(connection.is_late(late, true) && !connection.is_late(since + LATE, true), "others wait for its place");
        assert!(matches!(connection.reader.take(&mut &[0x80][..]), Ok(None)));
        assert!(connection.is_late(late, false) && !connection.is_late(since + LATE, false), "a call has begun");
    }
}
