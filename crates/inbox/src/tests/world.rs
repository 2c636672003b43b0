//! The same scenario in two worlds: over sockets with inboxes, by the calls that the preload library makes, and over the kernel's alone.
//! What a program sees must be the same: Linux is the specification. Inboxes are made as the option `eager` makes them, so that what may
//! travel through memory does.
//!
//! ```text
//! in_both     makes a scenario in both, and compares what it tells
//! World       what a program can do in one of them; what it opens goes with it
//! Got         what a receive told
//! ```

use crate::datagram::send::Answer;
use crate::datagram::{self, options, pin, Datagram};
use crate::local::{self, end_of_stream};
use core::cell::Cell;
use core::fmt::Debug;
use core::sync::atomic::Ordering;
use shunt_config::{Options, Udp, Unix};
use shunt_ring::inbox::Inbox;
use shunt_sys::libc::{self, iovec, msghdr, sockaddr_storage, sockaddr_un, AF_INET, AF_INET6, AF_UNIX, MSG_DONTWAIT};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::sockaddr::{bound_address, peer_address, Encoded};
use shunt_table::table::Kind;
use shunt_table::{global, table};
use std::collections::BTreeSet;
use std::sync::{Mutex, Once, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One of them.
pub struct World {
    _others: Others,
    ours: bool,
    open: Mutex<BTreeSet<i32>>,
}

/// A datagram of which only the kernel understands where it goes sends all of the process through the kernel for a moment: a test that sends
/// such ones has the process for itself.
static OTHERS: RwLock<()> = RwLock::new(());

/// Other tests are beside this one, or not: held as long as its world.
enum Others {
    Beside { _lock: RwLockReadGuard<'static, ()> },
    Apart { _lock: RwLockWriteGuard<'static, ()> },
}

/// Makes the scenario in both worlds, and gives what it told in both of them.
pub fn in_both<T: PartialEq + Debug>(scenario: impl Fn(&World) -> T) -> T {
    compare(World::new, scenario)
}

/// The same, while no other test runs.
pub fn alone_in_both<T: PartialEq + Debug>(scenario: impl Fn(&World) -> T) -> T {
    let alone =
        |ours| World::with(ours, Others::Apart { _lock: OTHERS.write().unwrap_or_else(|poisoned| poisoned.into_inner()) });
    compare(alone, scenario)
}

fn compare<T: PartialEq + Debug>(world: impl Fn(bool) -> World, scenario: impl Fn(&World) -> T) -> T {
    let [ours, kernels] = [true, false].map(|ours| scenario(&world(ours)));
    assert_eq!(ours, kernels, "ours, and what the kernel says");
    ours
}

/// The engine's state is the process's, and is made once.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        super::faults::catch();
        clock::start();
        shunt_sys::processor::find_vectors();
        let options = Options { udp: Udp::Eager, unix: Unix::Eager, ..Options::default() };
        // SAFETY: nothing of the engine is used before; null says that there may be several threads.
        unsafe { global::set(options, core::ptr::null_mut()) };
        shunt_table::process::user::start();
        global::set_ready();
    });
}

/// What a receive told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Got {
    /// The call's result.
    pub told: usize,
    /// What lies in the buffers.
    pub bytes: Vec<u8>,
    /// msg_flags, without MSG_CMSG_CLOEXEC's echo.
    pub flags: i32,
    /// The source's port, of internet sockets.
    pub port: u16,
    /// And its address, of IPv4's.
    pub address: [u8; 4],
    /// The source's name, as far as there was room, and its length.
    pub name: (Vec<u8>, u32),
    /// Control messages: level, kind, bytes.
    pub control: Vec<(i32, i32, Vec<u8>)>,
    /// msg_controllen.
    pub control_length: usize,
}

/// How a message is received.
#[derive(Clone, Copy)]
pub struct Room<'a> {
    /// Sizes of the buffers.
    pub pieces: &'a [usize],
    /// Room for the name.
    pub name: u32,
    /// Room for control messages.
    pub control: usize,
    /// Flags.
    pub flags: i32,
}

/// An address that nobody can touch.
const BAD: usize = 0x1_0000;

/// Nothing but bytes, up to so many.
pub const fn plain<'a>(pieces: &'a [usize], flags: i32) -> Room<'a> {
    Room { pieces, name: 0, control: 0, flags }
}

/// A control message as it stands in a buffer.
pub fn control(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
    let mut bytes = ((16 + data.len()) as u64).to_ne_bytes().to_vec();
    bytes.extend([level.to_ne_bytes(), kind.to_ne_bytes()].concat());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn parse(bytes: &[u8]) -> Vec<(i32, i32, Vec<u8>)> {
    let (mut rest, mut all) = (bytes, Vec::new());
    while rest.len() >= 16 {
        let length = u64::from_ne_bytes(rest[..8].try_into().unwrap()) as usize;
        let word = |at: usize| i32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
        all.push((word(8), word(12), rest[16..length].to_vec()));
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or(&[]);
    }
    all
}

/// A result as the C library gives it, and its error where that is kept.
fn raw(result: Result<usize>, error: &Cell<i32>) -> isize {
    match result {
        Ok(value) => value as isize,
        Err(Errno(number)) => {
            error.set(number);
            -1
        }
    }
}

fn settle(answer: Answer, error: i32) -> Result<usize> {
    match answer {
        Answer::Done(result) => result.map(|value| value as usize),
        Answer::Raw(-1) => Err(Errno(error)),
        Answer::Raw(value) => Ok(value as usize),
    }
}

unsafe fn send_more(fd: i32, message: *const msghdr, flags: i32) -> Result<isize> {
    calls::sendmsg(fd, message, flags).map(|sent| sent as isize)
}

unsafe fn receive_more(fd: i32, message: *mut msghdr, flags: i32) -> Result<isize> {
    calls::recvmsg(fd, message, flags).map(|got| got as isize)
}

/// An AF_UNIX name as it is given to the kernel: bytes behind the family.
pub fn name(path: &[u8]) -> (sockaddr_un, u32) {
    let mut address = sockaddr_un { sun_family: AF_UNIX as u16, sun_path: [0; 108] };
    address.sun_path.iter_mut().zip(path).for_each(|(to, from)| *to = *from as libc::c_char);
    (address, 2 + path.len() as u32)
}

impl World {
    /// With inboxes, or the kernel's alone.
    pub fn new(ours: bool) -> World {
        World::with(ours, Others::Beside { _lock: OTHERS.read().unwrap_or_else(|poisoned| poisoned.into_inner()) })
    }

    fn with(ours: bool, others: Others) -> World {
        start();
        World { _others: others, ours, open: Mutex::new(BTreeSet::new()) }
    }

    fn own(&self, fd: i32) -> i32 {
        self.open.lock().unwrap().insert(fd);
        fd
    }

    fn socket(&self, fd: i32) -> Option<&'static Datagram> {
        table::find::<Datagram>(fd)
    }

    /// A UDP socket without a port.
    pub fn unbound(&self, family: i32) -> i32 {
        let fd = calls::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).expect("a socket");
        if self.ours {
            datagram::created(fd, family, false);
        }
        self.own(fd)
    }

    /// A UDP socket with a port of loopback.
    pub fn udp(&self, family: i32) -> i32 {
        let fd = self.unbound(family);
        self.bind(fd, 0).expect("a port");
        fd
    }

    /// One that asked for its port by number, and so keeps it when it is disconnected.
    pub fn udp_of_a_chosen_port(&self) -> i32 {
        loop {
            let free = self.udp(AF_INET);
            let port = self.port(free);
            self.close(free);
            let fd = self.unbound(AF_INET);
            // Another test may have got it.
            match self.bind(fd, port) {
                Ok(()) => return fd,
                Err(_) => self.close(fd),
            }
        }
    }

    /// Two UDP sockets of IPv4, each with a port.
    pub fn two(&self) -> (i32, i32) {
        (self.udp(AF_INET), self.udp(AF_INET))
    }

    fn loopback(&self, fd: i32, port: u16) -> Encoded {
        let family = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).expect("a socket");
        let ip = if family == AF_INET6 {
            let mut ip = [0; 16];
            ip[15] = 1;
            shunt_segment::address::Address { ip, port, scope: 0 }
        } else {
            shunt_segment::address::Address::v4([127, 0, 0, 1], port)
        };
        Encoded::new(family, &ip)
    }

    /// bind(2) to a port of loopback.
    pub fn bind(&self, fd: i32, port: u16) -> Result<()> {
        let address = self.loopback(fd, port);
        calls::bind(fd, address.pointer(), address.length)?;
        if let Some(socket) = self.socket(fd) {
            datagram::bound(fd, socket);
        }
        Ok(())
    }

    /// Its port.
    pub fn port(&self, fd: i32) -> u16 {
        bound_address(fd).port
    }

    /// The port of its peer; `None`: it has none.
    pub fn peer(&self, fd: i32) -> Option<u16> {
        peer_address(fd).map(|address| address.port)
    }

    /// connect(2) to another one's port.
    pub fn connect(&self, fd: i32, to: i32) -> Result<()> {
        let address = self.loopback(fd, self.port(to));
        calls::connect(fd, address.pointer(), address.length)?;
        self.moved(fd);
        Ok(())
    }

    /// connect(2) to AF_UNSPEC.
    pub fn disconnect(&self, fd: i32) -> Result<()> {
        // SAFETY: plain integers, and AF_UNSPEC is 0.
        let nowhere: sockaddr_storage = unsafe { core::mem::zeroed() };
        calls::connect(fd, (&raw const nowhere).cast(), 16)?;
        self.moved(fd);
        Ok(())
    }

    fn moved(&self, fd: i32) {
        if let Some(socket) = self.socket(fd) {
            datagram::moved_to_address(fd, socket);
        }
    }

    /// Both ends of an AF_UNIX pair: SOCK_STREAM or SOCK_SEQPACKET.
    pub fn pair(&self, kind: i32) -> (i32, i32) {
        let mut ends = [-1; 2];
        calls::socketpair(AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()).expect("a pair");
        if self.ours {
            local::paired(ends, AF_UNIX, kind);
        }
        (self.own(ends[0]), self.own(ends[1]))
    }

    /// A client bound to the first name, if there is one, and the end that a listener of the second name accepted.
    pub fn named(&self, kind: i32, client: Option<&[u8]>, server: &[u8]) -> (i32, i32) {
        let fresh = || {
            let fd = calls::socket(AF_UNIX, kind | libc::SOCK_CLOEXEC, 0).expect("a socket");
            if self.ours {
                local::created(fd, AF_UNIX, kind);
            }
            self.own(fd)
        };
        let (listener, near) = (fresh(), fresh());
        let (address, length) = name(server);
        calls::bind(listener, (&raw const address).cast(), length).expect("a free name");
        calls::listen(listener, 1).expect("a listener");
        if let Some(client) = client {
            let (address, length) = name(client);
            calls::bind(near, (&raw const address).cast(), length).expect("a free name");
        }
        calls::connect(near, (&raw const address).cast(), length).expect("a connection");
        if let Some(socket) = self.socket(near) {
            local::connected(near, socket);
        }
        let far = calls::accept4(listener, core::ptr::null_mut(), core::ptr::null_mut(), libc::SOCK_CLOEXEC).expect("a client");
        if let Some(listener) = self.socket(listener) {
            local::accepted(listener, far, 0);
        }
        (near, self.own(far))
    }

    /// setsockopt(2) of an int.
    pub fn set(&self, fd: i32, level: i32, option: i32, value: i32) -> Result<()> {
        calls::setsockopt_int(fd, level, option, value)?;
        if let Some(socket) = self.socket(fd) {
            let data = (&raw const value).cast::<u8>();
            if socket.is_local() {
                local::option_set(socket, level, option, value);
                // SAFETY: an int.
                unsafe { local::limit_set(socket, level, option, data, 4) };
            } else {
                // SAFETY: an int.
                unsafe { options::set(fd, socket, level, option, data, 4) };
            }
        }
        Ok(())
    }

    /// SO_RCVTIMEO, in microseconds.
    pub fn set_receive_limit(&self, fd: i32, limit: i64) {
        let time = libc::timeval { tv_sec: 0, tv_usec: limit };
        let data = (&raw const time).cast::<libc::c_void>();
        calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, data, 16).expect("a socket");
        if let Some(socket) = self.socket(fd) {
            local::option_set(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, 0);
            // SAFETY: a time.
            unsafe { local::limit_set(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, data.cast(), 16) };
        }
    }

    /// O_NONBLOCK.
    pub fn set_nonblocking(&self, fd: i32) {
        calls::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK as usize).expect("an open descriptor");
        if let Some(socket) = self.socket(fd) {
            options::set_flags(socket, libc::O_NONBLOCK);
        }
    }

    /// shutdown(2).
    pub fn shut(&self, fd: i32, how: i32) -> Result<()> {
        if let Some(socket) = self.socket(fd) {
            options::plain(socket, pin::SHUT);
            options::settle_sends(socket);
        }
        calls::shutdown(fd, how)
    }

    /// sendmsg(2), to the port if there is one.
    pub fn send_message(&self, fd: i32, pieces: &[&[u8]], port: Option<u16>, control: &[u8], flags: i32) -> Result<usize> {
        let mut vector: Vec<iovec> =
            pieces.iter().map(|bytes| iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }).collect();
        // SAFETY: all-zero is a valid header.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        let address = port.map(|port| self.loopback(fd, port));
        if let Some(address) = &address {
            (message.msg_name, message.msg_namelen) = (address.pointer().cast_mut().cast(), address.length);
        }
        (message.msg_iov, message.msg_iovlen) = (vector.as_mut_ptr(), vector.len());
        (message.msg_control, message.msg_controllen) = (control.as_ptr().cast_mut().cast(), control.len());
        let (flags, error) = (flags | libc::MSG_NOSIGNAL, Cell::new(0));
        let kernel = || raw(calls::sendmsg(fd, &message, flags), &error);
        let Some(socket) = self.socket(fd) else { return calls::sendmsg(fd, &message, flags) };
        // SAFETY: a header of slices.
        let answer = unsafe {
            match socket.is_local() {
                true => local::send::send(fd, socket, &message, flags, kernel, send_more),
                false => datagram::send::send(fd, socket, &message, flags, kernel),
            }
        };
        if matches!(answer, Answer::Raw(-1)) && error.get() == libc::ECONNRESET && socket.is_local() {
            end_of_stream::note_reset(socket);
        }
        settle(answer, error.get())
    }

    /// send(2) of bytes that cannot be read.
    pub fn send_from_nothing(&self, fd: i32, length: usize) -> Result<usize> {
        // SAFETY: nobody looks at the slice but by copies that may fault.
        self.send_message(fd, &[unsafe { core::slice::from_raw_parts(BAD as *const u8, length) }], None, &[], 0)
    }

    /// send(2).
    pub fn send(&self, fd: i32, bytes: &[u8], flags: i32) -> Result<usize> {
        self.send_message(fd, &[bytes], None, &[], flags)
    }

    /// sendto(2) another one's port.
    pub fn send_to(&self, fd: i32, bytes: &[u8], to: i32) -> Result<usize> {
        self.send_message(fd, &[bytes], Some(self.port(to)), &[], 0)
    }

    fn receive_by(&self, fd: i32, message: *mut msghdr, flags: i32) -> Result<usize> {
        let error = Cell::new(0);
        let Some(socket) = self.socket(fd) else { return calls::recvmsg(fd, message, flags) };
        let kernel = || raw(calls::recvmsg(fd, message, flags), &error);
        // SAFETY: a header of buffers of ours; the kernel's call is made in place of the other.
        let answer = unsafe {
            let message = &mut *{ message };
            match socket.is_local() {
                true => local::receive::receive(fd, socket, message, flags, kernel, receive_more),
                false => datagram::receive::receive(fd, socket, message, flags, kernel),
            }
        };
        if matches!(answer, Answer::Raw(-1)) && error.get() == libc::ECONNRESET && socket.is_local() {
            end_of_stream::note_reset(socket);
        }
        settle(answer, error.get())
    }

    /// recvmsg(2).
    pub fn receive_message(&self, fd: i32, room: Room) -> Result<Got> {
        let mut buffers: Vec<Vec<u8>> = room.pieces.iter().map(|size| vec![b'.'; *size]).collect();
        let mut vector: Vec<iovec> =
            buffers.iter_mut().map(|bytes| iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }).collect();
        let (mut named, mut controls) = ([0u64; 32], [0u64; 64]);
        // SAFETY: all-zero is a valid header.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        if room.name > 0 {
            (message.msg_name, message.msg_namelen) = (named.as_mut_ptr().cast(), room.name);
        }
        (message.msg_iov, message.msg_iovlen) = (vector.as_mut_ptr(), vector.len());
        (message.msg_control, message.msg_controllen) = (controls.as_mut_ptr().cast(), room.control);
        let told = self.receive_by(fd, &raw mut message, room.flags)?;
        let as_bytes = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|word| word.to_ne_bytes()).collect() };
        let named = as_bytes(&named);
        let family = u16::from_ne_bytes([named[0], named[1]]) as i32;
        Ok(Got {
            told,
            bytes: buffers.concat(),
            flags: message.msg_flags,
            port: if family == AF_UNIX || room.name < 4 { 0 } else { u16::from_be_bytes([named[2], named[3]]) },
            address: if family == AF_INET { [named[4], named[5], named[6], named[7]] } else { [0; 4] },
            name: if family == AF_UNIX {
                (named[..room.name as usize].to_vec(), message.msg_namelen)
            } else {
                (vec![], message.msg_namelen)
            },
            control: parse(&as_bytes(&controls)[..message.msg_controllen]),
            control_length: message.msg_controllen,
        })
    }

    /// recv(2) to where nothing can be written.
    pub fn receive_into_nothing(&self, fd: i32, length: usize) -> Result<usize> {
        let mut piece = iovec { iov_base: BAD as *mut libc::c_void, iov_len: length };
        // SAFETY: all-zero is a valid header.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
        self.receive_by(fd, &raw mut message, MSG_DONTWAIT)
    }

    /// recv(2), as text: what was copied.
    pub fn text(&self, fd: i32, most: usize, flags: i32) -> Result<String> {
        let got = self.receive_message(fd, plain(&[most], flags))?;
        Ok(String::from_utf8_lossy(&got.bytes[..got.told.min(most)]).into_owned())
    }

    /// All that is there, without waiting.
    pub fn all(&self, fd: i32, most: usize) -> Vec<String> {
        core::iter::from_fn(|| self.text(fd, most, MSG_DONTWAIT).ok().filter(|text| !text.is_empty())).collect()
    }

    /// recvfrom(2): whether it comes from `source`.
    pub fn is_from(&self, fd: i32, source: i32) -> bool {
        let got = self.receive_message(fd, Room { name: 28, ..plain(&[64], MSG_DONTWAIT) }).expect("a datagram");
        got.port == self.port(source)
    }

    /// poll(2), without waiting.
    pub fn events(&self, fd: i32, asked: i16) -> i16 {
        let kernels = calls::poll_one(fd, asked, 0).expect("an open descriptor");
        let Some(socket) = self.socket(fd) else { return kernels };
        let told = if kernels & libc::POLLHUP != 0 { local::error(fd, socket) } else { 0 };
        kernels | datagram::events(socket) & asked | told
    }

    /// FIONREAD.
    pub fn readable(&self, fd: i32) -> usize {
        let kernels = calls::bytes_waiting(fd).expect("a socket") as usize;
        match self.socket(fd) {
            Some(socket) if socket.is_local() => end_of_stream::readable(socket, kernels),
            Some(socket) => datagram::next_size(fd, socket).unwrap_or(kernels),
            None => kernels,
        }
    }

    /// SIOCOUTQ.
    pub fn unread(&self, fd: i32) -> u64 {
        match self.socket(fd) {
            Some(socket) => end_of_stream::unread(fd, socket),
            None => calls::bytes_unread(fd).expect("a socket") as u64,
        }
    }

    /// Whether what waits at `fd` lies in memory. In the kernel's world it never does, and the answer is the same.
    pub fn in_memory(&self, fd: i32) -> bool {
        !self.ours || self.socket(fd).is_some_and(|socket| socket.has_waiting())
    }

    /// Whether all that waits at `fd` is the kernel's.
    pub fn in_kernel(&self, fd: i32) -> bool {
        !self.ours || self.socket(fd).is_some_and(|socket| !socket.has_waiting())
    }

    /// The inbox.
    pub fn inbox(&self, fd: i32) -> Option<Inbox> {
        self.socket(fd)?.inbox()
    }

    /// The object.
    pub fn object(&self, fd: i32) -> &'static Datagram {
        self.socket(fd).expect("a socket of ours")
    }

    /// dup(2).
    pub fn dup(&self, fd: i32) -> i32 {
        let copy = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).expect("a number");
        if let Some(socket) = self.socket(fd) {
            socket.references.fetch_add(1, Ordering::AcqRel);
            table::enter(copy, Kind::Datagram, socket);
        }
        self.own(copy)
    }

    /// close(2).
    pub fn close(&self, fd: i32) {
        assert!(self.open.lock().unwrap().remove(&fd), "{fd} is open");
        World::let_go(fd);
    }

    fn let_go(fd: i32) {
        if let Some(socket) = table::take(fd).object::<Datagram>() {
            datagram::release(socket, fd);
        }
        calls::close(fd).expect("an open descriptor");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let open = core::mem::take(&mut *self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        open.into_iter().for_each(World::let_go);
    }
}
