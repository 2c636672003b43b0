//! Internet addresses as 18 plain bytes: IPv4 is kept in its IPv6-mapped form, ports in host order.

use core::net::{IpAddr, SocketAddr};

/// An address and port of either family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Address {
    /// IPv6 bytes in network order; IPv4 as `::ffff:a.b.c.d`.
    pub ip: [u8; 16],
    /// Port in host order.
    pub port: u16,
    /// Scope id of link-local IPv6 addresses, else 0.
    pub scope: u32,
}

impl Address {
    /// An IPv4 address.
    pub const fn v4(ip: [u8; 4], port: u16) -> Address {
        let mut bytes = [0u8; 16];
        bytes[10] = 0xff;
        bytes[11] = 0xff;
        bytes[12] = ip[0];
        bytes[13] = ip[1];
        bytes[14] = ip[2];
        bytes[15] = ip[3];
        Address { ip: bytes, port, scope: 0 }
    }

    /// An IPv6 address.
    pub const fn v6(ip: [u8; 16], port: u16) -> Address {
        Address { ip, port, scope: 0 }
    }

    /// The IPv4 address inside, if it is one.
    pub fn as_v4(&self) -> Option<[u8; 4]> {
        (self.ip[..10] == [0; 10] && self.ip[10] == 0xff && self.ip[11] == 0xff)
            .then(|| [self.ip[12], self.ip[13], self.ip[14], self.ip[15]])
    }

    /// As the standard library has it; `None`: an address of one interface alone, of which frames do not tell.
    pub fn everywhere(&self) -> Option<SocketAddr> {
        let ip = self.as_v4().map_or(IpAddr::from(self.ip), IpAddr::from);
        (self.scope == 0).then(|| SocketAddr::new(ip, self.port))
    }

    /// 0.0.0.0 or `::`.
    pub fn is_unspecified(&self) -> bool {
        self.ip == [0; 16] || self.as_v4() == Some([0; 4])
    }

    /// 127.0.0.0/8 or `::1`.
    pub fn is_loopback(&self) -> bool {
        match self.as_v4() {
            Some(v4) => v4[0] == 127,
            None => self.ip == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        }
    }

    /// As two words for shared memory.
    pub fn words(&self) -> [u64; 2] {
        let mut high = [0u8; 8];
        let mut low = [0u8; 8];
        high.copy_from_slice(&self.ip[..8]);
        low.copy_from_slice(&self.ip[8..]);
        [u64::from_ne_bytes(high), u64::from_ne_bytes(low)]
    }

    /// Back from [`Address::words`].
    pub fn from_words(words: [u64; 2], port: u16, scope: u32) -> Address {
        let mut ip = [0u8; 16];
        ip[..8].copy_from_slice(&words[0].to_ne_bytes());
        ip[8..].copy_from_slice(&words[1].to_ne_bytes());
        Address { ip, port, scope }
    }
}
