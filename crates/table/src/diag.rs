//! Asks the kernel for the owner of a port: sock_diag(7).
//!
//! One request looks up the socket that the kernel itself would give a connection to: it follows specific and wildcard
//! addresses, dual-stack listeners and SO_REUSEPORT groups, because it is the kernel's own lookup.

use crate::private;
use core::sync::atomic::{AtomicI32, Ordering};
use shunt_segment::address::Address;
use shunt_sys::libc::{self, AF_INET, AF_INET6, AF_NETLINK, MSG_DONTWAIT, SOCK_CLOEXEC, SOCK_RAW};
use shunt_sys::{calls, Errno, Result};

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_DONE: u16 = 3;
const TCP_ESTABLISHED: u8 = 1;
const TCP_TIME_WAIT: u8 = 6;
const TCP_LISTEN: u8 = 10;

/// The listening TCP socket that would get a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its inode, unique among the sockets of the host.
    pub inode: u32,
    /// The user who made it.
    pub uid: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct SocketId {
    source_port: [u8; 2],
    destination_port: [u8; 2],
    source: [u8; 16],
    destination: [u8; 16],
    interface: u32,
    cookie: [u32; 2],
}

#[repr(C)]
struct Request {
    length: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    pid: u32,
    family: u8,
    protocol: u8,
    extensions: u8,
    pad: u8,
    states: u32,
    id: SocketId,
}

/// Netlink header and inet_diag_msg; the part that we read.
#[repr(C)]
#[derive(Clone, Copy)]
struct Reply {
    length: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    pid: u32,
    /// For NLMSG_ERROR the first four bytes are the negative errno.
    family: u8,
    state: u8,
    timer: u8,
    retransmits: u8,
    id: SocketId,
    expires: u32,
    receive_queue: u32,
    send_queue: u32,
    uid: u32,
    inode: u32,
    rest: [u32; 64],
}

/// Netlink sockets that are kept; -1: none.
pub(crate) struct Netlink {
    diag: AtomicI32,
    pub(crate) route: AtomicI32,
    /// Of network namespaces that the process has left, in which listeners of its stay.
    pub(crate) left: [AtomicI32; 4],
}

pub(crate) static NETLINK: Netlink =
    Netlink { diag: AtomicI32::new(-1), route: AtomicI32::new(-1), left: [const { AtomicI32::new(-1) }; 4] };

/// A netlink socket kept for later requests, in `slot`.
pub fn socket(slot: &AtomicI32, protocol: i32) -> Result<i32> {
    let fd = slot.load(Ordering::Relaxed);
    if fd >= 0 {
        return Ok(fd);
    }
    let fd = private::keep(calls::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)?)?;
    slot.store(fd, Ordering::Relaxed);
    Ok(fd)
}

/// In the child after fork: answers to the parent's socket are the parent's.
pub fn forked() {
    private::close(NETLINK.diag.swap(-1, Ordering::Relaxed));
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    crate::private::renumber(&NETLINK.diag, from, to);
}

/// The owner of the listener that would answer `client` connecting to `server`; `Ok(None)`: there is none.
///
/// Errors are those of netlink sockets: no sock_diag in this kernel or sandbox. Called under the set-up lock.
pub fn listener(client: &Address, server: &Address) -> Result<Option<Owner>> {
    let reply = ask(libc::IPPROTO_TCP, server, client, server.scope)?;
    Ok(reply.filter(|reply| reply.state == TCP_LISTEN).map(|reply| Owner { inode: reply.inode, uid: reply.uid }))
}

/// Whether any process has the end of a TCP connection at `own`, with its other end at `other`, in this network.
///
/// Errors as for [`listener`]. Called under the set-up lock, or by a process's only thread.
pub fn is_held(own: &Address, other: &Address) -> Result<bool> {
    // What only listens there is what the next packet would meet once the end is forgotten.
    Ok(ask(libc::IPPROTO_TCP, own, other, own.scope)?.is_some_and(|reply| reply.inode != 0 && reply.state != TCP_LISTEN))
}

/// Whether the kernel has a connection from `own` to `other`, whether a process holds its end or not. Called under the set-up lock.
pub fn is_taken(own: &Address, other: &Address) -> bool {
    ask(libc::IPPROTO_TCP, own, other, own.scope)
        .is_ok_and(|reply| reply.is_some_and(|reply| !matches!(reply.state, TCP_LISTEN | TCP_TIME_WAIT)))
}

/// The UDP socket that would get a datagram from `sender` to `receiver`; `Ok(None)`: there is none.
///
/// Errors as for [`listener`]. Called under the set-up lock.
pub fn receiver(sender: &Address, receiver: &Address) -> Result<Option<Owner>> {
    // "src and dst are swapped for historical reasons" (udp_dump_one): here the sender is the source. Whatever stays on
    // the host arrives by the loopback interface, which is number 1 in every network namespace.
    let reply = ask(libc::IPPROTO_UDP, sender, receiver, 1)?;
    Ok(reply.map(|reply| Owner { inode: reply.inode, uid: reply.uid }))
}

/// Looks one socket up by the two addresses, as the kernel does when a packet comes.
fn ask(protocol: i32, first: &Address, second: &Address, interface: u32) -> Result<Option<Reply>> {
    let fd = socket(&NETLINK.diag, NETLINK_SOCK_DIAG)?;
    let (family, source, destination) = match (first.as_v4(), second.as_v4()) {
        (Some(s), Some(c)) => (AF_INET, v4_bytes(s), v4_bytes(c)),
        _ => (AF_INET6, first.ip, second.ip),
    };
    let request = Request {
        length: core::mem::size_of::<Request>() as u32,
        kind: SOCK_DIAG_BY_FAMILY,
        flags: NLM_F_REQUEST,
        sequence: 1,
        pid: 0,
        family: family as u8,
        protocol: protocol as u8,
        extensions: 0,
        pad: 0,
        states: u32::MAX,
        id: SocketId {
            source_port: first.port.to_be_bytes(),
            destination_port: second.port.to_be_bytes(),
            source,
            destination,
            interface,
            cookie: [u32::MAX; 2],
        },
    };
    calls::sendto(fd, (&request as *const Request).cast(), core::mem::size_of::<Request>(), MSG_DONTWAIT, core::ptr::null(), 0)?;
    // SAFETY: plain integers.
    let mut reply: Reply = unsafe { core::mem::zeroed() };
    let room = core::mem::size_of::<Reply>();
    let got =
        calls::recvfrom(fd, (&mut reply as *mut Reply).cast(), room, MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut())?;
    if reply.kind == NLMSG_ERROR {
        let errno = -i32::from_ne_bytes([reply.family, reply.state, reply.timer, reply.retransmits]);
        return if errno == libc::ENOENT { Ok(None) } else { Err(Errno(errno)) };
    }
    if got < 16 + 4 + core::mem::size_of::<SocketId>() + 20 || reply.kind != SOCK_DIAG_BY_FAMILY {
        return Err(Errno(libc::EPROTO));
    }
    Ok(Some(reply))
}

#[repr(C)]
struct UnixRequest {
    length: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    pid: u32,
    family: u8,
    protocol: u8,
    pad: u16,
    states: u32,
    inode: u32,
    show: u32,
    cookie: [u32; 2],
}

const UDIAG_SHOW_PEER: u32 = 4;
const UDIAG_SHOW_RQLEN: u32 = 0x10;
const UNIX_DIAG_PEER: u16 = 2;
/// struct unix_diag_rqlen: for a listener, clients that wait.
const UNIX_DIAG_RQLEN: u16 = 4;

/// The inode of the other end of the AF_UNIX socket `fd`, wherever it is. Called under the set-up lock.
///
/// Errors: ENOTCONN if there is none; those of netlink sockets.
pub fn unix_peer(fd: i32) -> Result<u32> {
    match unix_attribute(fd, UDIAG_SHOW_PEER, UNIX_DIAG_PEER) {
        Ok(Some(0) | None) => Err(Errno(libc::ENOTCONN)),
        Ok(Some(inode)) => Ok(inode),
        Err(error) => Err(error),
    }
}

/// How many clients wait at the AF_UNIX listener `fd`. Called under the set-up lock.
///
/// Errors: those of netlink sockets.
pub fn unix_waiting(fd: i32) -> Result<u32> {
    unix_attribute(fd, UDIAG_SHOW_RQLEN, UNIX_DIAG_RQLEN).map(|count| count.unwrap_or(0))
}

/// The first word of an attribute that the kernel tells of the AF_UNIX socket `fd`.
fn unix_attribute(fd: i32, show: u32, attribute: u16) -> Result<Option<u32>> {
    let status = calls::status_of(fd)?;
    let diag = socket(&NETLINK.diag, NETLINK_SOCK_DIAG)?;
    let length = core::mem::size_of::<UnixRequest>();
    let request = UnixRequest {
        length: length as u32,
        kind: SOCK_DIAG_BY_FAMILY,
        flags: NLM_F_REQUEST,
        sequence: 1,
        pid: 0,
        family: libc::AF_UNIX as u8,
        protocol: 0,
        pad: 0,
        states: u32::MAX,
        inode: status.st_ino as u32,
        show,
        cookie: [u32::MAX; 2],
    };
    calls::sendto(diag, (&request as *const UnixRequest).cast(), length, MSG_DONTWAIT, core::ptr::null(), 0)?;
    let mut reply = [0u32; 64];
    let got = calls::recvfrom(diag, reply.as_mut_ptr().cast(), 256, MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut())?;
    if got < 32 || reply[1] as u16 != SOCK_DIAG_BY_FAMILY {
        return Err(Errno(libc::EPROTO));
    }
    // Netlink header (16 bytes), unix_diag_msg (16), attributes: length and kind, then the value.
    let mut at = 8;
    while let Some(head) = reply[..got / 4].get(at) {
        let (length, kind) = (*head as u16 as usize, (*head >> 16) as u16);
        if kind == attribute {
            return Ok(reply.get(at + 1).copied().filter(|_| length >= 8));
        }
        at += length.div_ceil(4).max(1);
    }
    Ok(None)
}

const UDIAG_SHOW_NAME: u32 = 1;
const UNIX_DIAG_NAME: u16 = 0;

/// Whether one of the abstract names of connected AF_UNIX sockets in this network is `wanted`. `room` holds a piece of the kernel's answer.
///
/// Errors: those of netlink sockets.
pub fn any_unix_name(room: &mut [u32], wanted: impl Fn(&[u8]) -> bool) -> Result<bool> {
    // A socket of its own: one whose answer was not read to its end gives no other answer.
    let diag = calls::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)?;
    let length = core::mem::size_of::<UnixRequest>();
    let request = UnixRequest {
        length: length as u32,
        kind: SOCK_DIAG_BY_FAMILY,
        flags: NLM_F_REQUEST | NLM_F_DUMP,
        sequence: 1,
        pid: 0,
        family: libc::AF_UNIX as u8,
        protocol: 0,
        pad: 0,
        states: 1 << TCP_ESTABLISHED,
        inode: 0,
        show: UDIAG_SHOW_NAME,
        cookie: [u32::MAX; 2],
    };
    let none = core::ptr::null_mut();
    let asked = calls::sendto(diag, (&request as *const UnixRequest).cast(), length, MSG_DONTWAIT, none, 0);
    let found = asked.and_then(|_| loop {
        let got = calls::recvfrom(diag, room.as_mut_ptr().cast(), room.len() * 4, MSG_DONTWAIT, none.cast(), none.cast())?;
        match piece(&room[..(got / 4).min(room.len())], &wanted) {
            Piece::Last => break Ok(false),
            Piece::Found => break Ok(true),
            Piece::NotYet => {}
        }
    });
    let _ = calls::close(diag);
    found
}

/// What a part of the kernel's list of names came to.
enum Piece {
    Found,
    NotYet,
    Last,
}

/// Messages of a netlink header (16 bytes), unix_diag_msg (16), and attributes: length and kind, then the value.
fn piece(mut words: &[u32], wanted: &impl Fn(&[u8]) -> bool) -> Piece {
    let next = |length: u32| (length as usize).div_ceil(4).max(1);
    if words.is_empty() {
        return Piece::Last;
    }
    while let [length, head, ..] = *words {
        if head as u16 != SOCK_DIAG_BY_FAMILY {
            return if head as u16 == NLMSG_DONE || head as u16 == NLMSG_ERROR { Piece::Last } else { Piece::NotYet };
        }
        let whole = next(length).min(words.len());
        let mut rest = words.get(8..whole).unwrap_or(&[]);
        while let [head, ref value @ ..] = *rest {
            let (length, kind) = (head & 0xffff, (head >> 16) as u16);
            let bytes = (length as usize).saturating_sub(4).min(value.len() * 4);
            // SAFETY: inside the value.
            let name = unsafe { core::slice::from_raw_parts(value.as_ptr().cast::<u8>(), bytes) };
            if kind == UNIX_DIAG_NAME && name.first() == Some(&0) && wanted(&name[1..]) {
                return Piece::Found;
            }
            rest = rest.get(next(length)..).unwrap_or(&[]);
        }
        words = &words[whole..];
    }
    Piece::NotYet
}

fn v4_bytes(ip: [u8; 4]) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes[..4].copy_from_slice(&ip);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn finds_the_listener_that_the_kernel_would_choose() {
        let wildcard = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = wildcard.local_addr().unwrap().port();
        let specific = std::net::TcpListener::bind(("127.0.0.9", port)).unwrap_or_else(|_| wildcard.try_clone().unwrap());
        let inode = |fd: i32| {
            let status = calls::status_of(fd).unwrap();
            status.st_ino as u32
        };
        let client = Address::v4([127, 0, 0, 1], 1);
        let found = listener(&client, &Address::v4([127, 0, 0, 1], port)).unwrap().unwrap();
        assert_eq!(found, Owner { inode: inode(wildcard.as_raw_fd()), uid: calls::geteuid() });
        let found = listener(&client, &Address::v4([127, 0, 0, 9], port)).unwrap().unwrap();
        assert_eq!(found.inode, inode(specific.as_raw_fd()));
        // Not by closing alone: children that other tests fork meanwhile have copies.
        for listener in [&wildcard, &specific] {
            let _ = calls::shutdown(listener.as_raw_fd(), libc::SHUT_RD);
        }
        assert_eq!(listener(&client, &Address::v4([127, 0, 0, 1], port)).unwrap(), None);
    }

    #[test]
    fn whatever_comes_as_a_list_of_names_is_read_to_its_end() {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u32
        };
        for _ in 0..20_000 {
            let mut words: Vec<u32> = (0..random() % 40).map(|_| random()).collect();
            // Often something like a message: its length, its kind, and an attribute's.
            for (place, likely) in [(0, random() % 200), (1, u32::from(SOCK_DIAG_BY_FAMILY)), (8, random() % 40)] {
                if let Some(word) = words.get_mut(place).filter(|_| random() & 3 != 0) {
                    *word = likely;
                }
            }
            let all = words.len() * 4;
            piece(&words, &|name| {
                assert!(name.len() < all);
                false
            });
        }
        assert!(matches!(piece(&[], &|_| true), Piece::Last));
    }

    #[test]
    fn finds_the_name_of_a_connected_socket_among_many() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
        let name = format!("shunt-test-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let others: Vec<_> = (0..500).map(|_| UnixStream::pair().unwrap()).collect();
        let mut room = [0; 2048];
        let mut asked = |wanted: &str| any_unix_name(&mut room, |name| name == wanted.as_bytes()).unwrap();
        assert!(!asked(&name), "a listener is not connected");
        let _client = UnixStream::connect_addr(&listener.local_addr().unwrap()).unwrap();
        let _server = listener.accept().unwrap(); // it has the listener's name
        assert!(asked(&name));
        assert!(!asked(&format!("{name}x")));
        drop(others);
    }
}
