//! Where callers come in: the first thread hears what each wants, tells tools what they ask for, and leads callers to the thread that has the
//! fewest.

use super::{token, Guest, Shared, Worker};
use crate::clock::now;
use crate::rendezvous::{used_up, Listener, Socket, REST};
use crate::server::stop::ring;
use crate::service::{Listed, Service};
use crate::user::is_known;
use crate::wire::{Hello, Purpose, Welcome, PROTOCOL, RECORD_BYTES};
use crate::xdr::{self, List};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SendError, Sender};

/// How long a caller may take to say what it wants, and how many may take it.
pub(super) const GREETING: u64 = 2_000_000_000;
const GREETINGS: usize = 64;

/// A client that has not said it yet.
pub(super) struct Greeting {
    socket: Socket,
    record: [u8; RECORD_BYTES],
    filled: usize,
    window: Option<OwnedFd>,
    pub(super) since: u64,
}

/// Where callers come in: the first thread's.
pub(in crate::server) struct Hall<'a> {
    pub(super) listener: &'a Listener,
    doors: Vec<Sender<Guest>>,
    pub(super) greetings: HashMap<u64, Greeting>,
    pub(super) tellings: HashMap<u64, Telling>,
    /// Until when it takes nobody in, as descriptors were used up.
    pub(super) rests_until: Option<u64>,
}

impl<'a> Hall<'a> {
    pub(in crate::server) fn new(listener: &'a Listener, doors: Vec<Sender<Guest>>) -> Self {
        Self { listener, doors, greetings: HashMap::new(), tellings: HashMap::new(), rests_until: None }
    }
}

/// A tool that asked, and is being told.
pub(super) struct Telling {
    socket: Socket,
    bytes: Vec<u8>,
    pub(super) since: u64,
}

impl<S: Service> Worker<'_, S> {
    pub(super) fn accept(&mut self, hall: &mut Option<Hall<'_>>) {
        let Some(hall) = hall else { return };
        // The rest has its turn at the next look: connecting all the time, also by users who may not call, holds nobody up.
        for _ in 0..GREETINGS {
            let mut socket = match hall.listener.accept() {
                Ok(socket) => socket,
                Err(error) if used_up(&error) => {
                    // It would be readable all the time.
                    hall.rests_until = Some(now() + REST.as_nanos() as u64);
                    let _ = self.control(libc::EPOLL_CTL_MOD, hall.listener.as_fd().as_raw_fd(), token::LISTENER, 0);
                    return;
                }
                Err(_) => return,
            };
            if !self.may_call(&socket) {
                let _ = socket.send(&Welcome::Denied.emit(), None);
                continue;
            }
            if hall.greetings.len() >= GREETINGS {
                let _ = socket.send(&Welcome::Full.emit(), None);
                continue;
            }
            self.serial += 1;
            if self.watch(socket.as_raw_fd(), token::GREETING | self.serial, libc::EPOLLIN).is_err() {
                continue;
            }
            let greeting = Greeting { socket, record: [0; RECORD_BYTES], filled: 0, window: None, since: now() };
            hall.greetings.insert(self.serial, greeting);
        }
    }

    /// Greetings and tellings that took too long go, and a listener that rested is looked at again.
    pub(super) fn tidy(&self, hall: &mut Hall<'_>, time: u64) {
        let late = |since: u64| since + GREETING <= time;
        hall.greetings.values().filter(|one| late(one.since)).for_each(|one| self.forget(&one.socket));
        hall.tellings.values().filter(|one| late(one.since)).for_each(|one| self.forget(&one.socket));
        hall.greetings.retain(|_, one| !late(one.since));
        hall.tellings.retain(|_, one| !late(one.since));
        if hall.rests_until.is_some_and(|until| until <= time) {
            hall.rests_until = None;
            let listener = hall.listener.as_fd().as_raw_fd();
            let _ = self.control(libc::EPOLL_CTL_MOD, listener, token::LISTENER, libc::EPOLLIN);
        }
    }

    fn may_call(&self, socket: &Socket) -> bool {
        let Some(process) = socket.process() else { return true };
        // SAFETY: it only asks.
        let own = unsafe { libc::geteuid() };
        let usual = self.options.users.is_empty() && (process.uid == own || process.uid == 0);
        self.options.everyone || is_known(process.uid) && (usual || self.options.users.contains(&process.uid))
    }

    pub(super) fn greet(&mut self, hall: &mut Option<Hall<'_>>, serial: u64) {
        let Some(hall) = hall else { return };
        let Some(greeting) = hall.greetings.get_mut(&serial) else { return };
        match greeting.socket.receive(&mut greeting.record[greeting.filled..], &mut greeting.window) {
            Ok(count) if count > 0 => greeting.filled += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            _ => {
                if let Some(greeting) = hall.greetings.remove(&serial) {
                    self.forget(&greeting.socket);
                }
                return;
            }
        }
        if greeting.filled < RECORD_BYTES {
            return;
        }
        let Some(mut greeting) = hall.greetings.remove(&serial) else { return };
        self.forget(&greeting.socket);
        let Some(hello) = Hello::parse(&greeting.record) else {
            let _ = greeting.socket.send(&Welcome::Protocol { version: PROTOCOL }.emit(), None);
            return;
        };
        match hello.purpose {
            Purpose::Call => {}
            Purpose::List => {
                let list = List::<Listed, 4096>(self.interfaces.iter().map(Listed::from).collect());
                return self.tell(hall, greeting.socket, xdr::to_bytes(&list));
            }
            Purpose::Describe => {
                match self.choose(&hello) {
                    Ok(number) => self.tell(hall, greeting.socket, self.interfaces[number].text.into()),
                    Err(welcome) => drop(greeting.socket.send(&welcome.emit(), None)),
                }
                return;
            }
            Purpose::Watch => return self.be_watched(greeting.socket, hello.lowest),
        }
        let load = |shared: &Shared| shared.callers.load(Ordering::Relaxed);
        if self.shared.iter().map(load).sum::<usize>() >= self.options.callers {
            let _ = greeting.socket.send(&Welcome::Full.emit(), None);
            return;
        }
        // To the thread that has the fewest.
        let thread = (0..self.shared.len()).min_by_key(|&thread| load(&self.shared[thread])).unwrap_or(0);
        self.shared[thread].callers.fetch_add(1, Ordering::Relaxed);
        let guest = Guest { socket: greeting.socket, hello, window: greeting.window };
        if thread == self.number {
            self.take_in(guest);
            return;
        }
        match hall.doors[thread].send(guest) {
            Ok(()) => ring(&self.shared[thread].bell),
            // That thread could not begin.
            Err(SendError(guest)) => {
                self.shared[thread].callers.fetch_sub(1, Ordering::Relaxed);
                self.shared[self.number].callers.fetch_add(1, Ordering::Relaxed);
                self.take_in(guest);
            }
        }
    }

    /// Tells a tool what it asked for, as fast as it takes it.
    fn tell(&mut self, hall: &mut Hall<'_>, socket: Socket, told: Vec<u8>) {
        let mut bytes = Welcome::List { bytes: told.len() as u32 }.emit().to_vec();
        bytes.extend(told);
        self.serial += 1;
        let serial = self.serial;
        if hall.tellings.len() < GREETINGS && self.watch(socket.as_raw_fd(), token::TELLING | serial, libc::EPOLLOUT).is_ok() {
            hall.tellings.insert(serial, Telling { socket, bytes, since: now() });
        }
    }

    pub(super) fn go_on_telling(&mut self, hall: &mut Option<Hall<'_>>, serial: u64) {
        let Some(telling) = hall.as_mut().and_then(|hall| hall.tellings.get_mut(&serial)) else { return };
        match telling.socket.send_some(&telling.bytes) {
            Ok(count) => drop(telling.bytes.drain(..count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_) => telling.bytes.clear(),
        }
        if telling.bytes.is_empty() {
            if let Some(telling) = hall.as_mut().and_then(|hall| hall.tellings.remove(&serial)) {
                self.forget(&telling.socket);
            }
        }
    }

    /// Tells of calls from now on: this server's user, and root, on this host.
    fn be_watched(&mut self, mut socket: Socket, what: u32) {
        // SAFETY: it only asks.
        let own = unsafe { libc::geteuid() };
        if !socket.process().is_some_and(|process| is_known(process.uid) && (process.uid == own || process.uid == 0)) {
            let _ = socket.send(&Welcome::Denied.emit(), None);
            return;
        }
        let _ = socket.send(&Welcome::Watching.emit(), None);
        if let Some(descriptor) = self.watchers.admit(socket, what) {
            let _ = self.watch(descriptor, token::WATCHER, libc::EPOLLRDHUP | libc::EPOLLOUT | libc::EPOLLET);
            // The other threads look when they wake.
            self.shared.iter().for_each(|shared| ring(&shared.bell));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::server::keeper::Keeper;
    use crate::server::stop::Stopper;
    use crate::server::Options;
    use crate::service::{Answer, Context, Interface, Refusal};
    use crate::trace::Watchers;
    use crate::xdr::Decoder;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    use std::sync::mpsc::channel;

    struct Nothing;

    impl Service for Nothing {
        fn interfaces(&self) -> Vec<Interface> {
            vec![]
        }
        fn call(&mut self, _: &Context<'_>, _: u16, _: Decoder<'_>, _: &mut Answer<'_>) -> Result<(), Refusal> {
            Err(Refusal::NoProcedure)
        }
    }

    /// A worker's parts, at a name of the test's.
    fn with_worker(name: &str, users: Vec<u32>, test: impl FnOnce(&mut Worker<'_, Nothing>, &Listener, Hall<'_>, &SocketAddr)) {
        let name = format!("hall-{name}-{}", std::process::id());
        let address: Address = name.parse().unwrap();
        let listener = Listener::bind(&address).unwrap();
        let at = SocketAddr::from_abstract_name(format!("{}{name}", crate::rendezvous::PREFIX)).unwrap();
        let options = Options { users, ..Options::default() };
        let (stop, shared, watchers, (door, inlet)) =
            (Stopper::new().unwrap(), [Shared::new().unwrap()], Watchers::default(), channel());
        let keeper = Keeper::new().unwrap();
        let mut worker = Worker::new(0, (&address, &options), &stop.0, (&shared, &watchers, &keeper), inlet, Nothing).unwrap();
        worker.watch(listener.as_fd().as_raw_fd(), token::LISTENER, libc::EPOLLIN).unwrap();
        test(&mut worker, &listener, Hall::new(&listener, vec![door]), &at);
    }

    /// Those that connect all the time, whether they may call or not, have a part of a thread's time and not all of it.
    #[test]
    fn one_look_takes_so_many_connections_at_most() {
        // SAFETY: it only asks.
        let another = unsafe { libc::geteuid() } + 1;
        for (name, users) in [("usual", vec![]), ("strangers", vec![another])] {
            with_worker(name, users, |worker, listener, hall, at| {
                let _callers: Vec<_> = (0..GREETINGS * 2).map(|_| UnixStream::connect_addr(at).unwrap()).collect();
                worker.accept(&mut Some(hall));
                let left = std::iter::from_fn(|| listener.accept().ok()).count();
                assert_eq!(left, GREETINGS, "{name}");
            });
        }
    }

    /// Those that connect and say nothing: so many may, and the next ones are told.
    #[test]
    fn so_many_callers_may_take_their_time_at_once() {
        with_worker("slow", vec![], |worker, _, hall, at| {
            let mut callers: Vec<_> = (0..GREETINGS + 3).map(|_| UnixStream::connect_addr(at).unwrap()).collect();
            let mut hall = Some(hall);
            worker.accept(&mut hall);
            worker.accept(&mut hall);
            assert_eq!(hall.unwrap().greetings.len(), GREETINGS);
            for caller in callers.drain(GREETINGS..) {
                let mut told = [0; RECORD_BYTES];
                std::io::Read::read_exact(&mut &caller, &mut told).unwrap();
                assert_eq!(Welcome::parse(&told), Some(Welcome::Full));
            }
        });
    }

    /// Tools that ask and do not read.
    #[test]
    fn so_many_tools_are_told_at_once() {
        with_worker("told", vec![], |worker, listener, hall, at| {
            let _tools: Vec<_> = (0..GREETINGS + 3).map(|_| UnixStream::connect_addr(at).unwrap()).collect();
            let mut hall = hall;
            for _ in 0..GREETINGS + 3 {
                worker.tell(&mut hall, listener.accept().unwrap(), vec![7; 100]);
            }
            assert_eq!(hall.tellings.len(), GREETINGS);
        });
    }

    /// Whether the set tells of something at once.
    fn tells(worker: &Worker<'_, Nothing>) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        unsafe { libc::epoll_wait(worker.epoll.as_raw_fd(), &mut event, 1, 0) > 0 }
    }

    /// In a child, whose limit is its own.
    #[test]
    fn a_listener_without_descriptors_is_left_alone_for_a_while() {
        let act = || {
            with_worker("none-left", vec![], |worker, _, hall, at| {
                let _caller = UnixStream::connect_addr(at).unwrap();
                // SAFETY: a limit.
                let limit = |most| unsafe {
                    let limit = libc::rlimit { rlim_cur: most, rlim_max: 1024 };
                    assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
                };
                let mut hall = Some(hall);
                limit(1);
                worker.accept(&mut hall);
                let until = hall.as_ref().unwrap().rests_until.expect("it rests");
                assert!(!tells(worker), "it would be looked at all the time");
                limit(1024);
                worker.tidy(hall.as_mut().unwrap(), until);
                assert!(tells(worker));
                worker.accept(&mut hall);
                assert_eq!(hall.unwrap().greetings.len(), 1);
            });
        };
        // SAFETY: the child runs `act` and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let result = std::panic::catch_unwind(act);
            // SAFETY: it ends at once.
            unsafe { libc::_exit(result.is_err().into()) };
        }
        let mut status = -1;
        // SAFETY: room for a status.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
    }
}
