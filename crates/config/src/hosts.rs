//! The area: addresses of other hosts to which connections may be accelerated.
use crate::problem::Problem;
use crate::values::decimal;
use core::net::IpAddr;

/// Most subnets that a list may have.
pub const SUBNETS: usize = 8;

/// The addresses that begin with the same bits. IPv4 is kept in its IPv6-mapped form, `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// In network order; what does not belong to the prefix is 0.
    pub ip: [u8; 16],
    /// Bits of the prefix, at most 128; those of IPv4 count from the mapped form's beginning (96 more).
    pub bits: u8,
}

impl Subnet {
    /// The subnet of `bits` bits in which `ip` lies.
    #[must_use]
    pub fn around(ip: &[u8; 16], bits: u8) -> Subnet {
        Subnet { ip: masked(ip, bits), bits: bits.min(128) }
    }

    /// Whether `ip` (IPv4 in its mapped form) lies in the subnet.
    #[must_use]
    pub fn contains(&self, ip: &[u8; 16]) -> bool {
        masked(ip, self.bits) == self.ip
    }

    /// Reads `10.1.0.0/16`, `fd00:1::/64`, or an address alone. Bits behind the prefix must be 0: else one of the two is
    /// mistaken.
    fn parse(text: &[u8]) -> Result<Subnet, Problem> {
        let (address, bits) = match text.iter().position(|&byte| byte == b'/') {
            Some(slash) => (&text[..slash], Some(decimal(&text[slash + 1..])?)),
            None => (text, None),
        };
        let address = core::str::from_utf8(address).map_err(|_| Problem::Malformed)?;
        let (ip, own) = match address.parse().map_err(|_| Problem::Malformed)? {
            IpAddr::V4(ip) => (ip.to_ipv6_mapped().octets(), 32),
            IpAddr::V6(ip) => (ip.octets(), 128),
        };
        let bits = match bits {
            Some(bits) if bits > own => return Err(Problem::OutOfRange),
            Some(bits) => (bits + 128 - own) as u8,
            None => 128,
        };
        if masked(&ip, bits) != ip {
            return Err(Problem::BeyondPrefix);
        }
        Ok(Subnet { ip, bits })
    }
}

/// The first `bits` bits of `ip`.
fn masked(ip: &[u8; 16], bits: u8) -> [u8; 16] {
    let mask = (u128::MAX).checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
    (u128::from_be_bytes(*ip) & mask).to_be_bytes()
}

/// Which other hosts may be reached past the kernel's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// None.
    None,
    /// Those in subnets that are directly connected by an interface for which an agent runs.
    Auto,
    /// Those in these subnets.
    Listed(Subnets),
}

/// Up to [`SUBNETS`] subnets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnets {
    list: [Subnet; SUBNETS],
    count: u32,
}

impl Subnets {
    /// The subnets in the order they were written.
    #[must_use]
    pub fn list(&self) -> &[Subnet] {
        &self.list[..(self.count as usize).min(SUBNETS)]
    }

    /// Whether `ip` (IPv4 in its mapped form) lies in one of them.
    #[must_use]
    pub fn contains(&self, ip: &[u8; 16]) -> bool {
        self.list().iter().any(|subnet| subnet.contains(ip))
    }
}

impl Hosts {
    /// Reads `none`, `auto`, or a list of subnets such as `10.1.0.0/16,fd00:1::/64`.
    pub fn parse(text: &[u8]) -> Result<Hosts, Problem> {
        match text {
            b"none" => return Ok(Hosts::None),
            b"auto" => return Ok(Hosts::Auto),
            _ => {}
        }
        let mut subnets = Subnets { list: [Subnet { ip: [0; 16], bits: 128 }; SUBNETS], count: 0 };
        for part in text.split(|&byte| byte == b',') {
            let subnet = Subnet::parse(part)?;
            *subnets.list.get_mut(subnets.count as usize).ok_or(Problem::TooManySubnets)? = subnet;
            subnets.count += 1;
        }
        Ok(Hosts::Listed(subnets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> Subnets {
        match Hosts::parse(text.as_bytes()) {
            Ok(Hosts::Listed(subnets)) => subnets,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn v4(a: u8, b: u8, c: u8, d: u8) -> [u8; 16] {
        core::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets()
    }

    #[test]
    fn words() {
        assert_eq!(Hosts::parse(b"none"), Ok(Hosts::None));
        assert_eq!(Hosts::parse(b"auto"), Ok(Hosts::Auto));
    }

    #[test]
    fn a_subnet_holds_what_begins_with_its_bits() {
        let subnets = listed("10.1.0.0/16,192.0.2.7,fd00:1::/64");
        assert!(subnets.contains(&v4(10, 1, 255, 3)) && subnets.contains(&v4(192, 0, 2, 7)));
        assert!(!subnets.contains(&v4(10, 2, 0, 0)) && !subnets.contains(&v4(192, 0, 2, 6)));
        let six = |text: &str| text.parse::<core::net::Ipv6Addr>().unwrap().octets();
        assert!(subnets.contains(&six("fd00:1::9")) && !subnets.contains(&six("fd00:1:0:1::9")));
        // Every IPv4 address, and no other one.
        let all = listed("0.0.0.0/0");
        assert!(all.contains(&v4(8, 8, 8, 8)) && !all.contains(&six("fd00::1")));
        assert!(listed("::/0").contains(&six("fd00::1")));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in
            ["", ",", "10.1.0.0/16,", "10.1.0", "10.1.0.0/", "10.1.0.0/x", "/8", "eth0", "Auto", "10.1.0.0/-1", "auto,none"]
        {
            assert_eq!(Hosts::parse(text.as_bytes()), Err(Problem::Malformed), "{text:?}");
        }
        assert_eq!(Hosts::parse(b"10.1.0.0/33"), Err(Problem::OutOfRange));
        assert_eq!(Hosts::parse(b"fd00::/129"), Err(Problem::OutOfRange));
        assert_eq!(Hosts::parse(b"10.1.0.1/16"), Err(Problem::BeyondPrefix));
        let nine = ["10.1.0.0/16"; 9].join(",");
        assert_eq!(Hosts::parse(nine.as_bytes()), Err(Problem::TooManySubnets));
    }
}
