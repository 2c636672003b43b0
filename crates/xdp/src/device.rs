//! An endpoint on an interface with an agent.
//!
//! Both kinds keep everything in the endpoint's memory, so any process of the owner that has the descriptors can drive it:
//!
//! | | own queue | multiplexed |
//! |---|---|---|
//! | send | frame written into a chunk, transmit ring, `sendto` at `flush` | send queue; doorbell if the agent sleeps |
//! | receive | receive ring; then the receive queue, for frames that came on another queue | receive queue |
//! | free queue | the fill ring | the free queue |
//! | who checks arrivals | this code | the agent |

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use shunt_endpoint::direct::{Emulated, Exports};
use shunt_endpoint::shared::Memory;
use shunt_endpoint::{
    Address, Area, Arrival, Backlog, Buffers, Capabilities, Channel, Counters, Endpoint, Gather, Message, OpenError, PostError,
    Segment, SendError, Tag, Tags, Ticket,
};
use shunt_sys::{calls, libc, Errno};
use shunt_wire::endpoint::{Kind as FrameKind, HEADER};

use crate::multiplexed::Multiplexed;
use crate::own::Own;
use crate::protocol::{Connection, Kind, Operation, Request, Sizes};
use crate::runs::Cutter;
use crate::socket::{Socket, Umem};
use crate::state::{State, DEVICE, STATE};

/// A descriptor that is closed with its owner.
struct Descriptor(i32);

impl Drop for Descriptor {
    fn drop(&mut self) {
        let _ = calls::close(self.0);
    }
}

/// How frames come and go.
enum Way {
    Own(Own),
    Multiplexed(Multiplexed),
}

/// An endpoint.
pub struct Xdp {
    // The way goes first when this is dropped: it lies in the memory.
    way: Way,
    memory: Memory,
    connection: Connection,
    /// Rung by the agent, when it put something into the receive queue of an endpoint that sleeps.
    bell: Descriptor,
    /// What one sleeps on: an epoll of the bell, the connection, and the socket of a queue of its own.
    sleep: Descriptor,
    capabilities: Capabilities,
    /// This value has armed the endpoint, and not disarmed it since.
    armed: bool,
    /// The agent is gone: nothing will ever arrive again.
    over: bool,
    /// Looks that found nothing, since the connection was last looked at.
    idle: u32,
    /// Messages taken since the endpoint was last armed.
    awake: u32,
}

/// The descriptors of an endpoint: what another process of the owner needs to drive it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// The connection to the agent.
    pub connection: i32,
    /// The memory.
    pub memory: i32,
    /// The bell.
    pub bell: i32,
    /// The queue's socket, or the agent's doorbell.
    pub way: i32,
    /// The agent's page, of a multiplexed endpoint; of a queue of its own the socket by which runs leave, or another
    /// one that is of no use.
    pub page: i32,
}

/// After so many looks that found nothing one asks whether the agent still lives.
const IDLE: u32 = 1 << 14;

/// After so many messages without a sleep the queue's socket leaves the epoll. While it is there the kernel walks to the epoll
/// for each frame that comes and for each that has left, also if no thread sleeps: a fifth of what a stream costs its sender on a
/// veth.
const AWAKE: u32 = 256;

impl Xdp {
    /// Asks the agent of `interface` for an endpoint of some kind, with an address of IPv6 if `version_6`.
    ///
    /// Enters the kernel, and waits for the agent (two seconds at most).
    ///
    /// # Errors
    /// ECONNREFUSED: no agent serves this interface. EPERM: what answers is not root's. EACCES: this user may not have
    /// that. EDQUOT: this user has as many endpoints as the agent allows. EBUSY: all queues are taken. EADDRNOTAVAIL: the
    /// interface has no address of that family. EINVAL: sizes.
    pub fn attach(interface: &str, kind: Kind, version_6: bool, sizes: Sizes) -> Result<Xdp, Errno> {
        let connection = Connection::connect(interface)?;
        let mut request = Request::new(Operation::Attach);
        (request.kind, request.version_6, request.sizes) = (kind as u32, version_6.into(), sizes);
        let (_, [memory, bell, way, page]) = connection.ask::<4>(&request)?;
        let descriptors = Descriptors { connection: connection.fd(), memory, bell, way, page };
        core::mem::forget(connection);
        Xdp::adopt(descriptors)
    }

    /// Drives an endpoint whose descriptors came from another process of its owner. They belong to this value from now on,
    /// also on failure.
    ///
    /// # Errors
    /// EINVAL for memory that is none of this device; what the system answers.
    pub fn adopt(descriptors: Descriptors) -> Result<Xdp, Errno> {
        let connection = Connection::of(descriptors.connection);
        let (bell, way, mut page) = (Descriptor(descriptors.bell), Descriptor(descriptors.way), Descriptor(descriptors.page));
        let memory = Memory::attach(descriptors.memory, DEVICE).map_err(|_| Errno(libc::EINVAL))?;
        let shape = *memory.shape();
        if (shape.device as usize) < STATE {
            return Err(Errno(libc::EINVAL));
        }
        let state = State::of(&memory);
        let rings = state.rings();
        let largest = state.largest.load(Relaxed);
        let room = rings.chunk as usize;
        if !rings.is_sound()
            || largest as usize + crate::packet::LONGEST + state.lead.load(Relaxed) as usize > room
            || (largest as usize) < HEADER
            || (shape.device as usize) < STATE + rings.transmit as usize * room
            || state.owner.load(Relaxed) > shape.segment
        {
            return Err(Errno(libc::EINVAL));
        }
        let kind = Kind::of(state.kind.load(Relaxed));
        // From now on others may wait for the one that asks, and for a station two seconds of silence are the end of its peers.
        connection.set_patience(1_000)?;
        let sleep = Descriptor(calls::epoll_create1(libc::EPOLL_CLOEXEC)?);
        watch(sleep.0, libc::EPOLL_CTL_ADD, bell.0, libc::EPOLLIN)?;
        watch(sleep.0, libc::EPOLL_CTL_ADD, connection.fd(), 0)?;
        let (buffers, sentence, way) = match kind {
            Some(Kind::Own) => {
                let size = shape.device as usize + shape.segment as usize;
                // SAFETY: device part and segment follow each other, page-aligned, in a sealed file; the memory is dropped
                // after the way.
                let umem = unsafe { Umem::new(memory.device_part(), size) };
                let fd = way.0;
                core::mem::forget(way);
                let mut socket = Socket::adopt(fd, umem, rings, state.lead.load(Relaxed))?;
                socket.set_notes(State::notes(&memory));
                let own = Own::new(socket, Cutter::adopt(&mut page.0), shape.device);
                let sentence = match state.mode.load(Relaxed) {
                    0 => {
                        "a queue of its own, zero-copy: the interface reads and writes the segment; one system call sends a batch"
                    }
                    _ => "a queue of its own, copy mode: the kernel copies frames; one system call sends a batch",
                };
                (Buffers::Posted { smallest: rings.chunk, alignment: rings.chunk }, sentence, Way::Own(own))
            }
            Some(Kind::Multiplexed) => {
                let fd = way.0;
                core::mem::forget(way);
                let multiplexed = Multiplexed::new(fd, page.0, rings.chunk)?;
                let sentence = "emulated: the agent moves frames between this memory and a queue that many endpoints share";
                (Buffers::Posted { smallest: 64, alignment: 1 }, sentence, Way::Multiplexed(multiplexed))
            }
            _ => return Err(Errno(libc::EINVAL)),
        };
        let capabilities = Capabilities {
            device: "xdp",
            sentence,
            largest: largest - HEADER as u32,
            gather: shunt_endpoint::SCATTER as u32,
            lossy: true,
            ordered: true,
            buffers,
            direct: false,
            needs_flush: true,
        };
        Ok(Xdp { way, memory, connection, bell, sleep, capabilities, armed: false, over: false, idle: 0, awake: 0 })
    }

    /// Which kind the agent gave.
    pub fn kind(&self) -> Kind {
        match self.way {
            Way::Own(_) => Kind::Own,
            Way::Multiplexed(_) => Kind::Multiplexed,
        }
    }

    /// The descriptors, for [`Xdp::adopt`] in another process; they stay this value's.
    pub fn descriptors(&self) -> Descriptors {
        let (way, page) = match &self.way {
            Way::Own(own) => (own.socket.fd(), own.cutter.as_ref().map_or(-1, Cutter::fd)),
            Way::Multiplexed(multiplexed) => (multiplexed.doorbell(), multiplexed.page()),
        };
        Descriptors { connection: self.connection.fd(), memory: self.memory.fd(), bell: self.bell.0, way, page }
    }

    /// The numbers of all descriptors that it has.
    pub fn numbers(&self) -> impl Iterator<Item = i32> + use<> {
        let Descriptors { connection, memory, bell, way, page } = self.descriptors();
        [connection, memory, bell, way, page, self.sleep.0].into_iter().filter(|fd| *fd >= 0)
    }

    /// A descriptor of this endpoint's got another number; it still has the old one, too.
    pub fn renumber(&mut self, from: i32, to: i32) {
        // An epoll knows files by their numbers.
        let way = self.descriptors().way;
        for (fd, events) in [(self.bell.0, libc::EPOLLIN), (self.connection.fd(), 0), (way, libc::EPOLLIN)] {
            if fd == from && watch(self.sleep.0, libc::EPOLL_CTL_DEL, from, 0).is_ok() {
                let _ = watch(self.sleep.0, libc::EPOLL_CTL_ADD, to, events);
            }
        }
        self.memory.renumber(from, to);
        self.connection.renumber(from, to);
        match &mut self.way {
            Way::Own(own) => {
                own.socket.renumber(from, to);
                own.cutter.iter_mut().for_each(|cutter| cutter.renumber(from, to));
            }
            Way::Multiplexed(multiplexed) => multiplexed.renumber(from, to),
        }
        for fd in [&mut self.bell.0, &mut self.sleep.0] {
            if *fd == from {
                *fd = to;
            }
        }
    }

    /// Gives up what the agent gives to root alone, the socket by which runs leave: frames leave one by one from now on. Others may
    /// drive meanwhile, and know its number: another open file takes it, to which nothing can be sent.
    pub fn give_up_runs(&self) {
        if let Way::Own(Own { cutter: Some(cutter), .. }) = &self.way {
            if calls::dup3(self.bell.0, cutter.fd(), libc::O_CLOEXEC) == Err(Errno(libc::EBADF)) {
                // The number lies beyond the process's limit by now: no other thread can take it.
                let _ = calls::close(cutter.fd());
            }
        }
    }

    /// The connection to the agent.
    pub fn agent(&self) -> &Connection {
        &self.connection
    }

    /// The private half of a queue of its own, and the memory.
    pub(crate) fn own_and_memory(&mut self) -> Option<(&mut Own, &Memory)> {
        match &mut self.way {
            Way::Own(own) => Some((own, &self.memory)),
            Way::Multiplexed(_) => None,
        }
    }

    /// The memory, with the lock of those who drive.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// After another one that drove it died in the middle: what it had begun is dropped, as on a network.
    pub fn recover(&mut self) {
        if let Way::Own(own) = &mut self.way {
            own.recover(&self.memory);
        }
    }

    /// The rest of a run lies in no ring, and so wakes no thread: one that sleeps beside this one hears the bell.
    #[cold]
    fn tell_of_rest(&mut self) {
        let Way::Own(own) = &mut self.way else { return };
        let armed = &self.memory.header().armed.0;
        if own.socket.arrived() == 0 && armed.load(SeqCst) != 0 && armed.swap(0, SeqCst) != 0 {
            let one = 1u64;
            let _ = calls::write(self.bell.0, (&raw const one).cast(), 8);
        }
    }

    /// Whether the agent is gone.
    pub fn agent_is_gone(&self) -> bool {
        self.connection.is_over()
    }

    /// Takes what the agent has put on the receive queue.
    #[inline]
    fn take(&mut self, arrival: &mut Arrival) -> bool {
        while let Some(mut next) = self.memory.receive_queue().take() {
            let Some(notify) = next.update() else {
                *arrival = next;
                return true;
            };
            let notification = next.applied(&self.memory, notify);
            self.release(&mut next);
            if let Some(notification) = notification {
                *arrival = notification;
                return true;
            }
        }
        false
    }

    /// For so long no thread has slept that frames need not be told to the epoll. One that is armed, here or in a process that
    /// shares it, keeps the socket there.
    #[cold]
    fn stay_awake(&mut self) {
        if let Way::Own(own) = &self.way {
            if self.memory.header().armed.0.load(SeqCst) == 0 {
                let _ = watch(self.sleep.0, libc::EPOLL_CTL_DEL, own.socket.fd(), 0);
            } else {
                self.awake = 0;
            }
        }
    }

    /// Whether the agent is gone, asked now, and remembered.
    fn look_after_agent(&mut self) -> bool {
        self.idle = 0;
        if !self.over && self.connection.is_over() {
            self.over = true;
            // Said once: a thread that sleeps on the endpoint would be woken for ever.
            let _ = watch(self.sleep.0, libc::EPOLL_CTL_DEL, self.connection.fd(), 0);
        }
        self.over
    }
}

fn watch(epoll: i32, operation: i32, fd: i32, events: i32) -> Result<(), Errno> {
    let mut event = libc::epoll_event { events: events as u32, u64: 0 };
    calls::epoll_ctl(epoll, operation, fd, &mut event)
}

impl Endpoint for Xdp {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn segment(&self) -> Segment {
        self.memory.segment()
    }

    fn address(&self) -> Address {
        State::of(&self.memory).address()
    }

    fn new_tag(&mut self) -> Result<Tag, Errno> {
        let (reply, []) = self.connection.ask(&Request::new(Operation::NewTag))?;
        Ok(Tag(reply.tag))
    }

    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        let channel = self.memory.registry().insert(remote, tags)?;
        let request = Request::new(Operation::Open).channel(channel.0, remote, tags);
        match self.connection.ask::<0>(&request) {
            Ok(_) => Ok(channel),
            Err(errno) => {
                self.memory.registry().remove(channel);
                Err(match errno.0 {
                    libc::EKEYREJECTED => OpenError::Tag,
                    libc::ENOBUFS => OpenError::Full,
                    libc::EADDRNOTAVAIL => OpenError::Address,
                    errno => OpenError::System(Errno(errno)),
                })
            }
        }
    }

    fn close(&mut self, channel: Channel) {
        // The agent sends what is on a queue of its own when it is asked below.
        if let Way::Own(own) = &mut self.way {
            let _ = own.flush(&self.memory);
        }
        if let Some(entry) = self.memory.registry().remove(channel) {
            let request = Request::new(Operation::Close).channel(channel.0, &entry.address(), entry.tags());
            Exports::of(&self.memory).forget(channel);
            // If the agent is gone, so is the channel.
            let _ = self.connection.ask::<0>(&request);
        }
    }

    #[inline]
    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        self.put_frame(message, FrameKind::Message)
    }

    #[inline]
    fn flush(&mut self) -> Result<bool, SendError> {
        if self.over {
            return Err(SendError::Device(Errno(libc::ECONNRESET)));
        }
        match &mut self.way {
            Way::Own(own) => own.flush(&self.memory),
            Way::Multiplexed(multiplexed) => Ok(multiplexed.flush(&self.memory)),
        }
    }

    fn injected(&mut self) -> Ticket {
        let ticket = State::of(&self.memory).ticket.load(Relaxed);
        match &self.way {
            // Frames are copied when they are sent.
            Way::Own(_) => Ticket(ticket),
            Way::Multiplexed(_) => Ticket(ticket.wrapping_sub(self.memory.send_queue().len())),
        }
    }

    fn post(&mut self, buffer: Area) -> Result<(), PostError> {
        if buffer.end() > State::of(&self.memory).owner.load(Relaxed).into() {
            return Err(PostError::Area);
        }
        match &mut self.way {
            Way::Own(own) => own.post(&self.memory, buffer),
            Way::Multiplexed(_) if buffer.length < 64 || !self.memory.segment().contains(buffer) => Err(PostError::Area),
            Way::Multiplexed(_) => self.memory.free_queue().put(&buffer).map_err(|_| PostError::Full),
        }
    }

    #[inline]
    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        let got = match &mut self.way {
            Way::Own(own) => own.receive(&self.memory, arrival),
            Way::Multiplexed(_) => false,
        };
        let got = got || self.take(arrival);
        let counters = self.memory.counters();
        if got {
            Counters::add(&counters.received, 1);
            Counters::add(&counters.received_bytes, arrival.len() as u64);
            self.awake = self.awake.wrapping_add(1);
            if self.awake == AWAKE {
                self.stay_awake();
            }
            if State::of(&self.memory).receiving.is_there() {
                self.tell_of_rest();
            }
        } else {
            self.idle += 1;
            if self.idle >= IDLE {
                self.look_after_agent();
            }
        }
        got
    }

    fn release(&mut self, arrival: &mut Arrival) {
        let owner = State::of(&self.memory).owner.load(Relaxed);
        for buffer in arrival.buffers() {
            match &mut self.way {
                Way::Own(own) if buffer.offset < owner => own.give_back(*buffer),
                // There is room: it came from there.
                _ => drop(self.memory.free_queue().put(buffer)),
            }
        }
        *arrival = Arrival::empty();
    }

    fn backlog(&mut self) -> Backlog {
        let queue = self.memory.receive_queue();
        match &mut self.way {
            Way::Own(own) => {
                let rest = State::of(&self.memory).receiving.frames();
                let (frames, chunks) = own.socket.backlog();
                let waiting = frames + rest + queue.len();
                // Each takes a chunk, however short it is.
                Backlog { waiting, capacity: own.socket.shape().receive.min(waiting + chunks).max(1) }
            }
            Way::Multiplexed(_) => Backlog { waiting: queue.len(), capacity: queue.capacity() },
        }
    }

    fn descriptor(&self) -> i32 {
        self.sleep.0
    }

    fn arm(&mut self) -> bool {
        self.armed = true;
        self.awake = 0;
        let memory = &self.memory;
        memory.header().armed.0.store(1, SeqCst);
        let nothing = match &mut self.way {
            // The socket's own readiness needs no flag: it is readable while frames wait.
            Way::Own(own) => {
                // It is there already if no thread took it out, and a process that shares the epoll by a fork may have: so it is
                // not asked whether this one did.
                let _ = watch(self.sleep.0, libc::EPOLL_CTL_ADD, own.socket.fd(), libc::EPOLLIN);
                own.socket.prod();
                own.is_empty(memory) && memory.receive_queue().is_empty()
            }
            // Either this look sees the message, or the agent, which looks at the flag after it has put one.
            Way::Multiplexed(_) => memory.receive_queue().is_empty(),
        };
        if !nothing {
            self.disarm();
        }
        nothing
    }

    fn disarm(&mut self) {
        let rung = self.memory.header().armed.0.swap(0, SeqCst) == 0;
        let rung = core::mem::take(&mut self.armed) && rung;
        if rung {
            // The agent has taken the flag, and rings. That bell may come late, or wake another process's sleeper: no thread
            // waits for it, and at worst it wakes the next sleep.
            Counters::add(&self.memory.counters().woken, 1);
        }
        let nothing = match &mut self.way {
            // A thread that was woken for nothing looks why.
            Way::Own(own) => own.is_empty(&self.memory) && self.memory.receive_queue().is_empty(),
            Way::Multiplexed(_) => true,
        };
        if rung || nothing {
            let mut count = 0u64;
            let _ = calls::read(self.bell.0, (&raw mut count).cast(), 8);
        }
        if nothing {
            self.look_after_agent();
        }
    }

    fn counters(&self) -> &Counters {
        self.memory.counters()
    }
}

impl Emulated for Xdp {
    fn exporting(&self) -> &Memory {
        &self.memory
    }

    #[inline]
    fn put_frame(&mut self, message: &Message<'_>, kind: FrameKind) -> Result<Ticket, SendError> {
        let memory = &self.memory;
        let registry = memory.registry();
        let entry = registry.get(message.channel).ok_or(SendError::Channel)?;
        let gather = Gather::of(message, memory.segment(), &self.capabilities)?;
        let sent = match &mut self.way {
            Way::Own(own) => own.send(memory, (message.channel, entry), &gather, kind),
            Way::Multiplexed(multiplexed) => multiplexed.send(memory, message.channel, &gather, kind),
        };
        let counters = memory.counters();
        match sent {
            Ok(()) => {
                Counters::add(&counters.sent, 1);
                Counters::add(&counters.sent_bytes, gather.len() as u64);
            }
            Err(SendError::NoResource) => {
                Counters::add(&counters.refused, 1);
                if self.look_after_agent() {
                    return Err(SendError::Device(Errno(libc::ECONNRESET)));
                }
            }
            Err(_) => {}
        }
        let ticket = &State::of(&self.memory).ticket;
        let number = ticket.load(Relaxed);
        sent?;
        ticket.store(number.wrapping_add(1), Relaxed);
        Ok(Ticket(number))
    }
}
