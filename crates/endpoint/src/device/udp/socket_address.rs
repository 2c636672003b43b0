//! Addresses of UDP: the kernel's own structures as bytes.

use crate::{Address, Family};
use shunt_sys::{calls, libc};

const V4: usize = core::mem::size_of::<libc::sockaddr_in>();
const V6: usize = core::mem::size_of::<libc::sockaddr_in6>();

/// An IPv4 address and port.
pub fn ipv4(address: [u8; 4], port: u16) -> Address {
    let mut bytes = [0u8; V4];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&address);
    Address::new(Family::Udp, &bytes).unwrap_or(Address::NONE)
}

/// An IPv6 address and port; `scope` is the interface's number for a link-local address, else 0.
pub fn ipv6(address: [u8; 16], port: u16, scope: u32) -> Address {
    let mut bytes = [0u8; V6];
    bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[8..24].copy_from_slice(&address);
    bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
    Address::new(Family::Udp, &bytes).unwrap_or(Address::NONE)
}

/// The bytes of a `sockaddr_in` or `sockaddr_in6`, as the kernel gives them; `None` for another family or length.
pub fn from_sockaddr(bytes: &[u8]) -> Option<Address> {
    let address = Address::new(Family::Udp, bytes)?;
    is_v6(&address).map(|_| canonical(&address))
}

/// Whether the address is one of IPv6; `None` if it is none of UDP.
pub(super) fn is_v6(address: &Address) -> Option<bool> {
    let bytes = address.bytes();
    if !address.is(Family::Udp) || bytes.len() < 2 {
        return None;
    }
    match (u16::from_ne_bytes([bytes[0], bytes[1]]) as i32, bytes.len()) {
        (libc::AF_INET, V4) => Some(false),
        (libc::AF_INET6, V6) => Some(true),
        _ => None,
    }
}

/// The address without what names no endpoint (flow label; padding), so that equal addresses have equal bytes.
pub(super) fn canonical(address: &Address) -> Address {
    let bytes = address.bytes();
    match is_v6(address) {
        Some(false) => ipv4([bytes[4], bytes[5], bytes[6], bytes[7]], u16::from_be_bytes([bytes[2], bytes[3]])),
        Some(true) => {
            let mut host = [0; 16];
            host.copy_from_slice(&bytes[8..24]);
            let link_local = host[0] == 0xfe && host[1] & 0xc0 == 0x80;
            let scope = if link_local { u32::from_ne_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) } else { 0 };
            ipv6(host, u16::from_be_bytes([bytes[2], bytes[3]]), scope)
        }
        None => Address::NONE,
    }
}

/// Where a socket is bound.
pub(super) fn of_socket(socket: i32) -> Address {
    let mut bytes = [0u8; V6];
    let mut length = V6 as u32;
    match calls::getsockname(socket, bytes.as_mut_ptr().cast(), &mut length) {
        Ok(()) => from_sockaddr(&bytes[..(length as usize).min(V6)]).unwrap_or(Address::NONE),
        Err(_) => Address::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_nobody_is_left_out() {
        let plain = ipv6([0xfd; 16], 7, 0);
        let mut bytes = plain.bytes().to_vec();
        bytes[5] = 9; // flow label
        bytes[24] = 3; // a scope, which means nothing outside link-local addresses
        assert_eq!(from_sockaddr(&bytes), Some(plain));
        assert_eq!(from_sockaddr(&bytes[..27]), None);
        let mut four = ipv4([10, 0, 0, 1], 80).bytes().to_vec();
        four[12] = 1; // padding
        assert_eq!(from_sockaddr(&four), Some(ipv4([10, 0, 0, 1], 80)));
        four[0] = 99;
        assert_eq!(from_sockaddr(&four), None);
    }
}
