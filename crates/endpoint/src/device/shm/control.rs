//! The socket of an endpoint in shared memory: how peers find it, hand over lanes, and wake it.
//!
//! A datagram socket with an abstract name, which lives in the network namespace as ports do. An empty datagram is the
//! doorbell. A *hello* carries a lane: the endpoint that made it wants to receive by it. It names the receive tag of the channel,
//! so only a peer that was told the tag can attach a lane to it.
//!
//! ```text
//! opener                                       the other side
//!   hello (tag, lane) ───────────────────────►   not open yet: dropped, counted
//!                                                opens
//!   ◄─────────────────────────────────────────   hello (tag, lane)
//!   maps; hello (tag, lane, HAVE) ───────────►   maps
//!   done  ◄───────────────────────────────────   hello (tag, lane, HAVE)
//! ```

use crate::{Address, Family};
use core::mem::{size_of, zeroed};
use shunt_sys::{calls, libc, Errno};

/// First word of a hello.
const MAGIC: u64 = u64::from_le_bytes(*b"shunthlo");

/// The sender of this hello has the receiver's lane.
pub const HAVE: u64 = 1;

/// What comes with this hello is no lane but exported memory.
pub const OFFER: u64 = 2;

/// What a hello says. The lane travels beside it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Hello {
    magic: u64,
    /// The number in the sender's name.
    pub from: u64,
    /// The receive tag of the channel.
    pub tag: u64,
    /// [`HAVE`], [`OFFER`] or 0.
    pub flags: u64,
    /// Of an offer: the export's name; otherwise 0.
    pub key: u64,
    /// Of an offer: its size, and above that its rights.
    pub detail: u64,
}

impl Hello {
    /// A hello.
    pub fn new(from: u64, tag: u64, flags: u64) -> Hello {
        Hello { magic: MAGIC, from, tag, flags, key: 0, detail: 0 }
    }

    /// An offer of exported memory.
    pub fn offer(from: u64, tag: u64, key: u64, detail: u64) -> Hello {
        Hello { magic: MAGIC, from, tag, flags: OFFER, key, detail }
    }
}

/// What was in a datagram.
pub enum Heard {
    /// A doorbell.
    Bell,
    /// A hello, and the descriptor that came with it, which belongs to the caller.
    Hello(Hello, i32),
    /// Nothing that we know.
    Nonsense,
}

/// The address of the endpoint with this number.
pub fn address(number: u64) -> Address {
    Address::new(Family::Memory, &number.to_le_bytes()).unwrap_or(Address::NONE)
}

/// The number in an address; `None` if it is of another kind.
pub fn number(address: &Address) -> Option<u64> {
    let bytes = address.bytes().try_into().ok()?;
    address.is(Family::Memory).then(|| u64::from_le_bytes(bytes))
}

/// The abstract name of the endpoint with this number, and its length.
fn name(number: u64) -> (libc::sockaddr_un, u32) {
    // SAFETY: plain integers.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let prefix = b"\0shunt1-endpoint-";
    let digits = (0..16).map(|digit| b"0123456789abcdef"[(number >> (60 - 4 * digit)) as usize & 15]);
    let text = prefix.iter().copied().chain(digits);
    let mut length = 2;
    for (place, byte) in address.sun_path.iter_mut().zip(text) {
        *place = byte as _;
        length += 1;
    }
    (address, length)
}

/// A socket with the name of `number`.
///
/// # Errors
/// What the system answers.
pub fn socket(number: u64) -> Result<i32, Errno> {
    let socket = calls::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)?;
    let (address, length) = name(number);
    match calls::bind(socket, (&raw const address).cast(), length) {
        Ok(()) => Ok(socket),
        Err(error) => {
            let _ = calls::close(socket);
            Err(error)
        }
    }
}

/// The number in a socket's own name.
pub fn number_of(socket: i32) -> Option<u64> {
    // SAFETY: plain integers.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    let mut length = size_of::<libc::sockaddr_un>() as u32;
    calls::getsockname(socket, (&raw mut address).cast(), &mut length).ok()?;
    let (expected, whole) = name(0);
    if length != whole || address.sun_path[..17] != expected.sun_path[..17] {
        return None;
    }
    let digit = |place: &core::ffi::c_char| (*place as u8 as char).to_digit(16);
    address.sun_path[17..33].iter().try_fold(0u64, |number, place| Some(number << 4 | digit(place)? as u64))
}

/// Rings the doorbell of endpoint `number`. Also tells whether it is there still.
///
/// # Errors
/// ECONNREFUSED: it is gone. EAGAIN does not come back: an endpoint that has so much to read is awake.
pub fn ring(socket: i32, number: u64) -> Result<(), Errno> {
    let (address, length) = name(number);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    match calls::sendto(socket, core::ptr::null(), 0, flags, (&raw const address).cast(), length) {
        Ok(_) | Err(Errno(libc::EAGAIN)) => Ok(()),
        Err(error) => Err(error),
    }
}

#[repr(C, align(8))]
struct Rights {
    header: libc::cmsghdr,
    fd: i32,
    padding: i32,
}

/// Bytes of `Rights` that count: CMSG_LEN(4).
const RIGHTS: usize = size_of::<libc::cmsghdr>() + 4;

/// Sends a hello with a lane to endpoint `number`.
///
/// # Errors
/// EAGAIN: try again later. ECONNREFUSED: it is gone, or not there yet.
pub fn greet(socket: i32, number: u64, hello: &Hello, lane: i32) -> Result<(), Errno> {
    let (mut address, length) = name(number);
    let header = libc::cmsghdr { cmsg_len: RIGHTS as _, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
    let mut rights = Rights { header, fd: lane, padding: 0 };
    let mut part = libc::iovec { iov_base: (&raw const *hello).cast_mut().cast(), iov_len: size_of::<Hello>() };
    // SAFETY: zero is valid; the pointers outlive the call.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_name = (&raw mut address).cast();
    message.msg_namelen = length;
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut rights).cast();
    message.msg_controllen = size_of::<Rights>() as _;
    calls::sendmsg(socket, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).map(|_| ())
}

/// Takes the next datagram, if there is one.
pub fn hear(socket: i32) -> Option<Heard> {
    // SAFETY: plain integers.
    let (mut hello, mut rights): (Hello, Rights) = unsafe { zeroed() };
    let mut part = libc::iovec { iov_base: (&raw mut hello).cast(), iov_len: size_of::<Hello>() };
    // SAFETY: zero is valid; the pointers outlive the call.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut rights).cast();
    message.msg_controllen = size_of::<Rights>() as _;
    let length = calls::recvmsg(socket, &mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC).ok()?;
    let kind = (rights.header.cmsg_level, rights.header.cmsg_type);
    let came = message.msg_controllen as usize >= RIGHTS && kind == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    // Room for one descriptor and padding: the kernel could put a second one there.
    let second = came && rights.header.cmsg_len >= RIGHTS + 4;
    if second {
        let _ = calls::close(rights.padding);
    }
    if came && length == size_of::<Hello>() && hello.magic == MAGIC && !second {
        return Some(Heard::Hello(hello, rights.fd));
    }
    if came {
        let _ = calls::close(rights.fd);
    }
    Some(if length == 0 { Heard::Bell } else { Heard::Nonsense })
}
