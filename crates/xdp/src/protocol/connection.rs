//! The endpoint's end of the connection to an agent: asks, and waits for answers, with the descriptors that come along.

use core::sync::atomic::{AtomicBool, Ordering};

use shunt_endpoint::{Address, Tag, Tags};
use shunt_sys::{calls, libc, Errno};

use super::{name, of, Decline, Operation, Reply, Request, DESCRIPTORS, MAGIC, VERSION};

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
