//! What a connection that was just accepted shows of its SYN, and since when it is there: TCP_INFO (tcp(7)).

use shunt_sys::{calls, clock, libc};

/// Offsets in struct tcp_info, of 32 bits each but the options' byte.
mod at {
    pub const OPTIONS: usize = 5;
    pub const SEGMENT: usize = 16;
    pub const LAST_SENT: usize = 44;
    pub const PATH: usize = 60;
    pub const ROUND_TRIP: usize = 68;
    pub const OWN: usize = 84;
    pub const SENT_AGAIN: usize = 100;
    /// Since Linux 5.4.
    pub const WINDOW: usize = 228;
}
/// TCPI_OPT_TIMESTAMPS, and the bytes that they take of each segment (RFC 7323).
const STAMPED: u8 = 1;
const STAMPS: u32 = 12;
/// The kernel's clock for this has ticks, and may be behind where a virtual processor was taken away.
const TICKS: u64 = 50_000_000;

/// What a connection shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The largest segment that the SYN named; 0 if something else of this side's bounds it.
    pub segment: u32,
    /// The largest segment that this side's interface has.
    pub own: u32,
    /// When the connection was there at the latest (ns): nothing was sent on it, so the kernel's "last sent" is its making.
    pub made: u64,
    /// When the SYN was answered (ns), up to a tick of the kernel's clock and what that is behind: the connection is there when the answer is answered, which is
    /// later where that was lost or had no room. `None`: it was answered more than once, or the kernel does not tell.
    pub answered: Option<u64>,
}

/// Asks the kernel; `headers`: bytes of those of IP and TCP.
pub fn look(fd: i32, headers: u32) -> Shown {
    let mut bytes = [0u8; at::WINDOW + 4];
    let mut length = bytes.len() as libc::socklen_t;
    let now = clock::monotonic_ns();
    if calls::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr().cast(), &mut length).is_err() {
        return Shown { segment: 0, own: 0, made: 0, answered: None };
    }
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let stamps = if bytes[at::OPTIONS] & STAMPED != 0 { STAMPS } else { 0 };
    let segment = word(at::SEGMENT) + stamps;
    // The kernel takes the least of what the SYN names, of what this side would (the route's, the listener's TCP_MAXSEG), of the
    // path's, and of half the peer's window: only what is less than all others can be the SYN's.
    let is_whole = length as usize >= bytes.len();
    let bounded =
        word(at::SEGMENT) >= word(at::OWN) || segment + headers >= word(at::PATH) || (is_whole && word(at::WINDOW) < 2 * segment);
    let age = u64::from(word(at::LAST_SENT)) * 1_000_000;
    let answered = match (word(at::SENT_AGAIN), u64::from(word(at::ROUND_TRIP))) {
        (0, microseconds @ 1..) => Some(now.saturating_sub(age + microseconds * 1000)),
        _ => None,
    };
    let made = (now + TICKS).saturating_sub(age);
    Shown { segment: if bounded { 0 } else { segment }, own: word(at::OWN) + stamps, made, answered }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::sleeping;
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    fn set(fd: i32, level: i32, name: i32, value: i32) {
        calls::setsockopt_int(fd, level, name, value).expect("an option");
    }

    /// The connection that the listener gets, when `client` was set on the client's side.
    fn accepted(listener: &TcpListener, client: &[(i32, i32, i32)]) -> (OwnedFd, OwnedFd) {
        let raw = calls::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).expect("a socket");
        // SAFETY: the descriptor is new, and no other code's.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        client.iter().for_each(|(level, name, value)| set(raw, *level, *name, *value));
        let port = listener.local_addr().expect("an address").port();
        let to = shunt_table::sockaddr::Encoded::new(libc::AF_INET, &shunt_segment::address::Address::v4([127, 0, 0, 1], port));
        calls::connect(raw, to.pointer(), to.length).expect("a connection");
        (listener.accept().expect("it").0.into(), socket)
    }

    #[test]
    fn only_the_syn_is_believed() {
        let listener = || TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let plain = listener();
        let marked = (libc::IPPROTO_TCP, libc::TCP_MAXSEG, 1401);
        let segment = |(server, _client): (OwnedFd, OwnedFd)| look(server.as_raw_fd(), 40).segment;
        assert_eq!(segment(accepted(&plain, &[marked])), 1401);
        let (server, _client) = accepted(&plain, &[marked]);
        assert!([65_495, 65_483].contains(&look(server.as_raw_fd(), 40).own), "what the loopback interface has");
        // The client names what its interface has.
        assert_eq!(segment(accepted(&plain, &[])), 0);
        // Half of its window is less.
        assert_eq!(segment(accepted(&plain, &[(libc::SOL_SOCKET, libc::SO_RCVBUF, 2304)])), 0);
        assert_eq!(segment(accepted(&plain, &[marked, (libc::SOL_SOCKET, libc::SO_RCVBUF, 2304)])), 0);
        // The listener's own bound, which looks like a mark.
        let bounded = listener();
        set(bounded.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, 1401);
        assert_eq!(segment(accepted(&bounded, &[])), 0);
        assert_eq!(segment(accepted(&bounded, &[(libc::IPPROTO_TCP, libc::TCP_MAXSEG, 1399)])), 1399);
    }

    #[test]
    fn a_connection_is_not_younger_than_its_hand_shake() {
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let before = clock::monotonic_ns();
        let (server, client) = accepted(&listener, &[]);
        let after = clock::monotonic_ns();
        let _ = sleeping::nap(300_000_000);
        // What comes from the client changes nothing.
        assert_eq!(calls::sendto(client.as_raw_fd(), b"x".as_ptr().cast(), 1, 0, core::ptr::null(), 0), Ok(1));
        let made = look(server.as_raw_fd(), 40).made;
        assert!((before..after + 2 * TICKS).contains(&made), "{before} {made} {after}");
    }

    /// The kernel makes the listener's end when the hand-shake's last packet finds room, or bytes come: its making says nothing of how long the client has
    /// waited.
    #[test]
    fn a_connection_is_as_old_as_the_answer_to_its_syn() {
        let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let answered = |server: &OwnedFd| look(server.as_raw_fd(), 40).answered;
        let before = clock::monotonic_ns();
        let (server, _client) = accepted(&listener, &[]);
        let after = clock::monotonic_ns();
        assert!(answered(&server).is_some_and(|then| (before - 20_000_000..=after).contains(&then)));
        // Until bytes come.
        set(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 30);
        let port = listener.local_addr().expect("an address").port();
        let mut client = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        let connected = clock::monotonic_ns();
        let _ = sleeping::nap(300_000_000);
        std::io::Write::write_all(&mut client, b"x").expect("a byte");
        let server: OwnedFd = listener.accept().expect("it").0.into();
        assert!(look(server.as_raw_fd(), 40).made > connected + 250_000_000, "its making is late");
        assert!(answered(&server).is_none_or(|then| then < connected + 100_000_000));
    }
}
