//! What endpoints over libfabric cost beside the other devices, in one run:
//! `cargo run --release -p shunt-fabric --features libfabric --example measure_fabric`.
//!
//! Round trips of bare endpoints, a pinned thread at each end, at real-time priority where that is permitted; medians of five
//! runs, devices in turns. `shm` and libfabric's `shm` on one host; `udp` and libfabric's `tcp` on loopback; `udp` and `xdp`
//! (a queue of its own) between two hosts, network namespaces joined by a veth. libfabric's progress is by calls: a thread of
//! its would starve beside two of such priority on two processors. Needs root. Compare within one run only.

use shunt_agent::{Agent, Configuration};
use shunt_endpoint::conformance::{connect, meet, provide};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::device::udp::{ipv4, Options as UdpOptions, Udp};
use shunt_endpoint::{Arrival, Body, Channel, Endpoint, Message, SendError, INLINE};
use shunt_fabric::{Fabric, Options};
use shunt_sys::libc;
use shunt_testkit::hosts::{self, Host, Joint};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const RUNS: usize = 5;
const SIZES: [usize; 3] = [8, 112, 1024];

type Boxed = Box<dyn Endpoint + Send>;

fn settle_on(processor: usize) {
    let (set, priority) = ([1u64 << processor], 10i32);
    // SAFETY: plain structures on the stack; the calls act on the calling thread.
    unsafe {
        shunt_sys::syscall!(libc::SYS_sched_setaffinity, 0, size_of_val(&set), set.as_ptr());
        shunt_sys::syscall!(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &priority as *const i32);
    }
}

/// An agent on each host: this program, started once more.
struct Agents([Child; 2]);

impl Agents {
    fn start(pair: &[Host; 2]) -> Agents {
        Agents(pair.each_ref().map(|host| {
            let mut command = host.command(std::env::current_exe().expect("this program"));
            let mut child = command.args(["agent", &host.interface]).stdin(Stdio::null()).spawn().expect("an agent");
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

fn end(device: &str, host: &Host) -> Boxed {
    let IpAddr::V4(ip) = host.addresses[0] else { panic!("no IPv4 address") };
    let fabric = |provider| {
        let node = (provider == "tcp").then_some("127.0.0.1");
        Box::new(Fabric::new(Options { provider, node, ..Options::default() }).expect("libfabric"))
    };
    // libfabric's tcp makes sockets whenever it connects, by whichever thread drives it: those are this namespace's.
    match device {
        "fabric tcp, loopback" => return fabric("tcp"),
        "udp, loopback" => return Box::new(Udp::bind(&ipv4([127, 0, 0, 1], 0), UdpOptions::default()).expect("a socket")),
        _ => {}
    }
    host.enter(|| -> Boxed {
        match device {
            "shm" => Box::new(Shm::new(Default::default()).expect("memory")),
            "fabric shm" => fabric("shm"),
            "udp" => Box::new(Udp::bind(&ipv4(ip.octets(), 0), UdpOptions::default()).expect("a socket")),
            _ => Box::new(Xdp::attach(&host.interface, Kind::Own, false, Sizes::default()).expect("a queue of its own")),
        }
    })
}

fn send(endpoint: &mut Boxed, channel: Channel, bytes: &[u8]) {
    let (head, rest) = bytes.split_at(bytes.len().min(INLINE));
    let body = if rest.is_empty() { Body::None } else { Body::Bytes(rest.into()) };
    while let Err(error) = endpoint.send(&Message { channel, head, body }) {
        assert_eq!(error, SendError::NoResource);
        endpoint.flush().expect("the device works");
    }
    endpoint.flush().expect("the device works");
}

fn receive(endpoint: &mut Boxed, arrival: &mut Arrival) {
    let began = Instant::now();
    while !endpoint.receive(arrival) {
        assert!(began.elapsed() < Duration::from_secs(10), "{}: nothing comes", endpoint.capabilities().device);
    }
    endpoint.release(arrival);
}

/// Microseconds of a round trip.
fn round_trip(device: &str, pair: &[Host; 2], size: usize) -> f64 {
    let far = usize::from(!device.ends_with("shm"));
    let (mut a, mut b) = (end(device, &pair[0]), end(device, &pair[far]));
    provide(&mut a, 64);
    provide(&mut b, 64);
    let (to_b, to_a) = connect(&mut a, &mut b);
    meet(&mut a, &mut b);
    let trips = if device.ends_with("shm") { 50_000 } else { 5_000 };
    let bytes = vec![7u8; size];
    // Before either has a processor to itself.
    let ready = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ready.wait();
            settle_on(1);
            let mut arrival = Arrival::empty();
            for _ in 0..trips + trips / 10 {
                receive(&mut b, &mut arrival);
                send(&mut b, to_a, &bytes);
            }
        });
        let timed = scope.spawn(|| {
            ready.wait();
            settle_on(0);
            let mut arrival = Arrival::empty();
            let mut trip = || {
                send(&mut a, to_b, &bytes);
                receive(&mut a, &mut arrival);
            };
            (0..trips / 10).for_each(|_| trip());
            let began = Instant::now();
            (0..trips).for_each(|_| trip());
            began.elapsed().as_secs_f64() / f64::from(trips) * 1e6
        });
        timed.join().expect("the measured side")
    })
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
    let pair = match hosts::pair(Joint { queues: 2, mtu: 1500 }) {
        Ok(pair) => pair,
        Err(sentence) => return println!("{sentence}"),
    };
    let _agents = Agents::start(&pair);
    let devices = ["shm", "fabric shm", "xdp", "udp", "udp, loopback", "fabric tcp, loopback"];
    let mut figures = vec![vec![Vec::new(); SIZES.len()]; devices.len()];
    for _ in 0..RUNS {
        for (device, figures) in devices.iter().zip(&mut figures) {
            for (size, figures) in SIZES.iter().zip(figures) {
                figures.push(round_trip(device, &pair, *size));
            }
        }
    }
    println!("round trip of a bare endpoint, us {SIZES:>8?} bytes");
    for (device, figures) in devices.iter().zip(&mut figures) {
        print!("{device:32}");
        for runs in figures {
            runs.sort_by(f64::total_cmp);
            print!(" {:8.2}", runs[RUNS / 2]);
        }
        println!();
    }
}
