//! What active messages cost: `cargo run --release -p shunt-am --example measure_messages [shm] [udp] [loss]`; or `trips`, `rates`, `stores`, `alone` of `shm`.
//!
//! `shm`: two pinned threads; the bare endpoint and, where it is installed, UCX in the same run; medians of five. `udp`: two
//! network namespaces joined by veth, where a program at both interfaces drops packets at random, and kernel TCP over the
//! same path (needs root). `loss`: selective retransmission and go-back-N at virtual time. Compare within one run only.

#[path = "../tests/network/mod.rs"]
mod network;

use network::{Faults, World, MICROSECOND, MILLISECOND, SECOND};
use shunt_agent::ebpf::assembler::{Assembler, Register, Test};
use shunt_agent::ebpf::kernel::{Attachment, Link, Program};
use shunt_am::port::{config_for, memory, Port};
use shunt_am::{Config, Data, Dispatch, Engine, Message as Active, Replier, Store};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::shared::Shape;
use shunt_endpoint::{Arrival, Body, Channel, Endpoint, Message, SendError, Tag, Tags, INLINE};
use shunt_sys::libc;
use shunt_testkit::hosts;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const RUNS: usize = 5;

fn settle_on(processor: usize) {
    let set = [1u64 << processor; 1];
    let priority = 10i32;
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

/// Runs both sides, each made and kept by a thread on its own processor; seconds of the first's `run`.
fn race<A, B>(
    make: [Box<dyn FnOnce() -> A + Send + '_>; 1],
    first: impl FnOnce(A) + Send,
    second: impl FnOnce(B) + Send,
    other: Box<dyn FnOnce() -> B + Send + '_>,
) -> f64 {
    let ready = AtomicU64::new(0);
    let [make] = make;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            settle_on(1);
            let side = other();
            ready.fetch_add(1, Ordering::AcqRel);
            second(side);
        });
        let timed = scope.spawn(|| {
            settle_on(0);
            let side = make();
            while ready.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            first(side);
            start.elapsed().as_secs_f64()
        });
        timed.join().expect("the measured side")
    })
}

fn wired<E: Endpoint>(mut a: E, mut b: E) -> [(E, Tags, shunt_endpoint::Address); 2] {
    let (for_a, for_b): (Tag, Tag) = (a.new_tag().expect("tag"), b.new_tag().expect("tag"));
    let (at_a, at_b) = (a.address(), b.address());
    [(a, Tags { receive: for_a, send: for_b }, at_b), (b, Tags { receive: for_b, send: for_a }, at_a)]
}

/// The bare endpoint's round trip of `length` bytes, as a program would do it: send, receive, release.
fn bare_round_trip(length: usize, rounds: u64) -> f64 {
    let [a, b] = wired(Shm::new(Default::default()).expect("shm"), Shm::new(Default::default()).expect("shm"));
    let bytes = vec![7u8; length];
    let side = |(mut endpoint, tags, at): (Shm, Tags, shunt_endpoint::Address), first: bool| {
        let channel: Channel = endpoint.open(&at, tags).expect("channel");
        let message = Message { channel, head: &bytes[..length.min(INLINE)], body: Body::None };
        let mut arrival = Arrival::empty();
        for _ in 0..rounds {
            if first {
                while endpoint.send(&message) == Err(SendError::NoResource) {}
            }
            while !endpoint.receive(&mut arrival) {}
            endpoint.release(&mut arrival);
            if !first {
                while endpoint.send(&message) == Err(SendError::NoResource) {}
            }
        }
    };
    race([Box::new(|| a)], |a| side(a, true), |b| side(b, false), Box::new(|| b)) / rounds as f64 * 1e9
}

/// Nanoseconds for each of many messages one way through the bare endpoint.
fn bare_flood(length: usize, count: u64) -> f64 {
    let [a, b] = wired(Shm::new(Default::default()).expect("shm"), Shm::new(Default::default()).expect("shm"));
    let bytes = vec![7u8; length];
    let seconds = race(
        [Box::new(|| a)],
        |(mut endpoint, tags, at): (Shm, _, _)| {
            let channel = endpoint.open(&at, tags).expect("channel");
            let message = Message { channel, head: &bytes[..length], body: Body::None };
            for _ in 0..count {
                while endpoint.send(&message) == Err(SendError::NoResource) {}
            }
            let mut arrival = Arrival::empty();
            while !endpoint.receive(&mut arrival) {}
        },
        |(mut endpoint, tags, at): (Shm, _, _)| {
            let channel = endpoint.open(&at, tags).expect("channel");
            let mut arrival = Arrival::empty();
            for _ in 0..count {
                while !endpoint.receive(&mut arrival) {}
                endpoint.release(&mut arrival);
            }
            while endpoint.send(&Message::small(channel, b"done")).is_err() {}
        },
        Box::new(|| b),
    );
    seconds / count as f64 * 1e9
}

/// Nanoseconds of a round trip where one thread is both sides: what the instructions cost, without any transfer of a line between
/// caches. The bare endpoint, and active messages.
fn alone(rounds: u64, config: impl Fn(Config) -> Config) -> [f64; 2] {
    let [a, b] = wired(Shm::new(Default::default()).expect("shm"), Shm::new(Default::default()).expect("shm"));
    let ((mut a, tags_a, to_a), (mut b, tags_b, to_b)) = (a, b);
    let (one, two) = (a.open(&to_a, tags_a).expect("channel"), b.open(&to_b, tags_b).expect("channel"));
    let bytes = [7u8; 32];
    let mut arrival = Arrival::empty();
    let mut start = Instant::now();
    for round in 0..rounds + 1000 {
        if round == 1000 {
            start = Instant::now();
        }
        while a.send(&Message::small(one, &bytes)) == Err(SendError::NoResource) {
            b.receive(&mut arrival);
        }
        while !b.receive(&mut arrival) {}
        b.release(&mut arrival);
        while b.send(&Message::small(two, &bytes)) == Err(SendError::NoResource) {}
        while !a.receive(&mut arrival) {}
        a.release(&mut arrival);
    }
    let bare = start.elapsed().as_nanos() as f64 / rounds as f64;
    let [a, b] = wired(Shm::new(Default::default()).expect("shm"), Shm::new(Default::default()).expect("shm"));
    let config = config(config_for(&a.0, 1));
    let (mut space_a, mut space_b) = (memory(&config), memory(&config));
    let (mut counter_a, mut counter_b) = (Counter::default(), Counter::default());
    let mut port_a = Port::new(a.0, &mut space_a, &config).expect("port");
    let mut port_b = Port::new(b.0, &mut space_b, &config).expect("port");
    let (to_b, to_a) = (port_a.open(&a.2, a.1).expect("channel"), port_b.open(&b.2, b.1).expect("channel"));
    port_a.with(|engine, now, link| engine.connect(now, to_b, link)).expect("asked");
    while !port_a.engine().is_up(to_b) || !port_b.engine().is_up(to_a) {
        port_a.poll(&mut counter_a);
        port_b.poll(&mut counter_b);
    }
    for round in 0..rounds + 1000 {
        if round == 1000 {
            start = Instant::now();
        }
        port_a.request(to_b, 1, &[round], &[], &mut counter_a).expect("request");
        while counter_b.requests <= round {
            port_b.poll(&mut counter_b);
        }
        while counter_a.replies <= round {
            port_a.poll(&mut counter_a);
        }
    }
    [bare, start.elapsed().as_nanos() as f64 / rounds as f64]
}

/// Bytes each second through the bare endpoint, largest messages, copied out.
fn bare_stream(count: u64) -> f64 {
    let [a, b] = wired(Shm::new(Default::default()).expect("shm"), Shm::new(Default::default()).expect("shm"));
    let length = a.0.capabilities().largest as usize;
    let seconds = race(
        [Box::new(|| a)],
        |(mut endpoint, tags, at)| {
            let channel = endpoint.open(&at, tags).expect("channel");
            let bytes = vec![7u8; length];
            let message = Message { channel, head: &bytes[..INLINE], body: Body::Bytes(bytes[INLINE..].into()) };
            for _ in 0..count {
                while endpoint.send(&message) == Err(SendError::NoResource) {}
            }
            let mut arrival = Arrival::empty();
            while !endpoint.receive(&mut arrival) {}
        },
        |(mut endpoint, tags, at): (Shm, _, _)| {
            let channel = endpoint.open(&at, tags).expect("channel");
            let (mut arrival, mut target, segment) = (Arrival::empty(), vec![0u8; length], endpoint.segment());
            for _ in 0..count {
                while !endpoint.receive(&mut arrival) {}
                arrival.copy_to(&segment, 0, &mut target);
                endpoint.release(&mut arrival);
            }
            while endpoint.send(&Message::small(channel, b"done")).is_err() {}
        },
        Box::new(|| b),
    );
    count as f64 * length as f64 / seconds
}

/// What both sides of an active-message measurement do after they are connected.
type Act = fn(&mut Port<'_, Shm>, &mut Counter, u64);
type Sides = (Act, Act);

fn active(config: impl Fn(Config) -> Config + Sync, (first, second): Sides, rounds: u64) -> f64 {
    let [a, b] = wired(Shm::new(Default::default()).expect("shm"), Shm::new(Default::default()).expect("shm"));
    let began = AtomicU64::new(0);
    let clock = Instant::now();
    let side = |(endpoint, tags, at): (Shm, Tags, shunt_endpoint::Address), act: Act, connects: bool| {
        let config = config(config_for(&endpoint, 1));
        let mut space = memory(&config);
        let mut port = Port::new(endpoint, &mut space, &config).expect("port");
        let peer = port.open(&at, tags).expect("channel");
        // Messages may come as soon as the connection is up.
        let mut table = Counter { segment: vec![0; BLOCK], ..Counter::default() };
        if connects {
            port.connect(peer, &mut table).expect("connection");
            began.store(clock.elapsed().as_nanos() as u64, Ordering::Release);
        } else {
            port.accept(peer, &mut table, Duration::from_secs(5)).expect("connection");
        }
        act(&mut port, &mut table, rounds);
        if connects {
            began.store(clock.elapsed().as_nanos() as u64 - began.load(Ordering::Acquire), Ordering::Release);
        }
        let _ = port.drain(peer, &mut table);
    };
    race([Box::new(|| a)], |a| side(a, first, true), |b| side(b, second, false), Box::new(|| b));
    began.load(Ordering::Acquire) as f64 / rounds as f64
}

/// Counts, and answers what asks for it.
#[derive(Default)]
struct Counter {
    requests: u64,
    replies: u64,
    segment: Vec<u8>,
}

impl Dispatch for Counter {
    #[inline]
    fn request(&mut self, message: Active<'_>, replier: Replier<'_>) {
        self.requests += 1;
        if message.handler != 0 {
            let _ = replier.reply(1, message.words, message.data);
        }
    }
    #[inline]
    fn reply(&mut self, _message: Active<'_>) {
        self.replies += 1;
    }
    fn segment(&mut self, _peer: u32) -> &mut [u8] {
        &mut self.segment
    }
}

fn ask(port: &mut Port<'_, Shm>, counter: &mut Counter, rounds: u64) {
    for round in 1..=rounds {
        port.request(0, 1, &[round], &[], counter).expect("request");
        while counter.replies < round {
            port.poll(counter);
        }
    }
}

fn answer(port: &mut Port<'_, Shm>, counter: &mut Counter, rounds: u64) {
    while counter.requests < rounds {
        port.poll(counter);
    }
}

/// One way; the last one is answered.
fn pour(port: &mut Port<'_, Shm>, counter: &mut Counter, rounds: u64) {
    for round in 1..=rounds {
        port.request(0, u8::from(round == rounds), &[round], &[], counter).expect("request");
    }
    while counter.replies == 0 {
        port.poll(counter);
    }
}

const BLOCK: usize = 1 << 20;

/// Stores of 1 MiB; `rounds` counts bytes.
fn store(port: &mut Port<'_, Shm>, counter: &mut Counter, rounds: u64) {
    let bytes = vec![7u8; BLOCK];
    let blocks = rounds / BLOCK as u64;
    for _ in 0..blocks {
        port.store(0, &Store { offset: 0, handler: 1, words: &[] }, &bytes, counter).expect("store");
    }
    while counter.replies < blocks {
        port.poll(counter);
    }
}

fn stored(port: &mut Port<'_, Shm>, counter: &mut Counter, rounds: u64) {
    while counter.requests < rounds / BLOCK as u64 {
        port.poll(counter);
    }
}

/// UCX's own program, both ends pinned as ours: nanoseconds of a round trip (it prints half of one, in microseconds).
fn ucx(test: &str, more: &[&str]) -> Option<f64> {
    let port = 13_000 + std::process::id() % 10_000;
    let start = |processor: &str, host: Option<&str>| {
        let mut command = Command::new("chrt");
        command
            .args([
                "-f",
                "10",
                "ucx_perftest",
                "-t",
                test,
                "-s",
                "8",
                "-n",
                "200000",
                "-w",
                "10000",
                "-f",
                "-c",
                processor,
                "-p",
                &port.to_string(),
            ])
            .args(more)
            .args(host);
        command
            .env("UCX_TLS", "posix,self,sysv")
            .env("UCX_LOG_LEVEL", "fatal")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    };
    let mut server = start("1", None).ok()?;
    std::thread::sleep(Duration::from_millis(400));
    let output = start("0", Some("127.0.0.1")).ok()?.wait_with_output().ok()?;
    let _ = server.kill();
    let _ = server.wait();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = text.lines().rev().find(|line| {
        line.trim_start().starts_with("Final") || line.trim_start().starts_with(|first: char| first.is_ascii_digit())
    })?;
    // iterations, median, average, overall average (microseconds one way), bandwidth, rate
    let numbers: Vec<f64> = last.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.get(1).map(|micros| micros * 2000.0)
}

fn round_trips() {
    let bare = median(|| bare_round_trip(32, 200_000));
    println!("shm, bare endpoint, round trip of 32 bytes        {bare:8.0} ns");
    let ours = median(|| active(|config| config, (ask, answer), 200_000));
    println!("shm, request and reply of one word                {ours:8.0} ns   {:.2} x the bare endpoint", ours / bare);
    for (name, test, more) in
        [("UCX, uct am_lat over posix", "am_lat", &["-x", "posix", "-d", "memory"][..]), ("UCX, ucp_am_lat", "ucp_am_lat", &[])]
    {
        match ucx(test, more) {
            Some(time) => println!("{name:28}, 8 bytes, round trip {time:8.0} ns   ours is {:.2} of it", ours / time),
            None => println!("{name}: ucx_perftest is not installed or does not run"),
        }
    }
}

fn instructions() {
    settle_on(0);
    let [bare, active] = alone(1_000_000, |config| config);
    println!("shm, both ends in one thread, round trip          {bare:8.1} ns   active messages {active:8.1} ns");
    // As over a device that loses frames, and checks them.
    let [_, numbered] = alone(1_000_000, |config| Config { checked: 1, ..Config::lossy(1, config.frame) });
    println!("the same, packets numbered and acknowledged                      active messages {numbered:8.1} ns");
}

fn rates() {
    let rate = median(|| 1e3 / bare_flood(32, 3_000_000));
    println!("shm, bare endpoint, messages of 32 bytes, one way {rate:8.1} M/s");
    let rate = median(|| 1e3 / active(|config| Config { window: 1024, replies: 512, ..config }, (pour, answer), 3_000_000));
    println!("shm, requests of one word, one pair               {rate:8.1} M/s");
    let rate =
        median(|| 1e3 / active(|config| Config { combine: 1, window: 1024, replies: 512, ..config }, (pour, answer), 3_000_000));
    println!("shm, the same, combined                           {rate:8.1} M/s");
}

fn stores() {
    let bare = median(|| bare_stream(60_000));
    println!("shm, bare endpoint, largest messages, copied out  {:8.2} GB/s", bare / 1e9);
    let ours = median(|| 1e9 / active(|config| config, (store, stored), 2 << 30));
    println!(
        "shm, stores of 1 MiB                              {:8.2} GB/s   {:.2} x the bare endpoint",
        ours / 1e9,
        ours / bare
    );
}

/// Takes a stream and lets the sender have more.
#[derive(Default)]
struct Sink(u64);

impl Dispatch for Sink {
    fn request(&mut self, _message: Active<'_>, replier: Replier<'_>) {
        replier.refuse();
    }
    fn reply(&mut self, _message: Active<'_>) {}
    fn stream(&mut self, _peer: u32, _channel: u16, data: Data<'_>) {
        self.0 += data.len() as u64;
    }
}

const ROOM: u64 = 4 << 20;

/// Bytes each second of a stream over active messages on UDP between two hosts.
fn udp_stream(hosts: &[hosts::Host; 2], total: u64, describe: bool) -> f64 {
    let make = |host: &hosts::Host| {
        let IpAddr::V4(address) = host.addresses[0] else { unreachable!() };
        let shape = Shape { segment: 4 << 20, receive: 1024, free: 1024, send: 1024, ..Shape::SMALL };
        host.enter(|| Udp::bind(&ipv4(address.octets(), 0), Options { shape, ..Options::default() })).expect("udp")
    };
    let [a, b] = wired(make(&hosts[0]), make(&hosts[1]));
    let config = |endpoint: &Udp| Config { window: 1024, held: 1024, checked: 1, ..config_for(endpoint, 1) };
    race(
        [Box::new(|| a)],
        |(endpoint, tags, at)| {
            let config = config(&endpoint);
            let mut space = memory(&config);
            let mut port = Port::new(endpoint, &mut space, &config).expect("port");
            let peer = port.open(&at, tags).expect("channel");
            let (mut sink, bytes) = (Sink::default(), vec![7u8; 65_536]);
            port.connect(peer, &mut sink).expect("connection");
            let mut sent = 0;
            while sent < total {
                port.send(peer, 1, &bytes, &mut sink).expect("send");
                sent += bytes.len() as u64;
            }
            port.drain(peer, &mut sink).expect("drain");
            if describe {
                println!("    {:?}", port.status(peer).expect("peer"));
            }
            port.disconnect(peer, &mut sink);
        },
        |(endpoint, tags, at): (Udp, _, _)| {
            let config = config(&endpoint);
            let mut space = memory(&config);
            let mut port = Port::new(endpoint, &mut space, &config).expect("port");
            let peer = port.open(&at, tags).expect("channel");
            let mut sink = Sink::default();
            port.accept(peer, &mut sink, Duration::from_secs(5)).expect("connection");
            let mut granted = 0;
            while sink.0 < total {
                if sink.0 + ROOM / 2 >= granted {
                    granted = sink.0 + ROOM;
                    let _ = port.engine().grant(peer, 1, granted, 1);
                }
                port.poll(&mut sink);
            }
            while port.engine().is_up(peer) {
                port.poll(&mut sink);
            }
        },
        Box::new(|| b),
    )
    .recip()
        * total as f64
}

fn tcp_stream(hosts: &[hosts::Host; 2], total: u64) -> f64 {
    let IpAddr::V4(address) = hosts[1].addresses[0] else { unreachable!() };
    let listener = hosts[1].enter(|| TcpListener::bind((address, 0))).expect("listener");
    let port = listener.local_addr().expect("address").port();
    let mut client = hosts[0].enter(|| TcpStream::connect((address, port))).expect("connection");
    let (mut server, _) = listener.accept().expect("connection");
    race(
        [Box::new(|| ())],
        |()| {
            let bytes = vec![7u8; 65_536];
            for _ in 0..total / 65_536 {
                client.write_all(&bytes).expect("write");
            }
            client.shutdown(std::net::Shutdown::Write).expect("shutdown");
            assert_eq!(client.read(&mut [0]).expect("answer"), 1);
        },
        |()| {
            let mut bytes = vec![0u8; 65_536];
            while server.read(&mut bytes).expect("read") > 0 {}
            server.write_all(&[1]).expect("answer");
        },
        Box::new(|| ()),
    )
    .recip()
        * total as f64
}

fn udp() {
    let hosts = match hosts::pair(hosts::Joint::default()) {
        Ok(hosts) => hosts,
        Err(sentence) => return println!("udp: {sentence}"),
    };
    for loss in [0u32, 1, 10, 50] {
        // Held while they are to drop. XDP also ends segmentation offload on a veth pair, so each drop is one packet for both.
        let links: Result<Vec<_>, _> = hosts.iter().map(|host| drop_packets(host, loss)).collect();
        if let Err(error) = &links {
            return println!("udp: no program may be put at the interface: {error}");
        }
        let total = if loss == 0 { 256 << 20 } else { 32 << 20 };
        let tcp = (0..3).map(|_| tcp_stream(&hosts, total)).fold(0.0, |sum, rate| sum + rate / 3.0);
        let ours = (0..3).map(|at| udp_stream(&hosts, total, at == 2)).fold(0.0, |sum, rate| sum + rate / 3.0);
        println!(
            "udp, {:3.1} % lost: stream {:7.1} MB/s, kernel TCP (reno) {:7.1} MB/s, ratio {:.2}",
            f64::from(loss) / 10.0,
            ours / 1e6,
            tcp / 1e6,
            ours / tcp
        );
    }
}

/// Has the host's interface drop packets that arrive, `per_mille` of them.
fn drop_packets(host: &hosts::Host, per_mille: u32) -> std::io::Result<Link> {
    const GET_PRANDOM_U32: i32 = 7;
    const XDP_DROP: i32 = 1;
    const XDP_PASS: i32 = 2;
    let mut code = Assembler::default();
    let pass = code.label();
    code.call(GET_PRANDOM_U32);
    // 32 random bits against a share of 2^32; at most a half, since what is compared with is a signed number.
    code.jump_if_value(Register::R0, Test::More, (u64::from(per_mille) * (1 << 32) / 1000) as i32, pass);
    code.set(Register::R0, XDP_DROP);
    code.exit();
    code.place(pass);
    code.set(Register::R0, XDP_PASS);
    code.exit();
    let program = Program::load("drop", &code.finish())?;
    let index = host.enter(|| interface_index(&host.interface))?;
    host.enter(|| program.attach(index, Attachment::Native))
}

fn interface_index(name: &str) -> std::io::Result<u32> {
    let name = std::ffi::CString::new(name).map_err(std::io::Error::other)?;
    // SAFETY: a string that ends with 0.
    match unsafe { if_nametoindex(name.as_ptr()) } {
        0 => Err(std::io::Error::last_os_error()),
        index => Ok(index),
    }
}

extern "C" {
    fn if_nametoindex(name: *const std::ffi::c_char) -> u32;
}

/// Megabytes each second of a stream at virtual time over 1 Gbit/s, and frames sent for each needed.
fn simulate(selective: u32, loss: u32, jitter: u64, seed: u64) -> (f64, f64) {
    let faults = Faults { loss, delay: 50 * MICROSECOND, jitter: jitter * MICROSECOND, byte_time: 8, queue: 200, ..Faults::NONE };
    let config = Config { selective, checked: 1, ..Config::lossy(2, 1472) };
    let mut world = World::new(2, config, faults, seed);
    world.connect(0, 1);
    const TOTAL: usize = 20_000_000;
    let (mut sent, bytes) = (0, vec![7u8; 65_536]);
    let (start, frames) = (world.now, world.frames);
    while world.ask(1, |engine: &mut Engine<'_>| engine.positions(0, 1).1) < TOTAL as u64 {
        let received = world.ask(1, |engine| engine.positions(0, 1).1);
        world.ask(1, |engine| engine.is_up(0).then(|| engine.grant(0, 1, received + (1 << 20), 1 << 18)));
        world.at(0, |engine, now, wires, _| {
            while sent < TOTAL {
                match engine.send(now, 1, 1, &bytes[..(TOTAL - sent).min(bytes.len())], wires) {
                    Ok(part) if part > 0 => sent += part,
                    _ => break,
                }
            }
        });
        for _ in 0..20 {
            let until = world.now + MILLISECOND / 10;
            if !world.step(until) {
                break;
            }
        }
        assert!(world.now - start < 3000 * SECOND);
    }
    let seconds = (world.now - start) as f64 / 1e9;
    (TOTAL as f64 / 1e6 / seconds, (world.frames - frames) as f64 / (TOTAL as f64 / 1424.0))
}

fn loss() {
    println!("a stream over 1 Gbit/s, 100 us round trip, at virtual time: MB/s (frames sent per frame needed), means of five");
    println!("  loss   jitter      selective        go-back-N");
    for (loss, jitter) in [(0, 0), (10, 0), (100, 0), (500, 0), (1000, 0), (2000, 0), (0, 50), (100, 50)] {
        let mean = |selective| {
            let all: Vec<_> = (1..=5).map(|seed| simulate(selective, loss, jitter, seed)).collect();
            (all.iter().map(|one| one.0).sum::<f64>() / 5.0, all.iter().map(|one| one.1).sum::<f64>() / 5.0)
        };
        let (selective, back) = (mean(1), mean(0));
        println!(
            "{:5.1} %  {jitter:3} us   {:7.2} ({:.2})   {:7.2} ({:.2})",
            f64::from(loss) / 100.0,
            selective.0,
            selective.1,
            back.0,
            back.1
        );
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let run = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    if run("shm") || run("trips") {
        round_trips();
    }
    if run("shm") || run("rates") {
        rates();
    }
    if run("shm") || run("alone") {
        instructions();
    }
    if run("shm") || run("stores") {
        stores();
    }
    if run("udp") {
        udp();
    }
    if run("loss") {
        loss();
    }
}
