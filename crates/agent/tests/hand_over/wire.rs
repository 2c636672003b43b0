//! A path that loses, doubles, reorders and damages what passes, between the wire and a TCP that is no Linux: its frames, and addresses that it may have.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use shunt_testkit::hosts::{Host, Offload};
use shunt_testkit::Random;

use crate::agent::{pair, Agent};
use crate::random::exchange;

/// Where strangers send back what they get.
pub const PORT: u16 = 7;
/// Their link's address: none of a kernel's.
pub const ETHERNET: [u8; 6] = [2, 0, 0, 0, 0, 99];

/// What the path does, in 10,000 frames of either direction.
#[derive(Clone, Copy, Default)]
pub struct Trouble {
    pub lost: u64,
    pub doubled: u64,
    pub overtaken: u64,
    pub damaged: u64,
}

/// Frames of an interface, by a packet socket: those of another address than the kernel's, too.
pub struct Wire {
    pub fd: OwnedFd,
    trouble: Trouble,
    random: Random,
    /// Frames that have arrived, and that are to leave, the second before the first where it overtakes.
    pub arrived: Vec<Vec<u8>>,
    leaving: Vec<Vec<u8>>,
}

impl Wire {
    pub fn open(host: &Host, trouble: Trouble) -> Wire {
        let index = host.enter(|| {
            let name = std::ffi::CString::new(host.interface.as_str()).expect("a name");
            // SAFETY: a string that is there.
            unsafe { libc::if_nametoindex(name.as_ptr()) }
        });
        let fd = host.enter(|| {
            // SAFETY: numbers.
            let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: made above.
            unsafe { OwnedFd::from_raw_fd(fd) }
        });
        // SAFETY: integers; zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        let size = size_of_val(&address) as libc::socklen_t;
        // SAFETY: an address of that size.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) };
        assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
        Wire { fd, trouble, random: Random::for_test(), arrived: Vec::new(), leaving: Vec::new() }
    }

    /// What becomes of a frame on its way into `queue`.
    fn pass(random: &mut Random, trouble: Trouble, queue: &mut Vec<Vec<u8>>, mut frame: Vec<u8>) {
        let mut chance = |in_ten_thousand| random.below(10_000) < in_ten_thousand;
        if chance(trouble.lost) {
            return;
        }
        let doubled = chance(trouble.doubled).then(|| frame.clone());
        let (overtakes, damaged) = (chance(trouble.overtaken), chance(trouble.damaged));
        if damaged && frame.len() > 54 {
            // Behind the headers: these have sums of their own, and ARP has none.
            let at = 54 + random.below(frame.len() as u64 - 54) as usize;
            frame[at] ^= 1 << random.below(8);
        }
        match queue.len() {
            waiting if overtakes && waiting > 0 => queue.insert(waiting - 1, frame),
            _ => queue.push(frame),
        }
        queue.extend(doubled);
    }

    /// What has come until now.
    pub fn hear(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            // SAFETY: integers; zero is valid.
            let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            let mut size = size_of_val(&from) as libc::socklen_t;
            let (base, name) = (bytes.as_mut_ptr().cast(), (&raw mut from).cast());
            // SAFETY: as many bytes as said, and an address.
            let count = unsafe { libc::recvfrom(self.fd.as_raw_fd(), base, bytes.len(), 0, name, &mut size) };
            let Ok(count) = usize::try_from(count) else { return };
            if from.sll_pkttype != libc::PACKET_OUTGOING {
                Wire::pass(&mut self.random, self.trouble, &mut self.arrived, bytes[..count].to_vec());
            }
        }
    }

    /// A frame of the stranger's is to leave.
    pub fn leave(&mut self, frame: Vec<u8>) {
        Wire::pass(&mut self.random, self.trouble, &mut self.leaving, frame);
    }

    /// All but the last, which the next one may overtake; all, if nothing came of late.
    pub fn send(&mut self) {
        for frame in self.leaving.drain(..) {
            // SAFETY: bytes that are there. A frame that finds no room is lost.
            unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        }
    }
}

/// Addresses beside the kernel's own on the host's network.
pub fn addresses(host: &Host) -> [IpAddr; 2] {
    host.addresses.map(|address| match address {
        IpAddr::V4(ip) => IpAddr::from([ip.octets()[0], ip.octets()[1], ip.octets()[2], ETHERNET[5]]),
        IpAddr::V6(ip) => {
            let mut parts = ip.segments();
            parts[7] = ETHERNET[5].into();
            IpAddr::from(parts)
        }
    })
}

/// Bytes go to and fro between a connection that is taken and given back at random, and a stranger that `start` starts there, with its addresses. `None`: it cannot be had.
pub fn run<S>(
    start: impl FnOnce(&Host, [IpAddr; 2], Trouble) -> Option<S>,
    version_6: bool,
    lines: usize,
    hand_overs: u32,
    trouble: Trouble,
) {
    let Some(hosts) = pair() else { return };
    // A stranger's card makes no sums, and joins nothing.
    for what in [Offload::Sums, Offload::Segments, Offload::Cutting] {
        hosts[0].offload(what, false).expect("an offload");
    }
    let _agent = Agent::start(&hosts[0]);
    let ips = addresses(&hosts[1]);
    let Some(_stranger) = start(&hosts[1], ips, trouble) else { return };
    // Until it answers, the kernel knows no way to it.
    std::thread::sleep(Duration::from_millis(10));
    exchange(&hosts[0], SocketAddr::new(ips[usize::from(version_6)], PORT), lines, hand_overs);
}

/// The tests of one stranger.
macro_rules! on_every_path {
    ($start:expr) => {
        #[test]
        fn on_a_good_path() {
            $crate::wire::run($start, false, 4, 1000, Trouble::default());
        }

        #[test]
        fn over_ipv6() {
            $crate::wire::run($start, true, 4, 500, Trouble::default());
        }

        #[test]
        fn on_a_path_that_loses_and_doubles() {
            $crate::wire::run($start, false, 4, 200, Trouble { lost: 100, doubled: 100, ..Trouble::default() });
        }

        #[test]
        fn on_a_path_that_reorders_and_damages() {
            $crate::wire::run($start, false, 4, 200, Trouble { overtaken: 300, damaged: 100, ..Trouble::default() });
        }
    };
}
pub(crate) use on_every_path;
