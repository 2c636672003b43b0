//! A program in two worlds, for tests: its calls as the preload library makes them of a TCP socket, and the kernel's own.
//!
//! ```text
//! same      runs a scenario on the kernel, then under the engine, and compares what it tells      agreed: gives that, too
//! Fd        a descriptor of either world: bind, listen, connect, accept, options, names, bytes
//! ```
//!
//! A listener and its clients are one process's, which the engine allows: a program may connect to itself.

use crate::carriers::Outcome;
use crate::options::names;
use crate::reconnect::{server, shared_server};
use crate::{accept, close, connect, disconnect, duplicate_names, listen, opening, options, socket_cache};
use core::fmt::Debug;
use core::sync::atomic::Ordering;
use shunt_config::Options;
use shunt_link::users::{self, Users};
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{self, flag, Socket};
use shunt_stream::waiting::holding::{self, Ends};
use shunt_sys::libc::{self, sockaddr, socklen_t, AF_INET, AF_INET6, SOCK_STREAM, SOL_SOCKET};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::global;
use shunt_table::sockaddr::Encoded;
use shunt_table::table::{self, Kind, Word};
use shunt_table::upcalls::operations::{self, Operations};
use std::sync::Once;

/// What the crates above fill in, as far as TCP sockets need it.
static OPERATIONS: Operations = Operations { release, to_kernel: |_| Ok(()), to_kernel_as: |_, _| {}, user_changed: || {} };
static USERS: Users = Users { connections: |_| 0, deferred: accept::deferred::channels_of, shut: |_| {}, offers_end };
static ENDS: Ends = Ends { socket: |socket, fd| close::end(socket, fd, false), set: |_| {}, sleeps: |_, _| {} };

fn offers_end(index: usize) {
    server::forget(index);
    shared_server::forget(index);
}

fn release(word: Word, fd: i32) {
    if let Some(socket) = word.object::<Socket>() {
        socket.hold.await_ringers();
        if socket.references.fetch_sub(1, Ordering::SeqCst) == 1 && !holding::linger(socket, fd) {
            close::end(socket, fd, true);
        }
    }
}

/// The engine's state is the process's, and is made once.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        catch_faults();
        operations::fill(&OPERATIONS);
        users::fill(&USERS);
        holding::fill(&ENDS);
        clock::start();
        shunt_sys::processor::find_vectors();
        // SAFETY: tests that enter sockets come here first; null says that there may be several threads.
        unsafe { global::set(Options::default(), core::ptr::null_mut()) };
        shunt_table::process::user::start();
        global::set_ready();
    });
}

unsafe extern "C" fn fault(number: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's structures; with the default action in place, a fault that is not a copy's ends the test.
    unsafe {
        if !shunt_sys::user::resolve(information, context.cast()) {
            libc::signal(number, libc::SIG_DFL);
        }
    }
}

/// Addresses that tests give may fault: the copies of them answer EFAULT, as under the library.
fn catch_faults() {
    // SAFETY: installs the handler above.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, core::ptr::null_mut()), 0);
    }
}

/// By what the calls are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum World {
    /// The kernel alone.
    Kernel,
    /// The engine, as for a program under the library.
    Engine,
}

use World::{Engine, Kernel};

/// Holds the engine against the kernel.
#[track_caller]
pub fn same<T: PartialEq + Debug>(scenario: impl Fn(World) -> T) {
    agreed(scenario);
}

/// The same; gives what both told.
#[track_caller]
pub fn agreed<T: PartialEq + Debug>(scenario: impl Fn(World) -> T) -> T {
    start();
    let expected = scenario(Kernel);
    assert_eq!(scenario(Engine), expected, "the engine (left) is not as the kernel (right)");
    expected
}

/// 127.0.0.1.
pub fn loopback(port: u16) -> Address {
    Address::v4([127, 0, 0, 1], port)
}

/// ::1.
pub fn loopback_six(port: u16) -> Address {
    Address::v6(core::array::from_fn(|place| u8::from(place == 15)), port)
}

/// A descriptor, which is closed with this.
#[derive(Debug)]
pub struct Fd {
    /// Its number.
    pub number: i32,
    /// Of which world it is.
    pub world: World,
}

impl World {
    /// A TCP socket over IPv4.
    pub fn tcp(self) -> Fd {
        self.socket(AF_INET, 0)
    }

    /// socket(2) for TCP, with flags.
    pub fn socket(self, family: i32, flags: i32) -> Fd {
        let kind = SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
        let spare = if self == Engine { opening::from_spare(family, kind, 0) } else { None };
        let number = spare.unwrap_or_else(|| {
            let fd = calls::socket(family, kind, 0).expect("a socket");
            if self == Engine {
                opening::opened(fd, family, kind, 0);
            }
            fd
        });
        Fd { number, world: self }
    }

    /// A listener at a port of the kernel's choice on the loopback interface.
    pub fn listener(self) -> Fd {
        let fd = self.tcp();
        fd.bind(&loopback(0)).expect("a free port");
        fd.listen(16).expect("a bound socket");
        fd
    }

    /// A listener, a client and the connection that was accepted for it.
    pub fn connection(self) -> (Fd, Fd, Fd) {
        let listener = self.listener();
        let (client, server) = self.connection_to(&listener);
        (listener, client, server)
    }

    /// Another connection to a listener: the client's end and the server's.
    pub fn connection_to(self, listener: &Fd) -> (Fd, Fd) {
        let client = self.tcp();
        client.connect(&listener.name().unwrap()).expect("a listener");
        let server = listener.accept().expect("a client waits");
        for end in [&client, &server] {
            end.expect_stream();
        }
        (client, server)
    }
}

impl Fd {
    /// What the table says of it.
    pub fn kind(&self) -> Kind {
        table::get(self.number).kind()
    }

    /// The engine's object.
    pub fn object(&self) -> &'static Socket {
        table::get(self.number).object().expect("the engine's socket")
    }

    fn stream(&self) -> Option<&'static Socket> {
        match self.world {
            Engine => socket::stream(self.number),
            Kernel => None,
        }
    }

    /// Under the engine, the connection is in memory: a scenario that went to the kernel there would compare it with itself.
    #[track_caller]
    pub fn expect_stream(&self) {
        assert!(self.world == Kernel || self.kind() == Kind::Stream, "{:?} is no stream", self.kind());
    }

    /// bind(2).
    pub fn bind(&self, to: &Address) -> Result<()> {
        let family = self.get(SOL_SOCKET, libc::SO_DOMAIN)?;
        let name = Encoded::new(family, to);
        self.bind_raw(name.pointer(), name.length)
    }

    /// bind(2) with an address as it is.
    pub fn bind_raw(&self, address: *const sockaddr, length: socklen_t) -> Result<()> {
        if let Some(socket) = self.stream() {
            return options::refuse_bind(socket, address, length).map(drop);
        }
        if self.world == Kernel {
            return calls::bind(self.number, address, length);
        }
        let socket = self.object();
        socket_cache::spoil(socket);
        // SAFETY: tests give addresses that are none, too.
        let to = unsafe { shunt_table::sockaddr::read(address, length) };
        // SAFETY: as above.
        let bound = to.is_some_and(|(_, to)| unsafe { duplicate_names::bind(self.number, &to, address, length) });
        if !bound {
            calls::bind(self.number, address, length)?;
        }
        socket.set(flag::BOUND);
        Ok(())
    }

    /// listen(2). Under the engine, why it is the kernel's listener alone, if it is.
    pub fn listen_for(&self, backlog: i32) -> (Result<()>, Option<Reason>) {
        if self.world == Kernel {
            return (calls::listen(self.number, backlog), None);
        }
        let socket = self.object();
        let prepared = listen::prepare(self.number, socket, backlog);
        let result = calls::listen(self.number, backlog);
        match (result, prepared) {
            (Ok(()), Ok(())) => listen::opened(self.number, socket),
            (Ok(()), Err(_)) => {}
            _ => listen::withdraw(self.number, socket),
        }
        (result, prepared.err())
    }

    /// listen(2).
    pub fn listen(&self, backlog: i32) -> Result<()> {
        self.listen_for(backlog).0
    }

    /// connect(2). Under the engine, why the kernel connected, if it did.
    pub fn connect_for(&self, to: &Address) -> (Result<()>, Option<Reason>) {
        let family = calls::getsockopt_int(self.number, SOL_SOCKET, libc::SO_DOMAIN).unwrap_or(AF_INET);
        let family = self.stream().map_or(family, |socket| socket.family.load(Ordering::Relaxed));
        let name = Encoded::new(family, to);
        let kernel = || calls::connect(self.number, name.pointer(), name.length);
        if self.world == Kernel {
            return (kernel(), None);
        }
        crate::answers::begins();
        let socket = self.object();
        match self.kind() {
            Kind::Stream if connect::first_success(socket) => return (Ok(()), None),
            Kind::Stream => return (Err(Errno(libc::EISCONN)), None),
            Kind::Tcp if !socket.has(flag::KERNEL) && !socket.has(flag::PLAIN | flag::FILTERED) => {}
            _ => return (kernel(), None),
        }
        match connect::connect(self.number, socket, *to) {
            Outcome::Connected if socket.has(flag::CONNECTING) => (Err(Errno(libc::EINPROGRESS)), None),
            Outcome::Connected => (Ok(()), None),
            Outcome::Done(result, reason) => (result.map(drop), Some(reason)),
            Outcome::Kernel(reason) => {
                socket_cache::spoil(socket);
                let result = kernel();
                if matches!(result, Ok(()) | Err(Errno(libc::EINPROGRESS))) {
                    socket.set(flag::KERNEL);
                }
                (result, Some(reason))
            }
        }
    }

    /// connect(2).
    pub fn connect(&self, to: &Address) -> Result<()> {
        self.connect_for(to).0
    }

    /// connect(2) to AF_UNSPEC.
    pub fn dissolve(&self) -> Result<()> {
        match self.stream() {
            Some(socket) => disconnect::disconnect(self.number, socket).map(drop),
            None => calls::connect(self.number, [0u8; 16].as_ptr().cast(), 16),
        }
    }

    /// accept(2).
    pub fn accept(&self) -> Result<Fd> {
        self.accept_with(libc::SOCK_CLOEXEC)
    }

    /// accept4(2), with the address that it tells.
    pub fn accept_from(&self) -> Result<(Fd, Address)> {
        let (mut room, mut length) = ([0u64; 4], 28);
        let accepted = self.accept_raw(room.as_mut_ptr().cast(), &mut length, libc::SOCK_CLOEXEC)?;
        Ok((accepted, decoded(&room, length)))
    }

    /// accept4(2).
    pub fn accept_with(&self, flags: i32) -> Result<Fd> {
        self.accept_raw(core::ptr::null_mut(), core::ptr::null_mut(), flags)
    }

    /// accept4(2) with addresses that may be none.
    pub fn accept_raw(&self, address: *mut sockaddr, length: *mut socklen_t, flags: i32) -> Result<Fd> {
        let number = match (self.world, self.kind()) {
            // SAFETY: tests give addresses that fault on purpose, none of which is the engine's.
            (Engine, Kind::Listener) => unsafe { accept::accept(self.number, self.object(), address, length, flags) }? as i32,
            _ => calls::accept4(self.number, address, length, flags)?,
        };
        Ok(Fd { number, world: self.world })
    }

    /// Whether a client can be accepted at this moment, as poll(2) tells.
    pub fn is_readable(&self) -> bool {
        match (self.world, self.kind()) {
            (Engine, Kind::Listener) => {
                let [rendezvous, bells] = accept::queues(self.object());
                let readable = |fd: i32| calls::poll_one(fd, libc::POLLIN, 0).is_ok_and(|events| events & libc::POLLIN != 0);
                [self.number, rendezvous, bells].into_iter().any(readable) && accept::ready(self.number, self.object())
            }
            _ => calls::poll_one(self.number, libc::POLLIN, 0).is_ok_and(|events| events != 0),
        }
    }

    /// getsockname(2).
    pub fn name(&self) -> Result<Address> {
        self.told(|fd, address, length| fd.name_raw(address, length))
    }

    /// getsockname(2) into what may be no memory.
    pub fn name_raw(&self, address: *mut sockaddr, length: *mut socklen_t) -> Result<()> {
        if let Some(socket) = self.stream() {
            // SAFETY: as for accept_raw.
            return unsafe { names::local(socket, address, length) }.map(drop);
        }
        if self.world == Engine {
            // SAFETY: as for accept_raw.
            if let Some(told) = unsafe { names::unconnected(self.object(), self.number, address, length) } {
                return told.map(drop);
            }
        }
        calls::getsockname(self.number, address, length)
    }

    /// getpeername(2).
    pub fn peer(&self) -> Result<Address> {
        self.told(|fd, address, length| fd.peer_raw(address, length))
    }

    /// getpeername(2) into what may be no memory.
    pub fn peer_raw(&self, address: *mut sockaddr, length: *mut socklen_t) -> Result<()> {
        match self.stream() {
            // SAFETY: as for accept_raw.
            Some(socket) => unsafe { names::remote(socket, self.number, address, length) }.map(drop),
            None => calls::getpeername(self.number, address, length),
        }
    }

    fn told(&self, ask: impl Fn(&Fd, *mut sockaddr, *mut socklen_t) -> Result<()>) -> Result<Address> {
        let (mut room, mut length) = ([0u64; 4], 28);
        ask(self, room.as_mut_ptr().cast(), &mut length)?;
        Ok(decoded(&room, length))
    }

    /// setsockopt(2) of an integer.
    pub fn set(&self, level: i32, name: i32, value: i32) -> Result<()> {
        self.set_bytes(level, name, &value.to_ne_bytes())
    }

    /// setsockopt(2).
    pub fn set_bytes(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        self.set_raw(level, name, value.as_ptr(), value.len() as socklen_t)
    }

    /// setsockopt(2) of what may be no memory.
    pub fn set_raw(&self, level: i32, name: i32, data: *const u8, length: socklen_t) -> Result<()> {
        if let Some(socket) = self.stream() {
            // SAFETY: as for accept_raw.
            return unsafe { options::set(socket, self.number, level, name, data, length) }.map(drop);
        }
        if self.world == Kernel {
            return calls::setsockopt(self.number, level, name, data.cast(), length);
        }
        let socket = self.object();
        socket_cache::spoil(socket);
        calls::setsockopt(self.number, level, name, data.cast(), length)?;
        // SAFETY: as above.
        unsafe {
            match self.kind() {
                Kind::Listener => listen::options::note_set_on_listener(self.number, socket, level, name, data, length),
                _ => options::note_given(self.number, socket, level, name, data, length),
            }
        }
        if options::only_the_kernel_can(level, name) {
            socket.set(flag::FILTERED);
        }
        Ok(())
    }

    /// getsockopt(2) of an integer.
    pub fn get(&self, level: i32, name: i32) -> Result<i32> {
        self.get_bytes(level, name, 4).map(|bytes| shunt_stream::options::effects::integer(&bytes))
    }

    /// getsockopt(2) into so much room.
    pub fn get_bytes(&self, level: i32, name: i32, room: usize) -> Result<Vec<u8>> {
        let (mut bytes, mut length) = (vec![0u8; room], room as socklen_t);
        self.get_raw(level, name, bytes.as_mut_ptr(), &mut length)?;
        bytes.truncate(length as usize);
        Ok(bytes)
    }

    /// getsockopt(2) into what may be no memory.
    pub fn get_raw(&self, level: i32, name: i32, data: *mut u8, length: *mut socklen_t) -> Result<()> {
        match self.stream() {
            // SAFETY: as for accept_raw.
            Some(socket) => unsafe { options::get(socket, self.number, level, name, data, length) }.map(drop),
            None => calls::getsockopt(self.number, level, name, data.cast(), length),
        }
    }

    /// shutdown(2).
    pub fn shut(&self, how: i32) -> Result<()> {
        if let Some(socket) = self.stream() {
            return shunt_stream::shutdown(socket, self.number, how).map(drop);
        }
        let result = calls::shutdown(self.number, how);
        if let (Engine, Kind::Listener) = (self.world, self.kind()) {
            listen::stopped(self.number, self.object());
        }
        result
    }

    /// send(2), without a signal.
    pub fn send(&self, bytes: &[u8]) -> Result<usize> {
        let (start, length, flags) = (bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL);
        match self.stream() {
            Some(socket) => {
                // SAFETY: a slice.
                let sent = unsafe { shunt_stream::send(socket, self.number, start, length, flags) };
                sent.map(|count| count as usize)
            }
            None => calls::sendto(self.number, start.cast(), length, flags, core::ptr::null(), 0),
        }
    }

    /// recv(2), as text.
    pub fn receive(&self) -> Result<String> {
        self.receive_with(0)
    }

    /// recv(2) with flags, as text.
    pub fn receive_with(&self, flags: i32) -> Result<String> {
        let mut room = [0u8; 256];
        let (start, length) = (room.as_mut_ptr(), room.len());
        let got = match self.stream() {
            // SAFETY: an array.
            Some(socket) => unsafe { shunt_stream::receive(socket, self.number, start, length, flags) }? as usize,
            None => {
                let none = core::ptr::null_mut();
                calls::recvfrom(self.number, start.cast(), length, flags, none, core::ptr::null_mut())?
            }
        };
        Ok(String::from_utf8_lossy(&room[..got]).into_owned())
    }

    /// O_NONBLOCK, as fcntl(2) tells it.
    pub fn is_nonblocking(&self) -> bool {
        match (self.world, self.kind()) {
            (Engine, Kind::Listener) => listen::nonblocking(self.object()),
            _ => calls::fcntl(self.number, libc::F_GETFL, 0).unwrap() & libc::O_NONBLOCK != 0,
        }
    }

    /// Sets or clears O_NONBLOCK, as ioctl(2) does.
    pub fn set_nonblocking(&self, on: bool) {
        if let (Engine, Kind::Listener) = (self.world, self.kind()) {
            return listen::set_nonblocking(self.object(), on);
        }
        let flags = libc::O_RDWR | if on { libc::O_NONBLOCK } else { 0 };
        if self.world == Engine {
            socket_cache::spoil(self.object());
            if on {
                self.object().set(flag::NONBLOCK);
            } else {
                self.object().clear(flag::NONBLOCK);
            }
        }
        calls::fcntl(self.number, libc::F_SETFL, flags as usize).unwrap();
    }

    /// Whether it is closed on exec.
    pub fn closes_on_exec(&self) -> bool {
        calls::fcntl(self.number, libc::F_GETFD, 0).unwrap() & libc::FD_CLOEXEC != 0
    }

    /// close(2).
    pub fn close(self) {
        drop(self);
    }

    /// close(2) with SO_LINGER of no time.
    pub fn reset(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        self.set_raw(SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size_of_val(&linger) as socklen_t).unwrap();
        drop(self);
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        if self.world == Engine {
            operations::closing(self.number);
        }
        let _ = calls::close(self.number);
    }
}

fn decoded(room: &[u64; 4], length: socklen_t) -> Address {
    // SAFETY: as many bytes as the call has filled.
    let (family, address) = unsafe { shunt_table::sockaddr::read(room.as_ptr().cast(), length) }.expect("an internet address");
    assert!(matches!(family, AF_INET | AF_INET6));
    address
}
