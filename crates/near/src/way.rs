//! How packets to a server leave this namespace: which address they come from, and how large they may be.

use crate::known::{servers, Way};
use shunt_segment::address::Address;
use shunt_sys::calls;
use shunt_sys::libc::{self, SOCK_CLOEXEC};
use shunt_table::private::Pending;
use shunt_table::sockaddr;
use shunt_table::sockaddr::Encoded;

/// The way to a server: as it was a moment ago, or as a socket tells that sends nothing.
pub fn way(server: &Address, now: u64) -> Option<Way> {
    const IP_MTU: i32 = 14;
    const IPV6_MTU: i32 = 24;
    if let Some(known) = servers(|servers| servers.way(server, now)) {
        return Some(known);
    }
    let (family, level, option, headers) = match server.as_v4() {
        Some(_) => (libc::AF_INET, libc::IPPROTO_IP, IP_MTU, 40),
        None => (libc::AF_INET6, libc::IPPROTO_IPV6, IPV6_MTU, 60),
    };
    let probe = Pending(calls::socket(family, libc::SOCK_DGRAM | SOCK_CLOEXEC, 0).ok()?);
    let address = Encoded::new(family, server);
    calls::connect(probe.0, address.pointer(), address.length).ok()?;
    let mtu = calls::getsockopt_int(probe.0, level, option).ok()?;
    let source = Address { port: 0, ..sockaddr::bound_address(probe.0) };
    let way = Way { source, segment: u32::try_from(mtu).ok()?.checked_sub(headers)? };
    servers(|servers| servers.goes(server, way, now));
    Some(way)
}
