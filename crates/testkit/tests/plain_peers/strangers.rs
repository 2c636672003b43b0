//! A third host on the same Ethernet, which knows addresses and ports and sees no frame, makes up segments in the peer's name and floods the
//! listener: that costs time, and nothing else (RFC 5961 has the kinds).

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use shunt_testkit::hosts::Host;
use shunt_testkit::{python_program, script, Random};

use crate::site::{until, Site};

const PORT: u16 = 7000;
/// Segments at a time, between two looks at what connections there are.
const BURST: usize = 200;

/// RST; RST and ACK; SYN; SYN and ACK; ACK; ACK and PSH; FIN and ACK; URG and ACK.
const FLAGS: [u8; 8] = [0x04, 0x14, 0x02, 0x12, 0x10, 0x18, 0x11, 0x30];

/// raw(7): the header of IPv4 is ours, but for its sum.
struct Forger {
    socket: OwnedFd,
    random: Random,
}

impl Forger {
    fn on(host: &Host) -> Forger {
        let socket = host.enter(|| {
            // SAFETY: integers; what is made is owned at once.
            unsafe {
                let number = libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW);
                assert!(number >= 0, "{}", std::io::Error::last_os_error());
                OwnedFd::from_raw_fd(number)
            }
        });
        Forger { socket, random: Random::for_test() }
    }

    /// Sends one of any numbers, with those flags; whether it was sent.
    fn send(&mut self, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), flags: u8) -> bool {
        let mut payload = Vec::new();
        if flags & 0x17 == 0x10 {
            let length = self.random.below(300) as usize;
            payload = self.random.bytes(length);
        }
        let mut tcp = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
        tcp.extend_from_slice(&self.random.word().to_be_bytes());
        tcp.extend_from_slice(&[5 << 4, flags]);
        let window_and_sum_and_urgent = [self.random.word() as u16, 0, 0];
        tcp.extend(window_and_sum_and_urgent.iter().flat_map(|half| half.to_be_bytes()));
        tcp.extend_from_slice(&payload);
        let addresses = [from.0.octets(), to.0.octets()].concat();
        let pseudo = [&addresses[..], &[0, 6], &(tcp.len() as u16).to_be_bytes(), &tcp[..]].concat();
        tcp[16..18].copy_from_slice(&sum(&pseudo).to_be_bytes());
        let total = (20 + tcp.len() as u16).to_be_bytes();
        let packet = [&[0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 6, 0, 0], &addresses[..], &tcp[..]].concat();
        // SAFETY: an address of the length said; zero is valid.
        let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        name.sin_family = libc::AF_INET as u16;
        name.sin_addr.s_addr = u32::from_ne_bytes(to.0.octets());
        let (fd, length) = (self.socket.as_raw_fd(), size_of_val(&name) as u32);
        // SAFETY: as many bytes as said, and that address.
        let sent = unsafe { libc::sendto(fd, packet.as_ptr().cast(), packet.len(), 0, (&raw const name).cast(), length) };
        sent == packet.len() as isize
    }
}

/// RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let halves = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = halves.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum + (sum >> 16)) as u16)
}

/// Ports from which the host is connected with `PORT` (proc_pid_net(5)).
fn connected(host: &Host) -> Vec<u16> {
    let table = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/tcp")).unwrap_or_default();
    let port = |field: &str| u16::from_str_radix(field.rsplit_once(':')?.1, 16).ok();
    let rows = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 3 && row[3] == "01" && port(row[2]) == Some(PORT)).filter_map(|row| port(row[1])).collect()
}

fn v4(host: &Host) -> Ipv4Addr {
    let IpAddr::V4(address) = host.addresses[0] else { panic!("the first is of IPv4") };
    address
}

#[test]
fn blind_segments_and_floods_change_no_byte() {
    let Some(site) = Site::with_stranger("plain-stranger") else { return };
    let address = site.address(0);
    let (python, script) = (python_program(), script("plain_peers.py").display().to_string());
    let server = site.start(0, PORT, "server", &python, &[&script, "crowd", &address, "7000"]);
    site.wait_for_listener(0, PORT);
    let mut client = site.start(1, 0, "client", &python, &[&script, "talks", &address, "7000", "160"]);
    until("a connection that is taken", || site.count(&server, "taken") > 0);

    let [server_at, client_at] = [&site.hosts[0], &site.hosts[1]].map(v4);
    let mut forger = Forger::on(&site.stranger.as_ref().expect("a third host")[0]);
    let (mut blind, mut flood) = (0, 0);
    let ended = loop {
        let ports = connected(&site.hosts[1]);
        for _ in 0..BURST {
            if let Some(port) = ports.get(forger.random.below(ports.len().max(1) as u64) as usize) {
                let flags = FLAGS[forger.random.below(8) as usize];
                blind += u32::from(forger.send((client_at, *port), (server_at, PORT), flags));
            }
            let nobody = Ipv4Addr::new(10, 77, 0, 100 + forger.random.below(100) as u8);
            let port = 1024 + forger.random.below(60_000) as u16;
            flood += u32::from(forger.send((nobody, port), (server_at, PORT), 0x02));
        }
        if let Some(status) = client.child.try_wait().expect("a child") {
            break status;
        }
        std::thread::yield_now();
    };
    assert!(ended.success() && client.text() == "fine\n", "{ended}: {}\n{}", client.text(), server.text());
    // Each is given back once at most, as it is not taken again; and when some in a row have not paid, the next are the kernel's from the beginning.
    let counts = ["taken", "given-back"].map(|reason| site.count(&server, reason));
    assert!(counts[0] >= 10 && counts[1] <= counts[0], "{counts:?}: {}", server.text());
    assert!(blind >= 10_000 && flood >= 10_000, "{blind} blind, {flood} beginnings");
    println!("{blind} blind, {flood} beginnings, {counts:?}");
}
