//! Asking the kernel about sockets by sock_diag(7): which AF_UNIX socket belongs to which connection, and who listens.
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{netlink, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use shunt_segment::name::{self, Hello};

use super::processes;

// linux/netlink.h, linux/sock_diag.h, linux/unix_diag.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_PEER: u16 = 2;
const NETLINK_HEADER: usize = 16;
const UNIX_MESSAGE: usize = 16;
const ANY_COOKIE: [u8; 8] = [0xff; 8];
const TCP_LISTEN: u8 = 10;

/// Which connection a companion belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Companion {
    /// What the client told when it connected.
    pub hello: Hello,
    /// 0: the client's companion, 1: the server's.
    pub end: usize,
}

/// Shunt's AF_UNIX sockets in a network namespace.
#[derive(Debug, Default)]
pub struct UnixSockets {
    /// The connected ones, by inode.
    pub companions: HashMap<u32, Companion>,
    /// Those at which listeners answer, by inode.
    pub rendezvous: HashSet<u32>,
}

/// Shunt's AF_UNIX sockets in the network namespace of process `pid`.
///
/// # Errors
/// If the kernel has no sock_diag, or the namespace is another one that this user may not enter.
pub fn unix_sockets(pid: u32) -> io::Result<UnixSockets> {
    if processes::network_namespace(pid) == processes::network_namespace(std::process::id()) {
        return unix_sockets_here();
    }
    // A thread of its own, because entering a namespace cannot always be undone.
    std::thread::spawn(move || {
        let namespace = std::fs::File::open(processes::path(pid, "ns/net"))?;
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), kind)?;
        unix_sockets_here()
    })
    .join()
    .unwrap_or_else(|_| Err(io::Error::other("the namespace could not be read")))
}

fn unix_sockets_here() -> io::Result<UnixSockets> {
    let mut request = vec![rustix::net::AddressFamily::UNIX.as_raw() as u8, 0, 0, 0];
    for word in [u32::MAX, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_PEER] {
        request.extend(word.to_ne_bytes());
    }
    request.extend(ANY_COOKIE);
    // What names of listeners have in common, whatever inode they are made of.
    let mut rendezvous_prefix = name::listener(0).as_slice().to_vec();
    rendezvous_prefix.truncate(rendezvous_prefix.len() - 16);
    let mut named_as_listeners = HashSet::new();
    let mut clients = HashMap::new();
    let mut peers = HashMap::new();
    ask(&request, NLM_F_DUMP, |message| {
        let Some(inode) = message.get(4..8).map(word) else { return };
        for (kind, value) in attributes(&message[UNIX_MESSAGE.min(message.len())..]) {
            match kind {
                // Abstract names begin with a zero byte.
                UNIX_DIAG_NAME => {
                    let Some(name) = value.strip_prefix(&[0]) else { continue };
                    if let Some(hello) = Hello::decode(name) {
                        clients.insert(inode, hello);
                    } else if name.starts_with(rendezvous_prefix.as_slice()) {
                        named_as_listeners.insert(inode);
                    }
                }
                UNIX_DIAG_PEER if value.len() == 4 => drop(peers.insert(inode, word(value))),
                _ => {}
            }
        }
    })?;
    let mut companions: HashMap<u32, Companion> =
        clients.iter().map(|(inode, hello)| (*inode, Companion { hello: *hello, end: 0 })).collect();
    for (&inode, peer) in &peers {
        // The accepted socket has the listener's name; its connection is told by the client at its other end.
        if let (Some(hello), false) = (clients.get(peer), clients.contains_key(&inode)) {
            companions.insert(inode, Companion { hello: *hello, end: 1 });
        }
    }
    // An accepted socket has its listener's name, and a peer.
    let rendezvous = named_as_listeners.into_iter().filter(|inode| !peers.contains_key(inode)).collect();
    Ok(UnixSockets { companions, rendezvous })
}

/// The inode of the TCP socket that listens for connections to 127.0.0.1:`port`, as an ordinary user learns it.
///
/// # Errors
/// If the kernel does not tell.
pub fn listener_inode(port: u16) -> io::Result<Option<u32>> {
    let mut request = vec![AddressFamily::INET.as_raw() as u8, libc::IPPROTO_TCP as u8, 0, 0];
    request.extend((1u32 << TCP_LISTEN).to_ne_bytes());
    // struct inet_diag_sockid: ports, addresses of 16 bytes, interface, cookie.
    request.extend(port.to_be_bytes());
    request.extend([0; 2]);
    for _ in 0..2 {
        request.extend([127, 0, 0, 1]);
        request.extend([0; 12]);
    }
    request.extend([0; 4]);
    request.extend(ANY_COOKIE);
    let mut inode = None;
    // struct inet_diag_msg: four bytes, the sockid of 48, four words, the inode last.
    match ask(&request, 0, |message| inode = message.get(68..72).map(word)) {
        Ok(()) => Ok(inode),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Sends `request` and gives the body of each answer to `answer`.
fn ask(request: &[u8], flags: u16, mut answer: impl FnMut(&[u8])) -> io::Result<()> {
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    let mut message = ((NETLINK_HEADER + request.len()) as u32).to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(request);
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    while !receive(&socket, flags & NLM_F_DUMP != 0, &mut answer)? {}
    Ok(())
}

/// Receives one datagram of answers; true when it was the last.
fn receive(socket: &OwnedFd, dump: bool, answer: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    let mut buffer = vec![0u8; 64 << 10];
    let (length, _) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty())?;
    let mut rest = &buffer[..length.min(64 << 10)];
    while rest.len() >= NETLINK_HEADER {
        let size = word(rest) as usize;
        if size < NETLINK_HEADER || size > rest.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let body = &rest[NETLINK_HEADER..size];
        match u16::from_ne_bytes([rest[4], rest[5]]) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                return match word(body) as i32 {
                    0 => Ok(true),
                    number => Err(io::Error::from_raw_os_error(number.wrapping_neg())),
                }
            }
            _ => answer(body),
        }
        rest = &rest[size.next_multiple_of(4).min(rest.len())..];
    }
    Ok(!dump || length == 0)
}

/// The attributes behind a message: kind and value.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = (rest.get(..2)?, rest.get(2..4)?);
        let length = u16::from_ne_bytes([length[0], length[1]]) as usize;
        let kind = u16::from_ne_bytes([kind[0], kind[1]]);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_segment::address::Address;
    use std::os::fd::AsRawFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::SocketAddr;

    fn inode(socket: &impl AsRawFd) -> u32 {
        std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap().ino() as u32
    }

    #[test]
    fn both_companions_of_a_connection_lead_to_its_hello() {
        let hello = Hello {
            version: shunt_segment::VERSION,
            nonce: u64::from(std::process::id()) << 32,
            sequence: 1,
            channel: 2,
            link_follows: 0,
            generation: 10, // a newline, which would break the lines of /proc/net/unix
            client: Address::v4([127, 0, 0, 1], 40000),
            server: Address::v4([127, 0, 0, 1], 0),
        };
        // Inodes of sockets are smaller, so no listener has this name.
        let listener_name = name::listener(u64::MAX - u64::from(std::process::id()));
        let address = SocketAddr::from_abstract_name(listener_name.as_slice()).unwrap();
        let listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();

        let client = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        let name = rustix::net::SocketAddrUnix::new_abstract_name(hello.encode().as_slice()).unwrap();
        rustix::net::bind(&client, &name).unwrap();
        let target = rustix::net::SocketAddrUnix::new_abstract_name(listener_name.as_slice()).unwrap();
        rustix::net::connect(&client, &target).unwrap();
        let (server, _) = listener.accept().unwrap();

        let UnixSockets { companions, rendezvous } = unix_sockets(std::process::id()).unwrap();
        assert_eq!(companions[&inode(&client)], Companion { hello, end: 0 });
        assert_eq!(companions[&inode(&server)], Companion { hello, end: 1 });
        assert!(!companions.contains_key(&inode(&listener)) && rendezvous.contains(&inode(&listener)));
        assert!(!rendezvous.contains(&inode(&server)));
    }

    #[test]
    fn listeners_are_told_and_their_absence_too() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listener_inode(port).unwrap(), Some(inode(&listener)));
        drop(listener);
        assert_eq!(listener_inode(port).unwrap(), None);
    }

    #[test]
    fn damaged_attributes_end_the_list() {
        assert_eq!(
            attributes(&[8, 0, 1, 0, 9, 9, 9, 9, 5, 0, 2, 0, 7]).collect::<Vec<_>>(),
            [(1, &[9u8, 9, 9, 9][..]), (2, &[7][..])]
        );
        for damaged in [&[][..], &[3, 0, 0, 0], &[200, 0, 0, 0, 1], &[1]] {
            assert_eq!(attributes(damaged).count(), 0);
        }
    }
}
