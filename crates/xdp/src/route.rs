//! The way to another host: which interface, which source address, whose Ethernet address.
//!
//! Routes and neighbours are the kernel's. We ask for them (rtnetlink(7)), and where no neighbour is known we make the
//! kernel look for it by sending it an empty datagram, so there is no second ARP or neighbour discovery.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use shunt_sys::{calls, libc, Errno};

use crate::netlink::{attribute, half, word, Kept, Request};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// How packets to some address leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the interface.
    pub interface: u32,
    /// The neighbour that gets the frames: the destination itself, or a gateway.
    pub next_hop: IpAddr,
    /// The address that the kernel would send from.
    pub source: Option<IpAddr>,
    /// Bytes of the largest packet, where the route says so.
    pub mtu: Option<u32>,
}

/// Why there is no way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The address is this host's own: its frames never reach an interface.
    Local,
    /// Not an address of one host, or forbidden by a route.
    NotUnicast,
    /// What the kernel answered: ENETUNREACH, EHOSTUNREACH.
    Kernel(Errno),
}

fn octets(address: &IpAddr) -> ([u8; 16], usize) {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes = address.octets(),
    }
    (bytes, if address.is_ipv4() { 4 } else { 16 })
}

fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?))),
        16 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))),
        _ => None,
    }
}

fn family_of(address: &IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// The kernel's route to `destination`; `scope` is the interface of a link-local address, else 0.
///
/// # Errors
/// [`Unreachable`].
pub fn route(kept: &mut Kept, destination: &IpAddr, scope: u32) -> Result<Route, Unreachable> {
    /// `struct rtmsg`.
    const FIXED: usize = 12;
    const RTN_LOCAL: u8 = 2;
    const RTN_UNICAST: u8 = 1;
    const RTA_METRICS: u16 = 8;
    const RTA_VIA: u16 = 18;
    const RTAX_MTU: u16 = 2;
    let (bytes, length) = octets(destination);
    let mut fixed = [0; FIXED];
    (fixed[0], fixed[1]) = (family_of(destination), length as u8 * 8);
    let mut request = Request::new(libc::RTM_GETROUTE, &fixed).attribute(libc::RTA_DST, &bytes[..length]);
    if scope != 0 {
        request = request.attribute(libc::RTA_OIF, &scope.to_ne_bytes());
    }
    let answer = request.ask(kept, |answer| {
        match answer.fixed().get(7) {
            Some(&RTN_UNICAST) => {}
            Some(&RTN_LOCAL) => return Err(Unreachable::Local),
            _ => return Err(Unreachable::NotUnicast),
        }
        let find = |kind| answer.attribute(FIXED, kind);
        // A gateway of the other family: two bytes of family, then the address.
        let via = find(RTA_VIA).and_then(|via| address_of(via.get(2..)?));
        let gateway = find(libc::RTA_GATEWAY).and_then(address_of).or(via);
        let metrics = find(RTA_METRICS).and_then(|metrics| attribute(metrics, RTAX_MTU));
        Ok(Route {
            interface: find(libc::RTA_OIF).map_or(0, |value| word(value, 0)),
            next_hop: gateway.unwrap_or(*destination),
            source: find(libc::RTA_PREFSRC).and_then(address_of),
            mtu: metrics.map(|value| word(value, 0)).filter(|mtu| *mtu > 0),
        })
    });
    answer.map_err(Unreachable::Kernel)?
}

/// The Ethernet address of `neighbour` at an interface, if the kernel knows one.
///
/// # Errors
/// ENOENT: not known (yet). EHOSTUNREACH: the kernel looked and no neighbour answered. What else it answers.
pub fn neighbour(kept: &mut Kept, interface: u32, neighbour: &IpAddr) -> Result<Mac, Errno> {
    /// `struct ndmsg`.
    const FIXED: usize = 12;
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;
    const NUD_FAILED: u16 = 0x20;
    let (bytes, length) = octets(neighbour);
    let mut fixed = [0; FIXED];
    fixed[0] = family_of(neighbour);
    fixed[4..8].copy_from_slice(&interface.to_ne_bytes());
    Request::new(libc::RTM_GETNEIGH, &fixed).attribute(NDA_DST, &bytes[..length]).ask(kept, |answer| {
        if half(answer.fixed(), 8) & NUD_FAILED != 0 {
            return Err(Errno(libc::EHOSTUNREACH));
        }
        let address = answer.attribute(FIXED, NDA_LLADDR).and_then(|address| Mac::try_from(address).ok());
        address.ok_or(Errno(libc::ENOENT))
    })?
}

/// Makes the kernel look for `neighbour`: an empty datagram to its discard port (RFC 863), which no program misses.
///
/// # Errors
/// What socket(2) and sendto(2) answer.
pub fn look_for(neighbour: &IpAddr, scope: u32) -> Result<(), Errno> {
    const DISCARD: u16 = 9;
    let fd = calls::socket(family_of(neighbour).into(), libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)?;
    let sent = match neighbour {
        IpAddr::V4(address) => {
            let to = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: DISCARD.to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
                sin_zero: [0; 8],
            };
            calls::sendto(fd, core::ptr::null(), 0, 0, (&raw const to).cast(), size_of_val(&to) as u32)
        }
        IpAddr::V6(address) => {
            let to = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: DISCARD.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.octets() },
                sin6_scope_id: scope,
            };
            calls::sendto(fd, core::ptr::null(), 0, 0, (&raw const to).cast(), size_of_val(&to) as u32)
        }
    };
    let _ = calls::close(fd);
    sent.map(|_| ())
}

/// An interface's name, and the bytes of its largest packet if the system says that. `None`: there is no such interface.
pub fn describe(interface: u32) -> Option<([u8; libc::IFNAMSIZ], Option<u32>)> {
    const SIOCGIFNAME: u64 = 0x8910;
    const SIOCGIFMTU: u64 = 0x8921;
    let fd = calls::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).ok()?;
    // struct ifreq: the name, and a union of 24 bytes.
    let mut request = [0u8; 40];
    request[16..20].copy_from_slice(&interface.to_ne_bytes());
    let named = calls::ioctl(fd, SIOCGIFNAME, request.as_mut_ptr() as usize);
    let name = *request.first_chunk()?;
    let sized = calls::ioctl(fd, SIOCGIFMTU, request.as_mut_ptr() as usize);
    let _ = calls::close(fd);
    named.ok()?;
    Some((name, sized.ok().map(|_| word(&request, 16))))
}
