//! What this process has for peers that have only a kernel: a queue of an interface, by which their frames come and go, the way to its
//! agent, links of its own, and a line for each stream. Made by the first connection that may be taken.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use shunt_link as link;
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_segment::CHANNELS;
use shunt_stream::progress;
use shunt_stream::socket::{numbers_of, Socket};
use shunt_sys::{calls, clock, libc, mapping, Errno};
use shunt_table::global::{self, Guard, LockedCell, Mutex, SETUP};
use shunt_table::{private, route, table};
use shunt_xdp::answers::Answers;
use shunt_xdp::learned::{self, Server, SERVERS};
use shunt_xdp::protocol::{Connection, Kind, Sizes};
use shunt_xdp::taken::Taken;
use shunt_xdp::tcp::LONGEST_FRAME;
use shunt_xdp::Xdp;

use crate::line::Line;

/// Links of this room.
pub const LINKS: usize = 8;
/// Streams: their channels.
pub const STREAMS: usize = LINKS * CHANNELS;
/// Words of marks.
pub const ROWS: usize = STREAMS / 64;
/// Chains of lines by their connections' ports.
pub const CHAINS: usize = 256;
/// Bytes that are moved at once.
pub const PIECE: usize = 64 << 10;

/// A process's share. It is never unmapped.
pub struct Local {
    lock: Mutex,
    parts: LockedCell<Parts>,
    /// The interface, by which the peers are reached whose connections can be taken.
    pub interface: u32,
    /// What a sleeper polls: an epoll of the queue's socket and the rest. A set has both itself.
    pub sleep: AtomicI32,
    /// The queue's socket.
    pub queue: AtomicI32,
    /// An epoll of the agent's connection, and sockets of the kernel that streams show.
    pub rest: AtomicI32,
    /// The agent is gone.
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
    /// Where the links lie.
    pub links: [AtomicPtr<u8>; LINKS],
    indices: [AtomicU32; LINKS],
    /// The near sides.
    pub near: [AtomicPtr<Socket>; STREAMS],
}

/// What only the holder of the lock touches.
pub struct Parts {
    /// The queue.
    pub device: Xdp,
    /// By which connections are handed over.
    pub hands: Connection,
    /// The streams.
    pub lines: [Line; STREAMS],
    /// The first line of each chain, plus one.
    pub chains: [u16; CHAINS],
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
    /// Where it could not be made it is not tried before then (ns); for how long that was said, and why.
    not_before: AtomicU64,
    pause: AtomicU64,
    reason: AtomicU32,
}

static MADE: Made = Made {
    local: AtomicPtr::new(core::ptr::null_mut()),
    making: AtomicBool::new(false),
    not_before: AtomicU64::new(0),
    pause: AtomicU64::new(0),
    reason: AtomicU32::new(0),
};

/// The shortest and the longest pause (ns).
const PAUSES: [u64; 2] = [1_000_000_000, 30_000_000_000];

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

/// What this process has for the interface by which `peer` is reached, in a connection with `server`; made if there is none.
///
/// # Errors
/// Why the connection is not to be taken.
pub fn towards(peer: &Address, server: &Address) -> Result<&'static Local, Reason> {
    let (now, (place, name)) = (clock::monotonic_ns(), learned::place(&server.ip, server.port));
    // First, as this is asked of each of many short ones.
    if let Some(local) = local() {
        match local.servers[place].pays(name, now, !global::options().inet_unasked) {
            _ if now < local.crowded.load(Ordering::Relaxed) => return Err(Reason::InetCrowd),
            true => {}
            false => return Err(Reason::InetShort),
        }
    }
    let way = {
        let _setup = SETUP.lock().ok_or(Reason::InetNoAgent)?;
        route::way(peer).ok().flatten()
    };
    let way = way.filter(|way| !way.local && way.interface != 0).ok_or(Reason::InetRoute)?;
    if let Some(local) = local() {
        return match local.interface == way.interface {
            _ if local.over.load(Ordering::Relaxed) => Err(Reason::InetNoAgent),
            true => Ok(local),
            false => Err(Reason::InetRoute),
        };
    }
    if now < MADE.not_before.load(Ordering::Relaxed) {
        return Err(Reason::from_code(MADE.reason.load(Ordering::Relaxed) as u8).unwrap_or(Reason::InetNoAgent));
    }
    if MADE.making.swap(true, Ordering::Acquire) {
        return Err(Reason::InetNoAgent);
    }
    let made = make(way.interface, peer.as_v4().is_none());
    match &made {
        Ok(_) => MADE.pause.store(0, Ordering::Relaxed),
        Err(reason) => {
            let pause = (2 * MADE.pause.load(Ordering::Relaxed)).clamp(PAUSES[0], PAUSES[1]);
            MADE.pause.store(pause, Ordering::Relaxed);
            MADE.reason.store(*reason as u32, Ordering::Relaxed);
            MADE.not_before.store(now + pause, Ordering::Relaxed);
        }
    }
    MADE.making.store(false, Ordering::Release);
    made
}

fn make(interface: u32, version_6: bool) -> Result<&'static Local, Reason> {
    let name = shunt_xdp::route::describe(interface).ok_or(Reason::InetNoAgent)?.0;
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let name = core::str::from_utf8(&name[..length]).map_err(|_| Reason::InetNoAgent)?;
    let mut device = Xdp::attach(name, Kind::Own, version_6, Sizes::default()).map_err(|errno| match errno.0 {
        libc::EBUSY | libc::EACCES | libc::EDQUOT => Reason::InetQueue,
        _ => Reason::InetNoAgent,
    })?;
    let mut hands = device.agent().hands().map_err(|_| Reason::InetNoAgent)?;
    device.post_all();
    out_of_the_way(&mut device).map_err(|_| Reason::NoDescriptors)?;
    let number = private::duplicate(hands.fd()).map_err(|_| Reason::NoDescriptors)?;
    table::set_private(number);
    let _ = calls::close(hands.fd());
    hands.renumber(hands.fd(), number);
    let epoll = || calls::epoll_create1(libc::EPOLL_CLOEXEC).and_then(private::keep).map_err(|_| Reason::NoDescriptors);
    let (sleep, rest) = (epoll()?, epoll()?);
    let shunt_xdp::Descriptors { way, connection, .. } = device.descriptors();
    let watched = [(sleep, way, IN, 0), (sleep, rest, IN, 0), (rest, connection, 0, AGENT)];
    for (epoll, fd, events, what) in watched {
        calls::epoll_add(epoll, fd, events, what).map_err(|_| Reason::NoDescriptors)?;
    }
    lay(interface, device, hands, [sleep, way, rest]).map_err(|_| Reason::NoMemory)
}

/// What an event of the rest is of, where it is no line.
pub const AGENT: u64 = 1 << 32;
const IN: u32 = libc::EPOLLIN as u32;

/// Moves the device's descriptors out of the program's way.
fn out_of_the_way(device: &mut Xdp) -> Result<(), Errno> {
    for fd in device.numbers() {
        let number = private::duplicate(fd)?;
        table::set_private(number);
        device.renumber(fd, number);
        let _ = calls::close(fd);
    }
    Ok(())
}

const fn pages(size: usize) -> usize {
    size.next_multiple_of(4096)
}

fn lay(interface: u32, device: Xdp, hands: Connection, epolls: [i32; 3]) -> Result<&'static Local, Errno> {
    let taken = pages(size_of::<Taken>()) * STREAMS;
    let far = pages(size_of::<Socket>() * STREAMS);
    let memory = mapping::reserve(pages(size_of::<Local>()) + taken + far)?;
    let local = memory.cast::<Local>();
    // SAFETY: fresh memory of zeros, large enough and aligned. Zero is a value of every field but these; `Option<&mut _>` of zero is none.
    unsafe {
        (&raw mut (*local).interface).write(interface);
        (*local).all().into_iter().zip(epolls).for_each(|(place, fd)| place.store(fd, Ordering::Relaxed));
        let parts = (*local).parts.get();
        (&raw mut (*parts).device).write(device);
        (&raw mut (*parts).hands).write(hands);
        (&raw mut (*parts).due).write(u64::MAX);
        (&raw mut (*parts).taken).write(memory.add(pages(size_of::<Local>())).cast());
        (&raw mut (*parts).far).write(memory.add(pages(size_of::<Local>()) + taken).cast());
    }
    MADE.local.store(local, Ordering::Release);
    // SAFETY: made above.
    Ok(unsafe { &*local })
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

    /// The line of a near socket.
    pub fn line_of(&self, socket: &Socket) -> Option<usize> {
        let base = socket.link();
        let link = self.links.iter().position(|known| !base.is_null() && known.load(Ordering::Relaxed) == base)?;
        Some(link * CHANNELS + socket.channel())
    }

    /// Link, its index, and channel of a line whose link is there.
    pub fn place(&self, line: usize) -> (*mut u8, usize, usize) {
        let which = line / CHANNELS % LINKS;
        let index = self.indices[which].load(Ordering::Relaxed) as usize;
        (self.links[which].load(Ordering::Acquire), index, line % CHANNELS)
    }

    /// Tells tools which end of a connection with a plain peer the program is ([`shunt_segment::channel::taken`]).
    pub fn show(&self, line: usize, end: u32) {
        let (base, _, channel) = self.place(line);
        link::page(base, channel).head.taken.store(end, Ordering::Relaxed);
    }

    /// Makes the link of a line, if there is none.
    pub fn make_link(&self, line: usize) -> Result<(), Errno> {
        let _setup = SETUP.lock().ok_or(Errno(libc::EINTR))?;
        let which = line / CHANNELS % LINKS;
        if self.links[which].load(Ordering::Acquire).is_null() {
            let index = link::make_lasting(shunt_segment::link::PLAIN_PEERS)?;
            self.indices[which].store(index as u32, Ordering::Relaxed);
            self.links[which].store(link::at(index).base, Ordering::Release);
        }
        Ok(())
    }

    /// In a process whose streams have all been left to the kernel: it keeps no sight of the parent's. A link with one that could not be left is
    /// kept until its process becomes another user.
    fn part(&self) {
        let Some(_setup) = SETUP.lock() else { return };
        for which in (0..LINKS).filter(|which| !self.links[*which].load(Ordering::Relaxed).is_null()) {
            let (from, index) = (which * CHANNELS, self.indices[which].load(Ordering::Relaxed) as usize);
            let is_used = |line| self.near(line).is_some_and(|near| numbers_of(near).next().is_some());
            match (from..from + CHANNELS).any(is_used) {
                true => link::no_longer_lasting(index),
                false => link::part_with(index),
            }
        }
    }

    /// The near side of a line, if it is this process's and this line's still.
    pub fn near(&self, line: usize) -> Option<&'static Socket> {
        // SAFETY: null, or a socket; these are never unmapped.
        let socket = unsafe { self.near[line].load(Ordering::Acquire).as_ref() }?;
        let (base, _, channel) = self.place(line);
        (socket.link() == base && socket.channel() == channel).then_some(socket)
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
    MADE.not_before.store(0, Ordering::Relaxed);
    let local = MADE.local.swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or a value that is never unmapped, and no other thread has it here.
    let Some(local) = (unsafe { local.as_ref() }) else { return };
    progress::fill(None);
    // SAFETY: as above.
    let parts = unsafe { &mut *local.parts.get() };
    parts.device.part();
    parts.device.numbers().chain([parts.hands.fd()]).for_each(private::close);
    for index in 0..STREAMS {
        parts.unchain(index);
        if parts.lines[index].has_numbers() {
            private::close_at(&parts.lines[index].socket);
            private::close_at(&parts.lines[index].far);
        }
    }
    [&local.sleep, &local.rest].into_iter().for_each(private::close_at);
    local.part();
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    let Some(local) = local() else { return };
    let Some(mut driver) = local.lock() else { return };
    driver.device.renumber(from, to);
    driver.hands.renumber(from, to);
    let [sleep, _, rest] = local.all().map(|fd| {
        private::renumber(fd, from, to);
        fd.load(Ordering::Relaxed)
    });
    // An epoll knows files by their numbers; what is not in it does not leave it.
    [sleep, rest].into_iter().for_each(|epoll| _ = calls::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, from, core::ptr::null_mut()));
    let descriptors = driver.device.descriptors();
    for (epoll, fd, events, what) in
        [(sleep, descriptors.way, IN, 0), (sleep, rest, IN, 0), (rest, descriptors.connection, 0, AGENT)]
    {
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
