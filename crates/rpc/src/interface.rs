//! The interface that has an address: whose agent an end of the device `xdp` asks.

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use std::io;
use std::net::IpAddr;

/// The name of the interface of this host that has the address (getifaddrs(3)).
pub(crate) fn name_of(at: IpAddr) -> io::Result<String> {
    let address = |of: SockaddrStorage| -> Option<IpAddr> {
        let four = of.as_sockaddr_in().map(|address| address.ip().into());
        four.or_else(|| of.as_sockaddr_in6().map(|address| address.ip().into()))
    };
    let found = getifaddrs()?.find(|one| one.address.and_then(address) == Some(at));
    found
        .map(|one| one.interface_name)
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrNotAvailable, format!("no interface of this host has the address {at}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn interfaces_are_found_by_their_addresses() {
        assert_eq!(name_of(Ipv4Addr::LOCALHOST.into()).unwrap(), "lo");
        let error = name_of(Ipv4Addr::new(192, 0, 2, 77).into()).unwrap_err();
        assert!(error.to_string().contains("192.0.2.77"), "{error}");
    }
}
