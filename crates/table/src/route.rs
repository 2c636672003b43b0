//! Whether an address is this host's, and which source address the kernel would use: rtnetlink(7).

use crate::diag::NETLINK;
use crate::{diag, private};
use core::sync::atomic::{AtomicI32, Ordering};
use shunt_segment::address::Address;
use shunt_sys::libc::{self, AF_INET, AF_INET6, MSG_DONTWAIT};
use shunt_sys::{calls, Errno, Result};

const RTM_GETROUTE: u16 = 26;
const RTM_NEWROUTE: u16 = 24;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_VIA: u16 = 18;
/// The entry of the table itself, not what a lookup makes of it (linux/rtnetlink.h).
const RTM_F_FIB_MATCH: u32 = 0x2000;

/// In the child after fork. Answers on a socket that both have would reach either.
pub fn forked() {
    NETLINK.left.iter().chain([&NETLINK.route]).for_each(|fd| private::close(fd.swap(-1, Ordering::Relaxed)));
}

/// Asks by another socket from now on.
pub fn forget() {
    private::close(NETLINK.route.swap(-1, Ordering::Relaxed));
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    NETLINK.left.iter().chain([&NETLINK.route]).for_each(|fd| crate::private::renumber(fd, from, to));
}

/// The process is about to leave its network namespace, and has listeners there. Under the set-up lock.
pub fn leaving() {
    let _ = diag::socket(&NETLINK.route, libc::NETLINK_ROUTE);
}

/// It has left it: the number by which listeners know that one from now on. Under the set-up lock.
pub fn left() -> u32 {
    let fd = NETLINK.route.swap(-1, Ordering::Relaxed);
    match NETLINK.left.iter().position(|place| place.load(Ordering::Relaxed) < 0) {
        Some(place) => {
            NETLINK.left[place].store(fd, Ordering::Relaxed);
            place as u32 + 1
        }
        None => {
            private::close(fd);
            u32::MAX
        }
    }
}

/// Whether an address is one of the host's in a listener's namespace ([`left`]). Where that cannot be asked any more only those of
/// the loopback interface are. Under the set-up lock.
pub fn is_local_in(namespace: u32, address: &Address) -> bool {
    let fd = match namespace {
        0 => &NETLINK.route,
        left => match NETLINK.left.get(left as usize - 1).filter(|fd| fd.load(Ordering::Relaxed) >= 0) {
            Some(fd) => fd,
            None => return address.is_loopback(),
        },
    };
    address.is_loopback() || way_by(fd, address).is_ok_and(|way| way.is_some_and(|way| way.local))
}

/// How packets to an address leave this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The address is one of this host's.
    pub local: bool,
    /// The source address that the kernel would use.
    pub source: Address,
    /// Number of the interface; 0: unknown.
    pub interface: u32,
    /// A router stands between.
    pub routed: bool,
}

/// The source address of a connection to `server` if it is an address of this host, else `None`.
/// Called under the set-up lock.
pub fn local_source(server: &Address) -> Result<Option<Address>> {
    if server.is_loopback() {
        // 127.0.0.0/8 is one local route with 127.0.0.1 as its preferred source.
        let source = if server.as_v4().is_some() { Address::v4([127, 0, 0, 1], 0) } else { Address { port: 0, ..*server } };
        return Ok(Some(source));
    }
    Ok(way(server)?.filter(|way| way.local).map(|way| way.source))
}

/// The way to `server`; `None`: there is none. Called under the set-up lock.
pub fn way(server: &Address) -> Result<Option<Way>> {
    way_by(&NETLINK.route, server)
}

fn way_by(fd: &AtomicI32, server: &Address) -> Result<Option<Way>> {
    let mut reply = [0u8; 1024];
    let got = request(fd, server, 0, &mut reply)?;
    parse(&reply[..got], server)
}

/// The interface that an address of this host belongs to, though its datagrams come by the loopback one.
/// Called under the set-up lock.
pub fn interface_of(address: &Address) -> Option<u32> {
    let mut reply = [0u8; 1024];
    let got = request(&NETLINK.route, address, RTM_F_FIB_MATCH, &mut reply).ok()?;
    let reply = &reply[..got];
    let u16_at = |at: usize| reply.get(at..at + 2).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    let mut at = 28;
    while let (Some(RTM_NEWROUTE), Some(length), Some(attribute)) = (u16_at(4), u16_at(at), u16_at(at + 2)) {
        if attribute == RTA_OIF {
            return reply.get(at + 4..at + 8).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        }
        at += (length.max(4) as usize + 3) & !3;
    }
    None
}

/// Bits of the prefix of the route to an address (those of IPv4 with the 96 of the mapped form).
/// Called under the set-up lock.
pub fn prefix_of(address: &Address) -> Option<u8> {
    let mut reply = [0u8; 1024];
    let got = request(&NETLINK.route, address, RTM_F_FIB_MATCH, &mut reply).ok()?;
    let reply = reply[..got].get(..28)?;
    let mapped = if address.as_v4().is_some() { 96 } else { 0 };
    // rtm_dst_len, behind nlmsghdr and rtm_family.
    (reply[4..6] == RTM_NEWROUTE.to_ne_bytes()).then(|| mapped + reply[17].min(128 - mapped))
}

/// Asks for the route to an address; gives the bytes of the reply.
fn request(fd: &AtomicI32, server: &Address, flags: u32, reply: &mut [u8; 1024]) -> Result<usize> {
    let fd = diag::socket(fd, libc::NETLINK_ROUTE)?;
    let v4 = server.as_v4();
    let (family, ip): (i32, &[u8]) = if v4.is_some() { (AF_INET, &server.ip[12..]) } else { (AF_INET6, &server.ip) };
    // nlmsghdr (16), rtmsg (12), rtattr RTA_DST (4 + address)
    let mut request = [0u8; 48];
    let length = 16 + 12 + 4 + ip.len();
    request[0..4].copy_from_slice(&(length as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETROUTE.to_ne_bytes());
    request[6..8].copy_from_slice(&1u16.to_ne_bytes());
    request[8..12].copy_from_slice(&1u32.to_ne_bytes());
    request[16] = family as u8;
    request[17] = (ip.len() * 8) as u8;
    request[24..28].copy_from_slice(&flags.to_ne_bytes());
    request[28..30].copy_from_slice(&((4 + ip.len()) as u16).to_ne_bytes());
    request[30..32].copy_from_slice(&RTA_DST.to_ne_bytes());
    request[32..32 + ip.len()].copy_from_slice(ip);
    calls::sendto(fd, request.as_ptr().cast(), length, MSG_DONTWAIT, core::ptr::null(), 0)?;
    let got =
        calls::recvfrom(fd, reply.as_mut_ptr().cast(), reply.len(), MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut())?;
    Ok(got.min(reply.len()))
}

fn parse(reply: &[u8], server: &Address) -> Result<Option<Way>> {
    let u16_at = |at: usize| reply.get(at..at + 2).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    let broken = Err(Errno(libc::EPROTO));
    let Some(kind) = u16_at(4) else { return broken };
    if kind != RTM_NEWROUTE {
        return Ok(None); // an error reply: no route, so not local
    }
    let local = match reply.get(16 + 7) {
        Some(&RTN_LOCAL) => true,
        Some(&RTN_UNICAST) => false,
        _ => return Ok(None),
    };
    let mut way = Way { local, source: Address { port: 0, ..*server }, interface: 0, routed: false };
    let mut at = 28;
    while let (Some(length), Some(attribute)) = (u16_at(at), u16_at(at + 2)) {
        let length = length as usize;
        if length < 4 {
            return broken;
        }
        let Some(data) = reply.get(at + 4..at + length) else { return broken };
        match (attribute, data.len()) {
            (RTA_PREFSRC, 4) => way.source = Address::v4([data[0], data[1], data[2], data[3]], 0),
            (RTA_PREFSRC, 16) => way.source.ip.copy_from_slice(data),
            (RTA_PREFSRC, _) => return Ok(None),
            (RTA_OIF, 4) => way.interface = u32::from_ne_bytes([data[0], data[1], data[2], data[3]]),
            (RTA_GATEWAY | RTA_VIA, _) => way.routed = true,
            _ => {}
        }
        at += (length + 3) & !3;
    }
    Ok(Some(way))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local_and_test_networks_are_not() {
        let one = Address::v4([127, 0, 0, 1], 0);
        let way = way(&Address::v4([127, 3, 2, 1], 5)).unwrap().unwrap();
        assert!(way.local && !way.routed && way.interface == 1);
        assert_eq!(way.source, one);
        assert_eq!(local_source(&Address::v4([127, 3, 2, 1], 5)).unwrap(), Some(one));
        assert_eq!(prefix_of(&Address::v4([127, 3, 2, 1], 5)), Some(96 + 8));
        assert_eq!(local_source(&Address::v4([192, 0, 2, 77], 5)).unwrap(), None);
    }
}
