//! What an endpoint and the agent say to each other: one packet asked, one answered, over AF_UNIX (SOCK_SEQPACKET).
//!
//! ```text
//! endpoint                                                   agent of the interface
//!   connect to the abstract name shunt1-agent-INTERFACE ───►  SO_PEERCRED: who is it, what may it have?
//!   SO_PEERCRED: is it root's?                                 
//!   Attach {kind, sizes}                                 ───►  makes the memory, perhaps a socket on a queue
//!        ◄─── {address, sizes} + memory, bell, socket or doorbell and page
//!   NewTag, Open {channel, peer, tags}, Close {channel}  ───►  tag ─► queue, route, neighbour
//!   Hands                                                ───►  a thread for this client's connections with others
//!        ◄─── a connection to that thread, by which:
//!   Take + socket, escrow; Give {number}; Pass + frame   ───►  4-tuple ─► queue; the socket into repair and out of it
//! ```
//!
//! The connection is the endpoint's life: when its last descriptor is closed, however, the agent takes everything back.
//! Structures are integers in the machine's order: both ends are on one host.

use core::sync::atomic::{AtomicBool, Ordering};

use shunt_endpoint::{Address, Tag, Tags};
use shunt_sys::{calls, libc, Errno};

pub use crate::decline::Decline;
use crate::socket::Shape as RingShape;

pub use shunt_wire::endpoint::AGENT_PORT as PORT;

/// First word of both structures.
const MAGIC: u32 = u32::from_ne_bytes(*b"shag");
/// Version of everything here, and of the memory that is shared.
pub const VERSION: u32 = 7;

/// Most descriptors in one answer.
pub const DESCRIPTORS: usize = 4;

/// Bytes of the longest request: with a frame behind it.
pub const LONGEST_REQUEST: usize = size_of::<Request>() + crate::tcp::LONGEST_FRAME;

/// The name, in the abstract name space, of a datagram socket that exists where agents run: to connect to it shows that, and no
/// agent hears of it.
pub const BEACON: &[u8] = b"shunt1-agents";

/// The agent's name in the abstract name space, without the leading zero byte.
pub fn name(interface: &str, buffer: &mut [u8; 48]) -> usize {
    let prefix = b"shunt1-agent-";
    let interface = &interface.as_bytes()[..interface.len().min(libc::IFNAMSIZ)];
    buffer[..prefix.len()].copy_from_slice(prefix);
    buffer[prefix.len()..][..interface.len()].copy_from_slice(interface);
    prefix.len() + interface.len()
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Make me an endpoint: `kind`, `version_6`, `sizes`.
    Attach = 1,
    /// A tag by which a peer may send to me.
    NewTag = 2,
    /// Register `channel` to the endpoint at `address` under `tags`.
    Open = 3,
    /// Forget `channel` and the tag by which it was reached.
    Close = 4,
    /// A memory file with a report in JSON.
    Status = 5,
    /// Does the host at `address`, a neighbour, run shunt? EHOSTUNREACH: not that the agent knew.
    Host = 6,
    /// A connection to ask the next three by, for an endpoint with a queue of its own. It ends with the endpoint; where it ends before, all is given
    /// back.
    Hands = 10,
    /// Take this connected socket (first descriptor) from the kernel, and hold this escrow (second) for it.
    Take = 7,
    /// Give the connection `channel` back.
    Give = 8,
    /// The bytes behind the request are a frame of a connection that was given back: it is the kernel's.
    Pass = 9,
}

/// How the frames of an endpoint travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Whatever the agent gives: a queue if one is free and the user may have it.
    Any = 0,
    /// A queue of the interface of its own.
    Own = 1,
    /// U-Net's emulated endpoint: the agent moves the frames of many.
    Multiplexed = 2,
}

impl Kind {
    /// Of a number that another process wrote.
    pub fn of(number: u32) -> Option<Kind> {
        [Kind::Any, Kind::Own, Kind::Multiplexed].into_iter().find(|kind| *kind as u32 == number)
    }

    /// The word of reports.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Any => "any",
            Kind::Own => "own-queue",
            Kind::Multiplexed => "multiplexed",
        }
    }
}

/// How large an endpoint shall be. The agent may refuse, never change.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Channels: a power of two.
    pub channels: u32,
    /// Entries of the queues, and of the rings of a queue of its own: a power of two.
    pub depth: u32,
    /// Bytes of the owner's part of the communication segment: a multiple of 4096.
    pub segment: u32,
}

impl Default for Sizes {
    /// 64 channels, queues of 256, and 1 MiB.
    fn default() -> Sizes {
        Sizes { channels: 64, depth: 256, segment: 1 << 20 }
    }
}

/// What is asked, with whatever the operation needs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    magic: u32,
    version: u32,
    /// [`Operation`] as a number.
    pub operation: u32,
    /// [`Kind`] as a number.
    pub kind: u32,
    /// 1: the endpoint's address shall be one of IPv6, where there is a choice.
    pub version_6: u32,
    /// The channel's number in the endpoint's registry.
    pub channel: u32,
    /// Sizes of the endpoint.
    pub sizes: Sizes,
    reserved: u32,
    /// Repeated in the answer, so that no client takes an answer that came too late for its own.
    pub number: u64,
    receive: u64,
    send: u64,
    address: [u64; 6],
}

/// The answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    magic: u32,
    version: u32,
    /// 0, or the error's number.
    pub errno: i32,
    /// What was given ([`Kind`]).
    pub kind: u32,
    /// 0 for zero-copy, 1 for copy, of the queue that carries the endpoint.
    pub mode: u32,
    /// Bytes of the largest datagram, header of shunt included.
    pub largest: u32,
    /// The shape of the rings.
    pub rings: RingShape,
    /// The queue.
    pub queue: u32,
    /// Where the endpoint is.
    pub address: [u64; 6],
    /// The tag.
    pub tag: u64,
    /// The request's.
    pub number: u64,
}

/// Structures of integers without padding, of which any bytes are a value.
///
/// # Safety
/// As said.
unsafe trait Bytes: Copy {}
// SAFETY: integers; 112 bytes without padding.
unsafe impl Bytes for Request {}
// SAFETY: integers; 104 bytes without padding.
unsafe impl Bytes for Reply {}
const _: () = assert!(size_of::<Request>() == 112 && size_of::<Reply>() == 104);

impl Request {
    /// A request that carries nothing.
    pub fn new(operation: Operation) -> Request {
        Request {
            magic: MAGIC,
            version: VERSION,
            operation: operation as u32,
            kind: 0,
            version_6: 0,
            channel: 0,
            sizes: Sizes::default(),
            reserved: 0,
            number: 0,
            receive: 0,
            send: 0,
            address: Address::NONE.to_words(),
        }
    }

    /// With a channel: its number, its peer and its tags.
    pub fn channel(mut self, channel: u32, remote: &Address, tags: Tags) -> Request {
        (self.channel, self.address, self.receive, self.send) = (channel, remote.to_words(), tags.receive.0, tags.send.0);
        self
    }

    /// The peer of a channel.
    pub fn remote(&self) -> Address {
        Address::from_words(self.address)
    }

    /// The tags of a channel.
    pub fn tags(&self) -> Tags {
        Tags { receive: Tag(self.receive), send: Tag(self.send) }
    }

    /// What another process sent, if it is a request of this version, and what follows it.
    pub fn of(bytes: &[u8]) -> Option<(Request, &[u8])> {
        let (head, rest) = bytes.split_at_checked(size_of::<Request>())?;
        let request = of::<Request>(head).filter(|request| request.magic == MAGIC && request.version == VERSION)?;
        (rest.is_empty() || request.operation == Operation::Pass as u32).then_some((request, rest))
    }
}

impl Reply {
    /// The answer "done", with nothing in it.
    pub fn done() -> Reply {
        let rings = RingShape { chunk: 0, receive: 0, transmit: 0 };
        let address = Address::NONE.to_words();
        Reply {
            magic: MAGIC,
            version: VERSION,
            errno: 0,
            kind: 0,
            mode: 0,
            largest: 0,
            rings,
            queue: 0,
            address,
            tag: 0,
            number: 0,
        }
    }

    /// The answer "no".
    pub fn refused(errno: i32) -> Reply {
        Reply { errno, ..Reply::done() }
    }

    /// The answer to [`Operation::Take`]: the connection's number, or why not.
    pub fn taken(outcome: Result<u32, Decline>) -> Reply {
        let (kind, queue) = match outcome {
            Ok(number) => (0, number),
            Err(decline) => (decline as u32, 0),
        };
        Reply { kind, queue, ..Reply::done() }
    }

    /// The bytes to be sent.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: integers without padding, alive as long as the reference.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Reply>()) }
    }
}

fn of<T: Bytes>(bytes: &[u8]) -> Option<T> {
    // SAFETY: as many bytes as the structure has; any are a value.
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Descriptors that came with an answer: `struct cmsghdr` (length, level and type), then the descriptors.
struct Carried {
    control: [u64; 2 + DESCRIPTORS],
    count: usize,
}

impl Carried {
    /// Reads the header, of which the kernel wrote `length` bytes with what follows.
    fn take_stock(&mut self, length: usize) {
        const HEAD: usize = 16;
        let rights = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
        if length >= HEAD && self.control[1] == rights {
            self.count = ((self.control[0] as usize).saturating_sub(HEAD) / 4).min(2 * DESCRIPTORS);
        }
    }

    fn get(&self, index: usize) -> i32 {
        (self.control[2 + index / 2] >> (32 * (index % 2))) as i32
    }

    fn close(&self) {
        for index in 0..self.count {
            let _ = calls::close(self.get(index));
        }
    }
}

/// How long an agent is waited for, in ms.
const PATIENCE: i64 = 2_000;

/// The endpoint's end of the connection.
pub struct Connection {
    fd: i32,
    /// Until when answers are waited for, all together (ns); 0: each is for as long as was said.
    until: u64,
    /// A signal ends no wait for an answer, as what was asked is done all the same.
    persists: bool,
    /// An answer did not come in time. Until it does nothing is asked, where `persists` says so: a thread that asks has other streams to drive.
    is_late: AtomicBool,
}

impl Connection {
    /// Connects to the agent of `interface` in this network namespace, if root runs it.
    ///
    /// # Errors
    /// ECONNREFUSED: no agent. EPERM: the name belongs to another user. EAGAIN: it is too busy.
    pub fn connect(interface: &str) -> Result<Connection, Errno> {
        Connection::connect_in(interface, PATIENCE, 0)
    }

    /// As [`Connection::connect`]; it and all answers together are waited for so long.
    ///
    /// # Errors
    /// As there.
    pub fn connect_within(interface: &str, milliseconds: i64) -> Result<Connection, Errno> {
        let until = shunt_sys::clock::monotonic_ns() + milliseconds as u64 * 1_000_000;
        Connection::connect_in(interface, milliseconds, until)
    }

    fn connect_in(interface: &str, milliseconds: i64, until: u64) -> Result<Connection, Errno> {
        let fd = calls::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0)?;
        let connection = Connection { fd, until, persists: false, is_late: AtomicBool::new(false) };
        // SAFETY: integers.
        let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as u16;
        let mut text = [0; 48];
        let length = name(interface, &mut text);
        for (place, byte) in address.sun_path[1..].iter_mut().zip(&text[..length]) {
            *place = *byte as libc::c_char;
        }
        // An agent that hangs must not hang us: a call that asks gets EAGAIN after this time.
        connection.set_patience(milliseconds)?;
        calls::connect(fd, (&raw const address).cast(), (3 + length) as u32)?;
        let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut size = size_of_val(&who) as u32;
        calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &mut size)?;
        if who.uid != 0 {
            return Err(Errno(libc::EPERM));
        }
        Ok(connection)
    }

    /// The connection behind `fd`, which belongs to it from now on.
    pub fn of(fd: i32) -> Connection {
        Connection { fd, until: 0, persists: false, is_late: AtomicBool::new(false) }
    }

    /// The descriptor. It hangs up when the agent is gone.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// The descriptor got another number, and is this value's still.
    pub fn renumber(&mut self, from: i32, to: i32) {
        if self.fd == from {
            self.fd = to;
        }
    }

    /// How long an answer is waited for from now on, and room for the request.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub(crate) fn set_patience(&self, milliseconds: i64) -> Result<(), Errno> {
        let patience = libc::timeval { tv_sec: milliseconds / 1000, tv_usec: milliseconds % 1000 * 1000 };
        for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            let size = size_of_val(&patience) as u32;
            calls::setsockopt(self.fd, libc::SOL_SOCKET, option, (&raw const patience).cast(), size)?;
        }
        Ok(())
    }

    /// Asks; gives the answer, and the descriptors that came with it, of which there are `wanted` (they are the caller's).
    /// Answers to earlier requests, for which no call waited any more, are passed over.
    ///
    /// # Errors
    /// The agent's; EPROTO for an answer that is none; EPIPE, ECONNRESET: the agent is gone; EAGAIN: it does not answer.
    pub fn ask<const WANTED: usize>(&self, request: &Request) -> Result<(Reply, [i32; WANTED]), Errno> {
        self.ask_with(request, &[], &[])
    }

    /// As [`Connection::ask`], with bytes behind the request and descriptors beside it, two at most.
    fn ask_with<const WANTED: usize>(
        &self,
        request: &Request,
        bytes: &[u8],
        descriptors: &[i32],
    ) -> Result<(Reply, [i32; WANTED]), Errno> {
        if self.persists && self.is_late.load(Ordering::Relaxed) {
            // Whatever it answers now, it answers.
            let (_, descriptors) = self.hear(1)?;
            descriptors.close();
            self.is_late.store(false, Ordering::Relaxed);
        }
        // One moment for all of the question, as a timer of the program's may interrupt each wait.
        let until = match self.persists {
            true => shunt_sys::clock::monotonic_ns() + PATIENCE as u64 * 1_000_000,
            false => self.until,
        };
        // Processes that share a connection take turns, so no two requests are made at one time.
        let request = Request { number: shunt_sys::clock::monotonic_ns(), ..*request };
        let mut parts = [
            libc::iovec { iov_base: (&raw const request).cast_mut().cast(), iov_len: size_of::<Request>() },
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() },
        ];
        // `struct cmsghdr`: length, level and type; then the descriptors.
        let mut control = [16 + 4 * descriptors.len() as u64, libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32, 0];
        for (index, descriptor) in descriptors.iter().take(2).enumerate() {
            control[2] |= u64::from(*descriptor as u32) << (32 * index);
        }
        // SAFETY: integers and pointers; null is valid.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
        if !descriptors.is_empty() {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = control[0] as usize;
        }
        loop {
            match calls::sendmsg(self.fd, &message, libc::MSG_NOSIGNAL) {
                Err(Errno(libc::EINTR)) if self.persists && shunt_sys::clock::monotonic_ns() < until => {}
                other => {
                    other?;
                    break;
                }
            }
        }
        loop {
            let (reply, descriptors) = self.hear(until).inspect_err(|errno| {
                if errno.0 == libc::EAGAIN {
                    self.is_late.store(true, Ordering::Relaxed);
                }
            })?;
            let refuse = |errno| {
                descriptors.close();
                Err(Errno(errno))
            };
            if reply.number != request.number {
                descriptors.close();
                continue;
            }
            if reply.errno != 0 {
                return refuse(reply.errno);
            }
            if descriptors.count != WANTED {
                return refuse(libc::EPROTO);
            }
            return Ok((reply, core::array::from_fn(|index| descriptors.get(index))));
        }
    }

    /// The connection by which sockets are handed over: [`Connection::take`], [`Connection::give`] and [`Connection::pass`] are for it. What waits there
    /// holds up no other.
    ///
    /// # Errors
    /// EOPNOTSUPP: the agent takes none. ENOTCONN: there is no endpoint with a queue of its own. EALREADY: it was asked for before.
    pub fn hands(&self) -> Result<Connection, Errno> {
        let (_, [fd]) = self.ask::<1>(&Request::new(Operation::Hands))?;
        let hands = Connection { fd, until: 0, persists: true, is_late: AtomicBool::new(false) };
        hands.set_patience(PATIENCE)?;
        Ok(hands)
    }

    /// Hands a connected socket over: the connection is the escrow's driver's from now on, under the number that is returned, or stays the
    /// kernel's. No thread may use the socket meanwhile, or before the connection is given back.
    ///
    /// # Errors
    /// As for [`Connection::ask`]. The connection is the kernel's then, unless the escrow is open.
    pub fn take(&self, socket: i32, escrow: &crate::escrow::Escrow) -> Result<Result<u32, Decline>, Errno> {
        let (reply, []) = self.ask_with(&Request::new(Operation::Take), &[], &[socket, escrow.fd()])?;
        Ok(match reply.kind {
            0 => Ok(reply.queue),
            kind => Err(Decline::of(kind).unwrap_or(Decline::Kernel)),
        })
    }

    /// The connection is the kernel's when this returns, or as soon as there is a way to its peer ([`crate::escrow::Escrow::is_restored`]), in the
    /// state that the escrow was closed with, all bytes of its rings included. Frames of
    /// it that lie in the queue still are for [`Connection::pass`].
    ///
    /// # Errors
    /// ENOENT: there is no such connection (any more).
    pub fn give(&self, number: u32) -> Result<(), Errno> {
        let request = Request { channel: number, ..Request::new(Operation::Give) };
        self.ask::<0>(&request).map(|_| ())
    }

    /// Hands a frame on to the kernel, of a connection that this client had.
    ///
    /// # Errors
    /// EPERM: it had none such. EBUSY: it is taken still, or again. EINVAL: it is no segment of TCP.
    pub fn pass(&self, frame: &[u8]) -> Result<(), Errno> {
        self.ask_with::<0>(&Request::new(Operation::Pass), frame, &[]).map(|_| ())
    }

    /// Whether the host at `address`, a neighbour, runs shunt.
    ///
    /// # Errors
    /// EHOSTUNREACH: not that the agent knew. EAGAIN: it does not answer in time, or has too many questions already. As for
    /// [`Connection::ask`].
    pub fn ask_host(&self, address: &Address) -> Result<(), Errno> {
        let request = Request::new(Operation::Host).channel(0, address, Tags { receive: Tag(0), send: Tag(0) });
        self.ask::<0>(&request).map(|_| ())
    }

    /// Whether the agent answers: one that is stopped takes connections, too, as long as there is room for them.
    pub fn is_awake(&self) -> bool {
        // A question for no host is refused at once.
        !matches!(self.ask_host(&Address::NONE), Err(Errno(libc::EAGAIN | libc::EINTR | libc::EPIPE | libc::ECONNRESET)))
    }

    /// Waits until something is to be heard, but no longer than `until`; 0: as long as was said.
    fn wait(&self, until: u64) -> Result<(), Errno> {
        if until == 0 {
            return Ok(());
        }
        loop {
            // The kernel's own time-outs are made of its ticks, of which the shorter bounds are less than one.
            let left = until.saturating_sub(shunt_sys::clock::monotonic_ns());
            let mut time = libc::timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
            let mut set = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
            return match calls::ppoll(&mut set, 1, &mut time, core::ptr::null(), calls::KERNEL_SIGSET) {
                Err(Errno(libc::EINTR)) if self.persists => continue,
                Ok(0) => Err(Errno(libc::EAGAIN)),
                other => other.map(|_| ()),
            };
        }
    }

    /// The next answer, whosever it is.
    fn hear(&self, until: u64) -> Result<(Reply, Carried), Errno> {
        self.wait(until)?;
        let mut bytes = [0u8; size_of::<Reply>()];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut carried = Carried { control: [0u64; 2 + DESCRIPTORS], count: 0 };
        // SAFETY: integers and pointers; null is valid.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        message.msg_control = carried.control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&carried.control);
        let count = loop {
            match calls::recvmsg(self.fd, &mut message, libc::MSG_CMSG_CLOEXEC) {
                Err(Errno(libc::EINTR)) if self.persists => {}
                other => break other?,
            }
        };
        carried.take_stock(message.msg_controllen);
        let refuse = |errno| {
            carried.close();
            Err(Errno(errno))
        };
        if count == 0 {
            return refuse(libc::ECONNRESET);
        }
        match of::<Reply>(&bytes[..count]).filter(|reply| reply.magic == MAGIC && reply.version == VERSION) {
            Some(reply) => Ok((reply, carried)),
            None => refuse(libc::EPROTO),
        }
    }

    /// Whether the agent is gone.
    pub fn is_over(&self) -> bool {
        matches!(calls::poll_one(self.fd, 0, 0), Ok(events) if events & (libc::POLLHUP | libc::POLLERR) != 0)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = calls::close(self.fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> [i32; 2] {
        let mut fds = [-1i32; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: two descriptors are written to the array.
        let made = unsafe { shunt_sys::syscall!(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) };
        assert_eq!(made, 0);
        fds
    }

    /// What the agent reads next.
    fn request(fd: i32) -> Request {
        let mut bytes = [0u8; 256];
        let count = calls::read(fd, bytes.as_mut_ptr().cast(), bytes.len()).expect("a request");
        Request::of(&bytes[..count]).expect("a request").0
    }

    fn answer(fd: i32, to: &Request, tag: u64) {
        let mut reply = Reply::done();
        (reply.number, reply.tag) = (to.number, tag);
        calls::write(fd, reply.bytes().as_ptr().cast(), reply.bytes().len()).expect("an answer");
    }

    /// An agent that hangs holds up one question; those behind it are not asked until it has answered that.
    #[test]
    fn who_is_late_is_not_asked_again() {
        let [ours, theirs] = pair();
        let mut connection = Connection::of(ours);
        connection.persists = true;
        assert_eq!(connection.give(1), Err(Errno(libc::EAGAIN)));
        let late = request(theirs);
        assert_eq!(connection.give(2), Err(Errno(libc::EAGAIN)));
        assert_eq!(calls::poll_one(theirs, libc::POLLIN, 0), Ok(0), "it was not asked");
        answer(theirs, &late, 0);
        let agent = std::thread::spawn(move || {
            let next = request(theirs);
            answer(theirs, &next, 0);
            next.channel
        });
        assert_eq!(connection.give(3), Ok(()));
        assert_eq!(agent.join().expect("an agent"), 3);
    }

    /// A timer that interrupts each wait does not make it longer. (If it did, the test would not end.)
    #[test]
    fn signals_end_no_wait_and_begin_none() {
        extern "C" fn nothing(_: i32) {}
        let [ours, _theirs] = pair();
        let mut connection = Connection::of(ours);
        connection.persists = true;
        // SAFETY: integers and a pointer, for which zero is valid; the handler does nothing.
        let set = unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(libc::SIGUSR2, &action, core::ptr::null_mut())
        };
        assert_eq!(set, 0);
        // SAFETY: takes nothing.
        let asks = unsafe { libc::pthread_self() };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // SAFETY: that thread waits for this one's end.
                    unsafe { libc::pthread_kill(asks, libc::SIGUSR2) };
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
            assert_eq!(connection.give(1), Err(Errno(libc::EAGAIN)));
            is_over.store(true, Ordering::Relaxed);
        });
    }

    /// An agent that is stopped has room for what it is asked, and says nothing; one that knows nothing of hosts answers, too.
    #[test]
    fn who_answers_is_awake() {
        let [ours, theirs] = pair();
        let mut connection = Connection::of(ours);
        connection.until = shunt_sys::clock::monotonic_ns() + 1_000_000;
        assert!(!connection.is_awake());
        connection.until = 0;
        let agent = std::thread::spawn(move || {
            request(theirs); // what it was asked then
            for errno in [libc::EADDRNOTAVAIL, libc::EOPNOTSUPP] {
                let asked = request(theirs);
                assert_eq!(asked.operation, Operation::Host as u32);
                let mut reply = Reply::refused(errno);
                reply.number = asked.number;
                calls::write(theirs, reply.bytes().as_ptr().cast(), reply.bytes().len()).expect("an answer");
            }
            let _ = calls::close(theirs);
        });
        assert!(connection.is_awake());
        assert!(connection.is_awake());
        agent.join().expect("the agent");
        assert!(!connection.is_awake(), "gone");
    }

    /// An agent that was stopped answers what was asked before, too: no client takes that for its own answer.
    #[test]
    fn late_answers_are_passed_over() {
        let [ours, theirs] = pair();
        let connection = Connection::of(ours);
        connection.set_patience(1).expect("a bound");
        let asked = connection.ask::<0>(&Request::new(Operation::NewTag));
        assert_eq!(asked.map(|_| ()), Err(Errno(libc::EAGAIN)));
        connection.set_patience(20_000).expect("a bound");
        let agent = std::thread::spawn(move || {
            let first = request(theirs);
            answer(theirs, &first, 1);
            let second = request(theirs);
            assert_ne!(first.number, second.number);
            answer(theirs, &second, 2);
            theirs
        });
        let (reply, []) = connection.ask(&Request::new(Operation::NewTag)).expect("an answer");
        assert_eq!(reply.tag, 2);
        let _ = calls::close(agent.join().expect("the agent"));
        assert!(connection.is_over());
    }
}
