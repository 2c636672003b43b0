//! The file: pcapng, packets that begin with an IP header.
use std::io;
use std::path::Path;

use etherparse::PacketBuilder;
use shunt_pcapng::block::{self, Interface, Packet};
use shunt_pcapng::{Clock, Opening, Output as File};

use super::flows::{Segment, Sink};

/// A file that is being written.
pub struct Output {
    file: File,
    clock: Clock,
    payload: Vec<u8>,
    packet: Vec<u8>,
}

impl Output {
    /// Makes it, or takes standard output.
    pub fn create(path: &Path) -> io::Result<Output> {
        let mut file = File::create(path, Opening::Waits)?;
        let (name, description) = ("shunt", "streams in shared memory; headers are made up");
        block::section(file.blocks());
        block::interface(file.blocks(), &Interface { link: block::RAW, longest: 0, name, description });
        Ok(Output { file, clock: Clock::start(), payload: Vec::new(), packet: Vec::new() })
    }

    /// The packet of a segment, in `self.packet`.
    fn build(&mut self, segment: &Segment<'_>) -> io::Result<()> {
        self.packet.clear();
        // Lengths and sums are those of the whole, of which the file may have less.
        self.payload.clear();
        self.payload.extend_from_slice(segment.bytes);
        self.payload.resize(segment.length, 0);
        let [from, to] = segment.ends;
        let step = match (from.as_v4(), to.as_v4()) {
            (Some(from), Some(to)) => PacketBuilder::ipv4(from, to, 64),
            _ => PacketBuilder::ipv6(from.ip, to.ip, 64),
        };
        let mut step = step.tcp(from.port, to.port, segment.sequence, 65_535);
        if let Some(acknowledged) = segment.acknowledged {
            step = step.ack(acknowledged);
        }
        if segment.syn {
            step = step.syn();
        }
        if segment.fin {
            step = step.fin();
        }
        if segment.length > 0 {
            step = step.psh();
        }
        step.write(&mut self.packet, &self.payload).map_err(io::Error::other)
    }
}

impl Sink for Output {
    fn segment(&mut self, ticks: u64, segment: &Segment<'_>, comment: Option<&str>) -> io::Result<()> {
        self.build(segment)?;
        let original = self.packet.len() as u32;
        let kept = self.packet.len() - (segment.length - segment.bytes.len());
        let (time, length, parts) = (self.clock.time(ticks), original, &[&self.packet[..kept]][..]);
        block::packet(self.file.blocks(), &Packet { interface: 0, time, length, parts, direction: None, comment });
        if self.file.is_full() {
            self.file.flush(|| true)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.clock.look();
        self.file.flush(|| true)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use crate::inspect::connection::ip_text;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use shunt_segment::address::Address;

    #[test]
    fn packets_are_what_a_stranger_reads() {
        let mut output = Output::create(Path::new("/dev/null")).unwrap();
        let six = Ipv6Addr::LOCALHOST.octets();
        for ends in
            [[Address::v4([127, 0, 0, 1], 10), Address::v4([127, 0, 0, 2], 20)], [Address::v6(six, 10), Address::v6(six, 20)]]
        {
            let segment = Segment {
                ends: [&ends[0], &ends[1]],
                sequence: 7,
                acknowledged: Some(9),
                syn: false,
                fin: true,
                bytes: b"hello",
                length: 8,
            };
            output.build(&segment).unwrap();
            let packet = SlicedPacket::from_ip(&output.packet).unwrap();
            let source = match packet.net.unwrap() {
                NetSlice::Ipv4(ip) => ip.header().source_addr().to_string(),
                NetSlice::Ipv6(ip) => ip.header().source_addr().to_string(),
                NetSlice::Arp(_) => panic!("no such"),
            };
            assert_eq!(source, ip_text(&ends[0]));
            let Some(TransportSlice::Tcp(tcp)) = packet.transport else { panic!("no segment") };
            assert_eq!((tcp.source_port(), tcp.destination_port()), (10, 20));
            assert_eq!((tcp.sequence_number(), tcp.acknowledgment_number()), (7, 9));
            assert!(tcp.fin() && tcp.ack() && tcp.psh() && !tcp.syn());
            assert_eq!(tcp.payload(), b"hello\0\0\0");
        }
    }
}
