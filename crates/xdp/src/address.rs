//! Addresses of endpoints on an Ethernet: UDP's, so that an endpoint of the `udp` device can be a peer.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use shunt_endpoint::{Address, Family};
use shunt_sys::libc;

/// `address` as an endpoint's: a `sockaddr_in` or `sockaddr_in6` (ip(7), ipv6(7)), flow label 0.
pub fn encode(address: &SocketAddr, scope: u32) -> Address {
    let mut bytes = [0; 28];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let length = match address.ip() {
        IpAddr::V4(ip) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&ip.octets());
            16
        }
        IpAddr::V6(ip) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[8..24].copy_from_slice(&ip.octets());
            bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
            28
        }
    };
    Address::new(Family::Udp, &bytes[..length]).unwrap_or(Address::NONE)
}

/// The address and the scope (the interface of a link-local one) that an endpoint's address tells; `None` if it is none of
/// UDP's. An IPv4 address that is mapped into IPv6 is given as what it is.
#[inline]
pub fn decode(address: &Address) -> Option<(SocketAddr, u32)> {
    if !address.is(Family::Udp) {
        return None;
    }
    let bytes = address.bytes();
    let family = i32::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    match family {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some((SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port), 0))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
            Some((SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)).to_canonical(), port), scope))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for (text, scope) in [("10.0.0.1:29544", 0), ("[fd77::1]:1", 0), ("[fe80::1]:65535", 3)] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode(&encode(&address, scope)), Some((address, scope)));
        }
        assert_eq!(decode(&Address::NONE), None);
        assert_eq!(decode(&Address::new(Family::Udp, &[2, 0, 1]).unwrap()), None);
        assert_eq!(decode(&Address::new(Family::Memory, &[2, 0, 1, 1, 10, 0, 0, 1]).unwrap()), None);
    }
}
