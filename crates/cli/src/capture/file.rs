//! The file: pcapng, packets that begin with an IP header.
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use etherparse::PacketBuilder;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, PcapError};
use shunt_sys::clock::ticks;

use super::flows::{Segment, Sink};

/// The option that says in which unit times are: nanoseconds.
const NANOSECONDS: u8 = 9;

/// A file that is being written.
pub struct Output {
    writer: PcapNgWriter<BufWriter<Box<dyn Write>>>,
    clock: Clock,
    payload: Vec<u8>,
    packet: Vec<u8>,
}

fn of_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

impl Output {
    /// Makes it, or takes standard output.
    pub fn create(path: &Path) -> io::Result<Output> {
        let inner: Box<dyn Write> = match path.to_str() {
            Some("-") => Box::new(io::stdout()),
            _ => {
                use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
                // What programs say to each other is not for others of the host: nor by a link, or a file of theirs that is there.
                let file = File::options().write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
                let about = file.metadata()?;
                if about.is_file() {
                    if about.uid() != rustix::process::geteuid().as_raw() {
                        return Err(io::Error::other("the file belongs to another user"));
                    }
                    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
                    file.set_len(0)?;
                }
                Box::new(file)
            }
        };
        Output::to(inner)
    }

    fn to(inner: Box<dyn Write>) -> io::Result<Output> {
        let mut writer = PcapNgWriter::new(BufWriter::with_capacity(1 << 20, inner)).map_err(of_io)?;
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed("shunt")),
            InterfaceDescriptionOption::IfDescription(Cow::Borrowed("streams in shared memory; headers are made up")),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        let interface = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options };
        writer.write_block(&interface.into_block()).map_err(of_io)?;
        Ok(Output { writer, clock: Clock::new(), payload: Vec::new(), packet: Vec::new() })
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
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: self.clock.time(ticks),
            original_len: original,
            data: Cow::Borrowed(&self.packet[..kept]),
            options: comment.map(|comment| EnhancedPacketOption::Comment(Cow::Borrowed(comment))).into_iter().collect(),
        };
        self.writer.write_pcapng_block(block).map_err(of_io).map(drop)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.clock.look();
        self.writer.get_mut().flush()
    }
}

/// Wall time by the counter of ticks.
struct Clock {
    began: Instant,
    ticks: u64,
    time: Duration,
    ns_per_tick: f64,
}

impl Clock {
    fn new() -> Clock {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut clock = Clock { began: Instant::now(), ticks: ticks(), time, ns_per_tick: 0.4 };
        std::thread::sleep(Duration::from_millis(5));
        clock.look();
        clock
    }

    /// The longer it goes on, the better the rate is known.
    fn look(&mut self) {
        let passed = ticks().wrapping_sub(self.ticks);
        if passed > 0 && self.began.elapsed() < Duration::from_secs(3600) {
            self.ns_per_tick = self.began.elapsed().as_nanos() as f64 / passed as f64;
        }
    }

    fn time(&self, at: u64) -> Duration {
        let passed = at.wrapping_sub(self.ticks) as i64 as f64 * self.ns_per_tick;
        self.time + Duration::from_nanos(passed.clamp(0.0, 1e18) as u64)
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
        let mut output = Output::to(Box::new(io::sink())).unwrap();
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
