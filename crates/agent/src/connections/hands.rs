//! A client's thread: it takes that client's connections and gives them back.
//!
//! What a client hands over is its own descriptors, and a call on one can wait: for a lock that a thread of the client's holds, for a file system that the
//! client serves, for bytes that linger. So the thread waits for nobody else, holds no lock of the agent's meanwhile, and is left to itself when the
//! agent ends: what it has then is the guard's.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_sys::{calls, Errno};
use shunt_xdp::cause::Cause;
use shunt_xdp::escrow::{Escrow, Manner};
use shunt_xdp::packet::ETHERNET;
use shunt_xdp::protocol::{self, Decline, Operation, Reply, Request};
use shunt_xdp::route::{Mac, Route, Unreachable};
use shunt_xdp::tcp::{Envelope, Tuple};

use super::diagnosis::Identity;
use super::eligible;
use super::environment::Environment;
use super::kept::Kept;
use super::live::Live;
use super::netlink::Sockets;
use super::restore::Held;
use super::{lock, repair, tracking, Order, Shared};
use crate::client::{answer, hear, Attached, Who};
use crate::ebpf::kernel::Attachment;
use crate::sorting::Lingering;

/// So long a connection whose peer cannot be reached waits to be given back, before it is closed.
const PATIENCE: Duration = Duration::from_secs(300);
/// So long frames of a connection that was given back may lie in the queue.
const REMEMBERED: Duration = Duration::from_secs(1);
/// As many of those are remembered.
const AT_MOST: usize = 4096;
/// So often everything is looked at again.
const TICK: Duration = Duration::from_secs(1);

/// So often it is looked at whether the client drives what waits for it.
const LOOK: Duration = Duration::from_millis(100);
/// An answer is waited for no longer, whatever a client says of its round trips.
const LONGEST: Duration = Duration::from_secs(3);

/// Tokens of the epoll beside numbers of connections.
const CONNECTION: u64 = 1 << 32;
const BELL: u64 = 1 << 33;

/// One that is taken.
struct Taken {
    held: Held,
    tuple: Tuple,
    identity: Identity,
    route: Route,
    /// As [`eligible::Candidate`] has it.
    scope: u32,
    /// Bytes of its longest frames.
    frame: u32,
    manner: Manner,
    /// Since when it is to be given back, if it is.
    since: Option<Instant>,
}

/// One that was taken, whose frames are the client's to hand on for as long as its socket is the same.
struct Had {
    tuple: Tuple,
    identity: Identity,
    since: Instant,
}

/// The thread's own.
pub struct Work {
    shared: Arc<Shared>,
    connection: OwnedFd,
    bell: OwnedFd,
    orders: Receiver<Order>,
    who: Who,
    queue: u32,
    frame: u32,
    /// The queue takes packets in pieces.
    takes_pieces: bool,
    /// The program is attached while something is taken.
    sorts: Lingering,
    epoll: OwnedFd,
    taken: HashMap<u32, Taken>,
    had: VecDeque<Had>,
    live: Live,
    /// For questions about single connections.
    sockets: Sockets,
    environment: Option<Environment>,
    /// It was asked for since it was looked at last.
    is_used: bool,
    /// At the last look it allowed nothing.
    is_denied: bool,
    /// The socket of the client's queue, to see whether frames wait there.
    frames: OwnedFd,
    /// Something has waited for the client since then, when it had published so often.
    waited: Option<(u64, Instant)>,
}

impl Work {
    /// Of a client with a queue, frames of at most so many bytes, and whether the queue takes packets in pieces.
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: OwnedFd,
        bell: OwnedFd,
        orders: Receiver<Order>,
        who: Who,
        (queue, frame, takes_pieces): (u32, u32, bool),
        frames: OwnedFd,
    ) -> io::Result<Work> {
        // SAFETY: one flag and no address; the descriptor is owned at once.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd)
        };
        let (taken, had, live) = (HashMap::new(), VecDeque::new(), Live::default());
        let work = Work {
            shared,
            connection,
            bell,
            orders,
            who,
            queue,
            frame,
            takes_pieces,
            sorts: Lingering::default(),
            epoll,
            taken,
            had,
            live,
            sockets: Sockets::default(),
            environment: None,
            is_used: false,
            is_denied: false,
            frames,
            waited: None,
        };
        work.watch(work.connection.as_raw_fd(), libc::EPOLLIN, CONNECTION)?;
        work.watch(work.bell.as_raw_fd(), libc::EPOLLIN, BELL)?;
        Ok(work)
    }

    fn watch(&self, fd: RawFd, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: both descriptors are open, the event is read.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Others have the same file, so that its end does not follow from the descriptor's.
    fn unwatch(&self, fd: RawFd) {
        // SAFETY: as above; no event is read.
        unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Works until the client or the agent ends.
    pub(super) fn run(mut self) {
        let mut bytes = vec![0; protocol::LONGEST_REQUEST];
        let mut next = Instant::now() + TICK;
        let mut look = Instant::now() + LOOK;
        let endpoint = 'work: loop {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
            let first = if self.taken.is_empty() { next } else { next.min(look) };
            let wait = first.saturating_duration_since(Instant::now()).as_millis() as i32 + 1;
            // SAFETY: as many events as said.
            let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, wait) };
            for event in &events[..count.max(0) as usize] {
                match event.u64 {
                    CONNECTION => {
                        if !self.hear(&mut bytes) {
                            // Nobody asks any more; the agent may have an order still.
                            self.unwatch(self.connection.as_raw_fd());
                            self.give_back_all(Cause::Agent);
                        }
                    }
                    BELL => {
                        let mut rung = 0u64;
                        let _ = calls::read(self.bell.as_raw_fd(), (&raw mut rung).cast(), 8);
                        while let Ok(order) = self.orders.try_recv() {
                            match order {
                                Order::Look => self.refresh(),
                                Order::End(endpoint) => break 'work endpoint,
                            }
                        }
                    }
                    // Something has come past the filter, or another holder has ended or dissolved it.
                    number => self.give_back(number as u32, Cause::Shared),
                }
            }
            if Instant::now() >= look {
                look = Instant::now() + LOOK;
                self.look_for_silence();
            }
            if Instant::now() >= next {
                next = Instant::now() + TICK;
                self.refresh();
            }
        };
        self.give_back_all(Cause::Agent);
        if let Some(mut endpoint) = endpoint {
            self.hand_on(&mut endpoint);
            // Before the queue is free for another.
            self.shared.maps.remove_socket(endpoint.queue);
        }
    }

    /// Reads a request and answers it; false: there will be none any more.
    fn hear(&mut self, bytes: &mut [u8]) -> bool {
        let (count, given) = match hear(&self.connection, bytes, true) {
            Ok(heard) => heard,
            Err(Errno(libc::EAGAIN)) => return true,
            Err(_) => return false,
        };
        let Some((request, rest)) = Request::of(&bytes[..count]) else { return false };
        let answered = match request.operation {
            operation if operation == Operation::Take as u32 => self.take(given),
            operation if operation == Operation::Give as u32 => self.give(request.channel),
            operation if operation == Operation::Pass as u32 => self.pass(rest),
            _ => Err(libc::EOPNOTSUPP),
        };
        let mut reply = answered.unwrap_or_else(Reply::refused);
        reply.number = request.number;
        answer(&self.connection, reply.bytes(), &[]).is_ok()
    }

    /// Takes the connection of the first descriptor, with the second one as its escrow.
    fn take(&mut self, descriptors: Vec<OwnedFd>) -> Result<Reply, i32> {
        let Ok([socket, escrow]) = <[OwnedFd; 2]>::try_from(descriptors) else { return Err(libc::EBADMSG) };
        let escrow = Escrow::adopt(escrow.into_raw_fd()).map_err(|errno| errno.0)?;
        // A closed one is of a client that waits no longer: the connection is in use.
        if escrow.is_open() || escrow.is_closed() {
            return Err(libc::EINVAL);
        }
        Ok(Reply::taken(self.try_take(socket, escrow)))
    }

    fn try_take(&mut self, socket: OwnedFd, escrow: Escrow) -> Result<u32, Decline> {
        let shared = self.shared.clone();
        // A thread that was held up elsewhere has not looked for longer.
        self.environment.take_if(|environment| environment.since.elapsed() > 2 * TICK);
        let environment = self.environment.get_or_insert_with(|| Environment::look(shared.interface));
        self.is_used = true;
        let candidate = eligible::look(socket.as_fd(), self.who.pid, shared.interface, environment, &mut self.sockets)?;
        if !shared.despite_rules && environment.counts() {
            return Err(Decline::Counted);
        }
        if !self.steers() {
            return Err(Decline::Steering);
        }
        let tuple = candidate.tuple;
        lock(&shared.table).claim(&tuple, self.who.user)?;
        let taken = self.claimed(socket, escrow, candidate);
        if taken.is_err() && !self.taken.values().any(|taken| taken.tuple == tuple) {
            lock(&shared.table).release(&tuple);
        }
        taken
    }

    /// Has the program steer frames, for a while at least. False: it cannot, to this queue.
    fn steers(&mut self) -> bool {
        let attachment = self.sorts.hold(&self.shared.sorting);
        // In front of the stack packets come that are longer than a chunk.
        attachment.is_ok_and(|attachment| attachment != Attachment::Generic || self.takes_pieces)
    }

    fn claimed(&mut self, socket: OwnedFd, escrow: Escrow, candidate: eligible::Candidate) -> Result<u32, Decline> {
        let (shared, tuple) = (self.shared.clone(), candidate.tuple);
        tracking::make_liberal(&mut self.sockets, &tuple, shared.despite_rules)?;
        let kept = Kept::of(socket.as_fd(), candidate.names);
        let manner = Manner {
            from: shared.mac(),
            to: candidate.next_hop,
            service: candidate.service,
            hops: candidate.hops,
            nagle: candidate.nagle,
            recovers: shared.recovers,
            window: kept.clamp(),
        };
        escrow.set_manner(&manner);
        if escrow.is_closed() {
            return Err(Decline::Kernel); // as in `take`, and nothing has been touched
        }
        let number = shared.last.fetch_add(1, Relaxed);
        shared.guard.hold(number, socket.as_raw_fd(), escrow.fd(), &kept).map_err(|_| Decline::Guard)?;
        let held = Held::new(socket, escrow, kept);
        let frame = self.frame.min(shared.frame.load(Relaxed));
        let frame = candidate.route.mtu.map_or(frame, |mtu| frame.min(mtu + ETHERNET as u32));
        let read = shared.maps.set_tuple(&tuple, self.queue).map_err(|_| Decline::Limit).and_then(|()| {
            repair::shut(held.socket.as_fd()).map_err(|_| Decline::Kernel)?;
            repair::read_out(held.socket.as_fd(), &kept, &held.escrow, frame, super::now_ns())?;
            self.watch(held.socket.as_raw_fd(), libc::EPOLLIN | libc::EPOLLRDHUP, number.into()).map_err(|_| Decline::Limit)
        });
        let (identity, route, scope) = (candidate.identity, candidate.route, candidate.scope);
        let taken = Taken { held, tuple, identity, route, scope, frame, manner, since: None };
        self.taken.insert(number, taken);
        if let Err(decline) = read {
            // As it was, or as soon as it can be.
            self.give_back(number, Cause::Agent);
            return Err(decline);
        }
        Ok(number)
    }

    /// Gives a connection back, for the client's word.
    fn give(&mut self, number: u32) -> Result<Reply, i32> {
        if !self.taken.contains_key(&number) {
            return Err(libc::ENOENT);
        }
        self.give_back(number, Cause::Agent);
        Ok(Reply::done())
    }

    /// Its client hears why, where that was not its own word.
    fn give_back(&mut self, number: u32, cause: Cause) {
        let Some(taken) = self.taken.get_mut(&number) else { return };
        let is_first = taken.since.is_none();
        let is_last = *taken.since.get_or_insert_with(Instant::now) + PATIENCE <= Instant::now();
        if is_first {
            taken.held.escrow.say(cause);
            let fd = taken.held.socket.as_raw_fd();
            self.unwatch(fd);
        }
        let Some(taken) = self.taken.get_mut(&number) else { return };
        let restored = taken.held.restore(is_last);
        if restored.is_err_and(|refused| refused.is_passing()) && !is_last {
            // There is no way to the peer now. It is tried again each second; its program waits for that, as on Linux for a way.
            return;
        }
        let Some(taken) = self.taken.remove(&number) else { return };
        let shared = self.shared.clone();
        {
            let mut table = lock(&shared.table);
            table.given[usize::from(restored.is_err())] += 1;
            if let Err(refused) = restored {
                table.refused = Some(format!("{}: {}", refused.step, io::Error::from_raw_os_error(refused.errno)));
            }
        }
        // Behind the state: until now frames went to the queue, so that no socket was asked that had none.
        shared.maps.remove_tuple(&taken.tuple);
        lock(&shared.table).release(&taken.tuple);
        shared.guard.let_go(number, &taken.held.kept);
        if restored.is_ok() {
            self.had.retain(|had| had.tuple != taken.tuple);
            self.had.truncate(AT_MOST - 1);
            self.had.push_front(Had { tuple: taken.tuple, identity: taken.identity, since: Instant::now() });
        }
    }

    fn give_back_all(&mut self, cause: Cause) {
        let all: Vec<u32> = self.taken.keys().copied().collect();
        all.into_iter().for_each(|number| self.give_back(number, cause));
    }

    /// A client that computes, sleeps elsewhere or is stopped answers no peer, where the kernel would. What waited for it at two looks, between which it published
    /// nothing, waits for the kernel from then on. One that sleeps at its queue has nothing that waits.
    fn look_for_silence(&mut self) {
        let has_frames = calls::poll_one(self.frames.as_raw_fd(), libc::POLLIN, 0).unwrap_or(0) & libc::POLLIN != 0;
        let wait = self.taken.values().filter(|taken| taken.since.is_none()).filter_map(|taken| {
            let state = taken.held.escrow.statement().state;
            let (round, variation) = state.round_trip;
            match state.sent != state.unacknowledged {
                _ if has_frames || taken.held.escrow.is_closed() => Some(LOOK),
                // The peer's answer takes a round trip.
                true => Some(Duration::from_nanos(variation.saturating_mul(4).saturating_add(round)).clamp(LOOK, LONGEST)),
                false => None,
            }
        });
        let wait = wait.min();
        let published = self.taken.values().fold(0, |sum: u64, taken| sum.wrapping_add(taken.held.escrow.publications()));
        let since = self.waited.filter(|(before, _)| *before == published).map_or_else(Instant::now, |(_, since)| since);
        // Looks come a little early and late.
        if wait.is_some_and(|wait| since.elapsed() + LOOK / 2 >= wait) {
            self.waited = None;
            self.give_back_all(Cause::Silent);
        } else {
            self.waited = wait.map(|_| (published, since));
        }
    }

    /// Whether a frame of this connection is the client's to hand on: it had it a moment ago, and the socket is the same still.
    fn may_pass(&mut self, tuple: &Tuple) -> Result<(), i32> {
        if self.shared.is_taken(tuple) {
            // It would be steered to a queue again.
            let own = self.taken.values().any(|taken| taken.tuple == *tuple);
            return Err(if own { libc::EBUSY } else { libc::EPERM });
        }
        self.had.retain(|had| had.since.elapsed() < REMEMBERED);
        let had = self.had.iter().find(|had| had.tuple == *tuple).ok_or(libc::EPERM)?;
        had.identity.look(&mut self.sockets, tuple, self.shared.interface).map(|_| ()).map_err(|_| libc::EPERM)
    }

    /// Hands a frame on to the kernel.
    fn pass(&mut self, frame: &[u8]) -> Result<Reply, i32> {
        let envelope = Envelope::parse(frame).ok_or(libc::EINVAL)?;
        self.may_pass(&envelope.tuple)?;
        let passed = self.live.pass(self.shared.interface, &envelope, frame);
        passed.map(|()| Reply::done()).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Hands on what lies in the queue of a client that is gone.
    fn hand_on(&mut self, endpoint: &mut Attached) {
        let Some(socket) = endpoint.socket.as_mut() else { return };
        let mut frame = Vec::new();
        let mut bad = 0;
        // No more than the ring has, whatever another process does to it.
        for _ in 0..socket.shape().receive {
            let Some(descriptor) = socket.take(&mut bad) else { return };
            let bytes = socket.umem().at(descriptor.offset, descriptor.length as usize);
            if let Some(bytes) = bytes {
                let start = frame.len();
                frame.resize(start + descriptor.length as usize, 0);
                // SAFETY: inside the memory, as many bytes as said; another process may write there, and bytes are bytes.
                unsafe { std::ptr::copy_nonoverlapping(bytes, frame[start..].as_mut_ptr(), descriptor.length as usize) };
            }
            if !descriptor.goes_on() {
                if let Some(envelope) = Envelope::parse(&frame) {
                    if self.may_pass(&envelope.tuple).is_ok() {
                        let _ = self.live.pass(self.shared.interface, &envelope, &frame);
                    }
                }
                frame.clear();
            }
        }
    }

    /// Routes, policies and Ethernet addresses may be others by now, peers that could not be reached may be there, and other holders may have written.
    fn refresh(&mut self) {
        // Looked at now, so that no connection waits for it, where some are taken all the time.
        let shared = self.shared.clone();
        let is_used = std::mem::take(&mut self.is_used);
        let looks = is_used || !self.taken.is_empty();
        self.environment = looks.then(|| Environment::look(shared.interface));
        // A question that was not answered looks like a no.
        let denies = self.environment.as_ref().is_some_and(|environment| environment.allows().is_err());
        let is_denied = std::mem::replace(&mut self.is_denied, denies) && denies;
        if let Some(environment) = self.environment.as_mut().filter(|_| is_used && !shared.despite_rules) {
            environment.counts();
        }
        shared.guard.settle();
        self.sorts.look(!self.taken.is_empty());
        let mut due = Vec::new();
        let (from, longest) = (shared.mac(), shared.frame.load(Relaxed));
        for (number, taken) in &mut self.taken {
            let is_shared = calls::bytes_unread(taken.held.socket.as_raw_fd()) != Ok(0);
            let is_left = is_denied || is_shared || taken.since.is_some() || taken.frame > longest;
            let environment = self.environment.as_mut().filter(|_| !is_left);
            if !environment.is_some_and(|environment| taken.leaves_as_it_did(environment, from)) {
                due.push((*number, if is_shared { Cause::Shared } else { Cause::Changed }));
            }
        }
        due.into_iter().for_each(|(number, cause)| self.give_back(number, cause));
    }
}

impl Taken {
    /// Has frames leave to and from the Ethernet addresses that hold now. False: the kernel's would leave another way, or not at all.
    fn leaves_as_it_did(&mut self, environment: &mut Environment, from: Mac) -> bool {
        let unlimited = |route: &Route| route.mtu.unwrap_or(u32::MAX);
        match environment.route(self.route.interface, self.tuple.theirs.ip(), self.scope) {
            // What the path is known to take grows when that is forgotten.
            Ok(now) if now.next_hop == self.route.next_hop && unlimited(&now) >= unlimited(&self.route) => {}
            // Nothing was answered: it is asked again in a second.
            Err(Unreachable::Kernel(Errno(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN))) => {
                return true
            }
            _ => return false,
        }
        // The kernel forgets neighbours that it sends nothing to.
        let to = environment.next_hop(&self.route, false).unwrap_or(self.manner.to);
        let manner = Manner { from, to, ..self.manner };
        if manner != self.manner {
            self.manner = manner;
            self.held.escrow.set_manner(&manner);
        }
        true
    }
}

impl Drop for Work {
    /// Also of a thread that panicked: nothing of its client's stays.
    fn drop(&mut self) {
        self.give_back_all(Cause::Agent);
    }
}
