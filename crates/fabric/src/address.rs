//! Addresses: four bytes that name libfabric's format (`FI_SOCKADDR_IN`, `FI_ADDR_STR`, ...), and the provider's name of the
//! endpoint, as fi_getname(3) gives it.
//!
//! An address of another provider is of another format, or of another length where the format's length is fixed. What is left
//! is the provider's to refuse.

use crate::interface::NAME;
use shunt_endpoint::{Address, Family, ADDRESS};
use shunt_sys::{libc, Errno};

const FORMAT: usize = 4;
/// `FI_SOCKADDR_IN`, `FI_SOCKADDR_IN6`, `FI_ADDR_STR` of fi_getinfo(3).
const IPV4: u32 = 2;
const IPV6: u32 = 3;
const TEXT: u32 = 9;

/// The address of an endpoint whose provider calls it `name`.
///
/// # Errors
/// ENAMETOOLONG: it does not fit into an endpoint's address (36 bytes; InfiniBand's own `FI_SOCKADDR_IB` has 48, IP over
/// InfiniBand fits).
pub fn encode(format: u32, name: &[u8]) -> Result<Address, Errno> {
    let mut bytes = [0; ADDRESS];
    let text = || name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = if format == TEXT { text() } else { name };
    bytes[..FORMAT].copy_from_slice(&format.to_le_bytes());
    bytes.get_mut(FORMAT..FORMAT + name.len()).ok_or(Errno(libc::ENAMETOOLONG))?.copy_from_slice(name);
    Address::new(Family::Fabric, &bytes[..FORMAT + name.len()]).ok_or(Errno(libc::ENAMETOOLONG))
}

/// The provider's name in `remote`, with zeros behind, if it can be one for the endpoint at `own`.
pub fn decode(remote: &Address, own: &Address) -> Option<[u8; NAME]> {
    if !remote.is(Family::Fabric) {
        return None;
    }
    let (format, name) = remote.bytes().split_at_checked(FORMAT)?;
    let (own_format, own_name) = own.bytes().split_at_checked(FORMAT)?;
    if format != own_format {
        return None;
    }
    let format = u32::from_le_bytes(format.try_into().ok()?);
    let family = |name: &[u8]| Some(i32::from(u16::from_ne_bytes([*name.first()?, *name.get(1)?])));
    let right = match format {
        TEXT => !name.is_empty() && !name.contains(&0) && scheme(name) == scheme(own_name),
        IPV4 => name.len() == 16 && family(name) == Some(libc::AF_INET),
        IPV6 => name.len() == 28 && family(name) == Some(libc::AF_INET6),
        _ => name.len() == own_name.len(),
    };
    if !right {
        return None;
    }
    let mut bytes = [0; NAME];
    bytes[..name.len()].copy_from_slice(name);
    Some(bytes)
}

/// Of `fi_shm://12:0:1`, what stands before the colon.
fn scheme(name: &[u8]) -> Option<&[u8]> {
    name.iter().position(|byte| *byte == b':').map(|end| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(format: u32, name: &[u8]) -> Address {
        encode(format, name).unwrap()
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let own = of(TEXT, b"fi_shm://1:0:0\0");
        let name = decode(&of(TEXT, b"fi_shm://22:0:1"), &own).unwrap();
        assert_eq!(&name[..16], b"fi_shm://22:0:1\0");
        let mut inet = [0u8; 16];
        inet[0] = libc::AF_INET as u8;
        assert_eq!(decode(&of(IPV4, &inet), &of(IPV4, &inet)).unwrap()[..16], inet);
        assert!(encode(77, &[1; 36]).is_ok());
        assert_eq!(encode(77, &[1; 37]), Err(Errno(libc::ENAMETOOLONG)));
    }

    #[test]
    fn other_addresses_are_refused() {
        let mut inet = [0u8; 16];
        inet[0] = libc::AF_INET as u8;
        let (text, ip, opaque) = (of(TEXT, b"fi_shm://1"), of(IPV4, &inet), of(77, &[1; 32]));
        let strangers = [
            Address::NONE,
            Address::new(Family::Udp, &inet).unwrap(),
            Address::new(Family::Fabric, &[9, 0]).unwrap(),
            of(TEXT, b""),
            of(TEXT, b"fi_net://1"),
            of(IPV4, &inet[..15]),
            of(IPV4, &[0; 16]),
            of(IPV6, &[0; 28]),
            of(77, &[1; 31]),
            of(78, &[1; 32]),
        ];
        for own in [text, ip, opaque] {
            for remote in &strangers {
                assert_eq!(decode(remote, &own), None, "{remote:?}");
            }
        }
        assert_eq!(decode(&text, &ip), None);
        assert_eq!(decode(&ip, &opaque), None);
    }
}
