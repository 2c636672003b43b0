//! Blocks (draft-ietf-opsawg-pcapng, sections 3 and 4), each put behind what is in a vector. Numbers are in the machine's order, which the section says; the
//! machines of shunt have the little one.

/// LINKTYPE_ETHERNET: packets begin with the header of Ethernet.
pub const ETHERNET: u16 = 1;
/// LINKTYPE_RAW: packets begin with the header of IP.
pub const RAW: u16 = 101;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// The longest text of an option.
const TEXT: usize = 0xffff;

/// Where packets were seen.
#[derive(Clone, Copy, Debug)]
pub struct Interface<'a> {
    /// What they begin with: [`ETHERNET`] or [`RAW`].
    pub link: u16,
    /// Bytes of each that are kept; 0: all.
    pub longest: u32,
    /// Its name.
    pub name: &'a str,
    /// And what else is to be known of it.
    pub description: &'a str,
}

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It was received.
    In = 1,
    /// It was sent.
    Out = 2,
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Which of the section's interfaces, counted from 0.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Bytes that it had.
    pub length: u32,
    /// Those that are kept, one part behind the other.
    pub parts: &'a [&'a [u8]],
    /// Which way it went, if that is known.
    pub direction: Option<Direction>,
    /// A remark.
    pub comment: Option<&'a str>,
}

/// What became of an interface's packets.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// Which interface.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Packets that were seen.
    pub received: u64,
    /// Packets of these that are missing here.
    pub dropped: u64,
}

/// The beginning of a file.
pub fn section(bytes: &mut Vec<u8>) {
    block(bytes, SECTION, |bytes| {
        // Byte order, version 1.0, unknown length.
        words(bytes, &[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]);
    });
}

/// An interface: its number is how many stand in front of it. Times of its packets are in nanoseconds.
pub fn interface(bytes: &mut Vec<u8>, interface: &Interface<'_>) {
    block(bytes, INTERFACE, |bytes| {
        words(bytes, &[interface.link.into(), interface.longest]);
        option(bytes, 2, interface.name.as_bytes());
        option(bytes, 3, interface.description.as_bytes());
        option(bytes, 9, &[9]);
        option(bytes, 0, &[]);
    });
}

/// A packet.
pub fn packet(bytes: &mut Vec<u8>, packet: &Packet<'_>) {
    let kept: usize = packet.parts.iter().map(|part| part.len()).sum();
    block(bytes, PACKET, |bytes| {
        words(bytes, &[packet.interface, (packet.time >> 32) as u32, packet.time as u32, kept as u32, packet.length]);
        packet.parts.iter().for_each(|part| bytes.extend_from_slice(part));
        pad(bytes, kept);
        if let Some(direction) = packet.direction {
            option(bytes, 2, &(direction as u32).to_le_bytes());
        }
        if let Some(comment) = packet.comment {
            option(bytes, 1, comment.as_bytes());
        }
        if packet.direction.is_some() || packet.comment.is_some() {
            option(bytes, 0, &[]);
        }
    });
}

/// Counts of an interface.
pub fn statistics(bytes: &mut Vec<u8>, counts: &Statistics) {
    block(bytes, STATISTICS, |bytes| {
        words(bytes, &[counts.interface, (counts.time >> 32) as u32, counts.time as u32]);
        option(bytes, 4, &counts.received.to_le_bytes());
        option(bytes, 5, &counts.dropped.to_le_bytes());
        option(bytes, 0, &[]);
    });
}

/// A block: type, length, body, length.
fn block(bytes: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    words(bytes, &[kind, 0]);
    body(bytes);
    let length = (bytes.len() - start + 4) as u32;
    bytes[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    words(bytes, &[length]);
}

/// An option: code, length, value, padding.
fn option(bytes: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(TEXT)];
    bytes.extend_from_slice(&code.to_le_bytes());
    bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
    bytes.extend_from_slice(value);
    pad(bytes, value.len());
}

fn pad(bytes: &mut Vec<u8>, length: usize) {
    bytes.resize(bytes.len() + length.next_multiple_of(4) - length, 0);
}

fn words(bytes: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
    use pcap_file::pcapng::{Block, PcapNgReader};

    /// Lengths that need padding and those that do not; a part of a packet; counts.
    #[test]
    fn blocks_are_what_a_stranger_reads() {
        let mut bytes = Vec::new();
        section(&mut bytes);
        interface(&mut bytes, &Interface { link: ETHERNET, longest: 262_144, name: "eth0", description: "queue 1" });
        let lengths = [0, 1, 2, 3, 4, 61];
        for length in lengths {
            let (one, other) = (vec![7; length], vec![9; length]);
            packet(
                &mut bytes,
                &Packet {
                    interface: 0,
                    time: 5_000_000_001 + length as u64,
                    length: 2 * length as u32 + 100,
                    parts: &[&one, &other],
                    direction: Some(Direction::Out),
                    comment: (length % 2 == 1).then_some("odd"),
                },
            );
        }
        statistics(&mut bytes, &Statistics { interface: 0, time: 3, received: 1 << 33, dropped: 5 });
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut packets = Vec::new();
        let mut counts = None;
        while let Some(block) = reader.next_block() {
            match block.unwrap().into_owned() {
                Block::InterfaceDescription(interface) => {
                    assert_eq!((interface.linktype, interface.snaplen), (pcap_file::DataLink::ETHERNET, 262_144));
                }
                Block::EnhancedPacket(packet) => packets.push(packet),
                Block::InterfaceStatistics(statistics) => counts = Some(statistics.options),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(packets.len(), lengths.len());
        for (packet, length) in packets.iter().zip(lengths) {
            assert_eq!(packet.data.as_ref(), [vec![7; length], vec![9; length]].concat());
            assert_eq!(packet.original_len, 2 * length as u32 + 100);
            assert_eq!(packet.options[0], EnhancedPacketOption::Flags(2));
            assert_eq!(packet.options.len(), 1 + length % 2);
        }
        let counts = counts.unwrap();
        assert!(
            counts.contains(&InterfaceStatisticsOption::IsbIfRecv(1 << 33))
                && counts.contains(&InterfaceStatisticsOption::IsbIfDrop(5))
        );
    }
}
