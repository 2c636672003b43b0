//! Routes and neighbours of channels.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use shunt_wire::endpoint::HEADER;
use shunt_xdp::netlink::Kept;
use shunt_xdp::packet::{IPV4, IPV6, UDP};
use shunt_xdp::route::{look_for, neighbour, route, Route};

use crate::client::NextHop;

/// So long the kernel's search for a neighbour may take: three questions, a second apart (arp(7), retrans_time).
const PATIENCE: Duration = Duration::from_secs(4);

/// A way out of the interface.
pub struct Way {
    /// The kernel's route.
    pub route: Route,
    /// Bytes of the largest datagram.
    pub largest: u32,
    /// What is known of the neighbour.
    pub next_hop: NextHop,
}

/// Bytes of the largest datagram in packets of `mtu`.
pub fn largest_datagram(mtu: u32, version_6: bool) -> u32 {
    mtu.saturating_sub((UDP + if version_6 { IPV6 } else { IPV4 }) as u32)
}

/// Bytes of the largest datagram to `peer` by a route out of an interface whose packets have `mtu` bytes at most.
pub fn largest_on(route: &Route, mtu: u32, peer: &SocketAddr) -> u32 {
    largest_datagram(route.mtu.unwrap_or(mtu).min(mtu), peer.is_ipv6())
}

/// Finds the way to `peer` out of the interface with index `interface`, whose packets have `mtu` bytes at most.
///
/// # Errors
/// An errno: EADDRNOTAVAIL where the kernel's route leads elsewhere, or the peer is on this host.
pub fn find(interface: u32, mtu: u32, peer: &SocketAddr, scope: u32) -> Result<Way, i32> {
    if peer.port() == 0 || peer.ip().is_unspecified() || peer.ip().is_multicast() || peer.ip().is_loopback() {
        return Err(libc::EADDRNOTAVAIL);
    }
    let route = route(&mut Kept::default(), &peer.ip(), scope).map_err(|_| libc::EADDRNOTAVAIL)?;
    if route.interface != interface {
        return Err(libc::EADDRNOTAVAIL);
    }
    let largest = largest_on(&route, mtu, peer);
    if largest < HEADER as u32 {
        return Err(libc::EADDRNOTAVAIL);
    }
    let mut next_hop = NextHop::Unknown(Instant::now());
    advance(&route, scope, &mut next_hop);
    Ok(Way { route, largest, next_hop })
}

/// Asks the kernel what it knows now; true: something is to be told.
pub fn advance(route: &Route, scope: u32, next_hop: &mut NextHop) -> bool {
    let (before, mut kept) = (*next_hop, Kept::default());
    let since = match before {
        NextHop::Unknown(since) => since,
        NextHop::Known(_) | NextHop::Silent => Instant::now(),
    };
    *next_hop = match neighbour(&mut kept, route.interface, &route.next_hop) {
        Ok(mac) => NextHop::Known(mac),
        // What was known is better than nothing: the kernel forgets neighbours that it does not use.
        Err(_) if matches!(before, NextHop::Known(_)) => before,
        Err(_) if since.elapsed() > PATIENCE => NextHop::Silent,
        Err(errno) => {
            // Not asked for yet, or asked for in vain: ask (again). While the kernel is asking, this adds nothing.
            if errno.0 != libc::ENOENT || since.elapsed() < Duration::from_millis(2) {
                let scope = match route.next_hop {
                    IpAddr::V6(ip) if ip.is_unicast_link_local() => route.interface,
                    _ => scope,
                };
                let _ = look_for(&route.next_hop, scope);
            }
            // A loopback-fast neighbour has answered by now.
            match (neighbour(&mut kept, route.interface, &route.next_hop), before) {
                (Ok(mac), _) => NextHop::Known(mac),
                (Err(_), NextHop::Silent) => NextHop::Silent,
                (Err(_), _) => NextHop::Unknown(since),
            }
        }
    };
    *next_hop != before
}
