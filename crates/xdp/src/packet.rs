//! Ethernet, IP and UDP around a datagram: written as the kernel would write them, read from any host.
//!
//! ```text
//!  0          14                34 or 54   42 or 62
//!  ┌──────────┬─────────────────┬──────────┬──────────┐
//!  │ Ethernet │ IPv4 or IPv6    │ UDP      │ datagram │
//!  └──────────┴─────────────────┴──────────┴──────────┘
//! ```
//!
//! RFC 791, RFC 8200, RFC 768. The checksum of UDP is always made: IPv6 demands it, and over IPv4 it is what protects a
//! message whose way has a bridge with bad memory.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::route::Mac;

/// Bytes of the header of Ethernet.
pub const ETHERNET: usize = 14;
/// Bytes of a header of IPv4 without options.
pub const IPV4: usize = 20;
/// Bytes of a header of IPv6.
pub const IPV6: usize = 40;
/// Bytes of a header of UDP.
pub const UDP: usize = 8;
/// Most bytes in front of the datagram.
pub const LONGEST: usize = ETHERNET + IPV6 + UDP;

/// Hops that a packet may take.
const HOPS: u8 = 64;
const PROTOCOL_UDP: u8 = 17;

/// A sum of 16-bit words in ones' complement (RFC 1071), in any order of bytes as long as it is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Adds `bytes`; an odd last one as if a zero followed. Only the last run added may be odd.
    #[inline]
    pub fn add(self, bytes: &[u8]) -> Sum {
        // SAFETY: a slice.
        unsafe { self.add_raw(bytes.as_ptr(), bytes.len()) }
    }

    /// As [`Sum::add`], for memory that others may write meanwhile: each byte is read once.
    ///
    /// # Safety
    /// `length` bytes at `address` are mapped.
    #[inline]
    pub unsafe fn add_raw(mut self, address: *const u8, length: usize) -> Sum {
        // SAFETY: every read is inside, by the loops' bounds.
        unsafe {
            // Four lanes, so that additions do not wait for each other: 32 bits at a time in 64-bit sums.
            let mut lanes = [0u64; 4];
            let mut at = 0;
            while at + 16 <= length {
                let words: [u32; 4] = address.add(at).cast::<[u32; 4]>().read_unaligned();
                for (lane, word) in lanes.iter_mut().zip(words) {
                    *lane += u64::from(word);
                }
                at += 16;
            }
            while at + 4 <= length {
                self.0 += u64::from(address.add(at).cast::<u32>().read_unaligned());
                at += 4;
            }
            if at + 2 <= length {
                self.0 += u64::from(address.add(at).cast::<u16>().read_unaligned());
                at += 2;
            }
            if at < length {
                self.0 += u64::from(u16::from_ne_bytes([address.add(at).read(), 0]));
            }
            for lane in lanes {
                self.0 += (lane & 0xffff_ffff) + (lane >> 32);
            }
        }
        self
    }

    /// The sum of both.
    #[inline]
    pub fn and(self, other: Sum) -> Sum {
        Sum(self.0 + other.0)
    }

    /// The sum folded to 16 bits, as it lies in memory.
    #[inline]
    pub fn fold(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }
}

/// What is the same in all packets of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Our Ethernet address.
    pub from: Mac,
    /// The next hop's.
    pub to: Mac,
    /// Our IP address and port.
    pub source: SocketAddr,
    /// The peer's, of the same family.
    pub destination: SocketAddr,
}

impl Path {
    /// Bytes in front of a datagram.
    #[inline]
    pub fn header(&self) -> usize {
        ETHERNET + UDP + if self.destination.is_ipv4() { IPV4 } else { IPV6 }
    }

    /// The sum of the pseudo-header (RFC 768; RFC 8200, section 8.1) for `length` bytes of UDP header and datagram.
    #[inline]
    fn pseudo(source: &IpAddr, destination: &IpAddr, length: usize) -> Sum {
        let sum = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Sum::default().add(&source.octets()).add(&destination.octets()),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Sum::default().add(&source.octets()).add(&destination.octets()),
            // Never: `parse` and the constructors of paths see to it. A wrong sum is the worst that follows.
            _ => Sum::default(),
        };
        sum.add(&(length as u32).to_be_bytes()).add(&[0, PROTOCOL_UDP])
    }

    /// The headers in front of a datagram of `length` bytes (at most 65,527) with this sum, or with one that others will make;
    /// [`Path::header`] bytes of them.
    #[inline]
    pub fn headers(&self, length: usize, datagram: Option<Sum>) -> [u8; LONGEST] {
        self.prepare().headers(length, datagram)
    }

    /// All that is the same in the headers of many datagrams.
    pub fn prepare(&self) -> Prepared {
        let mut bytes = [0; LONGEST];
        let header = self.header();
        bytes[..6].copy_from_slice(&self.to);
        bytes[6..12].copy_from_slice(&self.from);
        let mut ip = Sum::default();
        match (&self.source, &self.destination) {
            (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
                bytes[12..14].copy_from_slice(&[0x08, 0x00]);
                let header = &mut bytes[ETHERNET..ETHERNET + IPV4];
                // Version and length, no service, no identity, "do not fragment".
                header[0] = 0x45;
                header[6] = 0x40;
                header[8..10].copy_from_slice(&[HOPS, PROTOCOL_UDP]);
                header[12..16].copy_from_slice(&source.ip().octets());
                header[16..20].copy_from_slice(&destination.ip().octets());
                ip = ip.add(header);
            }
            (SocketAddr::V6(source), SocketAddr::V6(destination)) => {
                bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
                let header = &mut bytes[ETHERNET..ETHERNET + IPV6];
                header[0] = 0x60;
                header[6..8].copy_from_slice(&[PROTOCOL_UDP, HOPS]);
                header[8..24].copy_from_slice(&source.ip().octets());
                header[24..40].copy_from_slice(&destination.ip().octets());
            }
            _ => {}
        }
        let udp = &mut bytes[header - UDP..header];
        udp[..2].copy_from_slice(&self.source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination.port().to_be_bytes());
        let pseudo = Path::pseudo(&self.source.ip(), &self.destination.ip(), 0);
        let udp = pseudo.add(udp);
        Prepared { bytes, header, ip, pseudo, udp }
    }
}

/// The headers of a path without lengths and checksums.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    bytes: [u8; LONGEST],
    header: usize,
    /// The sum of the header of IPv4; that of the pseudo-header, without and with the header of UDP.
    ip: Sum,
    pseudo: Sum,
    udp: Sum,
}

impl Prepared {
    /// Bytes in front of a datagram.
    #[inline]
    pub fn header(&self) -> usize {
        self.header
    }

    /// See [`Path::headers`].
    #[inline]
    pub fn headers(&self, length: usize, datagram: Option<Sum>) -> [u8; LONGEST] {
        const SHORT: usize = ETHERNET + IPV4 + UDP;
        let mut bytes = self.bytes;
        let told = ((length + UDP) as u16).to_be_bytes();
        let sum = match datagram {
            // The maker of the sum begins with this one.
            None => self.pseudo.add(&told).fold(),
            // The length stands in the pseudo-header, too.
            Some(datagram) => match !self.udp.add(&told).add(&told).and(datagram).fold() {
                // 0 means "no checksum"; the other form of zero is sent instead.
                0 => 0xffff,
                sum => sum,
            },
        };
        let udp = if self.header == SHORT {
            let total = ((length + UDP + IPV4) as u16).to_be_bytes();
            bytes[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&total);
            bytes[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&(!self.ip.add(&total).fold()).to_ne_bytes());
            &mut bytes[SHORT - UDP..SHORT]
        } else {
            bytes[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&told);
            &mut bytes[LONGEST - UDP..]
        };
        udp[4..6].copy_from_slice(&told);
        udp[6..8].copy_from_slice(&sum.to_ne_bytes());
        bytes
    }
}

/// Why a frame has no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than its headers, or than they say.
    Short,
    /// Neither IPv4 (without options, whole) nor IPv6 with UDP right behind it.
    Protocol,
    /// A length or a checksum is wrong.
    Damaged,
}

/// Where in a frame the datagram lies, and whence it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Where it comes from, if one believes it.
    pub source: SocketAddr,
    /// Where it was sent to.
    pub destination: SocketAddr,
    /// First byte of the datagram in the frame.
    pub at: usize,
    /// Bytes of the datagram, all inside the frame.
    pub length: usize,
    /// The checksum in the header; 0 for none.
    told: u16,
    /// The sum of the pseudo-header.
    pseudo: Sum,
    /// The sum of the header of UDP.
    udp: Sum,
}

impl Envelope {
    /// Reads the headers of a frame of `length` bytes, of which `start` are the first: [`LONGEST`] of them or all.
    ///
    /// # Errors
    /// [`Malformed`]: everything that the kernel would check of headers is checked.
    #[inline]
    pub fn parse(start: &[u8], length: usize) -> Result<Envelope, Malformed> {
        let kind = start.get(12..14).ok_or(Malformed::Short)?;
        let (source, destination, header, total) = match kind {
            [0x08, 0x00] => {
                let ip = start.get(ETHERNET..ETHERNET + IPV4).ok_or(Malformed::Short)?;
                let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff;
                if ip[0] != 0x45 || ip[9] != PROTOCOL_UDP || fragment != 0 {
                    return Err(Malformed::Protocol);
                }
                if Sum::default().add(ip).fold() != 0xffff {
                    return Err(Malformed::Damaged);
                }
                let address = |at: usize| IpAddr::V4(Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]));
                (address(12), address(16), IPV4, usize::from(u16::from_be_bytes([ip[2], ip[3]])))
            }
            [0x86, 0xdd] => {
                let ip = start.get(ETHERNET..ETHERNET + IPV6).ok_or(Malformed::Short)?;
                if ip[0] >> 4 != 6 || ip[6] != PROTOCOL_UDP {
                    return Err(Malformed::Protocol);
                }
                let address = |at: usize| {
                    let mut bytes = [0; 16];
                    bytes.copy_from_slice(&ip[at..at + 16]);
                    IpAddr::V6(Ipv6Addr::from(bytes))
                };
                (address(8), address(24), IPV6, IPV6 + usize::from(u16::from_be_bytes([ip[4], ip[5]])))
            }
            _ => return Err(Malformed::Protocol),
        };
        if total < header + UDP {
            return Err(Malformed::Damaged);
        }
        if ETHERNET + total > length {
            return Err(Malformed::Short);
        }
        let udp = start.get(ETHERNET + header..ETHERNET + header + UDP).ok_or(Malformed::Short)?;
        let word = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        let told = u16::from_ne_bytes([udp[6], udp[7]]);
        // A datagram without a checksum: IPv4 only.
        if usize::from(word(4)) != total - header || told == 0 && source.is_ipv6() {
            return Err(Malformed::Damaged);
        }
        Ok(Envelope {
            source: SocketAddr::new(source, word(0)),
            destination: SocketAddr::new(destination, word(2)),
            at: ETHERNET + header + UDP,
            length: total - header - UDP,
            told,
            pseudo: Path::pseudo(&source, &destination, total - header),
            udp: Sum::default().add(udp),
        })
    }

    /// Whether the datagram's checksum was not made: see [`Envelope::is_intact`].
    #[inline]
    pub fn is_left_to_others(&self) -> bool {
        self.told == 0 || self.told == self.pseudo.fold()
    }

    /// Whether the datagram, of which `datagram` makes the sum, is what was sent.
    ///
    /// Between namespaces of one host the kernel leaves the sum to an interface that never comes: the field then holds the
    /// sum of the pseudo-header alone (CHECKSUM_PARTIAL), and the frame never left memory.
    #[inline]
    pub fn is_intact(&self, datagram: impl FnOnce() -> Sum) -> bool {
        self.is_left_to_others() || self.pseudo.and(self.udp).and(datagram()).fold() == 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(version_6: bool) -> Path {
        let text = if version_6 { ["[fd77::1]:7", "[fd77::2]:9"] } else { ["10.0.0.1:7", "10.0.0.2:9"] };
        let [source, destination] = text.map(|text| text.parse().unwrap());
        Path { from: [2, 0, 0, 0, 0, 1], to: [2, 0, 0, 0, 0, 2], source, destination }
    }

    fn frame(version_6: bool, datagram: &[u8]) -> Vec<u8> {
        let path = path(version_6);
        let mut frame = path.headers(datagram.len(), Some(Sum::default().add(datagram)))[..path.header()].to_vec();
        frame.extend_from_slice(datagram);
        frame
    }

    /// What a receiver makes of a frame.
    fn parse(frame: &[u8]) -> Result<(Envelope, &[u8]), Malformed> {
        let envelope = Envelope::parse(&frame[..frame.len().min(LONGEST)], frame.len())?;
        let bytes = &frame[envelope.at..][..envelope.length];
        envelope.is_intact(|| Sum::default().add(bytes)).then_some((envelope, bytes)).ok_or(Malformed::Damaged)
    }

    #[test]
    fn what_is_written_is_read() {
        for version_6 in [false, true] {
            for length in (0..70).chain([1000, 1001, 1472, 3000]) {
                let datagram: Vec<u8> = (0..length).map(|byte| (byte * 7 + 255) as u8).collect();
                let frame = frame(version_6, &datagram);
                let (read, bytes) = parse(&frame).unwrap();
                assert_eq!((read.source, read.destination), (path(version_6).source, path(version_6).destination));
                assert_eq!(bytes, datagram);
            }
        }
    }

    /// The interface sums from the header of UDP on, and writes the complement where the beginning of the sum stood.
    #[test]
    fn a_sum_that_is_left_to_others_becomes_the_same() {
        for version_6 in [false, true] {
            for datagram in [&b""[..], b"odd", b"evenly"] {
                let path = path(version_6);
                let (header, at) = (path.header(), path.header() - UDP);
                let mut left = path.headers(datagram.len(), None)[..header].to_vec();
                left.extend_from_slice(datagram);
                let envelope = Envelope::parse(&left[..left.len().min(LONGEST)], left.len()).unwrap();
                assert!(envelope.is_intact(|| unreachable!("it never left memory")));
                let sum = !Sum::default().add(&left[at..]).fold();
                left[at + 6..at + 8].copy_from_slice(&sum.to_ne_bytes());
                assert_eq!(left, frame(version_6, datagram));
            }
        }
    }

    #[test]
    fn padding_behind_the_packet_is_not_the_datagrams() {
        let mut padded = frame(false, b"short");
        padded.resize(60, 0);
        assert_eq!(parse(&padded).unwrap().1, b"short");
    }

    #[test]
    fn every_damaged_bit_behind_the_ethernet_header_is_noticed() {
        for version_6 in [false, true] {
            let good = frame(version_6, b"something to protect");
            // Over IPv6 nothing protects traffic class, flow label and hop limit, nor need it.
            let unprotected = if version_6 { ETHERNET..ETHERNET + 8 } else { 0..0 };
            for bit in ETHERNET * 8..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                if !unprotected.contains(&(bit / 8)) {
                    assert!(parse(&bad).is_err(), "IPv{} bit {bit}", if version_6 { 6 } else { 4 });
                }
            }
            for length in 0..good.len() {
                assert!(parse(&good[..length]).is_err());
            }
        }
    }

    #[test]
    fn the_examples_of_others_agree() {
        // RFC 1071, section 3: 00 01 f2 03 f4 f5 f6 f7 sums to ddf2.
        let sum = Sum::default().add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).fold();
        assert_eq!(sum.to_ne_bytes(), [0xdd, 0xf2]);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 1u64;
        for version_6 in [false, true] {
            let good = frame(version_6, &[5; 40]);
            for _ in 0..20_000 {
                let mut bytes = good.clone();
                for _ in 0..3 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let at = (state >> 33) as usize % bytes.len();
                    bytes[at] = (state >> 24) as u8;
                }
                bytes.truncate((state >> 40) as usize % (good.len() + 1));
                let _ = parse(&bytes);
            }
        }
    }
}
