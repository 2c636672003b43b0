//! The name of an interface, by its number (netdevice(7)).

use shunt_sys::{calls, libc};

/// A name.
pub struct Name([u8; libc::IFNAMSIZ]);

impl Name {
    /// That of interface `number`, if there is one.
    pub fn of(number: u32) -> Option<Name> {
        const SIOCGIFNAME: u64 = 0x8910;
        let fd = calls::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).ok()?;
        // struct ifreq: the name, and a union of 24 bytes.
        let mut request = [0u8; 40];
        request[16..20].copy_from_slice(&number.to_ne_bytes());
        let named = calls::ioctl(fd, SIOCGIFNAME, request.as_mut_ptr() as usize);
        let _ = calls::close(fd);
        named.ok()?;
        request.first_chunk().copied().map(Name)
    }

    /// It, as text.
    pub fn as_str(&self) -> Option<&str> {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        core::str::from_utf8(&self.0[..length]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_interface_is_the_loopback_one() {
        assert_eq!(Name::of(1).as_ref().and_then(Name::as_str), Some("lo"));
        assert!(Name::of(u32::MAX).is_none());
    }
}
