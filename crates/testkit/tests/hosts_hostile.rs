//! A third host on the segment floods the other two with frames that nobody asked for: to the agents' port and the gate's, to
//! every port where a UDP socket of theirs listens, under its own address and under theirs. Conversations between the two go on,
//! every byte right.

mod two_hosts;

use shunt_testkit::conversation::Pattern;
use shunt_testkit::hosts::Host;
use shunt_testkit::Random;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use two_hosts::{peer, until, Site, Way, PORT};

/// The agents' port, and the one at which hosts are asked for streams.
const KNOWN: [u16; 2] = [29544, 29545];

/// Ports of the host's UDP sockets: the second field of proc_pid_net(5), behind the colon.
fn ports(host: &Host) -> Vec<u16> {
    let table = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/udp").unwrap_or_default());
    let locals = table.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(1)?.rsplit_once(':'));
    locals.filter_map(|(_, port)| u16::from_str_radix(port, 16).ok()).collect()
}

/// A frame: noise; noise behind a header that begins as ours do; a header whose length lies; an empty one.
fn frame(random: &mut Random, bytes: &mut Vec<u8>) {
    let length = match random.below(4) {
        0 => random.below(17),
        1 => 16 + random.below(48),
        _ => random.below(1400),
    };
    bytes.clear();
    bytes.extend((0..length).map(|_| random.word() as u8));
    if random.below(4) != 0 {
        // `crates/wire`: magic, version, kind, length, then the tag. Kinds that exist, and one that does not.
        let told = if random.below(2) == 0 { length.saturating_sub(16) } else { random.below(1 << 16) };
        let header = [b's', b'h', 1, random.below(5) as u8, told as u8, (told >> 8) as u8, 0, 0];
        bytes.iter_mut().zip(header).for_each(|(to, from)| *to = from);
    }
}

/// Floods the first two hosts until `over`; counts.
fn flood(site: &Site, over: &AtomicBool, sent: &AtomicU64) {
    let stranger = &site.hosts[2];
    let sources: Vec<UdpSocket> = site
        .hosts
        .iter()
        .flat_map(|host| [0, KNOWN[0], KNOWN[1]].map(|port| SocketAddr::new(host.addresses[0], port)))
        .map(|source| stranger.enter(|| forger(source)).expect("a socket under another host's address"))
        .collect();
    let (mut random, mut bytes) = (Random::for_test(), Vec::new());
    while !over.load(Relaxed) {
        for host in &site.hosts[..2] {
            let targets: Vec<u16> = KNOWN.into_iter().chain(ports(host)).collect();
            for turn in 0..200u64 {
                frame(&mut random, &mut bytes);
                let source = &sources[random.below(sources.len() as u64) as usize];
                let port = targets[(turn % targets.len() as u64) as usize];
                if source.send_to(&bytes, SocketAddr::new(host.addresses[0], port)).is_ok() {
                    sent.fetch_add(1, Relaxed);
                }
            }
        }
        // A burst and a pause: what is tested is what they do with it, not that a full queue drops.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// A socket that sends under any address: ip(7), IP_TRANSPARENT. What is answered goes to the address's owner.
fn forger(source: SocketAddr) -> io::Result<UdpSocket> {
    let SocketAddr::V4(v4) = source else { return Err(io::ErrorKind::Unsupported.into()) };
    // SAFETY: the calls read an integer and an address that outlive them; the descriptor is given to the socket that closes it.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        let socket = UdpSocket::from_raw_fd(fd);
        let on: libc::c_int = 1;
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = v4.port().to_be();
        address.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
        let transparent =
            libc::setsockopt(fd, libc::SOL_IP, libc::IP_TRANSPARENT, (&raw const on).cast(), size_of_val(&on) as u32);
        match transparent == 0 && libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as u32) == 0 {
            true => Ok(socket),
            false => Err(io::Error::last_os_error()),
        }
    }
}

struct EndsFlood<'a>(&'a AtomicBool);

impl Drop for EndsFlood<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn flooded(way: Way) {
    let Some(site) = Site::of("flooded", way, 3) else { return };
    let server = site.serve("server");
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&site, &over, &sent));
        // A test that fails is not to wait for the flood.
        let _ends = EndsFlood(&over);
        until("the flood to begin", || sent.load(Relaxed) > 1000);
        // One connection that lives through it, and many that are made in it.
        let bystander = site.bystander(&server);
        for seed in 1..=10u64 {
            let name = format!("client{seed}");
            let client = site.start(0, &name, &peer(), &["connect", &PORT.to_string(), "ev", &(100 * seed).to_string()]);
            client.wait_for(&format!("connected {}", 100 * seed));
            client.kill();
        }
        // All but the bystander's; a client that was killed early made one connection of its two.
        until("the server to see the ends of all", || {
            let text = server.text();
            text.matches("close ").count() >= 10 && text.matches("close ").count() + 1 == text.matches("open ").count()
        });
        assert!(bystander.end_of_input().contains("fine "));
    });
    for line in server.text().lines().filter(|line| line.starts_with("close ")) {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(pattern) = words[3].chars().next().and_then(Pattern::from_letter) {
            let end = words[5].parse().expect("an end");
            assert!(pattern.allows(end, words[4].parse().expect("a number")), "{line}");
        }
    }
    for agent in &site.agents {
        assert!(std::path::Path::new(&format!("/proc/{}/fd/0", agent.id())).exists(), "the agent lives");
    }
    drop(server);
    site.finish();
}

#[test]
fn flooded_on_the_kernel() {
    flooded(Way::Kernel);
}

#[test]
fn flooded_falling_back() {
    flooded(Way::FallBack);
}

/// Agents that serve nobody yet: theirs is the port that the flood is for.
#[test]
fn flooded_agents() {
    flooded(Way::Agents);
}

#[test]
fn flooded_over_udp() {
    flooded(Way::Udp);
}

#[test]
fn flooded_over_xdp() {
    flooded(Way::Xdp);
}
