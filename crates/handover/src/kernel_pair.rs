//! What a program without shunt gets in place of an accelerated descriptor: a TCP socket of the kernel, whose other end
//! a relay holds ([`crate::relay`]).
//!
//! The pair is a real loopback connection, so the program's options, urgent bytes, masks and errors are Linux's own. Its
//! addresses are those of the accelerated connection as far as this user may take them: with CAP_NET_ADMIN wholly
//! (TCP_REPAIR makes both ends without asking for a listener), else the hosts are true and the ports are not.

use core::sync::atomic::Ordering;
use shunt_segment::address::Address;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, sockaddr, socklen_t, IPPROTO_TCP, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_sys::{calls, Errno, Result};
use shunt_table::diag;
use shunt_table::private::Pending;
use shunt_table::sockaddr::Encoded;

/// A connected pair for the side of `socket`: (the program's end, the relay's end), both closed on exec.
///
/// Errors: those of socket(2), bind(2) and connect(2), if even the loopback interface is of no use.
pub fn pair(socket: &Socket) -> Result<(i32, i32)> {
    let family = socket.family.load(Ordering::Relaxed);
    let (client, server) = socket.addresses();
    let (near, far) = if socket.side() == 0 { (client, server) } else { (server, client) };
    between(family, &near, &far, socket.has(flag::REMOTE))
}

/// A pair with these addresses, or with those of the loopback interface: no socket of this host can be bound to one of another host, and
/// where one can (ip_nonlocal_bind) its packets would go there.
fn between(family: i32, near: &Address, far: &Address, remote: bool) -> Result<(i32, i32)> {
    let there = || repaired(family, near, far).or_else(|_| connected(family, near, far));
    let made = if remote { Err(Errno(libc::EADDRNOTAVAIL)) } else { there() }.or_else(|_| on_loopback(family, near))?;
    // A relay that is killed has bytes of both, and one that never began none: neither end may take what it has for all.
    shunt_table::process::helper::dies_by_reset(made.1, true);
    // What a program wrote is handed on at once; its own end is as it set it.
    let _ = calls::setsockopt_int(made.1, IPPROTO_TCP, libc::TCP_NODELAY, 1);
    let _ = calls::setsockopt_int(made.1, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1);
    // One that paces (bbr, where it is the host's own) holds the loopback interface to a part of what it does. The program's end is the
    // program's.
    let name = c"reno";
    let _ = calls::setsockopt(made.1, IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), 4);
    Ok(made)
}

/// A pair with addresses of the loopback interface, of the family of `like` as far as there is one.
fn on_loopback(family: i32, like: &Address) -> Result<(i32, i32)> {
    let v4 = Address::v4([127, 0, 0, 1], 0);
    let v6 = Address::v6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 0);
    let first = if like.as_v4().is_some() { &v4 } else { &v6 };
    connected(family, first, first).or_else(|_| connected(family, &v4, &v4)).or_else(|_| connected(libc::AF_INET, &v4, &v4))
}

/// Whether any process has the other end of `fd`, an end of a pair. Where the kernel does not tell, one has.
pub fn is_held(fd: i32) -> bool {
    let Some(other) = shunt_table::sockaddr::peer_address(fd) else { return false };
    let mine = shunt_table::sockaddr::bound_address(fd);
    // A kernel that does not find this end, which is there, knows nothing of the other.
    diag::is_held(&mine, &other) != Ok(true) || diag::is_held(&other, &mine).unwrap_or(true)
}

fn tcp(family: i32) -> Result<Pending> {
    let fd = Pending(calls::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)?);
    if family == libc::AF_INET6 {
        let _ = calls::setsockopt_int(fd.0, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0);
    }
    Ok(fd)
}

fn bind(fd: i32, family: i32, address: &Address) -> Result<()> {
    let name = Encoded::new(family, address);
    calls::bind(fd, name.pointer(), name.length)
}

/// A pair by connect and accept; `near` is the accepting end's host, so that the program's end may be either.
fn connected(family: i32, near: &Address, far: &Address) -> Result<(i32, i32)> {
    let listener = tcp(family)?;
    bind(listener.0, family, &Address { port: 0, ..*near })?;
    calls::listen(listener.0, 1)?;
    let relay = tcp(family)?;
    bind(relay.0, family, &Address { port: 0, ..*far })?;
    let mut name = [0u64; 4];
    let mut length = core::mem::size_of_val(&name) as socklen_t;
    calls::getsockname(listener.0, name.as_mut_ptr().cast(), &mut length)?;
    calls::connect(relay.0, name.as_ptr().cast::<sockaddr>(), length)?;
    // Another process might have connected before us.
    let mine = shunt_table::sockaddr::bound_address(relay.0);
    for _ in 0..8 {
        let mut peer = [0u64; 4];
        let mut length = core::mem::size_of_val(&peer) as socklen_t;
        let program = Pending(calls::accept4(listener.0, peer.as_mut_ptr().cast(), &mut length, SOCK_CLOEXEC)?);
        // SAFETY: the kernel filled `length` bytes.
        if unsafe { shunt_table::sockaddr::read(peer.as_ptr().cast(), length) }.is_some_and(|(_, address)| address == mine) {
            return Ok((program.take(), relay.take()));
        }
    }
    Err(Errno(libc::ECONNREFUSED))
}

const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;
const TCP_REPAIR_OPTIONS: i32 = 22;
const RECEIVE_QUEUE: i32 = 1;
const SEND_QUEUE: i32 = 2;
/// Kinds of TCP options (RFC 9293, 7323, 2018).
const OPTION_MSS: u32 = 2;
const OPTION_WINDOW: u32 = 3;
const OPTION_SACK: u32 = 4;

/// A pair with exactly these addresses, although a socket listens at one of them (tcp(7) does not tell of TCP_REPAIR; see
/// `tcp_repair_options_est` and `inet_csk_get_port` in the kernel). Errors: EPERM without CAP_NET_ADMIN.
fn repaired(family: i32, near: &Address, far: &Address) -> Result<(i32, i32)> {
    let program = tcp(family)?;
    calls::setsockopt_int(program.0, IPPROTO_TCP, TCP_REPAIR, 1)?;
    let relay = tcp(family)?;
    calls::setsockopt_int(relay.0, IPPROTO_TCP, TCP_REPAIR, 1)?;
    let mut seeds = [0u32; 2];
    let _ = calls::getrandom(seeds.as_mut_ptr().cast(), 8, libc::GRND_NONBLOCK);
    let ends = [(program.0, near, far, seeds), (relay.0, far, near, [seeds[1], seeds[0]])];
    for (fd, own, other, [sends, receives]) in ends {
        bind(fd, family, own)?;
        for (queue, position) in [(SEND_QUEUE, sends), (RECEIVE_QUEUE, receives)] {
            calls::setsockopt_int(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue)?;
            calls::setsockopt_int(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, position as i32)?;
        }
        let name = Encoded::new(family, other);
        calls::connect(fd, name.pointer(), name.length)?;
        let options = [[OPTION_MSS, 32_741], [OPTION_WINDOW, 7 | 7 << 16], [OPTION_SACK, 0]];
        let length = core::mem::size_of_val(&options) as socklen_t;
        calls::setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_OPTIONS, options.as_ptr().cast(), length)?;
    }
    // The first to leave repair mode has no window yet; the probes of the two tell them.
    for fd in [program.0, relay.0] {
        calls::setsockopt_int(fd, IPPROTO_TCP, TCP_REPAIR, 0)?;
        // As connections of a listener with SO_REUSEADDR have it: the port can be bound again while they live.
        let _ = calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    }
    Ok((program.take(), relay.take()))
}

/// A TCP socket that is connected to nothing: what a program gets when no relay could be made. Every use is an error.
pub fn dead(family: i32) -> Result<i32> {
    calls::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)
}

/// A TCP connection from the host of `client` to the listener `fd` itself, for a client that shunt's queue held.
pub fn to_listener(fd: i32, family: i32, client: &Address) -> Result<i32> {
    let socket = tcp(family)?;
    bind(socket.0, family, &Address { port: 0, ..*client })?;
    shunt_table::process::helper::dies_by_reset(socket.0, true); // as in `between`
    let mut name = [0u64; 4];
    let mut length = core::mem::size_of_val(&name) as socklen_t;
    calls::getsockname(fd, name.as_mut_ptr().cast(), &mut length)?;
    let flags = calls::fcntl(socket.0, libc::F_GETFL, 0)?;
    calls::fcntl(socket.0, libc::F_SETFL, (flags | SOCK_NONBLOCK) as usize)?;
    match calls::connect(socket.0, name.as_ptr().cast::<sockaddr>(), length) {
        Ok(()) | Err(Errno(libc::EINPROGRESS)) => Ok(socket.take()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::fd::{AsRawFd, FromRawFd};

    fn exchange(pair: (i32, i32)) -> (TcpStream, TcpStream) {
        // SAFETY: fresh descriptors.
        let (mut near, mut far) = unsafe { (TcpStream::from_raw_fd(pair.0), TcpStream::from_raw_fd(pair.1)) };
        let mut text = [0; 5];
        for _ in 0..3 {
            near.write_all(b"there").unwrap();
            far.read_exact(&mut text).unwrap();
            assert_eq!(&text, b"there");
            far.write_all(b"again").unwrap();
            near.read_exact(&mut text).unwrap();
            assert_eq!(&text, b"again");
        }
        let much = vec![7u8; 4 << 20];
        std::thread::scope(|scope| {
            scope.spawn(|| near.write_all(&much).unwrap());
            let mut got = vec![0u8; much.len()];
            far.read_exact(&mut got).unwrap();
            assert!(got == much);
        });
        (near, far)
    }

    const NEAR: Address = Address::v4([127, 0, 0, 1], 7);
    const FAR: Address = Address::v4([192, 0, 2, 1], 9);

    #[test]
    fn what_a_carrier_that_never_began_leaves_is_a_reset() {
        let (mut program, relay) = exchange(between(libc::AF_INET, &NEAR, &FAR, true).unwrap());
        drop(relay);
        assert_eq!(program.read(&mut [0; 5]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn the_pair_for_another_host_keeps_the_family() {
        let far = Address::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 9);
        for (far, name) in [(FAR, "127.0.0.1"), (far, "::1")] {
            let near = if far == FAR { NEAR } else { far };
            let (program, _carrier) = exchange(between(libc::AF_INET6, &near, &far, true).unwrap());
            assert!(program.local_addr().unwrap().is_ipv6());
            assert_eq!(program.peer_addr().unwrap().ip().to_canonical().to_string(), name);
        }
    }

    #[test]
    fn an_end_is_held_until_it_is_closed() {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let (program, relay) = exchange(between(family, &NEAR, &FAR, true).unwrap());
            program.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(is_held(relay.as_raw_fd()), "it is shut");
            drop(program);
            // A child that another test has made has a copy until it execs or ends.
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while is_held(relay.as_raw_fd()) {
                assert!(std::time::Instant::now() < deadline, "nobody has it");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_pair_by_accept_has_the_right_hosts() {
        let (near, far) = (Address::v4([127, 0, 0, 1], 0), Address::v4([127, 0, 0, 2], 0));
        let (program, _carrier) = exchange(connected(libc::AF_INET, &near, &far).unwrap());
        assert_eq!(program.local_addr().unwrap().ip().to_string(), "127.0.0.1");
        assert_eq!(program.peer_addr().unwrap().ip().to_string(), "127.0.0.2");
        let mapped = (Address::v4([127, 0, 0, 1], 0), Address::v4([127, 0, 0, 3], 0));
        exchange(connected(libc::AF_INET6, &mapped.0, &mapped.1).unwrap());
    }

    #[test]
    fn a_repaired_pair_has_the_right_addresses_beside_a_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = Address::v4([127, 0, 0, 1], listener.local_addr().unwrap().port());
        let far = Address::v4([127, 0, 0, 1], 5);
        let asking = shunt_table::global::SETUP.lock().unwrap();
        let made = repaired(libc::AF_INET, &near, &far);
        drop(asking);
        match made {
            Err(Errno(libc::EPERM)) => {} // no CAP_NET_ADMIN: nothing to test
            made => {
                let (program, _carrier) = exchange(made.unwrap());
                assert_eq!(program.local_addr().unwrap(), listener.local_addr().unwrap());
                assert_eq!(program.peer_addr().unwrap().to_string(), "127.0.0.1:5");
            }
        }
    }
}
