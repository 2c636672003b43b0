//! Ethernet and IP around a segment of TCP: read from any host, written as the kernel would write them.
//!
//! RFC 791, RFC 8200, RFC 9293. The segment itself is the engine's (`shunt-inet`), but for its checksum, which takes in addresses.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::packet::{Sum, ETHERNET, IPV4, IPV6};
use crate::route::Mac;

/// Bytes of a header of TCP without options.
pub const TCP: usize = 20;
/// Most bytes in front of a segment's payload.
pub const LONGEST: usize = ETHERNET + IPV6 + 60;
/// The longest packet of IP, and its header of Ethernet.
pub const LONGEST_FRAME: usize = ETHERNET + IPV6 + (u16::MAX as usize);

const PROTOCOL: u8 = 6;
/// Where in a header the checksum stands.
const CHECKSUM: usize = 16;
/// Bits of the IP header by which a router marks congestion (RFC 3168).
const MARKED: u8 = 3;

/// Both ends of a connection, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// This host's end.
    pub ours: SocketAddr,
    /// The other host's.
    pub theirs: SocketAddr,
}

/// Bytes of a [`Tuple`] as a map's key.
pub const KEY: usize = 40;

impl Tuple {
    /// As the agent's program makes it from a frame that arrives: the other host's address and this one's, 16 bytes each, the ports as
    /// they stand in the frame, and the type of the frame as it stands there.
    pub fn key(&self) -> [u8; KEY] {
        let mut key = [0; KEY];
        for (at, port_at, end) in [(0, 32, &self.theirs), (16, 34, &self.ours)] {
            match end.ip() {
                IpAddr::V4(ip) => key[at..at + 4].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => key[at..at + 16].copy_from_slice(&ip.octets()),
            }
            key[port_at..port_at + 2].copy_from_slice(&end.port().to_be_bytes());
        }
        key[36..38].copy_from_slice(if self.ours.is_ipv4() { &[0x08, 0x00] } else { &[0x86, 0xdd] });
        key
    }

    /// A number by which connections are spread over chains.
    pub fn spread(&self) -> usize {
        let ports = self.theirs.port() ^ self.ours.port();
        usize::from(ports ^ ports >> 8)
    }

    fn pseudo(&self, length: usize) -> Sum {
        let sum = match (self.ours.ip(), self.theirs.ip()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => Sum::default().add(&ours.octets()).add(&theirs.octets()),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => Sum::default().add(&ours.octets()).add(&theirs.octets()),
            // Never: constructors see to it. A wrong sum is the worst that follows.
            _ => Sum::default(),
        };
        sum.add(&(length as u32).to_be_bytes()).add(&[0, PROTOCOL])
    }
}

/// Where in a frame a segment lies, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The connection, as the host sees it at which the frame arrived.
    pub tuple: Tuple,
    /// First byte of the header of TCP in the frame.
    pub at: usize,
    /// Bytes of the segment, header included, all inside the frame.
    pub length: usize,
    /// A router has marked congestion.
    pub marked: bool,
}

impl Envelope {
    /// Reads the headers of a whole frame; `None`: it is no segment of TCP, or not well-formed below that. A packet with options, or a
    /// fragment, is none: the agent's program leaves it to the kernel.
    pub fn parse(frame: &[u8]) -> Option<Envelope> {
        let (source, destination, at, total, service) = match frame.get(12..14)? {
            [0x08, 0x00] => {
                let ip: &[u8; IPV4] = frame.get(ETHERNET..)?.first_chunk()?;
                let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff;
                if ip[0] != 0x45 || ip[9] != PROTOCOL || fragment != 0 || Sum::default().add(ip).fold() != 0xffff {
                    return None;
                }
                let address = |at: usize| IpAddr::V4(Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]));
                (address(12), address(16), IPV4, usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip[1])
            }
            [0x86, 0xdd] => {
                let ip: &[u8; IPV6] = frame.get(ETHERNET..)?.first_chunk()?;
                if ip[0] >> 4 != 6 || ip[6] != PROTOCOL {
                    return None;
                }
                let address = |at: usize| {
                    let mut bytes = [0; 16];
                    bytes.copy_from_slice(&ip[at..at + 16]);
                    IpAddr::V6(Ipv6Addr::from(bytes))
                };
                (address(8), address(24), IPV6, IPV6 + usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip[1] >> 4)
            }
            _ => return None,
        };
        let length = total.checked_sub(at).filter(|length| *length >= TCP && ETHERNET + total <= frame.len())?;
        let ports = frame.get(ETHERNET + at..ETHERNET + at + 4)?;
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        let tuple = Tuple { ours: SocketAddr::new(destination, port(2)), theirs: SocketAddr::new(source, port(0)) };
        Some(Envelope { tuple, at: ETHERNET + at, length, marked: service & MARKED == MARKED })
    }

    /// Whether the segment is what was sent. Between namespaces of one host the field holds the sum of the pseudo-header alone, and
    /// the frame never left memory.
    pub fn is_intact(&self, frame: &[u8]) -> bool {
        is_intact(&frame[self.at..][..self.length], self.tuple.pseudo(self.length))
    }

    /// Cuts a frame as an interface would, for a receiver that checks sums: pieces with at most `most` bytes of payload, each whole,
    /// and the flags that end something in the last alone. `each` gets them in order, in `buffer`.
    ///
    /// # Panics
    /// If the frame is not the one that this was read from.
    pub fn cut(&self, frame: &[u8], most: usize, buffer: &mut [u8], mut each: impl FnMut(&[u8])) {
        const FIN_AND_PUSH: u8 = 0x09;
        let segment = &frame[self.at..][..self.length];
        let header = usize::from(segment[12] >> 4) * 4;
        if self.length <= header + most || header < TCP {
            // As it came, but for a sum that was left to others.
            let whole = &mut buffer[..self.at + self.length];
            whole.copy_from_slice(&frame[..self.at + self.length]);
            let pseudo = self.tuple.pseudo(self.length);
            if is_left_to_others(segment, pseudo) {
                seal(&mut whole[self.at..], pseudo);
            }
            return each(whole);
        }
        let (fixed, payload) = segment.split_at(header);
        let first = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        let last = (payload.len() - 1) / most;
        for (index, bytes) in payload.chunks(most).enumerate() {
            let piece = &mut buffer[..self.at + header + bytes.len()];
            piece[..self.at].copy_from_slice(&frame[..self.at]);
            set_length(piece, self.at, header + bytes.len());
            let tcp = &mut piece[self.at..];
            tcp[..header].copy_from_slice(fixed);
            tcp[4..8].copy_from_slice(&first.wrapping_add((index * most) as u32).to_be_bytes());
            if index < last {
                tcp[13] &= !FIN_AND_PUSH;
            }
            tcp[header..].copy_from_slice(bytes);
            seal(tcp, self.tuple.pseudo(tcp.len()));
            each(piece);
        }
    }
}

fn is_left_to_others(segment: &[u8], pseudo: Sum) -> bool {
    u16::from_ne_bytes([segment[CHECKSUM], segment[CHECKSUM + 1]]) == pseudo.fold()
}

fn is_intact(segment: &[u8], pseudo: Sum) -> bool {
    is_left_to_others(segment, pseudo) || pseudo.add(segment).fold() == 0xffff
}

/// Writes the checksum of a segment, of whose pseudo-header the sum is given.
fn seal(segment: &mut [u8], pseudo: Sum) {
    segment[CHECKSUM..CHECKSUM + 2].fill(0);
    let sum = !pseudo.add(segment).fold();
    segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_ne_bytes());
}

/// Writes the length of an IP packet whose segment begins at `at` and has `length` bytes, and the sum of a header of IPv4.
fn set_length(frame: &mut [u8], at: usize, length: usize) {
    let ip = &mut frame[ETHERNET..at];
    if ip.len() == IPV4 {
        ip[2..4].copy_from_slice(&((IPV4 + length) as u16).to_be_bytes());
        ip[10..12].fill(0);
        let sum = !Sum::default().add(ip).fold();
        ip[10..12].copy_from_slice(&sum.to_ne_bytes());
    } else {
        ip[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    }
}

/// What is the same in all frames of a connection that leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The connection.
    pub tuple: Tuple,
    /// Our Ethernet address, and the next hop's.
    pub from: Mac,
    /// See above.
    pub to: Mac,
    /// Type of service (IP_TOS) or traffic class.
    pub service: u8,
    /// Hops that a packet may take.
    pub hops: u8,
}

impl Way {
    /// Bytes in front of a segment.
    pub fn header(&self) -> usize {
        ETHERNET + if self.tuple.ours.is_ipv4() { IPV4 } else { IPV6 }
    }

    /// All of it, and the sums of what does not change.
    pub fn prepare(&self) -> Prepared {
        let (at, mut front) = (self.header(), [0; FRONT]);
        front[..6].copy_from_slice(&self.to);
        front[6..12].copy_from_slice(&self.from);
        let ip = &mut front[ETHERNET..at];
        match (self.tuple.ours.ip(), self.tuple.theirs.ip()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                (ip[0], ip[1], ip[6], ip[8], ip[9]) = (0x45, self.service, 0x40, self.hops, PROTOCOL);
                ip[12..16].copy_from_slice(&ours.octets());
                ip[16..20].copy_from_slice(&theirs.octets());
                front[12..14].copy_from_slice(&[0x08, 0x00]);
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                (ip[0], ip[1], ip[6], ip[7]) = (0x60 | self.service >> 4, self.service << 4, PROTOCOL, self.hops);
                ip[8..24].copy_from_slice(&ours.octets());
                ip[24..40].copy_from_slice(&theirs.octets());
                front[12..14].copy_from_slice(&[0x86, 0xdd]);
            }
            _ => {}
        }
        let sum = Sum::default().add(&front[ETHERNET..at]);
        Prepared { front, at, ip: sum, pseudo: self.tuple.pseudo(0) }
    }
}

/// Most bytes in front of a segment, and those of IPv4.
const FRONT: usize = ETHERNET + IPV6;
const FRONT_4: usize = ETHERNET + IPV4;

/// What is in front of a connection's segments, without lengths and checksums.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    front: [u8; FRONT],
    at: usize,
    /// The sum of the header of IP, and of the pseudo-header, in either direction.
    ip: Sum,
    pseudo: Sum,
}

impl Prepared {
    /// Bytes in front of a segment.
    #[inline]
    pub fn header(&self) -> usize {
        self.at
    }

    /// Completes a frame whose segment lies at [`Prepared::header`]: writes what is in front of it, and its checksum.
    ///
    /// # Panics
    /// If there is no whole header of TCP, or more than a packet can have.
    #[inline]
    pub fn complete(&self, frame: &mut [u8]) {
        assert!(frame.len() >= self.at + TCP && frame.len() <= LONGEST_FRAME, "a segment of {} bytes", frame.len());
        let length = frame.len() - self.at;
        if self.at == FRONT_4 {
            frame[..FRONT_4].copy_from_slice(&self.front[..FRONT_4]);
            let total = ((IPV4 + length) as u16).to_be_bytes();
            frame[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&total);
            frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&(!self.ip.add(&total).fold()).to_ne_bytes());
        } else {
            frame[..FRONT].copy_from_slice(&self.front);
            frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        seal(&mut frame[self.at..], self.pseudo_of(length));
    }

    /// Whether a segment that arrives is what was sent, as [`Envelope::is_intact`].
    #[inline]
    pub fn is_intact(&self, segment: &[u8]) -> bool {
        is_intact(segment, self.pseudo_of(segment.len()))
    }

    fn pseudo_of(&self, length: usize) -> Sum {
        self.pseudo.add(&(length as u16).to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(version_6: bool) -> Way {
        let [ours, theirs] = if version_6 { ["[fd77::1]:80", "[fd77::2]:4000"] } else { ["10.0.0.1:80", "10.0.0.2:4000"] }
            .map(|text| text.parse().unwrap());
        Way { tuple: Tuple { ours, theirs }, from: [2, 0, 0, 0, 0, 1], to: [2, 0, 0, 0, 0, 2], service: 0x10, hops: 64 }
    }

    /// A frame with `payload` and these flags.
    fn frame(way: &Way, flags: u8, payload: &[u8]) -> Vec<u8> {
        let at = way.header();
        let mut frame = vec![0; at + TCP];
        frame[at..at + 2].copy_from_slice(&way.tuple.ours.port().to_be_bytes());
        frame[at + 2..at + 4].copy_from_slice(&way.tuple.theirs.port().to_be_bytes());
        frame[at + 4..at + 8].copy_from_slice(&0xffff_ff00u32.to_be_bytes());
        (frame[at + 12], frame[at + 13]) = (5 << 4, flags);
        frame.extend_from_slice(payload);
        way.prepare().complete(&mut frame);
        frame
    }

    fn seen_by_the_peer(tuple: &Tuple) -> Tuple {
        Tuple { ours: tuple.theirs, theirs: tuple.ours }
    }

    #[test]
    fn what_is_written_is_read_and_damage_is_noticed() {
        for version_6 in [false, true] {
            let way = way(version_6);
            let good = frame(&way, 0x10, b"something");
            let envelope = Envelope::parse(&good).unwrap();
            assert_eq!(envelope.tuple, seen_by_the_peer(&way.tuple));
            assert_eq!((envelope.at, envelope.length, envelope.marked), (way.header(), TCP + 9, false));
            assert!(envelope.is_intact(&good) && way.prepare().is_intact(&good[envelope.at..]));
            let unprotected = if version_6 { ETHERNET..ETHERNET + 8 } else { 0..0 };
            for bit in ETHERNET * 8..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                let read = Envelope::parse(&bad);
                assert!(unprotected.contains(&(bit / 8)) || !read.is_some_and(|read| read.is_intact(&bad)), "bit {bit}");
            }
        }
    }

    /// A kernel that hands a packet over in memory makes no sum and cuts nothing: both are made up for.
    #[test]
    fn a_long_packet_is_cut_and_each_piece_is_whole() {
        for version_6 in [false, true] {
            let way = way(version_6);
            let payload: Vec<u8> = (0..3001).map(|byte| (byte * 7) as u8).collect();
            let mut long = frame(&way, 0x19, &payload);
            let at = way.header();
            let partial = way.tuple.pseudo(long.len() - at).fold().to_ne_bytes();
            long[at + CHECKSUM..at + CHECKSUM + 2].copy_from_slice(&partial);
            let envelope = Envelope::parse(&long).unwrap();
            assert!(envelope.is_intact(&long));
            let (mut got, mut flags, mut next) = (Vec::new(), Vec::new(), 0xffff_ff00u32);
            envelope.cut(&long, 1000, &mut [0; LONGEST_FRAME], |piece| {
                let read = Envelope::parse(piece).unwrap();
                let sum = read.tuple.pseudo(read.length).add(&piece[at..]).fold();
                assert_eq!((read.tuple, sum, read.at + read.length), (envelope.tuple, 0xffff, piece.len()));
                assert_eq!(piece[at + 4..at + 8], next.to_be_bytes());
                next = next.wrapping_add((read.length - TCP) as u32);
                flags.push(piece[at + 13]);
                got.extend_from_slice(&piece[at + TCP..]);
            });
            assert_eq!((got, flags), (payload, vec![0x10, 0x10, 0x10, 0x19]));
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 1u64;
        for version_6 in [false, true] {
            let good = frame(&way(version_6), 0x18, &[5; 40]);
            for _ in 0..20_000 {
                let mut bytes = good.clone();
                for _ in 0..3 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let at = (state >> 33) as usize % bytes.len();
                    bytes[at] = (state >> 24) as u8;
                }
                bytes.truncate((state >> 40) as usize % (good.len() + 1));
                if let Some(envelope) = Envelope::parse(&bytes) {
                    let _ = envelope.is_intact(&bytes);
                    envelope.cut(&bytes, 7, &mut [0; 200], |_| ());
                }
            }
        }
    }
}
