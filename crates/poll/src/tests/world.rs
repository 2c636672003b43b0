//! The same scenario in two worlds: over streams of ours, by the calls that the preload library makes, and over TCP connections of the
//! kernel's. What a program sees must be the same: Linux is the specification.
//!
//! ```text
//! in_both     makes a scenario in both, and compares what it tells
//! World       what a program can do in one of them; what it opens goes with it
//! ```

use crate::poll::{self, Query};
use crate::select::{self, Sets};
use core::fmt::Debug;
use core::sync::atomic::Ordering;
use shunt_config::Options;
use shunt_epoll::{self as epoll, Set};
use shunt_link as link;
use shunt_segment::address::Address;
use shunt_segment::area::RING_SIZE;
use shunt_segment::channel::life;
use shunt_stream::socket::{self, flag, Socket};
use shunt_stream::waiting::holding::{self, Ends};
use shunt_stream::waiting::{readiness, watchers};
use shunt_sys::libc::{self, epoll_event, pollfd, sigset_t, timespec};
use shunt_sys::{calls, clock, thread, Errno, Result};
use shunt_table::global::{self, SETUP};
use shunt_table::table::{self, Kind};
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::sync::{Mutex, Once};

/// A wait that lasts until something comes.
pub const FOR_EVER: Option<u64> = None;
/// A look.
pub const AT_ONCE: Option<u64> = Some(0);

/// One of them.
pub struct World {
    ours: bool,
    /// Its numbers begin here: those that one closes are free again in the same order in both worlds.
    base: i32,
    open: Mutex<BTreeSet<i32>>,
}

/// Makes the scenario in both worlds, and gives what it told in both of them.
pub fn in_both<T: PartialEq + Debug>(scenario: impl Fn(&World) -> T) -> T {
    let [ours, kernels] = [true, false].map(|ours| scenario(&World::new(ours)));
    assert_eq!(ours, kernels, "ours, and what the kernel says");
    ours
}

/// What the crates above fill in at start-up.
const ENDS: Ends = Ends {
    socket: |socket, fd| shunt_rendezvous::close::end(socket, fd, false),
    set: |head| epoll::end(Set::of_head(head)),
    sleeps: |head, asleep| Set::of_head(head).sleeps(asleep),
};

/// The engine's state is the process's, and is made once.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        super::faults::catch();
        holding::fill(&ENDS);
        watchers::fill(&epoll::SOCKETS);
        clock::start();
        shunt_sys::processor::find_vectors();
        // SAFETY: nothing of the engine is used before; null says that there may be several threads.
        unsafe { global::set(Options::default(), core::ptr::null_mut()) };
        shunt_table::process::user::start();
        global::set_ready();
    });
}

/// A fresh connection's two objects, as [`shunt_rendezvous`] makes them between processes.
fn join(ends: [i32; 2]) {
    let setup = SETUP.lock().expect("no handler interrupts a test");
    let offer = link::offer(1).expect("a channel");
    let page = link::page(offer.link.base, offer.channel);
    page.head.owes.iter().for_each(|owes| owes.store(0, Ordering::Relaxed));
    for (side, carriage) in page.sides.iter().zip(&page.carriages) {
        carriage.clear();
        side.clear();
        side.transmit.class_limit.store(RING_SIZE.len() as u32 - 1, Ordering::Relaxed);
        side.owners.store(1, Ordering::Relaxed);
        side.pid.store(thread::process(), Ordering::Relaxed);
        side.address_family.store(libc::AF_INET as u32, Ordering::Relaxed);
    }
    shunt_ring::claim::renew(&page.head);
    page.head.state.store(life::ACCEPTED, Ordering::Release);
    for (side, fd) in ends.into_iter().enumerate() {
        let socket = socket::allocate_locked(libc::AF_INET).expect("an object");
        socket.attach(offer.link.base, offer.channel, side);
        socket.set_addresses(&Address::v4([127, 0, 0, 1], 40_000), &Address::v4([127, 0, 0, 1], 80));
        socket.connected.link_index.store(offer.index as u32, Ordering::Relaxed);
        socket.set(flag::FENCE); // nobody is registered for barriers
        link::enter(offer.index);
        table::enter(fd, Kind::Stream, socket);
    }
    drop(setup);
}

fn relative(limit: Option<u64>) -> Option<timespec> {
    limit.map(|ns| timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 })
}

/// Bits by number of descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits(pub [u64; 16]);

impl Bits {
    /// A set of these.
    pub fn of(fds: &[i32]) -> Bits {
        let mut bits = Bits([0; 16]);
        fds.iter().for_each(|fd| bits.0[*fd as usize / 64] |= 1 << (fd % 64));
        bits
    }

    /// Whether a descriptor is in it.
    pub fn has(&self, fd: i32) -> bool {
        self.0[fd as usize / 64] >> (fd % 64) & 1 != 0
    }
}

impl World {
    /// Ours, or the kernel's.
    pub fn new(ours: bool) -> World {
        World::with_numbers(ours, 0)
    }

    /// The same, with numbers of its own from `base` on, which no other test may use.
    pub fn with_numbers(ours: bool, base: i32) -> World {
        start();
        World { ours, base, open: Mutex::new(BTreeSet::new()) }
    }

    /// The number by which the scenario knows what was opened just now.
    fn place(&self, fd: i32) -> i32 {
        if self.base == 0 {
            return fd;
        }
        let placed = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, self.base as usize).expect("a number");
        calls::close(fd).expect("an open descriptor");
        placed
    }

    fn own(&self, fd: i32) -> i32 {
        self.open.lock().unwrap().insert(fd);
        fd
    }

    /// Both ends of a connection, blocking.
    pub fn pair(&self) -> (i32, i32) {
        let ends = if self.ours {
            let mut ends = [-1; 2];
            calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()).expect("a pair");
            let ends = ends.map(|end| self.place(end));
            join(ends);
            ends
        } else {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
            let near = TcpStream::connect(listener.local_addr().unwrap()).expect("a connection");
            let far = listener.accept().expect("a connection").0;
            [&near, &far].into_iter().for_each(|end| end.set_nodelay(true).unwrap());
            [near.into_raw_fd(), far.into_raw_fd()].map(|end| self.place(end))
        };
        (self.own(ends[0]), self.own(ends[1]))
    }

    /// A descriptor that is the kernel's in both worlds: an eventfd that counts `count`.
    pub fn event(&self, count: u32) -> i32 {
        self.own(self.place(calls::eventfd(count, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).expect("an eventfd")))
    }

    /// Counts an eventfd up, or takes what it has counted.
    pub fn count(&self, fd: i32, up: bool) -> Result<usize> {
        let mut count = 1u64;
        match up {
            true => calls::write(fd, (&raw const count).cast(), 8),
            false => calls::read(fd, (&raw mut count).cast(), 8),
        }
    }

    /// Both ends of a pipe.
    pub fn pipe(&self) -> (i32, i32) {
        let mut ends = [-1; 2];
        calls::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK).expect("a pipe");
        (self.own(ends[0]), self.own(ends[1]))
    }

    /// A file, which is always ready, and so cannot be in a set.
    pub fn file(&self) -> i32 {
        self.own(
            calls::openat(libc::AT_FDCWD, c"/proc/self/exe".as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC, 0)
                .expect("a file"),
        )
    }

    fn stream(&self, fd: i32) -> Option<&'static Socket> {
        socket::stream(fd)
    }

    /// send(2), without SIGPIPE.
    pub fn send(&self, fd: i32, bytes: &[u8], flags: i32) -> Result<usize> {
        let flags = flags | libc::MSG_NOSIGNAL;
        match self.stream(fd) {
            Some(socket) => {
                // SAFETY: a slice.
                let sent = unsafe { shunt_stream::send(socket, fd, bytes.as_ptr(), bytes.len(), flags) };
                sent.map(|sent| sent as usize)
            }
            None => calls::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, core::ptr::null(), 0),
        }
    }

    /// recv(2): the number of bytes.
    pub fn receive(&self, fd: i32, most: usize, flags: i32) -> Result<usize> {
        let mut bytes = vec![0u8; most];
        match self.stream(fd) {
            // SAFETY: a vector of that length.
            Some(socket) => unsafe { shunt_stream::receive(socket, fd, bytes.as_mut_ptr(), most, flags) }.map(|got| got as usize),
            None => calls::recvfrom(fd, bytes.as_mut_ptr().cast(), most, flags, core::ptr::null_mut(), core::ptr::null_mut()),
        }
    }

    /// Sends until nothing more is taken.
    pub fn fill(&self, fd: i32) {
        let bytes = vec![0; 1 << 20];
        while self.send(fd, &bytes, libc::MSG_DONTWAIT).is_ok() {}
    }

    /// Receives all that is there.
    pub fn drain(&self, fd: i32) {
        while self.receive(fd, 1 << 20, libc::MSG_DONTWAIT).is_ok_and(|got| got > 0) {}
    }

    /// shutdown(2).
    pub fn shut(&self, fd: i32, how: i32) -> Result<()> {
        match self.stream(fd) {
            Some(socket) => shunt_stream::shutdown(socket, fd, how).map(|_| ()),
            None => calls::shutdown(fd, how),
        }
    }

    /// SO_ERROR.
    pub fn take_error(&self, fd: i32) -> i32 {
        match self.stream(fd) {
            Some(socket) => {
                shunt_stream::events::events(socket, 0);
                readiness::take_error(socket).unwrap_or(0)
            }
            None => calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ERROR).expect("a socket"),
        }
    }

    /// SO_RCVLOWAT.
    pub fn set_low_water(&self, fd: i32, bytes: i32) {
        match self.stream(fd) {
            Some(socket) => {
                shunt_stream::options::effects::apply(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes.to_ne_bytes());
            }
            None => calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes).expect("a socket"),
        }
    }

    /// The stream becomes the kernel's connection `to`, under its number; `to` is closed.
    pub fn give_back(&self, fd: i32, to: i32) {
        let stream = self.stream(fd).expect("a stream");
        let next = {
            let _setup = SETUP.lock().expect("no handler interrupts a test");
            socket::allocate_locked(libc::AF_INET).expect("an object")
        };
        calls::dup3(to, fd, libc::O_CLOEXEC).expect("a number");
        table::enter(fd, Kind::Tcp, next);
        (epoll::SOCKETS.follow)(stream, next);
        self.close(to);
    }

    /// What another world has opened goes with this one from now on.
    pub fn adopt(&self, other: &World, fd: i32) -> i32 {
        assert!(other.open.lock().unwrap().remove(&fd), "{fd} is open there");
        self.own(fd)
    }

    /// dup(2).
    pub fn dup(&self, fd: i32) -> i32 {
        let copy = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, self.base.max(3) as usize).expect("a number");
        let word = table::get(fd);
        if let Some(socket) = word.object::<Socket>() {
            socket.references.fetch_add(1, Ordering::AcqRel);
            table::enter(copy, word.kind(), socket);
        } else if let Some(set) = word.object::<Set>() {
            epoll::retain(set);
            table::enter(copy, Kind::Epoll, set);
        }
        self.own(copy)
    }

    /// The same under a number that no other test gets when it is closed, and instead of the one that it had.
    pub fn apart(&self, fd: i32) -> i32 {
        let copy = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 800).expect("a number");
        self.close(fd);
        self.own(copy)
    }

    /// close(2).
    pub fn close(&self, fd: i32) {
        assert!(self.open.lock().unwrap().remove(&fd), "{fd} is open");
        World::let_go(fd);
    }

    fn let_go(fd: i32) {
        let word = table::take(fd);
        if let Some(socket) = word.object::<Socket>() {
            socket.hold.await_ringers();
            if socket.references.fetch_sub(1, Ordering::SeqCst) == 1 && !holding::linger(socket, fd) {
                shunt_rendezvous::close::end(socket, fd, false);
            }
        } else if let Some(set) = word.object::<Set>() {
            epoll::release(set, fd);
        }
        calls::close(fd).expect("an open descriptor");
    }

    /// close(2) with SO_LINGER of no time.
    pub fn reset(&self, fd: i32) {
        match self.stream(fd) {
            Some(socket) => socket.set(flag::LINGER_RESET),
            None => {
                let linger = libc::linger { l_onoff: 1, l_linger: 0 };
                calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), 8).expect("a socket");
            }
        }
        self.close(fd);
    }

    /// ppoll(2).
    pub fn ppoll(&self, entries: &mut [pollfd], limit: Option<u64>, mask: *const sigset_t) -> Result<isize> {
        if self.ours && poll::concerns_us(entries) {
            let frame = (&raw const limit) as usize;
            return Query::new(entries, poll::deadline(limit), mask, frame).poll();
        }
        let mut time = relative(limit);
        let time = time.as_mut().map_or(core::ptr::null_mut(), |time| time as *mut timespec);
        calls::ppoll(entries.as_mut_ptr(), entries.len(), time, mask, calls::KERNEL_SIGSET).map(|ready| ready as isize)
    }

    /// poll(2) of these, for this long: the result, and what is told of each.
    pub fn poll(&self, asked: &[(i32, i16)], limit: Option<u64>) -> (Result<isize>, Vec<i16>) {
        // What stood there before is overwritten.
        let mut entries: Vec<pollfd> = asked.iter().map(|&(fd, events)| pollfd { fd, events, revents: -1 }).collect();
        let result = self.ppoll(&mut entries, limit, core::ptr::null());
        (result, entries.iter().map(|entry| entry.revents).collect())
    }

    /// What a look tells of one.
    pub fn events(&self, fd: i32, asked: i16) -> i16 {
        let (ready, told) = self.poll(&[(fd, asked)], AT_ONCE);
        assert_eq!(ready, Ok((told[0] != 0) as isize));
        told[0]
    }

    /// pselect(2): the result, and the sets.
    pub fn pselect(
        &self,
        count: i32,
        sets: [Option<Bits>; 3],
        limit: Option<u64>,
        mask: *const sigset_t,
    ) -> (Result<isize>, [Option<Bits>; 3]) {
        let mut sets = sets;
        let pointers = sets.each_mut().map(|set| set.as_mut().map_or(core::ptr::null_mut(), |set| set.0.as_mut_ptr()));
        let mut given = Sets::new(pointers);
        // SAFETY: sets of 1,024 bits, or none.
        let result = if self.ours && unsafe { given.read(count) } && given.concern_us() {
            // SAFETY: as above.
            unsafe { select::select(&mut given, poll::deadline(limit), mask) }
        } else {
            let [read, write, except] = pointers;
            let mut time = relative(limit);
            let time = time.as_mut().map_or(core::ptr::null_mut(), |time| time as *mut timespec);
            let mask = [mask as usize, calls::KERNEL_SIGSET];
            // SAFETY: as above.
            shunt_sys::check(unsafe { shunt_sys::syscall!(libc::SYS_pselect6, count, read, write, except, time, mask.as_ptr()) })
                .map(|ready: usize| ready as isize)
        };
        drop(given);
        (result, sets)
    }

    /// select(2).
    pub fn select(&self, count: i32, sets: [Option<Bits>; 3], limit: Option<u64>) -> (Result<isize>, [Option<Bits>; 3]) {
        self.pselect(count, sets, limit, core::ptr::null())
    }

    /// epoll_create1(2).
    pub fn epoll(&self) -> i32 {
        let fd = calls::epoll_create1(libc::EPOLL_CLOEXEC).expect("a set");
        let fd = self.place(fd);
        if self.ours {
            table::take(fd);
            epoll::created(fd);
        }
        self.own(fd)
    }

    /// epoll_ctl(2).
    pub fn control(&self, epfd: i32, operation: i32, fd: i32, event: Option<(i32, u64)>) -> Result<()> {
        let mut event = event.map(|(events, data)| epoll_event { events: events as u32, u64: data });
        let event = event.as_mut().map_or(core::ptr::null_mut(), |event| event as *mut epoll_event);
        if let Some(set) = table::get(epfd).object::<Set>() {
            // SAFETY: an event, or null.
            if let Some(result) = unsafe { epoll::control(set, epfd, operation, fd, event) } {
                return result.map(|_| ());
            }
            return calls::epoll_ctl(epfd, operation, fd, event).inspect(|()| epoll::foreign(set, operation));
        }
        calls::epoll_ctl(epfd, operation, fd, event)
    }

    /// EPOLL_CTL_ADD. The data is the caller's.
    pub fn add(&self, epfd: i32, fd: i32, events: i32, data: u64) -> Result<()> {
        self.control(epfd, libc::EPOLL_CTL_ADD, fd, Some((events, data)))
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(&self, epfd: i32, fd: i32, events: i32, data: u64) -> Result<()> {
        self.control(epfd, libc::EPOLL_CTL_MOD, fd, Some((events, data)))
    }

    /// EPOLL_CTL_DEL.
    pub fn delete(&self, epfd: i32, fd: i32) -> Result<()> {
        self.control(epfd, libc::EPOLL_CTL_DEL, fd, None)
    }

    /// epoll_pwait2(2) with this much room: data and events, in their order.
    pub fn wait(&self, epfd: i32, room: i32, limit: Option<u64>) -> Result<Vec<(u64, i32)>> {
        let mut events = vec![epoll_event { events: 0, u64: 0 }; room.clamp(0, 64) as usize];
        let (start, mut failed) = (events.as_mut_ptr(), Errno(0));
        let got = match table::get(epfd).object::<Set>() {
            Some(set) => {
                let began = thread::handled();
                let in_kernel = epoll::is_all_in_kernel(set);
                // SAFETY: an array with that much room.
                let got = unsafe {
                    if !in_kernel && epoll::wait_swiftly(set, epfd, start, room, limit) {
                        Some(1)
                    } else if in_kernel {
                        let kernel = || match kernels_wait(epfd, start, room, limit) {
                            Ok(got) => got as i32,
                            Err(error) => {
                                failed = error;
                                -1
                            }
                        };
                        match limit {
                            Some(0) => epoll::look_in_kernel(set, epfd, start, kernel),
                            _ => epoll::wait_in_kernel(set, epfd, start, false, kernel),
                        }
                    } else {
                        None
                    }
                };
                match got {
                    Some(-1) => return Err(failed),
                    Some(got) => got as usize,
                    // SAFETY: as above.
                    None => unsafe {
                        epoll::wait(set, epfd, start, room, poll::deadline(limit), core::ptr::null(), began)? as usize
                    },
                }
            }
            None => kernels_wait(epfd, start, room, limit)?,
        };
        Ok(events[..got].iter().map(|event| (event.u64, event.events as i32)).collect())
    }

    /// What a look with room enough finds, by data.
    pub fn look(&self, epfd: i32) -> Vec<(u64, i32)> {
        let mut found = self.wait(epfd, 64, AT_ONCE).expect("a set");
        found.sort();
        found
    }
}

fn kernels_wait(epfd: i32, events: *mut epoll_event, room: i32, limit: Option<u64>) -> Result<usize> {
    let time = relative(limit);
    let time = time.as_ref().map_or(core::ptr::null(), |time| time as *const timespec);
    calls::epoll_pwait2(epfd, events, room, time, core::ptr::null(), calls::KERNEL_SIGSET)
}

impl Drop for World {
    fn drop(&mut self) {
        // Sets first: a set that is gone tells nothing of what goes behind it.
        let open = core::mem::take(&mut *self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        let (sets, others): (Vec<i32>, Vec<i32>) = open.into_iter().partition(|fd| table::get(*fd).kind() == Kind::Epoll);
        sets.into_iter().chain(others).for_each(World::let_go);
    }
}
