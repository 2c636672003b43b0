//! The interface that has an address: whose agent an end of the device `xdp` asks.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The name of the interface of this host that has the address (getifaddrs(3)).
pub(crate) fn name_of(at: IpAddr) -> io::Result<String> {
    let mut list = std::ptr::null_mut();
    // SAFETY: room for a pointer.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut next, mut found) = (list, None);
    while let (None, false) = (&found, next.is_null()) {
        // SAFETY: an entry of the list, which is freed below.
        let entry = unsafe { &*next };
        // SAFETY: its address, or null.
        if unsafe { address_of(entry.ifa_addr) } == Some(at) {
            // SAFETY: a string that ends in 0.
            found = Some(unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned());
        }
        next = entry.ifa_next;
    }
    // SAFETY: what getifaddrs gave, used no more.
    unsafe { libc::freeifaddrs(list) };
    found
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrNotAvailable, format!("no interface of this host has the address {at}")))
}

/// # Safety
/// Null, or an address as long as its family says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: of that family, so as long.
            let address = unsafe { *address.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of that family, so as long.
            let address = unsafe { *address.cast::<libc::sockaddr_in6>() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_their_addresses() {
        assert_eq!(name_of(Ipv4Addr::LOCALHOST.into()).unwrap(), "lo");
        let error = name_of(Ipv4Addr::new(192, 0, 2, 77).into()).unwrap_err();
        assert!(error.to_string().contains("192.0.2.77"), "{error}");
    }
}
