//! What a station costs: `cargo run --release -p shunt-station --features std --example measure_stations [udp] [xdp]`.
//!
//! Two hosts (network namespaces joined by a veth), a pinned thread on each; the bare endpoint in the same run, medians of
//! five. Needs root. Compare within one run only.

use shunt_agent::{Agent, Configuration};
use shunt_am::{Data, Nanoseconds};
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::shared::Shape;
use shunt_endpoint::{Area, Arrival, Body, Buffers, Endpoint, Message, SendError, Tags, INLINE};
use shunt_segment::address::Address;
use shunt_station::*;
use shunt_sys::clock;
use shunt_testkit::hosts::{self, Host, Joint};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

const RUNS: usize = 5;
const TRIPS: u64 = 20_000;
const STREAM: usize = 100 << 20;
const WINDOW: u64 = 1 << 20;
const PORT: u16 = 8080;
const MARK: Mark = Mark(1449);

fn settle_on(processor: usize) {
    let (set, priority) = ([1u64 << processor], 10i32);
    // SAFETY: plain structures on the stack; the calls act on the calling thread.
    unsafe {
        shunt_sys::syscall!(libc::SYS_sched_setaffinity, 0, size_of_val(&set), set.as_ptr());
        shunt_sys::syscall!(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &priority as *const i32);
    }
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    all.sort_by(f64::total_cmp);
    all[RUNS / 2]
}

/// Seconds of `first`, with `second` beside it on the other processor.
fn race(first: impl FnOnce() + Send, second: impl FnOnce() + Send) -> f64 {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            settle_on(1);
            second();
        });
        let timed = scope.spawn(|| {
            settle_on(0);
            let start = Instant::now();
            first();
            start.elapsed().as_secs_f64()
        });
        timed.join().expect("the measured side")
    })
}

fn address(host: &Host) -> Address {
    match host.addresses[0] {
        IpAddr::V4(ip) => Address::v4(ip.octets(), 0),
        IpAddr::V6(ip) => Address::v6(ip.octets(), 0),
    }
}

struct Agents([Child; 2]);

impl Agents {
    fn start(pair: &[Host; 2]) -> Agents {
        Agents([0, 1].map(|number: usize| {
            let host = &pair[number];
            let mut child = host
                .command(std::env::current_exe().expect("this program"))
                .args(["agent", &host.interface])
                .stdin(Stdio::null())
                .spawn()
                .expect("an agent");
            let end = Instant::now() + Duration::from_secs(20);
            while host.enter(|| Xdp::attach(&host.interface, Kind::Multiplexed, false, Sizes::default()).is_err()) {
                assert!(Instant::now() < end && child.try_wait().is_ok_and(|status| status.is_none()), "the agent starts");
                std::thread::sleep(Duration::from_millis(20));
            }
            child
        }))
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

type Bare = Box<dyn Endpoint + Send>;

fn bare(host: &Host, device: &str) -> Bare {
    let mut endpoint: Bare = host.enter(|| -> Bare {
        match device {
            "udp" => {
                let shape = Shape { segment: 256 * 2048, ..Shape::SMALL };
                let at = ipv4(address(host).as_v4().expect("IPv4"), 0);
                Box::new(Udp::bind(&at, Options { shape, ..Options::default() }).expect("an endpoint"))
            }
            _ => Box::new(Xdp::attach(&host.interface, Kind::Own, false, Sizes::default()).expect("a queue of its own")),
        }
    });
    if let Buffers::Posted { smallest, alignment } = endpoint.capabilities().buffers {
        let size = smallest.next_multiple_of(alignment.max(2048));
        let mut offset = 0;
        while offset + size <= endpoint.segment().size() && endpoint.post(Area::new(offset, size)).is_ok() {
            offset += size;
        }
    }
    endpoint
}

fn wired(pair: &[Host; 2], device: &str) -> [(Bare, shunt_endpoint::Channel); 2] {
    let (mut a, mut b) = (bare(&pair[0], device), bare(&pair[1], device));
    let (to_a, to_b) = (a.new_tag().expect("tag"), b.new_tag().expect("tag"));
    let (at_a, at_b) = (a.address(), b.address());
    let there = a.open(&at_b, Tags { receive: to_a, send: to_b }).expect("channel");
    let back = b.open(&at_a, Tags { receive: to_b, send: to_a }).expect("channel");
    // The neighbours are to be known.
    for _ in 0..50 {
        let _ = (a.send(&Message::small(there, b"warm")), a.flush(), b.send(&Message::small(back, b"warm")), b.flush());
        std::thread::sleep(Duration::from_millis(10));
        for endpoint in [&mut a, &mut b] {
            let mut arrival = Arrival::empty();
            while endpoint.receive(&mut arrival) {
                endpoint.release(&mut arrival);
            }
        }
    }
    [(a, there), (b, back)]
}

fn put(endpoint: &mut Bare, message: &Message<'_>) {
    while endpoint.send(message) == Err(SendError::NoResource) {
        let _ = endpoint.flush();
    }
    let _ = endpoint.flush();
}

fn take(endpoint: &mut Bare) {
    let mut arrival = Arrival::empty();
    while !endpoint.receive(&mut arrival) {}
    endpoint.release(&mut arrival);
}

fn bare_trip(pair: &[Host; 2], device: &str) -> f64 {
    let [(mut a, there), (mut b, back)] = wired(pair, device);
    let seconds = race(
        || {
            for _ in 0..TRIPS {
                put(&mut a, &Message::small(there, &[7; 8]));
                take(&mut a);
            }
        },
        || {
            for _ in 0..TRIPS {
                take(&mut b);
                put(&mut b, &Message::small(back, &[7; 8]));
            }
        },
    );
    seconds / TRIPS as f64 * 1e6
}

/// Frames of one direction, some at a time; the receiver says what it has, so that none is lost.
fn bare_stream(pair: &[Host; 2], device: &str) -> f64 {
    let [(mut a, there), (mut b, _)] = wired(pair, device);
    let length = (a.capabilities().largest as usize).min(4096);
    let count = STREAM / length;
    let taken = AtomicU64::new(0);
    let seconds = race(
        || {
            let bytes = vec![7u8; length];
            let message = Message { channel: there, head: &bytes[..INLINE], body: Body::Bytes(bytes[INLINE..].into()) };
            for at in 0..count as u64 {
                while at.saturating_sub(taken.load(Acquire)) >= 128 {
                    let _ = a.flush();
                }
                while a.send(&message) == Err(SendError::NoResource) {
                    let _ = a.flush();
                }
                if at % 16 == 15 {
                    let _ = a.flush();
                }
            }
            while taken.load(Acquire) < count as u64 {
                let _ = a.flush();
            }
        },
        || {
            let (mut arrival, segment, mut into) = (Arrival::empty(), b.segment(), vec![0u8; length]);
            while taken.load(Relaxed) < count as u64 {
                if b.receive(&mut arrival) {
                    arrival.copy_to(&segment, 0, &mut into);
                    b.release(&mut arrival);
                    taken.fetch_add(1, Release);
                }
            }
        },
    );
    STREAM as f64 / seconds / 1e6
}

/// Counts, and copies into a ring.
struct Program {
    received: u64,
    ring: Vec<u8>,
    waits: bool,
}

impl Pump for Program {
    fn bytes(&mut self, _: Stream, data: Data<'_>) {
        let at = self.received as usize % (self.ring.len() - data.len());
        assert!(data.copy_to(0, &mut self.ring[at..at + data.len()]));
        self.received += data.len() as u64;
    }
    fn finished(&mut self, _: Stream) {}
    fn reset(&mut self, _: Stream) {}
    fn begin(&mut self, _: Stream, _: u64) {}
    fn begun(&mut self, _: Stream) {}
    fn urgent(&mut self, _: Stream, _: u64, _: u8) {}
    fn acknowledged(&mut self, _: Stream, _: u64) {}
    fn writable(&mut self, _: &mut Driver<'_>, _: Stream) {
        self.waits = false;
    }
    fn lost(&mut self, stream: Stream) {
        panic!("stream {stream} is lost");
    }
}

fn now() -> Nanoseconds {
    clock::monotonic_ns()
}

struct Side {
    station: Station,
    stream: Stream,
    program: Program,
}

fn stations(pair: &[Host; 2], device: &str) -> [Side; 2] {
    let make = |number: usize| {
        let host = &pair[number];
        let choice = match device {
            "udp" => Choice::Udp { local: address(host), mtu: 1500 },
            _ => Choice::Agent { interface: &host.interface, local: address(host), mtu: 1500 },
        };
        host.enter(|| Station::make(choice, now()).expect("a station"))
    };
    let [a, b] = [make(0), make(1)];
    let program = || Program { received: 0, ring: vec![0; 2 << 20], waits: false };
    let (mut at_a, mut at_b) = (program(), program());
    let four =
        FourTuple { client: Address { port: 40000, ..address(&pair[0]) }, server: Address { port: PORT, ..address(&pair[1]) } };
    let mut gate = pair[1].enter(|| Discovery::open(false).expect("a gate"));
    b.listen(7, &four.server).expect("room for a listener");
    let query = pair[1].enter(|| Station::query(7).expect("a query socket"));
    let mut inquiry = pair[0].enter(|| Inquiry::begin(&a, &four, now(), &mut at_a).expect("an inquiry"));
    let peer = loop {
        gate.serve(now(), &mut |_, _| true, &mut |_| Some(7));
        b.lock().expect("the lock").hear(now(), query, &mut at_b);
        match inquiry.step(&a, now()) {
            Answer::Pending => {}
            Answer::Peer(peer) => break peer,
            other => panic!("{other:?}"),
        }
    };
    let there = a.lock().expect("the lock").open(now(), peer, &four, MARK).expect("a stream");
    while a.opening(there) == Opening::Pending {
        a.drive(now(), &mut at_a);
        b.drive(now(), &mut at_b);
    }
    assert_eq!(a.opening(there), Opening::Opened);
    let (back, _) = b.lock().expect("the lock").claim(&four, MARK.0.into(), now()).expect("a reservation");
    for (station, stream, program) in [(&a, there, &mut at_a), (&b, back, &mut at_b)] {
        let mut driver = station.lock().expect("the lock");
        driver.bind(stream, program);
        driver.grant(stream, WINDOW);
    }
    while a.lock().expect("the lock").room(there) == 0 || b.lock().expect("the lock").room(back) == 0 {
        a.drive(now(), &mut at_a);
        b.drive(now(), &mut at_b);
    }
    let _ = shunt_sys::calls::close(query);
    [Side { station: a, stream: there, program: at_a }, Side { station: b, stream: back, program: at_b }]
}

impl Side {
    fn send(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        let mut fill = |into: &mut [u8]| {
            into.copy_from_slice(&bytes[at..at + into.len()]);
            at += into.len();
            true
        };
        let mut driver = self.station.lock().expect("the lock");
        driver.grant(self.stream, self.program.received + WINDOW);
        driver.send(now(), self.stream, bytes.len(), &mut fill)
    }

    fn wait(&mut self, received: u64) {
        while self.program.received < received {
            self.station.drive(now(), &mut self.program);
        }
    }
}

fn station_trip(pair: &[Host; 2], device: &str) -> f64 {
    let [mut a, mut b] = stations(pair, device);
    let seconds = race(
        || {
            for trip in 1..=TRIPS {
                assert_eq!(a.send(&[7; 8]), 8);
                a.wait(trip * 8);
            }
        },
        || {
            for trip in 1..=TRIPS {
                b.wait(trip * 8);
                assert_eq!(b.send(&[7; 8]), 8);
            }
        },
    );
    seconds / TRIPS as f64 * 1e6
}

fn station_stream(pair: &[Host; 2], device: &str) -> f64 {
    let [mut a, mut b] = stations(pair, device);
    let over = AtomicBool::new(false);
    let seconds = race(
        || {
            let bytes = vec![7u8; 64 << 10];
            let mut sent = 0;
            while sent < STREAM {
                let length = bytes.len().min(STREAM - sent);
                sent += a.send(&bytes[..length]);
                a.station.drive(now(), &mut a.program);
            }
            while !over.load(Acquire) {
                a.station.drive(now(), &mut a.program);
            }
        },
        || {
            while b.program.received < STREAM as u64 {
                let before = b.program.received;
                b.station.drive(now(), &mut b.program);
                if b.program.received != before {
                    b.station.lock().expect("the lock").grant(b.stream, b.program.received + WINDOW);
                }
            }
            over.store(true, Release);
            for _ in 0..1000 {
                b.station.drive(now(), &mut b.program);
            }
        },
    );
    let status = a.station.lock().expect("the lock").status(0).expect("a peer").counters;
    eprintln!("    {} frames, {} again, {} time-outs", status.frames_sent, status.retransmissions, status.timeouts);
    STREAM as f64 / seconds / 1e6
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, interface] = &arguments[..] {
        if word == "agent" {
            let mut agent = Agent::start(Configuration::new(interface)).expect("an agent");
            agent.run().expect("an agent that runs");
            return;
        }
    }
    clock::start();
    std::thread::sleep(Duration::from_millis(60));
    for device in ["udp", "xdp"] {
        if !arguments.is_empty() && !arguments.iter().any(|wanted| wanted == device) {
            continue;
        }
        let pair = hosts::pair(Joint { queues: 2, mtu: 1500 }).expect("two hosts");
        let _agents = (device == "xdp").then(|| Agents::start(&pair));
        let (bare, ours) = (median(|| bare_trip(&pair, device)), median(|| station_trip(&pair, device)));
        println!("{device}: round trip of 8 B: bare {bare:.2} us, station {ours:.2} us ({:.2} x)", ours / bare);
        let (bare, ours) = (median(|| bare_stream(&pair, device)), median(|| station_stream(&pair, device)));
        println!("{device}: stream: bare {bare:.0} MB/s, station {ours:.0} MB/s ({:.2} x)", ours / bare);
    }
}
