//! A connection of the program's: its descriptor, and where it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use shunt_xdp::taken::Taken;
use shunt_xdp::tcp::Tuple;

/// One of them.
pub struct Line {
    pub fd: i32,
    pub tuple: Tuple,
    pub taken: Option<Taken>,
    /// It is to be taken, as soon as that can be.
    pub is_wanted: bool,
    /// Calls of the program that are under way in the kernel.
    pub calls: u32,
    /// Calls and frames so far.
    pub events: (u64, u64),
}

impl Line {
    pub fn new(fd: i32, tuple: Tuple) -> Line {
        Line { fd, tuple, taken: None, is_wanted: false, calls: 0, events: (0, 0) }
    }
}

/// The ends of a connected socket; `None`: it is not connected.
pub fn tuple(fd: i32) -> Option<Tuple> {
    let ours = name(|address, length| {
        // SAFETY: room for an address of any family, and its length.
        unsafe { libc::getsockname(fd, address, length) }
    })?;
    let theirs = name(|address, length| {
        // SAFETY: as above.
        unsafe { libc::getpeername(fd, address, length) }
    })?;
    Some(Tuple { ours, theirs })
}

fn name(ask: impl FnOnce(*mut libc::sockaddr, *mut libc::socklen_t) -> i32) -> Option<SocketAddr> {
    // SAFETY: integers; zero is valid.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    if ask((&raw mut address).cast(), &mut length) != 0 {
        return None;
    }
    match i32::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says so, and the storage is larger.
            let address = unsafe { *(&raw const address).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { *(&raw const address).cast::<libc::sockaddr_in6>() };
            let ip = IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)).to_canonical();
            Some(SocketAddr::new(ip, u16::from_be(address.sin6_port)))
        }
        _ => None,
    }
}
