//! Ports for connections to other hosts, and to other network namespaces of this one. Their port is named before there is a SYN, so the socket
//! is bound, and a bound port is no other socket's while the connection lasts, nor in TIME_WAIT: for no destination. All of them together have a
//! quarter of the host's range, so that there is always one for a socket whose port the kernel chooses; when none is left, connections are the
//! kernel's.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_segment::address::Address;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, AT_FDCWD, O_CLOEXEC, O_RDONLY};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::sockaddr::Encoded;

/// IP_LOCAL_PORT_RANGE (ip(7)), since Linux 6.3: the lowest port, and the highest in the upper half.
const LOCAL_PORT_RANGE: i32 = 51;
/// The range of a namespace in which nobody has set another.
const LINUX: (u16, u16) = (32_768, 60_999);
/// Where the kernel does not know it: ports that are tried.
const TRIES: u64 = 8;
/// How long it is believed that all are taken (ns): to find that out takes a look at each.
const FULL: u64 = 1_000_000_000;
/// How long the range is believed (ns).
const BELIEVED: u64 = 1_000_000_000;

/// What is known of the host's range of ports.
struct Known {
    /// All were taken: it is believed until then (ns).
    full_until: AtomicU64,
    /// The lowest port, and the highest in the upper half; 0: none is known.
    range: AtomicU32,
    /// The range is believed until then (ns).
    range_until: AtomicU64,
}

static KNOWN: Known = Known { full_until: AtomicU64::new(0), range: AtomicU32::new(0), range_until: AtomicU64::new(0) };

/// The ports of a range that may be bound: its upper quarter.
fn quarter(low: u16, high: u16) -> Option<(u16, u16)> {
    let ports = (u32::from(high) + 1).checked_sub(u32::from(low))? / 4;
    (ports > 0).then(|| (high - (ports as u16 - 1), high))
}

/// Reads a file of numbers that is shorter than a line; gives how many bytes there were.
fn read(path: &core::ffi::CStr, bytes: &mut [u8]) -> Option<usize> {
    let fd = calls::openat(AT_FDCWD, path.as_ptr().cast(), O_RDONLY | O_CLOEXEC, 0).ok()?;
    let got = calls::read(fd, bytes.as_mut_ptr().cast(), bytes.len());
    let _ = calls::close(fd);
    got.ok()
}

/// The range of this network namespace; where /proc is not there any more, as it was, and where it never was, as Linux makes it.
fn range() -> (u16, u16) {
    let now = clock::monotonic_ns();
    if now >= KNOWN.range_until.load(Ordering::Relaxed) {
        if let Some((low, high)) = read_range() {
            KNOWN.range.store(u32::from(low) | u32::from(high) << 16, Ordering::Relaxed);
        }
        KNOWN.range_until.store(now + BELIEVED, Ordering::Relaxed);
    }
    match KNOWN.range.load(Ordering::Relaxed) {
        0 => LINUX,
        known => (known as u16, (known >> 16) as u16),
    }
}

fn read_range() -> Option<(u16, u16)> {
    let mut bytes = [0u8; 32];
    let length = read(c"/proc/sys/net/ipv4/ip_local_port_range", &mut bytes)?;
    let mut numbers = core::str::from_utf8(&bytes[..length]).ok()?.split_ascii_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(low)), Some(Ok(high))) => Some((low, high)),
        _ => None,
    }
}

/// Whether the socket's packets have a mark (SO_MARK), by which rules may choose another way, and another source, than the route
/// that was asked for; or whether a port is chosen for it only when it connects (IP_BIND_ADDRESS_NO_PORT, ip(7)).
pub fn is_not_to_be_bound(fd: i32) -> bool {
    const NO_PORT: i32 = 24;
    let has = |level, name| calls::getsockopt_int(fd, level, name).is_ok_and(|value| value != 0);
    has(libc::SOL_SOCKET, libc::SO_MARK) || has(libc::IPPROTO_IP, NO_PORT)
}

/// The address that the connection will come from: where the program bound it, or one of the ports for that.
pub fn settle(fd: i32, socket: &Socket, source: &Address) -> Option<Address> {
    if !socket.has(flag::BOUND) && !bind(fd, socket.family.load(Ordering::Relaxed), source) {
        return None;
    }
    let bound = shunt_table::sockaddr::bound_address(fd);
    (bound.port != 0).then_some(Address { port: bound.port, scope: 0, ..if bound.is_unspecified() { *source } else { bound } })
}

/// Whether the socket keeps its port when its connection ends before it was made (connect(2), AF_UNSPEC): the program has bound it, or it was bound by number.
pub fn stays(fd: i32, socket: &Socket) -> bool {
    socket.has(flag::BOUND) || calls::getsockopt_int(fd, libc::IPPROTO_IP, LOCAL_PORT_RANGE).is_err()
}

/// Binds the socket to `source` and a port that is free. False: it is not bound.
pub fn bind(fd: i32, family: i32, source: &Address) -> bool {
    if clock::monotonic_ns() < KNOWN.full_until.load(Ordering::Relaxed) {
        return false;
    }
    let Some((low, high)) = quarter(range().0, range().1) else { return false };
    let bound = match calls::getsockopt_int(fd, libc::IPPROTO_IP, LOCAL_PORT_RANGE) {
        Ok(0) => within(fd, family, source, low, high),
        // The program has said which ports it wants.
        Ok(_) => return false,
        Err(_) => one_of(fd, family, source, low, high),
    };
    if bound == Err(Errno(libc::EADDRINUSE)) {
        KNOWN.full_until.store(clock::monotonic_ns() + FULL, Ordering::Relaxed);
    }
    bound.is_ok()
}

/// The kernel chooses among them.
fn within(fd: i32, family: i32, source: &Address, low: u16, high: u16) -> Result<()> {
    let range = u32::from(low) | u32::from(high) << 16;
    calls::setsockopt_int(fd, libc::IPPROTO_IP, LOCAL_PORT_RANGE, range as i32)?;
    let address = Encoded::new(family, source);
    let bound = calls::bind(fd, address.pointer(), address.length);
    let _ = calls::setsockopt_int(fd, libc::IPPROTO_IP, LOCAL_PORT_RANGE, 0);
    bound
}

/// Some of them are tried, unless an administrator keeps ports (ip_local_reserved_ports), which the kernel's own choice respects.
fn one_of(fd: i32, family: i32, source: &Address, low: u16, high: u16) -> Result<()> {
    let mut kept = [0u8; 2];
    match read(c"/proc/sys/net/ipv4/ip_local_reserved_ports", &mut kept) {
        Some(length) if kept[..length].iter().all(u8::is_ascii_whitespace) => {}
        _ => return Err(Errno(libc::EACCES)),
    }
    let mut random = clock::monotonic_ns() ^ (fd as u64) << 32 ^ u64::from(shunt_sys::thread::process()) << 40;
    for _ in 0..TRIES {
        // Constants of a multiplicative generator (Knuth); the upper bits are the better ones.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let port = low + ((random >> 33) % (u64::from(high - low) + 1)) as u16;
        let address = Encoded::new(family, &Address { port, ..*source });
        match calls::bind(fd, address.pointer(), address.length) {
            Err(Errno(libc::EADDRINUSE)) => {}
            other => return other,
        }
    }
    Err(Errno(libc::EADDRINUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    fn socket() -> OwnedFd {
        let fd = calls::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).expect("a socket");
        // SAFETY: the descriptor is new, and no other code's.
        unsafe { OwnedFd::from_raw_fd(fd) }
    }

    const HERE: Address = Address { ip: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1], port: 0, scope: 0 };

    #[test]
    fn quarters() {
        assert_eq!(quarter(32768, 60999), Some((53942, 60999)));
        assert_eq!(quarter(1, 65535), Some((49153, 65535)));
        assert_eq!(quarter(5000, 5003), Some((5003, 5003)));
        assert_eq!((quarter(5000, 5002), quarter(5000, 4000)), (None, None));
    }

    #[test]
    fn no_port_outside_the_quarter_is_bound() {
        let (low, high) = quarter(range().0, range().1).expect("a range");
        for way in [within, one_of] {
            for _ in 0..50 {
                let socket = socket();
                way(socket.as_raw_fd(), libc::AF_INET, &HERE, low, high).expect("a port");
                let port = shunt_table::sockaddr::bound_address(socket.as_raw_fd()).port;
                assert!((low..=high).contains(&port), "{port}");
                assert_eq!(calls::getsockopt_int(socket.as_raw_fd(), libc::IPPROTO_IP, LOCAL_PORT_RANGE).unwrap_or(0), 0);
            }
        }
    }

    /// What is taken is not taken from others: a range of one port, twice.
    #[test]
    fn a_range_that_is_taken() {
        let taken = socket();
        let (low, high) = quarter(range().0, range().1).expect("a range");
        within(taken.as_raw_fd(), libc::AF_INET, &HERE, low, high).expect("a port");
        let port = shunt_table::sockaddr::bound_address(taken.as_raw_fd()).port;
        for way in [within, one_of] {
            let other = socket();
            let bound = way(other.as_raw_fd(), libc::AF_INET, &HERE, port, port);
            assert_eq!(bound, Err(Errno(libc::EADDRINUSE)));
            assert_eq!(shunt_table::sockaddr::bound_address(other.as_raw_fd()).port, 0);
        }
    }
}
