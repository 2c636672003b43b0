//! How a caller and a server find each other: a stream socket, abstract and user-checked on one host, TCP elsewhere. Records go over
//! it once; then it stays open, and its end tells of the other process's. Between hosts words go over it meanwhile: a server's thread that
//! runs a procedure answers nothing, so another one says that it lives; and what a caller takes back reaches a procedure that runs.

use crate::address::Address;
use crate::forks::Kept;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// Abstract names of servers begin with it.
pub const PREFIX: &str = "shunt-rpc/";

/// The process at the other end, where the kernel says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// One end of the socket. It tells of its process's end, so no child has it.
#[derive(Debug)]
pub(crate) struct Socket {
    _kept: Kept,
    stream: Stream,
    /// A word of which so many bytes came.
    part: Cell<([u8; WORD], usize)>,
    /// A part of a word was sent: what would follow could not be told from it.
    mute: Cell<bool>,
}

/// Bytes of a word.
pub(crate) const WORD: usize = 8;
/// A server's word: the thread of the binding is busy, and lives; it has no others. A caller's words are names of calls that it takes back.
pub(crate) const BUSY: u64 = 1;

#[derive(Debug)]
enum Stream {
    Local(UnixStream),
    Remote(TcpStream),
}

/// What callers come to.
#[derive(Debug)]
pub(crate) enum Listener {
    Local(UnixListener),
    Remote(TcpListener),
}

fn local(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{PREFIX}{name}"))
}

/// Over SunRPC there is nothing to agree on before a call.
fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a server by SunRPC tells nothing of itself: rpcbind of its host lists programs")
}

impl Listener {
    pub fn bind(address: &Address) -> io::Result<Self> {
        let listener = match (address, address.place()) {
            (Address::Memory(name), _) => Self::Local(UnixListener::bind_addr(&local(name)?)?),
            (Address::SunRpc(_), _) => return Err(foreign()),
            (_, place) => Self::Remote(TcpListener::bind(place.unwrap_or_default())?),
        };
        match &listener {
            Self::Local(socket) => socket.set_nonblocking(true)?,
            Self::Remote(socket) => socket.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    pub fn accept(&self) -> io::Result<Socket> {
        let socket = match self {
            Self::Local(listener) => Socket::local(listener.accept()?.0),
            Self::Remote(listener) => Socket::remote(listener.accept()?.0),
        };
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// The address that callers use, with the port that the system chose.
    pub fn address(&self, asked: &Address) -> Address {
        match self {
            Self::Remote(listener) => listener.local_addr().map_or_else(|_| asked.clone(), |at| asked.moved(at.to_string())),
            Self::Local(_) => asked.clone(),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Local(listener) => listener.as_fd(),
            Self::Remote(listener) => listener.as_fd(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Local(socket) => socket.as_fd(),
            Stream::Remote(socket) => socket.as_fd(),
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Socket {
    pub fn local(stream: UnixStream) -> Self {
        Self { _kept: Kept::new(&stream), stream: Stream::Local(stream), part: Cell::default(), mute: Cell::default() }
    }

    fn remote(stream: TcpStream) -> Self {
        // A host that lost its power says nothing.
        keep_alive(&stream);
        Self { _kept: Kept::new(&stream), stream: Stream::Remote(stream), part: Cell::default(), mute: Cell::default() }
    }

    /// To the server at an address, if one listens now; a host that does not answer has so long.
    pub fn connect(address: &Address, limit: Duration) -> io::Result<Self> {
        Ok(match (address, address.place()) {
            (Address::Memory(name), _) => Self::local(connect_local(name, limit)?),
            (Address::SunRpc(_), _) => return Err(foreign()),
            (_, place) => Self::remote(connect_within(place.unwrap_or_default(), limit)?),
        })
    }

    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match &self.stream {
            Stream::Local(socket) => socket.set_nonblocking(on),
            Stream::Remote(socket) => socket.set_nonblocking(on),
        }
    }

    /// Our address towards the peer; `None` on one host.
    pub fn over(&self) -> io::Result<Option<IpAddr>> {
        match &self.stream {
            Stream::Local(_) => Ok(None),
            Stream::Remote(socket) => Ok(Some(socket.local_addr()?.ip().to_canonical())),
        }
    }

    /// The process that connected, or listens.
    pub fn process(&self) -> Option<Process> {
        let Stream::Local(socket) = &self.stream else { return None };
        // SAFETY: plain data.
        let mut said: libc::ucred = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: room for one, and its length.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                std::ptr::from_mut(&mut said).cast(),
                &mut length,
            )
        };
        (result == 0).then_some(Process { pid: said.pid as u32, uid: said.uid, gid: said.gid })
    }

    /// Sends a record, with a descriptor on its first byte.
    pub fn send(&mut self, record: &[u8], descriptor: Option<&OwnedFd>) -> io::Result<()> {
        let mut sent = 0;
        if let (Some(descriptor), Stream::Local(socket)) = (descriptor, &self.stream) {
            sent = send_with(socket.as_raw_fd(), record, descriptor.as_raw_fd())?;
        }
        match &mut self.stream {
            Stream::Local(socket) => socket.write_all(&record[sent..]),
            Stream::Remote(socket) => socket.write_all(&record[sent..]),
        }
    }

    /// Sends as much as there is room for.
    pub fn send_some(&self, bytes: &[u8]) -> io::Result<usize> {
        send_some(self.as_raw_fd(), bytes)
    }

    /// Sends a word, where there is room: what is not told is found out later.
    pub fn say(&self, word: u64) {
        if !self.mute.get() {
            self.mute.set(self.send_some(&word.to_le_bytes()).is_ok_and(|sent| sent < WORD));
        }
    }

    /// Takes words that came, so many at one look. True: the other side's end is closed.
    pub fn listen(&self, take: &mut dyn FnMut(u64)) -> bool {
        let Stream::Remote(_) = &self.stream else { return self.is_over() };
        let mut bytes = [0; 64 * WORD];
        let (part, mut have) = self.part.get();
        bytes[..WORD].copy_from_slice(&part);
        let (at, room) = (bytes[have..].as_mut_ptr(), bytes.len() - have);
        // SAFETY: room for so many bytes.
        let result = unsafe { libc::recv(self.as_raw_fd(), at.cast(), room, libc::MSG_DONTWAIT) };
        match result {
            0 => return true,
            ..0 => return !waits(),
            count => have += count as usize,
        }
        let (words, rest) = bytes[..have].as_chunks::<WORD>();
        words.iter().for_each(|&word| take(u64::from_le_bytes(word)));
        let mut part = [0; WORD];
        part[..rest.len()].copy_from_slice(rest);
        self.part.set((part, rest.len()));
        false
    }

    /// Takes bytes, and a descriptor if one came with them.
    pub fn receive(&mut self, into: &mut [u8], descriptor: &mut Option<OwnedFd>) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Local(socket) => receive_with(socket.as_raw_fd(), into, descriptor),
            Stream::Remote(socket) => socket.read(into),
        }
    }

    /// Whether the other side's end is closed: on one host nothing is sent after the binding, so whatever is to be read is the end.
    pub fn is_over(&self) -> bool {
        let mut byte = 0u8;
        let flags = libc::MSG_DONTWAIT | libc::MSG_PEEK;
        // SAFETY: room for one byte.
        let result = unsafe { libc::recv(self.as_raw_fd(), std::ptr::from_mut(&mut byte).cast(), 1, flags) };
        !(result < 0 && waits())
    }
}

/// Whether the last call failed for now only.
fn waits() -> bool {
    matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}

/// Sends as much as a socket has room for.
pub(crate) fn send_some(socket: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes lie there.
    let sent = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// To the server of this name. One whose queue of callers is full has so long: WouldBlock then.
fn connect_local(name: &str, limit: Duration) -> io::Result<UnixStream> {
    let name = format!("{PREFIX}{name}");
    // SAFETY: plain data.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // Behind a zero: an abstract name.
    let path = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    path.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    let size = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: numbers only.
    let descriptor = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and of no other owner.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    // connect(2) heeds it, too.
    stream.set_write_timeout(Some(limit.clamp(Duration::from_millis(1), LONGEST)))?;
    // SAFETY: an address of that size.
    if unsafe { libc::connect(descriptor, std::ptr::from_ref(&address).cast(), size as libc::socklen_t) } < 0 {
        return Err(io::Error::last_os_error());
    }
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// The system takes no longer time-outs.
const LONGEST: Duration = Duration::from_secs(1 << 31);

/// How long a listener is left alone once descriptors or memory were used up.
pub(crate) const REST: Duration = Duration::from_millis(50);

/// Whether accept(2) failed for want of descriptors or memory, so that the caller stays in the queue.
pub(crate) fn used_up(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS))
}

/// A connection over which nothing comes is asked after a minute whether its peer is there, and is over 30 seconds later.
pub(crate) fn keep_alive(stream: &TcpStream) {
    let set = |level, what, value: i32| {
        // SAFETY: a number.
        unsafe { libc::setsockopt(stream.as_raw_fd(), level, what, std::ptr::from_ref(&value).cast(), 4) }
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 60);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10);
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3);
}

/// To the first address of a host that answers.
fn connect_within(place: &str, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Room for one descriptor.
#[repr(C, align(8))]
struct Control([u8; 24]);

fn send_with(socket: RawFd, bytes: &[u8], descriptor: RawFd) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 24]);
    // SAFETY: plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: there is room for one header and one descriptor.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(descriptor);
    }
    // SAFETY: everything lives until the call returns.
    let sent = unsafe { libc::sendmsg(socket, &message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn receive_with(socket: RawFd, into: &mut [u8], descriptor: &mut Option<OwnedFd>) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = Control([0; 24]);
    // SAFETY: plain data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // One descriptor fits; the kernel closes what more a peer may send.
    message.msg_controllen = 20;
    // SAFETY: everything lives until the call returns.
    let received = unsafe { libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel filled it in.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        if !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len >= libc::CMSG_LEN(4) as usize
        {
            *descriptor = Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()));
        }
    }
    Ok(received)
}

/// Names of the servers of this host, as /proc/net/unix has them.
///
/// # Errors
/// What reading it answers.
pub fn names() -> io::Result<Vec<String>> {
    // Others' names may be any bytes.
    let bytes = std::fs::read("/proc/net/unix")?;
    let text = String::from_utf8_lossy(&bytes);
    let mut names: Vec<String> = text
        .lines()
        // Listening sockets alone: the flag is __SO_ACCEPTCON.
        .filter(|line| line.split_whitespace().nth(3) == Some("00010000"))
        .filter_map(|line| Some(line.split_once(&format!("@{PREFIX}"))?.1.to_string()))
        .filter(|name| matches!(name.parse(), Ok(Address::Memory(said)) if said == *name))
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}
