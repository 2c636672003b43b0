//! exec: handing accelerated descriptors to the next program in the same process.
//!
//! The kernel keeps descriptors across execve(2); what we know about them goes with the memory. Only two things are
//! needed besides: the links' memfds and the listeners' rendezvous, which are private descriptors and closed on exec.
//! Before an exec that keeps a stream or a listener open they are let through, and their numbers are named in the
//! variable [`VARIABLE`]. The next image finds its streams by asking the kernel: a companion's name, or its peer's,
//! tells link and channel, whatever number the descriptor has by then.

use crate::global::{self, SETUP};
use crate::socket::{self, flag, Socket};
use crate::table::{self, Kind};
use crate::{link, private, report};
use core::fmt::Write;
use core::sync::atomic::{AtomicI32, Ordering};
use shunt_segment::channel::release;
use shunt_segment::name::{self, Hello};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, sockaddr_un, socklen_t, FD_CLOEXEC, F_GETFD, F_SETFD};
use shunt_sys::{calls, Result};

/// The environment variable that names what was handed over: `L902,R901,E17.1.3.0` (link, rendezvous, and what has ended: nonce
/// and sequence of the link, channel, side).
pub const VARIABLE: &str = "SHUNT_INHERIT";

/// A text of bounded length.
pub struct Text {
    bytes: [u8; 2048],
    length: usize,
}

impl Text {
    /// Empty.
    pub const fn new() -> Text {
        Text { bytes: [0; 2048], length: 0 }
    }
    /// What was written, with a NUL behind it.
    pub fn with_nul(&self) -> &[u8] {
        &self.bytes[..self.length + 1]
    }
    /// Whether nothing was written behind `prefix` bytes.
    pub fn is_only(&self, prefix: usize) -> bool {
        self.length == prefix
    }
}

impl Default for Text {
    fn default() -> Self {
        Text::new()
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        if self.length + text.len() >= self.bytes.len() {
            return Err(core::fmt::Error);
        }
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

fn kept_over_exec(fd: i32) -> bool {
    calls::fcntl(fd, F_GETFD, 0).is_ok_and(|flags| flags & FD_CLOEXEC == 0)
}

fn let_through(fd: i32) {
    let _ = calls::fcntl(fd, F_SETFD, 0);
}

/// Before an exec (`spawn`: of a child that shares nothing but descriptors): lets through what the kept descriptors
/// need and writes `SHUNT_INHERIT=...` into `text`. False: nothing of ours is kept, and nothing ends.
///
/// `all` hands over whatever is open: file actions of posix_spawn may keep any of it. Descriptors from `below` on are
/// left out.
pub fn before_exec(text: &mut Text, spawn: bool, all: bool, below: i32) -> bool {
    crate::datagram::before_exec(all, below);
    if !spawn {
        crate::local::owners::before_exec();
    }
    crate::epoll::before_exec(below);
    let _ = write!(text, "{VARIABLE}=");
    let start = text.length;
    if let Some(_setup) = SETUP.lock() {
        crate::spare::spoil_all();
    }
    let mut listeners = false;
    for fd in 0..table::high_water().min(below) {
        let word = table::get(fd);
        let Some(socket) = word.socket() else { continue };
        if !matches!(word.kind(), Kind::Stream | Kind::Listener) || !(all || kept_over_exec(fd)) {
            continue;
        }
        let comma = if text.length == start { "" } else { "," };
        if word.kind() == Kind::Listener {
            let rendezvous = socket.private_fd.load(Ordering::Relaxed);
            // Once for all descriptors of the listener.
            if rendezvous >= 0 && !kept_over_exec(rendezvous) {
                socket.set(flag::LISTENER_SHARED);
                listeners = true;
                let _ = write!(text, "{comma}R{rendezvous}");
                let_through(rendezvous);
            }
            continue;
        }
        socket.share();
        // Once for all descriptors of the stream, as the new program will count them.
        let again = socket.references.load(Ordering::Relaxed) > 1
            && (0..fd).any(|other| {
                table::stream(other).is_some_and(|known| core::ptr::eq(known, socket)) && (all || kept_over_exec(other))
            });
        if spawn && !again {
            socket.own().owners.fetch_add(1, Ordering::AcqRel);
        }
        let descriptor = SETUP.lock().map_or(-1, |_setup| link::descriptor(socket.link_index.load(Ordering::Relaxed) as usize));
        if descriptor >= 0 && !kept_over_exec(descriptor) {
            let _ = write!(text, "{comma}L{descriptor}");
            let_through(descriptor);
        }
    }
    if listeners {
        if let Some(_setup) = SETUP.lock() {
            crate::parcel::before_sharing();
        }
    }
    if !spawn {
        name_what_ends(text, below);
    }
    text.length != start
}

/// Streams of this process alone that the exec closes: the kernel will only hang up, and the next image says what a close would
/// have said. Only where it is known to be one that can.
fn name_what_ends(text: &mut Text, below: i32) {
    for fd in 0..table::high_water().min(below) {
        let Some(socket) = table::stream(fd).filter(|socket| !socket.has(flag::SHARED)) else { continue };
        let named = |other: i32| table::stream(other).is_some_and(|s| core::ptr::eq(s, socket));
        if text.length > 1500 || (0..fd).any(named) {
            continue;
        }
        let descriptor = SETUP.lock().map_or(-1, |_setup| link::descriptor(socket.link_index.load(Ordering::Relaxed) as usize));
        if descriptor < 0 {
            continue;
        }
        if !kept_over_exec(descriptor) {
            let _ = write!(text, ",L{descriptor}");
            let_through(descriptor);
        }
        let header = link::header(socket.link());
        let (nonce, sequence) = (header.nonce.load(Ordering::Relaxed), header.sequence.load(Ordering::Relaxed));
        let _ = write!(text, ",E{nonce}.{sequence}.{}.{}", socket.channel(), socket.side());
    }
}

/// Says the end of a stream that the exec has closed: `nonce.sequence.channel.side`, the first two of which name the link.
fn say_end(item: &[u8]) -> Option<()> {
    let mut numbers = item.split(|byte| *byte == b'.').map(|digits| core::str::from_utf8(digits).ok()?.parse::<u64>().ok());
    let (nonce, sequence) = (numbers.next()??, numbers.next()?? as u32);
    let (channel, side) = (numbers.next()?? as usize, numbers.next()?? as usize);
    let (index, base) = {
        let _setup = SETUP.lock()?;
        link::by_name(nonce, sequence).map(|(index, link)| (index, link.base))?
    };
    if channel >= shunt_segment::CHANNELS || side > 1 {
        return None;
    }
    let own = &link::page(base, channel).sides[side];
    let alone = own.owners.load(Ordering::Acquire) == 1 && own.pid.load(Ordering::Relaxed) == shunt_sys::thread::process();
    if !alone || own.released.load(Ordering::Acquire) != release::NOT {
        return None;
    }
    let socket = socket::allocate(libc::AF_INET)?;
    socket.attach(base, channel, side);
    socket.link_index.store(index as u32, Ordering::Relaxed);
    let ended = crate::readiness::closed(socket);
    crate::descriptor::say_end(socket, ended);
    socket::free(socket);
    Some(())
}

/// The exec failed, or the spawned child has its copy: private descriptors are private again.
pub fn after_exec() {
    for fd in 0..table::high_water() {
        if table::get(fd).kind() == Kind::Private {
            let _ = calls::fcntl(fd, F_SETFD, FD_CLOEXEC as usize);
        }
    }
}

/// In the next image: takes up what the variable names. Whatever is not what it should be is left alone.
pub fn take_up(list: &[u8]) {
    for item in list.split(|b| *b == b',') {
        match item.split_first() {
            Some((b'L', number)) => {
                if let Some(fd) = decimal(number) {
                    if table::get(fd).kind() == Kind::Foreign {
                        if let Some(_setup) = SETUP.lock() {
                            if link::take_up(fd).is_err() && link::is_segment(fd) {
                                let _ = calls::close(fd); // both ends of a connection were ours: one mapping serves both
                            }
                        }
                    }
                }
            }
            Some((b'R', number)) => {
                if let Some(fd) = decimal(number).filter(|fd| table::get(*fd).kind() == Kind::Foreign) {
                    take_up_listener(fd);
                }
            }
            _ => {}
        }
    }
    let most = calls::soft_limit(libc::RLIMIT_NOFILE).min(4096) as i32;
    for fd in 0..most {
        if table::get(fd).kind() == Kind::Foreign {
            let _ = take_up_stream(fd, Came::Inherited);
        }
    }
    for item in list.split(|b| *b == b',') {
        if let Some((b'E', numbers)) = item.split_first() {
            let _ = say_end(numbers);
        }
    }
    if let Some(_setup) = SETUP.lock() {
        link::drop_unused();
    }
}

fn decimal(digits: &[u8]) -> Option<i32> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

fn unix_name(fd: i32, peer: bool, room: &mut sockaddr_un) -> Result<&[u8]> {
    let mut length = core::mem::size_of::<sockaddr_un>() as socklen_t;
    let target = (room as *mut sockaddr_un).cast();
    if peer {
        calls::getpeername(fd, target, &mut length)?;
    } else {
        calls::getsockname(fd, target, &mut length)?;
    }
    if room.sun_family as i32 != libc::AF_UNIX || length < 4 {
        return Ok(&[]);
    }
    // SAFETY: sun_path is plain bytes.
    let path = unsafe { core::slice::from_raw_parts(room.sun_path.as_ptr().cast::<u8>(), 108) };
    Ok(&path[1..(length as usize - 2).min(108)])
}

fn take_up_listener(rendezvous: i32) {
    let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    let Ok(found) = unix_name(rendezvous, false, &mut room) else { return };
    let most = calls::soft_limit(libc::RLIMIT_NOFILE).min(4096) as i32;
    let mut owner: Option<&'static Socket> = None;
    for fd in 0..most {
        // SAFETY: plain integers.
        let mut status: libc::stat = unsafe { core::mem::zeroed() };
        if table::get(fd).kind() != Kind::Foreign || calls::fstat(fd, &mut status).is_err() {
            continue;
        }
        if name::listener(status.st_ino).as_slice() != found || status.st_mode & libc::S_IFMT != libc::S_IFSOCK {
            continue;
        }
        let family = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).unwrap_or(libc::AF_INET);
        let listener = match owner {
            Some(listener) => {
                listener.references.fetch_add(1, Ordering::Relaxed);
                listener
            }
            None => {
                let Some(listener) = socket::allocate(family) else { return };
                listener.inode.store(status.st_ino, Ordering::Relaxed);
                listener.private_fd.store(rendezvous, Ordering::Relaxed);
                listener.bells_fd.store(crate::offered::bells().unwrap_or(-1), Ordering::Relaxed);
                listener.set(flag::LISTENER_SHARED);
                listener.port.store(crate::listen::bound_address(fd).port as u32, Ordering::Relaxed);
                crate::options::learn(fd, listener);
                listener.set_listener();
                table::set_private(rendezvous);
                let _ = calls::fcntl(rendezvous, F_SETFD, FD_CLOEXEC as usize);
                owner = Some(listener);
                listener
            }
        };
        table::set_socket(fd, Kind::Listener, listener);
        report::note(fd, kind::LISTENER, Reason::Listening, None);
    }
    if owner.is_none() && found.starts_with(b"shunt1-listen-") {
        let _ = calls::close(rendezvous);
    }
}

/// How a stream's descriptor came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// Over an exec: the process was counted as an owner, however many descriptors it has.
    Inherited,
    /// In a message, which was counted as an owner.
    Received,
    /// The same, and the message stays where it is (MSG_PEEK).
    Peeked,
}

fn take_up_stream(fd: i32, came: Came) -> Option<()> {
    let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    let (hello, side) = match Hello::decode(unix_name(fd, false, &mut room).ok()?) {
        Some(hello) => (hello, 0),
        None => (Hello::decode(unix_name(fd, true, &mut room).ok()?)?, 1),
    };
    let _setup = SETUP.lock()?;
    let (index, link) = link::by_name(hello.nonce, hello.sequence)?;
    let channel = hello.channel as usize;
    let page = link::page(link.base, channel);
    if page.head.pair.load(Ordering::Acquire) != hello.generation {
        return None;
    }
    drop(_setup);
    let same = (0..fd)
        .find_map(|other| table::stream(other).filter(|s| s.link() == link.base && s.channel() == channel && s.side() == side));
    if let Some(socket) = same {
        socket.references.fetch_add(1, Ordering::Relaxed);
        // Descriptors that share a socket count once; who peeked already counts for the message.
        if came == Came::Received && !socket.take(flag::PEEKED) {
            socket.own().owners.fetch_sub(1, Ordering::AcqRel);
        }
        table::set_socket(fd, Kind::Stream, socket);
    } else {
        let family = match page.sides[side].address_family.load(Ordering::Relaxed) as i32 {
            libc::AF_INET6 => libc::AF_INET6,
            _ => libc::AF_INET,
        };
        let socket = socket::allocate(family)?;
        socket.attach(link.base, channel, side);
        socket.link_index.store(index as u32, Ordering::Relaxed);
        socket.set(if came == Came::Peeked { flag::SHARED | flag::PEEKED } else { flag::SHARED });
        if calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) & libc::O_NONBLOCK != 0 {
            socket.set(flag::NONBLOCK);
        }
        let header = link::header(link.base);
        let peer = if side == 0 { &header.server } else { &header.client };
        if peer.barrier.load(Ordering::Acquire) == 0 || global::BARRIERS.load(Ordering::Relaxed) == 0 {
            socket.set(flag::FENCE);
        }
        crate::options::catch_up(socket);
        let _setup = SETUP.lock()?;
        link::enter(index);
        table::set_socket(fd, Kind::Stream, socket);
    }
    page.sides[side].join(shunt_sys::thread::process());
    report::note(fd, kind::STREAM, Reason::Accelerated, Some(channel));
    Some(())
}

/// A descriptor came in a message: true if it is one that a sender's shunt appended, and now is ours.
pub fn take_up_private(fd: i32) -> bool {
    let Some(_setup) = SETUP.lock() else { return false };
    if link::is_segment(fd) {
        let Ok(fd) = private::keep(fd) else { return true };
        if link::take_up(fd).is_err() {
            private::close(fd);
        }
        return true;
    }
    drop(_setup);
    let mut room = sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    // An accepted companion has its listener's name, too.
    let rendezvous = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
        && unix_name(fd, false, &mut room).is_ok_and(|name| name.starts_with(b"shunt1-listen-"));
    if rendezvous {
        let Ok(fd) = private::keep(fd) else { return true };
        WAITING.store(fd, Ordering::Release);
    }
    rendezvous
}

/// A rendezvous that came in a message before its listener was looked at.
static WAITING: AtomicI32 = AtomicI32::new(-1);

/// A descriptor of the program's came in a message: if it is a companion or a listener, it becomes what it was.
pub fn take_up_passed(fd: i32, came: Came) {
    if take_up_stream(fd, came).is_some() {
        return;
    }
    let rendezvous = WAITING.load(Ordering::Acquire);
    if rendezvous >= 0 && calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1) {
        WAITING.store(-1, Ordering::Release);
        table::take(rendezvous);
        take_up_listener(rendezvous);
    }
}
