//! What this process has for peers that have only a kernel: a queue of an interface, by which their frames come and go, the way to its
//! agent, links of its own, and a line for each stream. Made by the first connection that may be taken.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use shunt_places::Places;
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_stream::progress;
use shunt_stream::socket::Socket;
use shunt_sys::{calls, clock, libc, mapping, Errno};
use shunt_table::global::{self, Guard, LockedCell, Mutex, SETUP};
use shunt_table::{private, route, table};
use shunt_xdp::answers::Answers;
use shunt_xdp::attempts::Attempts;
use shunt_xdp::chains::Chains;
use shunt_xdp::learned::{self, Server, SERVERS};
use shunt_xdp::protocol::Connection;
use shunt_xdp::taken::Taken;
use shunt_xdp::tcp::LONGEST_FRAME;
use shunt_xdp::Xdp;

use crate::line::{state, Line};

/// Streams.
pub use shunt_places::LINES as STREAMS;
/// Words of marks.
pub const ROWS: usize = STREAMS / 64;
/// Bytes that are moved at once.
pub const PIECE: usize = 64 << 10;

/// A process's share. It is never unmapped.
pub struct Local {
    lock: Mutex,
    parts: LockedCell<Parts>,
    /// The interface, by which the peers are reached whose connections can be taken.
    pub interface: AtomicU32,
    /// What a sleeper polls: an epoll of the queue's socket and the rest. A set has both itself.
    pub sleep: AtomicI32,
    /// The queue's socket, -1: there is none; and which of the process's queues that is.
    pub queue: AtomicI32,
    /// See above.
    pub generation: AtomicI32,
    /// An epoll of the agent's connection, and sockets of the kernel that streams show.
    pub rest: AtomicI32,
    /// The agent is gone, and no other was found.
    pub over: AtomicBool,
    /// What is known of servers.
    pub servers: [Server; SERVERS],
    /// Threads that sleep in sets that have the queue, and beside it; those that a handler has left by a jump count on.
    pub asleep: [AtomicU32; 2],
    /// There were too many of them: nothing is taken before then (ns).
    pub crowded: AtomicU64,
    /// Streams that are in use.
    pub used: AtomicU32,
    /// Streams that are the kernel's again, and not yet in their programs' hands.
    pub returned: AtomicU32,
    /// Lines that the next holder of the lock looks after.
    pub marks: [AtomicU64; ROWS],
    /// Lines whose streams are to be left at once, by a thread that has no lock.
    pub leaving: [AtomicU64; ROWS],
    /// Where the streams are.
    pub places: Places,
}

/// What only the holder of the lock touches.
pub struct Parts {
    /// The queue, while there is an agent.
    pub device: Option<Xdp>,
    /// By which connections are handed over.
    pub hands: Connection,
    /// The streams.
    pub lines: [Line; STREAMS],
    /// Lines by their connections' ports.
    pub chains: Chains<STREAMS, 256>,
    /// When lines are to be looked at next (ns).
    pub due: u64,
    /// Answers that wait for others.
    pub answers: Answers<ROWS>,
    /// Before then nobody looks at sockets of the kernel (ns).
    pub next_events: u64,
    /// A frame.
    pub frame: [u8; LONGEST_FRAME],
    /// Bytes on their way.
    pub piece: [u8; PIECE],
    taken: *mut Taken,
    far: *mut Socket,
}

/// What this process has, and how far it is with making it.
struct Made {
    local: AtomicPtr<Local>,
    /// A thread makes it. One that is jumped out of in the middle leaves this behind: then nothing is taken.
    making: AtomicBool,
    attempts: Attempts,
}

static MADE: Made =
    Made { local: AtomicPtr::new(core::ptr::null_mut()), making: AtomicBool::new(false), attempts: Attempts::none() };

/// What this process has, if it has that.
#[inline(always)]
pub fn local() -> Option<&'static Local> {
    // SAFETY: null, or a value that is never unmapped.
    unsafe { MADE.local.load(Ordering::Acquire).as_ref() }
}

/// The same, if it has streams.
#[inline(always)]
pub fn driven() -> Option<&'static Local> {
    local().filter(|local| local.used.load(Ordering::Relaxed) != 0)
}

/// Whether it is known that connections with `server` do not pay.
pub fn does_not_pay(server: &Address) -> bool {
    let (place, name) = learned::place(&server.ip, server.port);
    local().is_some_and(|local| local.servers[place].does_not_pay(name, clock::monotonic_ns()))
}

/// What this process has for the interface by which `peer` is reached, in a connection with `server`; made if there is none.
///
/// # Errors
/// Why the connection is not to be taken.
pub fn towards(peer: &Address, server: &Address) -> Result<&'static Local, Reason> {
    let (now, (place, name)) = (clock::monotonic_ns(), learned::place(&server.ip, server.port));
    if let Some(local) = local() {
        match local.servers[place].pays(name, now, !global::options().inet_unasked) {
            _ if now < local.crowded.load(Ordering::Relaxed) => return Err(Reason::InetCrowd),
            true => {}
            false => return Err(Reason::InetShort),
        }
    }
    let way = SETUP.lock().map(|_setup| route::way(peer)).ok_or(Reason::InetNoAgent)?;
    let way = way.map_err(|_| Reason::NoDiagnosis)?.filter(|way| !way.local && way.interface != 0).ok_or(Reason::InetRoute)?;
    let local = match local().filter(|local| !local.over.load(Ordering::Acquire)) {
        Some(local) => local,
        None => found(way.interface, peer, now)?,
    };
    (local.interface.load(Ordering::Relaxed) == way.interface).then_some(local).ok_or(Reason::InetRoute)
}

/// The first agent, or another. By one thread at a time; the connections of others are the kernel's meanwhile.
fn found(interface: u32, peer: &Address, now: u64) -> Result<&'static Local, Reason> {
    MADE.attempts.may(now).map_err(|reason| Reason::from_code(reason as u8).unwrap_or(Reason::InetNoAgent))?;
    if MADE.making.swap(true, Ordering::Acquire) {
        return Err(Reason::InetNoAgent);
    }
    // What the last one had is given back first, by its guard.
    let is_had = |driver: Driver| driver.lines.iter().any(|line| matches!(line.state, state::TAKEN | state::GIVING));
    if local().is_some_and(|local| local.over.load(Ordering::Acquire) && local.lock().is_none_or(is_had)) {
        MADE.making.store(false, Ordering::Release);
        return Err(Reason::InetNoAgent);
    }
    let found = match local() {
        Some(local) if !local.over.load(Ordering::Acquire) => Ok(local), // another thread was first
        _ => ask(interface, peer.as_v4().is_none()).and_then(|(device, hands)| made()?.begin(interface, device, hands)),
    };
    MADE.attempts.made(found.as_ref().err().map(|reason| *reason as u32), clock::monotonic_ns());
    MADE.making.store(false, Ordering::Release);
    found
}

/// What stays, whatever agents come.
fn made() -> Result<&'static Local, Reason> {
    if let Some(local) = local() {
        return Ok(local);
    }
    let epoll = || calls::epoll_create1(libc::EPOLL_CLOEXEC).and_then(private::keep).map_err(|_| Reason::NoDescriptors);
    let sleep = epoll()?;
    let rest = epoll().inspect_err(|_| private::close(sleep))?;
    let laid = calls::epoll_add(sleep, rest, IN, 0).and_then(|()| lay([sleep, -1, rest]));
    let local = laid.inspect_err(|_| [sleep, rest].into_iter().for_each(private::close)).map_err(|_| Reason::NoMemory)?;
    MADE.local.store(core::ptr::from_ref(local).cast_mut(), Ordering::Release);
    Ok(local)
}

/// A queue of the interface, and the way to its agent, by which connections are handed over.
fn ask(interface: u32, version_6: bool) -> Result<(Xdp, Connection), Reason> {
    Xdp::with_hands(interface, version_6).map_err(|errno| match errno.0 {
        libc::EBUSY | libc::EACCES | libc::EDQUOT => Reason::InetQueue,
        _ => Reason::InetNoAgent,
    })
}

/// What an event of the rest is of, where it is no line.
pub const AGENT: u64 = 1 << 32;
const IN: u32 = libc::EPOLLIN as u32;

/// Moves the descriptors out of the program's way.
fn out_of_the_way(device: &mut Xdp, hands: &mut Connection) -> Result<(), Errno> {
    for fd in device.numbers().chain([hands.fd()]) {
        let number = private::duplicate(fd)?;
        table::set_private(number);
        device.renumber(fd, number);
        hands.renumber(fd, number);
        let _ = calls::close(fd);
    }
    Ok(())
}

const fn pages(size: usize) -> usize {
    size.next_multiple_of(4096)
}

fn lay(epolls: [i32; 3]) -> Result<&'static Local, Errno> {
    let taken = pages(size_of::<Taken>()) * STREAMS;
    let far = pages(size_of::<Socket>() * STREAMS);
    let memory = mapping::reserve(pages(size_of::<Local>()) + taken + far)?;
    let local = memory.cast::<Local>();
    // SAFETY: fresh memory of zeros, large enough and aligned. Zero is a value of every field but these; `Option<&mut _>` of zero is none.
    unsafe {
        (*local).all().into_iter().zip(epolls).for_each(|(place, fd)| place.store(fd, Ordering::Relaxed));
        let parts = (*local).parts.get();
        (&raw mut (*parts).device).write(None);
        (&raw mut (*parts).hands).write(Connection::of(-1));
        (&raw mut (*parts).due).write(u64::MAX);
        (&raw mut (*parts).taken).write(memory.add(pages(size_of::<Local>())).cast());
        (&raw mut (*parts).far).write(memory.add(pages(size_of::<Local>()) + taken).cast());
        (*local).over.store(true, Ordering::Relaxed);
        Ok(&*local)
    }
}

impl Local {
    /// By an agent of its own, or another one; known to others when it is there.
    fn begin(&'static self, interface: u32, mut device: Xdp, mut hands: Connection) -> Result<&'static Local, Reason> {
        let moved = out_of_the_way(&mut device, &mut hands);
        let shunt_xdp::Descriptors { way, connection, .. } = device.descriptors();
        let watched = moved.and_then(|()| {
            calls::epoll_add(self.sleep.load(Ordering::Relaxed), way, IN, 0)?;
            calls::epoll_add(self.rest.load(Ordering::Relaxed), connection, 0, AGENT)
        });
        let Some(mut driver) = self.lock().filter(|_| watched.is_ok()) else {
            close(device, hands);
            return Err(Reason::NoDescriptors);
        };
        (driver.device, driver.hands) = (Some(device), hands);
        self.interface.store(interface, Ordering::Relaxed);
        // In this order: a set has one queue of each generation, and none while there is none.
        self.generation.fetch_add(1, Ordering::Release);
        self.queue.store(way, Ordering::Release);
        self.over.store(false, Ordering::Release);
        drop(driver);
        Ok(self)
    }
}

/// Ends what an agent gave.
fn close(device: Xdp, hands: Connection) {
    device.numbers().chain([hands.fd()]).for_each(|fd| _ = table::take(fd));
}

impl Local {
    /// What sleepers sleep by.
    fn all(&self) -> [&AtomicI32; 3] {
        [&self.sleep, &self.queue, &self.rest]
    }

    /// The lock, awaited. `None`: a handler that interrupted its own thread has it.
    pub fn lock(&'static self) -> Option<Driver> {
        Some(Driver { local: self, holds_back: false, held: self.lock.lock()? })
    }

    /// The lock, if it is free.
    pub fn try_lock(&'static self) -> Option<Driver> {
        Some(Driver { local: self, holds_back: false, held: self.lock.try_lock()? })
    }

    /// A line is to be looked after by the next holder of the lock.
    pub fn mark(&self, line: usize) {
        self.marks[line / 64].fetch_or(1 << (line % 64), Ordering::AcqRel);
    }
}

/// The holder of the lock.
pub struct Driver {
    /// What it holds.
    pub local: &'static Local,
    /// Frames stay on the transmit ring when it goes.
    pub holds_back: bool,
    held: Guard<'static>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.holds_back {
            self.flush();
        }
    }
}

impl Driver {
    /// Nobody's line, with a channel whose link is to be made.
    pub fn free(&mut self) -> Option<usize> {
        let line = self.lines.iter().position(|line| line.state == state::FREE)?;
        self.local.places.take(line).then_some(line)
    }

    /// A line is nobody's; its channel stands with `end`, if that is a descriptor.
    pub fn let_free(&mut self, index: usize, end: i32) {
        self.lines[index].state = state::FREE;
        match end {
            0.. => self.local.places.stand(index, end),
            _ => self.local.places.free(index),
        }
        self.local.used.fetch_sub(1, Ordering::Relaxed);
    }

    /// The agent is gone: its guard gives back all that it had. The queue may be lent to others from now on.
    pub fn part_with_agent(&mut self, now: u64) {
        if self.local.over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.give_all(Reason::GivenBackAgent, now);
        self.local.queue.store(-1, Ordering::Release);
        let hands = core::mem::replace(&mut self.hands, Connection::of(-1));
        if let Some(device) = self.device.take() {
            let shunt_xdp::Descriptors { way, connection, .. } = device.descriptors();
            // Another process may have the files for a moment, a child before it forgets them.
            for (epoll, fd) in [(&self.local.sleep, way), (&self.local.rest, connection)] {
                let _ = calls::epoll_ctl(epoll.load(Ordering::Relaxed), libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
            }
            close(device, hands);
        }
    }

    /// The sleeper's epoll hears of the line's socket.
    pub fn watch_socket(&mut self, index: usize) {
        let events = (libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
        let socket = self.lines[index].socket.load(Ordering::Relaxed);
        let _ = calls::epoll_add(self.local.rest.load(Ordering::Relaxed), socket, events, index as u64);
    }
}

impl Deref for Driver {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        let _ = &self.held;
        // SAFETY: the lock is held, and given to one thread.
        unsafe { &*self.local.parts.get() }
    }
}

impl DerefMut for Driver {
    fn deref_mut(&mut self) -> &mut Parts {
        // SAFETY: as above.
        unsafe { &mut *self.local.parts.get() }
    }
}

impl Parts {
    /// Where the engine of a line lies.
    pub fn taken_at(&self, line: usize) -> *mut Taken {
        // SAFETY: inside the mapping.
        unsafe { self.taken.cast::<u8>().add(line * pages(size_of::<Taken>())).cast() }
    }

    /// The far side of a line.
    pub fn far(&self, line: usize) -> &'static Socket {
        // SAFETY: inside the slab; all-zero is a valid socket.
        unsafe { &*self.far.add(line) }
    }
}

/// Whether the calling thread was interrupted while it drove.
pub fn is_driving() -> bool {
    local().is_some_and(|local| local.lock.is_mine())
}

/// In a process that has no part in it: its streams are the parent's, whose agent and queue it must not keep.
pub fn forget() {
    MADE.making.store(false, Ordering::Relaxed);
    MADE.attempts.made(None, 0);
    let local = MADE.local.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or a value that is never unmapped, and no other thread has it here.
    let Some(local) = (unsafe { local.as_ref() }) else { return };
    progress::fill(None);
    // SAFETY: as above.
    let parts = unsafe { &mut *local.parts.get() };
    if let Some(device) = parts.device.take() {
        close(device, core::mem::replace(&mut parts.hands, Connection::of(-1)));
    }
    for index in 0..STREAMS {
        parts.unchain(index);
        if parts.lines[index].has_numbers() {
            private::close_at(&parts.lines[index].socket);
            private::close_at(&parts.lines[index].far);
        }
    }
    [&local.sleep, &local.rest].into_iter().for_each(private::close_at);
    local.places.part();
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    let Some(local) = local() else { return };
    let Some(mut driver) = local.lock() else { return };
    driver.hands.renumber(from, to);
    local.places.moved(from, to);
    let [sleep, _, rest] = local.all().map(|fd| {
        private::renumber(fd, from, to);
        fd.load(Ordering::Relaxed)
    });
    // An epoll knows files by their numbers; what is not in it does not leave it.
    [sleep, rest].into_iter().for_each(|epoll| _ = calls::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, from, core::ptr::null_mut()));
    let [way, connection] = driver.device.as_mut().map_or([-1; 2], |device| {
        device.renumber(from, to);
        let descriptors = device.descriptors();
        [descriptors.way, descriptors.connection]
    });
    for (epoll, fd, events, what) in [(sleep, way, IN, 0), (sleep, rest, IN, 0), (rest, connection, 0, AGENT)] {
        if fd == to {
            let _ = calls::epoll_add(epoll, to, events, what);
        }
    }
    for index in 0..STREAMS {
        let line = &driver.lines[index];
        if line.has_numbers() {
            private::renumber(&line.far, from, to);
            private::renumber(&line.socket, from, to);
            if line.socket.load(Ordering::Relaxed) == to {
                driver.watch_socket(index);
            }
        }
    }
}
