//! Segments that a third host makes up for a connection that is taken: they cost time, and nothing else.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use shunt_testkit::hosts::Host;
use shunt_testkit::Random;
use shunt_xdp::tcp::{Tuple, Way, TCP};

use crate::agent::{pair, Agent};
use crate::client::{Line, Queue};

const PATIENCE: Duration = Duration::from_secs(60);
/// Segments in all.
const SEGMENTS: u32 = 20_000;

/// Sends frames as they are: AF_PACKET.
struct Raw(OwnedFd);

impl Raw {
    fn new(host: &Host) -> Raw {
        // SAFETY: integers, and an address of the length said.
        host.enter(|| unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0);
            let name = std::ffi::CString::new(host.interface.as_str()).expect("a name");
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            (to.sll_family, to.sll_ifindex) = (libc::AF_PACKET as u16, libc::if_nametoindex(name.as_ptr()) as i32);
            assert_eq!(libc::bind(fd, (&raw const to).cast(), size_of_val(&to) as u32), 0);
            Raw(OwnedFd::from_raw_fd(fd))
        })
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: as many bytes as said. One that finds no room is not sent.
        unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_DONTWAIT) };
    }
}

fn mac_of(host: &Host) -> [u8; 6] {
    host.enter(|| shunt_agent::Interface::find(&host.interface)).expect("an interface").mac
}

/// Resets, beginnings, acknowledgements and data with any numbers, from an address that is the peer's.
#[test]
fn blind_segments_change_nothing() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    let raw = Raw::new(&hosts[1]);
    let macs = hosts.each_ref().map(mac_of);
    let mut random = Random::for_test();
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut lines = vec![Line::connect(server)];
        let tuple = Tuple { ours: lines[0].tuple.theirs, theirs: lines[0].tuple.ours };
        let way = Way { tuple, from: macs[1], to: macs[0], service: 0, hops: 64 };
        let at = way.header();
        let (mut sent, mut back, mut bytes) = (Vec::new(), 0, vec![0; 8192]);
        let (mut made, mut takes) = (0, 0u32);
        let until = Instant::now() + PATIENCE;
        while made < SEGMENTS || back < sent.len() {
            assert!(Instant::now() < until, "{made} segments, {takes} takes, {} of {} back", back, sent.len());
            queue.turn(&mut lines);
            if lines[0].taken.is_none() && made < SEGMENTS {
                takes += u32::from(queue.take(&mut lines[0]).is_ok());
            }
            for _ in 0..random.below(8) {
                let mut frame = vec![0; at + TCP];
                frame[at..at + 2].copy_from_slice(&tuple.ours.port().to_be_bytes());
                frame[at + 2..at + 4].copy_from_slice(&tuple.theirs.port().to_be_bytes());
                frame[at + 4..at + 12].copy_from_slice(&random.word().to_be_bytes());
                // RST, RST and ACK, SYN, SYN and ACK, ACK, ACK and PSH, FIN and ACK, URG and ACK.
                frame[at + 12] = 5 << 4;
                frame[at + 13] = [0x04, 0x14, 0x02, 0x12, 0x10, 0x18, 0x11, 0x30][random.below(8) as usize];
                frame[at + 14..at + 16].copy_from_slice(&(random.word() as u16).to_be_bytes());
                let length = random.below(100) as usize;
                frame.extend_from_slice(&random.bytes(length));
                way.prepare().complete(&mut frame);
                raw.send(&frame);
                made += 1;
            }
            if sent.len() == back && made < SEGMENTS {
                let length = 1 + random.below(4000) as usize;
                let more = random.bytes(length);
                let count = lines[0].write(&more);
                sent.extend_from_slice(&more[..count]);
            }
            let count = lines[0].read(&mut bytes).expect("no end");
            assert!(bytes[..count] == sent[back..back + count], "at byte {back}");
            back += count;
        }
        assert!(takes > 1 && !sent.is_empty());
        println!("{takes} takes, {} bytes", sent.len());
    });
}
