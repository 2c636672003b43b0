//! A peer that is no Linux: smoltcp on the other end of the wire, behind a path that loses, doubles, reorders and damages what passes.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use shunt_testkit::hosts::{Host, Offload};
use shunt_testkit::Random;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use crate::agent::{pair, Agent};
use crate::random::exchange;

const PORT: u16 = 7;
/// As many connections at once.
const SOCKETS: usize = 8;
/// The longest frame of an interface of 1,500 bytes.
const FRAME: usize = 1514;

/// What the path does, in 10,000 frames of either direction.
#[derive(Clone, Copy, Default)]
struct Trouble {
    lost: u64,
    doubled: u64,
    overtaken: u64,
    damaged: u64,
}

/// Frames of an interface, by a packet socket: those of another address than the kernel's, too.
struct Wire {
    fd: OwnedFd,
    trouble: Trouble,
    random: Random,
    /// Frames that have arrived, and that are to leave, the second before the first where it overtakes.
    arrived: Vec<Vec<u8>>,
    leaving: Vec<Vec<u8>>,
}

impl Wire {
    fn open(host: &Host, trouble: Trouble) -> Wire {
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

    fn hear(&mut self) {
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

    /// All but the last, which the next one may overtake; all, if nothing came of late.
    fn send(&mut self) {
        for frame in self.leaving.drain(..) {
            // SAFETY: bytes that are there. A frame that finds no room is lost.
            unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        }
    }
}

struct Received(Vec<u8>);
struct Sending<'a>(&'a mut Wire);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(&self.0)
    }
}

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        let mut frame = vec![0; length];
        let result = work(&mut frame);
        Wire::pass(&mut self.0.random, self.0.trouble, &mut self.0.leaving, frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        if self.arrived.is_empty() {
            self.hear();
        }
        let frame = (!self.arrived.is_empty()).then(|| self.arrived.remove(0))?;
        Some((Received(frame), Sending(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        capabilities
    }
}

/// Sends back what it gets, until it is dropped.
struct Stranger {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    addresses: [SocketAddr; 2],
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Stranger {
    fn start(host: &Host, trouble: Trouble) -> Stranger {
        let mut wire = Wire::open(host, trouble);
        let ips = host.addresses.map(|address| match address {
            IpAddr::V4(ip) => IpAddr::from([ip.octets()[0], ip.octets()[1], ip.octets()[2], 99]),
            IpAddr::V6(ip) => {
                let mut parts = ip.segments();
                parts[7] = 99;
                IpAddr::from(parts)
            }
        });
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let configuration = Config::new(EthernetAddress([2, 0, 0, 0, 0, 99]).into());
            let mut interface = Interface::new(configuration, &mut wire, Instant::now());
            interface.update_ip_addrs(|all| {
                for (ip, prefix) in ips.iter().zip([24, 64]) {
                    all.push(IpCidr::new(IpAddress::from(*ip), prefix)).expect("room for two");
                }
            });
            let mut sockets = SocketSet::new(Vec::new());
            let ring = || tcp::SocketBuffer::new(vec![0; 64 << 10]);
            let handles: Vec<_> = (0..SOCKETS).map(|_| sockets.add(tcp::Socket::new(ring(), ring()))).collect();
            let mut bytes = vec![0; 16 << 10];
            while !seen.load(Ordering::Relaxed) {
                interface.poll(Instant::now(), &mut wire, &mut sockets);
                wire.send();
                for handle in &handles {
                    let socket = sockets.get_mut::<tcp::Socket<'_>>(*handle);
                    if !socket.is_open() {
                        socket.set_nagle_enabled(false);
                        socket.listen(PORT).expect("a port");
                    }
                    let room = (socket.send_capacity() - socket.send_queue()).min(bytes.len());
                    if socket.can_recv() && socket.can_send() && room > 0 {
                        let count = socket.recv_slice(&mut bytes[..room]).expect("bytes");
                        assert_eq!(socket.send_slice(&bytes[..count]), Ok(count));
                    } else if !socket.may_recv() && socket.may_send() {
                        socket.close();
                    }
                }
                let wait = interface.poll_delay(Instant::now(), &sockets).map_or(1000, |delay| delay.total_micros().min(1000));
                let mut set = libc::pollfd { fd: wire.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                let time = libc::timespec { tv_sec: 0, tv_nsec: wait as i64 * 1000 };
                // SAFETY: one entry, and a time.
                unsafe { libc::ppoll(&mut set, 1, &time, std::ptr::null()) };
            }
        });
        Stranger { over, thread: Some(thread), addresses: ips.map(|ip| SocketAddr::new(ip, PORT)) }
    }
}

fn run(version_6: bool, lines: usize, hand_overs: u32, trouble: Trouble) {
    let Some(hosts) = pair() else { return };
    // A stranger's card makes no sums, and joins nothing.
    for what in [Offload::Sums, Offload::Segments, Offload::Cutting] {
        hosts[0].offload(what, false).expect("an offload");
    }
    let _agent = Agent::start(&hosts[0]);
    let stranger = Stranger::start(&hosts[1], trouble);
    // Until it answers, the kernel knows no way to it.
    std::thread::sleep(Duration::from_millis(10));
    exchange(&hosts[0], stranger.addresses[usize::from(version_6)], lines, hand_overs);
}

#[test]
fn on_a_good_path() {
    run(false, 4, 1000, Trouble::default());
}

#[test]
fn over_ipv6() {
    run(true, 4, 500, Trouble::default());
}

#[test]
fn on_a_path_that_loses_and_doubles() {
    run(false, 4, 200, Trouble { lost: 100, doubled: 100, ..Trouble::default() });
}

#[test]
fn on_a_path_that_reorders_and_damages() {
    run(false, 4, 200, Trouble { overtaken: 300, damaged: 100, ..Trouble::default() });
}
