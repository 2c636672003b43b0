//! The set of server ports that may be accelerated.
use crate::problem::Problem;
use crate::values::decimal;

/// Most ranges a port list may have. Sixteen is beyond any list seen in practice, and keeps [`Ports`] at 68 bytes.
pub const PORT_RANGES: usize = 16;

/// Ports from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The lowest port.
    pub first: u16,
    /// The highest port; never less than `first`.
    pub last: u16,
}

/// Up to [`PORT_RANGES`] ranges of ports. Ranges may touch or overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    ranges: [PortRange; PORT_RANGES],
    count: u32,
}

impl Ports {
    /// Every port.
    pub const ALL: Ports = {
        let mut ranges = [PortRange { first: 0, last: 0 }; PORT_RANGES];
        ranges[0].last = u16::MAX;
        Ports { ranges, count: 1 }
    };

    /// No port.
    pub const NONE: Ports = Ports { count: 0, ..Ports::ALL };

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a server on `port` (host byte order) may be accelerated.
    #[inline]
    pub fn contains(&self, port: u16) -> bool {
        self.ranges().iter().any(|range| range.first <= port && port <= range.last)
    }

    /// The ranges in the order they were written.
    #[inline]
    pub fn ranges(&self) -> &[PortRange] {
        &self.ranges[..self.count as usize]
    }

    /// Reads `all`, or a list of ports and ranges such as `6379,8000-8999`. Port 0 is no port.
    pub fn parse(text: &[u8]) -> Result<Ports, Problem> {
        if text == b"all" {
            return Ok(Ports::ALL);
        }
        let mut ports = Ports { count: 0, ..Ports::ALL };
        for part in text.split(|&byte| byte == b',') {
            let range = match part.iter().position(|&byte| byte == b'-') {
                Some(dash) => PortRange { first: port(&part[..dash])?, last: port(&part[dash + 1..])? },
                None => PortRange { first: port(part)?, last: port(part)? },
            };
            if range.first > range.last {
                return Err(Problem::Backwards);
            }
            let slot = ports.ranges.get_mut(ports.count as usize).ok_or(Problem::TooManyRanges)?;
            *slot = range;
            ports.count += 1;
        }
        Ok(ports)
    }
}

fn port(text: &[u8]) -> Result<u16, Problem> {
    match decimal(text)? {
        port @ 1..=65535 => Ok(port as u16),
        _ => Err(Problem::OutOfRange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_every_port() {
        let all = Ports::parse(b"all").unwrap();
        assert!((0..=u16::MAX).all(|port| all.contains(port)));
    }

    #[test]
    fn none_is_no_port() {
        assert!(Ports::NONE.is_empty() && !(0..=u16::MAX).any(|port| Ports::NONE.contains(port)));
    }

    #[test]
    fn a_list_is_the_union_of_its_ranges() {
        let ports = Ports::parse(b"6379,8000-8999,65535,8500-9001").unwrap();
        for port in 0..=u16::MAX {
            let expected = port == 6379 || (8000..=9001).contains(&port) || port == 65535;
            assert_eq!(ports.contains(port), expected, "port {port}");
        }
    }

    #[test]
    fn sixteen_ranges_fit_and_seventeen_do_not() {
        let sixteen = (1..=16).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(Ports::parse(sixteen.as_bytes()).unwrap().ranges().len(), 16);
        assert_eq!(Ports::parse(format!("{sixteen},17").as_bytes()), Err(Problem::TooManyRanges));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", ",", "80,", ",80", "a", "80-", "-80", "1-2-3", "80 ", "+80", "All"] {
            assert_eq!(Ports::parse(text.as_bytes()), Err(Problem::Malformed), "{text:?}");
        }
        for text in ["0", "65536", "1-70000", "99999999999999999999999"] {
            assert_eq!(Ports::parse(text.as_bytes()), Err(Problem::OutOfRange), "{text:?}");
        }
        assert_eq!(Ports::parse(b"90-80"), Err(Problem::Backwards));
    }
}
