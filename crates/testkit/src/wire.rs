//! A wire between two hosts that takes its time, and loses, doubles and overtakes: a thread that moves frames between two ports.
//!
//! Kernels without netem have nothing of the kind. What passes by is counted where it enters, so a test has the numbers of both ends: frames, and
//! segments that bring bytes which were sent before.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::hosts::{Host, Offload};
use crate::Random;

/// What becomes of frames; shares are of ten thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// On the way, each way.
    pub delay: Duration,
    /// Lost.
    pub lost: u64,
    /// Delivered twice.
    pub doubled: u64,
    /// Delivered a fifth of the delay later, behind those that followed.
    pub overtaken: u64,
}

/// What entered at one end.
#[derive(Debug, Default)]
pub struct Counts {
    /// Of IPv4 and TCP.
    pub frames: AtomicU64,
    /// Of those, frames without bytes.
    pub empty: AtomicU64,
    /// With bytes all of which had entered before.
    pub again: AtomicU64,
    /// Bytes of one connection that were under way at most, the acknowledgements' way back included.
    pub ahead: AtomicU64,
    /// Lost on the way.
    pub lost: AtomicU64,
}

/// The thread; it ends when this is dropped.
pub struct Wire {
    over: Arc<AtomicBool>,
    /// From the first host, and from the second.
    pub counts: Arc<[Counts; 2]>,
    thread: Option<JoinHandle<()>>,
    _switch: Host,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Wire {
    /// Between the ports of a switch, which its bridge joins no longer.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn new(switch: Host, hosts: &[Host; 2], path: Path) -> io::Result<Wire> {
        // Packets as they are on a wire: none joined, none without its sum.
        for what in [Offload::Joining, Offload::Segments, Offload::Cutting, Offload::Sums] {
            hosts.iter().try_for_each(|host| host.offload(what, false))?;
        }
        let ports = ["port1", "port2"].map(|port| {
            switch.ip(&format!("link set {port} nomaster"));
            switch.enter(|| tap(port))
        });
        let [one, other] = ports;
        let ports = [one?, other?];
        let (over, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(<[Counts; 2]>::default()));
        let ends = (over.clone(), counts.clone());
        let thread = std::thread::spawn(move || carry(&ports, path, &ends.0, &ends.1));
        Ok(Wire { over, counts, thread: Some(thread), _switch: switch })
    }
}

/// A socket that has all frames of an interface.
fn tap(interface: &str) -> io::Result<OwnedFd> {
    const EVERYTHING: u16 = (libc::ETH_P_ALL as u16).to_be();
    let name = std::ffi::CString::new(interface).map_err(io::Error::other)?;
    // SAFETY: integers, and a string that ends with a zero byte; a descriptor is owned by what it is put into at once.
    unsafe {
        let number = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, EVERYTHING.into());
        if number == -1 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(number);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        (address.sll_family, address.sll_protocol) = (libc::AF_PACKET as u16, EVERYTHING);
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let (on, room) = (1i32, 8i32 << 20);
        let set = |level, option, value: &i32| {
            libc::setsockopt(number, level, option, std::ptr::from_ref(value).cast(), size_of::<i32>() as u32)
        };
        let bound = libc::bind(number, (&raw const address).cast(), size_of_val(&address) as u32);
        // linux/if_packet.h: what the wire itself delivers is nothing that enters.
        const PACKET_IGNORE_OUTGOING: i32 = 23;
        if bound == -1
            || set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &on) == -1
            || set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room) == -1
        {
            return Err(io::Error::last_os_error());
        }
        Ok(fd)
    }
}

/// A frame under way: when it is due, the how manieth it was, where it goes, its bytes.
type Flight = Reverse<(Instant, u64, usize, Vec<u8>)>;

fn carry(ports: &[OwnedFd; 2], path: Path, over: &AtomicBool, counts: &[Counts; 2]) {
    let mut flights: BinaryHeap<Flight> = BinaryHeap::new();
    let mut ways = HashMap::new();
    let mut random = Random::seeded(29);
    let (mut number, mut frame) = (0, vec![0; 1 << 16]);
    while !over.load(Relaxed) {
        for (from, port) in ports.iter().enumerate() {
            // SAFETY: as much room as is said.
            while let Ok(length) = usize::try_from(unsafe {
                libc::recv(port.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), libc::MSG_DONTWAIT)
            }) {
                let frame = &frame[..length];
                let counts = &counts[from];
                let is_counted = count(frame, from, &mut ways, counts);
                let mut happens = |share: u64| is_counted && random.below(10_000) < share;
                if happens(path.lost) {
                    counts.lost.fetch_add(1, Relaxed);
                    continue;
                }
                let late = if happens(path.overtaken) { path.delay / 5 } else { Duration::ZERO };
                for _ in 0..1 + u32::from(happens(path.doubled)) {
                    number += 1;
                    flights.push(Reverse((Instant::now() + path.delay + late, number, 1 - from, frame.to_vec())));
                }
            }
        }
        let now = Instant::now();
        while flights.peek().is_some_and(|Reverse((due, ..))| *due <= now) {
            let Some(Reverse((_, _, to, frame))) = flights.pop() else { break };
            // SAFETY: a slice and its length. What finds no room is lost, as on a network.
            unsafe { libc::send(ports[to].as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        }
        let wait = flights.peek().map_or(Duration::from_millis(20), |Reverse((due, ..))| due.saturating_duration_since(now));
        let wait = wait.min(Duration::from_millis(20));
        let time = libc::timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
        let mut polled = [0, 1].map(|at: usize| libc::pollfd { fd: ports[at].as_raw_fd(), events: libc::POLLIN, revents: 0 });
        // SAFETY: two entries; no mask.
        unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &time, std::ptr::null()) };
    }
}

/// How far one direction of a connection is: the place behind the highest byte that entered, and the last that was acknowledged.
#[derive(Clone, Copy, Default)]
struct Way {
    highest: u32,
    acknowledged: Option<u32>,
}

/// Whether it is a frame of TCP over IPv4.
fn count(frame: &[u8], from: usize, ways: &mut HashMap<(usize, u32), Way>, counts: &Counts) -> bool {
    const HEADER: usize = 14;
    let word = |at: usize| frame.get(at..at + 4).map_or(0, |bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    if word(12) >> 16 != 0x0800 || word(HEADER + 8) >> 16 & 0xff != 6 {
        return false;
    }
    let length = (word(HEADER) & 0xffff) as usize;
    let tcp = HEADER + (word(HEADER) >> 24 & 15) as usize * 4;
    let payload = length.saturating_sub(tcp - HEADER + (word(tcp + 12) >> 28) as usize * 4) as u32;
    counts.frames.fetch_add(1, Relaxed);
    let (ports, end, is_first) = (word(tcp), word(tcp + 4).wrapping_add(payload), word(tcp + 12) >> 16 & 2 != 0);
    ways.entry((1 - from, ports.rotate_left(16))).or_default().acknowledged = Some(word(tcp + 8)).filter(|_| !is_first);
    let way = ways.entry((from, ports)).or_default();
    if is_first {
        *way = Way { highest: end.wrapping_add(1), acknowledged: None };
    } else if payload == 0 {
        counts.empty.fetch_add(1, Relaxed);
    } else if end.wrapping_sub(way.highest) as i32 <= 0 {
        counts.again.fetch_add(1, Relaxed);
    } else {
        way.highest = end;
        let ahead = way.acknowledged.map_or(0, |acknowledged| end.wrapping_sub(acknowledged));
        counts.ahead.fetch_max(ahead.into(), Relaxed);
    }
    true
}
