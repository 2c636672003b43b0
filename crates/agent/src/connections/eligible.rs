//! Whether a connection can be taken: each reason why not has a name ([`Decline`]).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use shunt_sys::calls;
use shunt_xdp::protocol::Decline;
use shunt_xdp::route::{Mac, Route};
use shunt_xdp::tcp::Tuple;

use super::diagnosis::Identity;
use super::environment::{namespace_of, Environment, Group};
use super::netlink::Sockets;

/// An address of a socket, as the kernel told it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Name {
    /// `struct sockaddr` of the socket's family: one of IPv6 may have addresses of IPv4 in it.
    pub bytes: [u8; 28],
    /// Of these so many count.
    pub length: u32,
}

impl Name {
    /// Asks getsockname(2) or getpeername(2).
    pub fn of(fd: RawFd, ask: unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32) -> io::Result<Name> {
        let mut name = Name { bytes: [0; 28], length: 28 };
        // SAFETY: as many bytes as said.
        match unsafe { ask(fd, name.bytes.as_mut_ptr().cast(), &mut name.length) } {
            0 if name.length as usize <= name.bytes.len() => Ok(name),
            0 => Err(io::ErrorKind::InvalidInput.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The address, one of IPv4 as such; and the interface of a link-local one.
    pub fn decoded(&self) -> Option<(SocketAddr, u32)> {
        let bytes = self.bytes.get(..self.length as usize)?;
        let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
            libc::AF_INET => {
                let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
                Some((SocketAddr::from((ip, port)), 0))
            }
            libc::AF_INET6 => {
                let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
                let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
                Some((SocketAddr::new(IpAddr::from(ip).to_canonical(), port), scope))
            }
            _ => None,
        }
    }
}

/// What was found of a connection that can be taken.
pub struct Candidate {
    /// Its ends.
    pub tuple: Tuple,
    /// As its socket has them: ours, the peer's.
    pub names: [Name; 2],
    /// Which socket.
    pub identity: Identity,
    /// The way to the peer.
    pub route: Route,
    /// The interface of a link-local address of the peer's, else 0.
    pub scope: u32,
    /// Whose frames they are.
    pub next_hop: Mac,
    /// IP_TOS or IPV6_TCLASS.
    pub service: u8,
    /// IP_TTL or IPV6_UNICAST_HOPS.
    pub hops: u8,
    /// Without TCP_NODELAY.
    pub nagle: bool,
}

/// An option that is a number.
pub fn option(fd: RawFd, level: i32, name: i32) -> Result<i32, i32> {
    calls::getsockopt_int(fd, level, name).map_err(|errno| errno.0)
}

/// The fields of `struct tcp_info` that count here.
pub struct Info {
    /// 1: established.
    pub state: u8,
    /// 0: nothing is amiss.
    pub recovery: u8,
    /// TCPI_OPT_*.
    pub options: u8,
    /// Scales of the peer's windows, and of ours.
    pub scales: (u8, u8),
    /// Bytes of a full packet.
    pub segment: u32,
    /// The path's MTU.
    pub path: u32,
    /// Packets that are not acknowledged.
    pub unacknowledged: u32,
    /// Smoothed round-trip time and its variation, in microseconds.
    pub round_trip: (u32, u32),
}

/// TCPI_OPT_TIMESTAMPS, _SACK, _ECN, _ECN_SEEN, _USEC_TS.
pub const TIMESTAMPS: u8 = 1;
/// See above.
pub const SELECTIVE: u8 = 2;
const ECN: u8 = 8 | 16;
const MICROSECONDS: u8 = 64;

impl Info {
    /// Asks for it.
    pub fn of(fd: RawFd) -> Result<Info, i32> {
        let mut bytes = [0u8; 76];
        let mut length = bytes.len() as u32;
        calls::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, bytes.as_mut_ptr().cast(), &mut length)
            .map_err(|errno| errno.0)?;
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok(Info {
            state: bytes[0],
            recovery: bytes[1],
            options: bytes[5],
            scales: (bytes[6] & 15, bytes[6] >> 4),
            segment: word(16),
            path: word(60),
            unacknowledged: word(24),
            round_trip: (word(68), word(72)),
        })
    }
}

/// Looks at a socket of process `pid`, whose connection is to leave by the interface with index `interface`.
pub fn look(
    socket: BorrowedFd<'_>,
    pid: i32,
    interface: u32,
    environment: &mut Environment,
    sockets: &mut Sockets,
) -> Result<Candidate, Decline> {
    environment.allows()?;
    let fd = socket.as_raw_fd();
    let is = |level, name, value| option(fd, level, name) == Ok(value);
    let domain = option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).map_err(|_| Decline::Kind)?;
    if !matches!(domain, libc::AF_INET | libc::AF_INET6) || !is(libc::SOL_SOCKET, libc::SO_TYPE, libc::SOCK_STREAM) {
        return Err(Decline::Kind);
    }
    match option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) {
        Ok(libc::IPPROTO_TCP) => {}
        Ok(libc::IPPROTO_MPTCP) => return Err(Decline::Multipath),
        _ => return Err(Decline::Kind),
    }
    if namespace_of(fd) != environment.namespace {
        return Err(Decline::Kind);
    }
    let info = Info::of(fd).map_err(|_| Decline::Kind)?;
    standing(fd, &info)?;
    if info.options & ECN != 0 {
        return Err(Decline::Congestion);
    }
    if info.options & MICROSECONDS != 0 {
        return Err(Decline::Microseconds);
    }
    // SO_GET_FILTER tells how many instructions there are, and refuses to for one of the newer kind.
    let mut count = 0;
    if calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, std::ptr::null_mut(), &mut count).is_err() || count != 0 {
        return Err(Decline::Filter);
    }
    urgent(fd)?;
    layers(fd)?;
    if is_particular(fd, domain) || has_options(fd, domain) {
        return Err(Decline::Options);
    }
    let names = [Name::of(fd, libc::getsockname), Name::of(fd, libc::getpeername)];
    let [Ok(ours), Ok(theirs)] = names else { return Err(Decline::Ended) };
    let (Some((here, _)), Some((there, scope))) = (ours.decoded(), theirs.decoded()) else { return Err(Decline::Kind) };
    let tuple = Tuple { ours: here, theirs: there };
    let identity = Identity::of(fd, domain).map_err(|_| Decline::Kind)?;
    let group = match identity.look(sockets, &tuple, interface) {
        Ok(found) if found.signed => return Err(Decline::Signed),
        Ok(found) if found.layered => return Err(Decline::Layered),
        Ok(found) if found.ended => return Err(Decline::Ended),
        Ok(found) => found.group,
        Err(_) => return Err(Decline::Kernel),
    };
    if environment.is_accounted(group.map_or(Group::OfProcess(pid), Group::Number)) {
        return Err(Decline::Accounted);
    }
    let route = environment.route(interface, there.ip(), scope).map_err(|_| Decline::Route)?;
    let next_hop = environment.next_hop(&route, true).ok_or(Decline::Neighbour)?;
    let [service, hops] = if there.is_ipv4() {
        [(libc::IPPROTO_IP, libc::IP_TOS), (libc::IPPROTO_IP, libc::IP_TTL)]
    } else {
        [(libc::IPPROTO_IPV6, libc::IPV6_TCLASS), (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS)]
    }
    .map(|(level, name)| option(fd, level, name).ok().and_then(|value| u8::try_from(value).ok()));
    let nagle = !is(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    Ok(Candidate {
        tuple,
        names: [ours, theirs],
        identity,
        route,
        scope,
        next_hop,
        service: service.unwrap_or(0) & !3,
        hops: hops.filter(|hops| *hops > 0).unwrap_or(64),
        nagle,
    })
}

/// Whether the connection stands, and nothing of it is under way from here.
pub fn standing(fd: RawFd, info: &Info) -> Result<(), Decline> {
    const ESTABLISHED: u8 = 1;
    if info.state != ESTABLISHED {
        return Err(Decline::Ended);
    }
    // TIOCOUTQ of a TCP socket (tcp(7), SIOCOUTQ).
    match calls::bytes_unread(fd) {
        Ok(0) if info.unacknowledged == 0 && info.recovery == 0 => Ok(()),
        _ => Err(Decline::Unacknowledged),
    }
}

/// A look for an urgent byte answers EINVAL where there is none.
fn urgent(fd: RawFd) -> Result<(), Decline> {
    let mut byte = 0u8;
    let flags = libc::MSG_OOB | libc::MSG_PEEK | libc::MSG_DONTWAIT;
    let (data, no) = ((&raw mut byte).cast(), std::ptr::null_mut());
    let found = calls::recvfrom(fd, data, 1, flags, no, std::ptr::null_mut());
    if found != Err(shunt_sys::Errno(libc::EINVAL)) || option(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE) != Ok(0) {
        return Err(Decline::Urgent);
    }
    Ok(())
}

fn layers(fd: RawFd) -> Result<(), Decline> {
    const TCP_AO_INFO: i32 = 40;
    let mut name = [0u8; 16];
    let mut length = name.len() as u32;
    let asked = calls::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_ULP, name.as_mut_ptr().cast(), &mut length);
    if asked.is_ok() && length != 0 {
        return Err(Decline::Layered);
    }
    // `struct tcp_ao_info_opt`, which is asked for with its length. Kernels without it know no such option.
    let mut keys = [0u8; 64];
    let mut length = 56;
    match calls::getsockopt(fd, libc::IPPROTO_TCP, TCP_AO_INFO, keys.as_mut_ptr().cast(), &mut length) {
        Ok(()) => Err(Decline::Signed),
        Err(_) => Ok(()),
    }
}

/// Options by which a socket is not like others, that user level does not know of, or that a new connection would not have.
fn is_particular(fd: RawFd, domain: i32) -> bool {
    const SO_TIMESTAMPING: i32 = 37;
    const SO_PEEK_OFF: i32 = 42;
    const TCP_INQ: i32 = 36;
    const TCP_TX_DELAY: i32 = 37;
    let (socket, tcp) = (libc::SOL_SOCKET, libc::IPPROTO_TCP);
    let is_set = |level, name| option(fd, level, name).is_ok_and(|value| value != 0);
    // Packets that have come too far are not the peer's.
    let has_least_hops = is_set(libc::IPPROTO_IP, libc::IP_MINTTL)
        || (domain == libc::AF_INET6 && is_set(libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT));
    let mut pace = u64::MAX;
    let mut length = 8;
    let asked = calls::getsockopt(fd, socket, libc::SO_MAX_PACING_RATE, (&raw mut pace).cast(), &mut length);
    let is_paced = asked.is_ok() && !matches!((length, pace), (8, u64::MAX)) && !(length == 4 && pace as u32 == u32::MAX);
    has_least_hops
        || is_paced
        || option(fd, socket, SO_PEEK_OFF).is_ok_and(|place| place >= 0)
        || [libc::SO_MARK, libc::SO_BINDTOIFINDEX, libc::SO_TIMESTAMP, libc::SO_TIMESTAMPNS, SO_TIMESTAMPING, libc::SO_ZEROCOPY]
            .into_iter()
            .any(|name| is_set(socket, name))
        // In repair already: another process that may do so is at it.
        || [TCP_INQ, TCP_TX_DELAY, libc::TCP_REPAIR].into_iter().any(|name| is_set(tcp, name))
}

/// Options of IP, or headers of IPv6 that go along with each packet.
fn has_options(fd: RawFd, domain: i32) -> bool {
    let some = |level, name| {
        let mut bytes = [0u8; 64];
        let mut length = bytes.len() as u32;
        calls::getsockopt(fd, level, name, bytes.as_mut_ptr().cast(), &mut length).is_ok() && length != 0
    };
    let headers = [libc::IPV6_HOPOPTS, libc::IPV6_RTHDR, libc::IPV6_DSTOPTS, libc::IPV6_RTHDRDSTOPTS];
    (domain == libc::AF_INET && some(libc::IPPROTO_IP, libc::IP_OPTIONS))
        || (domain == libc::AF_INET6 && headers.into_iter().any(|name| some(libc::IPPROTO_IPV6, name)))
}
