//! Files of captured frames, read by another program's code.

use std::path::Path;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};

/// A frame.
#[derive(Debug)]
pub struct Frame {
    /// Which interface.
    pub interface: usize,
    /// When, since some moment.
    pub time: std::time::Duration,
    /// It was sent, not received.
    pub is_sent: bool,
    /// Bytes that it had.
    pub length: u32,
    /// Those that are there.
    pub bytes: Vec<u8>,
}

/// A segment of TCP in a frame of IPv4.
#[derive(Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Ports: from and to.
    pub ports: [u16; 2],
    /// The number of its first byte.
    pub sequence: u32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Frame {
    /// The datagram of UDP over IPv4 in it.
    pub fn datagram(&self) -> Option<&[u8]> {
        let (protocol, packet, header) = self.packet()?;
        (protocol == 17).then(|| packet.get(header + 8..))?
    }

    /// The segment of TCP over IPv4 in it.
    pub fn segment(&self) -> Option<Segment<'_>> {
        let (protocol, packet, header) = self.packet()?;
        let tcp = packet.get(header..).filter(|tcp| protocol == 6 && tcp.len() >= 20)?;
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        Some(Segment { ports: [port(0), port(2)], sequence, bytes: tcp.get(usize::from(tcp[12] >> 4) * 4..)? })
    }

    /// Protocol, packet and length of its header.
    fn packet(&self) -> Option<(u8, &[u8], usize)> {
        let packet = self.bytes.strip_prefix(&self.bytes[..12])?.strip_prefix(&[8, 0])?;
        let length = u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]) as usize;
        Some((*packet.get(9)?, packet.get(..length)?, usize::from(packet[0] & 15) * 4))
    }
}

/// All that is in a file.
#[derive(Debug, Default)]
pub struct Captured {
    /// What is said of each interface: its name and more.
    pub interfaces: Vec<String>,
    /// Frames in the file's order.
    pub frames: Vec<Frame>,
    /// Interface, frames seen, frames that are missing.
    pub counts: Vec<(usize, u64, u64)>,
}

impl Captured {
    /// Frames that are missing, of all interfaces.
    pub fn missing(&self) -> u64 {
        self.counts.iter().map(|(_, _, missing)| missing).sum()
    }
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, or a block is not whole.
pub fn read(path: &Path) -> Result<Captured, String> {
    of(&std::fs::read(path).map_err(|error| error.to_string())?)
}

/// The same of its bytes.
///
/// # Errors
/// A block is not whole.
pub fn of(bytes: &[u8]) -> Result<Captured, String> {
    let mut reader = PcapNgReader::new(bytes).map_err(|error| error.to_string())?;
    let mut captured = Captured::default();
    while let Some(block) = reader.next_block() {
        match block.map_err(|error| format!("behind {} frames: {error}", captured.frames.len()))? {
            Block::InterfaceDescription(interface) => {
                let said = interface.options.iter().filter_map(|option| match option {
                    InterfaceDescriptionOption::IfName(text) | InterfaceDescriptionOption::IfDescription(text) => {
                        Some(text.to_string())
                    }
                    _ => None,
                });
                captured.interfaces.push(said.collect::<Vec<_>>().join(": "));
            }
            Block::EnhancedPacket(packet) => captured.frames.push(Frame {
                interface: packet.interface_id as usize,
                time: packet.timestamp,
                is_sent: packet.options.contains(&EnhancedPacketOption::Flags(2)),
                length: packet.original_len,
                bytes: packet.data.to_vec(),
            }),
            Block::InterfaceStatistics(statistics) => {
                let mut counts = (statistics.interface_id as usize, 0, 0);
                for option in &statistics.options {
                    match option {
                        InterfaceStatisticsOption::IsbIfRecv(count) => counts.1 = *count,
                        InterfaceStatisticsOption::IsbIfDrop(count) => counts.2 = *count,
                        _ => {}
                    }
                }
                captured.counts.push(counts);
            }
            _ => {}
        }
    }
    Ok(captured)
}
