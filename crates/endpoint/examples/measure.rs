//! What endpoints cost: `cargo run --release -p shunt-endpoint --example measure [gate] [shm] [udp]`.
//!
//! Two pinned threads, at real-time priority where that is permitted; medians of five runs, each with its floor. For `udp`
//! two network namespaces joined by veth (needs root), and kernel TCP over the same pair, spinning as we do. Compare within
//! one run only.

use shunt_endpoint::conformance::{connect, provide};
use shunt_endpoint::device::shm::{Options as ShmOptions, Shm};
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::shared::Shape;
use shunt_endpoint::upcall::Gate;
use shunt_endpoint::{Arrival, Body, Channel, Endpoint, Message, SendError, INLINE};
use shunt_sys::libc;
use shunt_testkit::hosts;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Instant;

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

/// Runs both, each on its processor; seconds of the first.
fn race(first: impl FnOnce() + Send, second: impl FnOnce() + Send) -> f64 {
    let ready = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            settle_on(1);
            ready.store(1, Release);
            second();
        });
        let timed = scope.spawn(|| {
            settle_on(0);
            while ready.load(Acquire) == 0 {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            first();
            start.elapsed().as_secs_f64()
        });
        timed.join().unwrap()
    })
}

fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    all.sort_by(f64::total_cmp);
    all[RUNS / 2]
}

fn floor() -> f64 {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    const ROUNDS: u64 = 200_000;
    race(
        || {
            for round in 1..=ROUNDS {
                ping.0.store(round, Release);
                while pong.0.load(Acquire) != round {}
            }
        },
        || {
            for round in 1..=ROUNDS {
                while ping.0.load(Acquire) != round {}
                pong.0.store(round, Release);
            }
        },
    ) / ROUNDS as f64
        * 1e9
}

struct Pair<E> {
    a: E,
    b: E,
    to_b: Channel,
    to_a: Channel,
}

fn pair<E: Endpoint>(mut a: E, mut b: E) -> Pair<E> {
    provide(&mut a, 256);
    provide(&mut b, 256);
    let (to_b, to_a) = connect(&mut a, &mut b);
    // Until both have each other's lanes.
    let mut arrival = Arrival::empty();
    for _ in 0..100 {
        let _ = a.flush();
        let _ = b.flush();
        assert!(!a.receive(&mut arrival) && !b.receive(&mut arrival));
    }
    Pair { a, b, to_b, to_a }
}

#[inline(always)]
fn put<E: Endpoint>(endpoint: &mut E, message: &Message<'_>, flush: bool) {
    while let Err(error) = endpoint.send(message) {
        assert_eq!(error, SendError::NoResource);
        let _ = endpoint.flush();
    }
    if flush {
        let _ = endpoint.flush();
    }
}

#[inline(always)]
fn get<E: Endpoint>(endpoint: &mut E, arrival: &mut Arrival) {
    while !endpoint.receive(arrival) {}
}

/// Nanoseconds of a round trip of `length` bytes.
fn round_trip<E: Endpoint + Send>(pair: &mut Pair<E>, length: usize, rounds: u64) -> f64 {
    let bytes = vec![7u8; length];
    let head = &bytes[..length.min(INLINE)];
    let body = if length > INLINE { Body::Bytes(bytes[INLINE..].into()) } else { Body::None };
    let flush = pair.a.capabilities().needs_flush;
    let echo = |endpoint: &mut E, channel: Channel, first: bool| {
        let message = Message { channel, head, body };
        let mut arrival = Arrival::empty();
        for _ in 0..rounds {
            if first {
                put(endpoint, &message, flush);
            }
            get(endpoint, &mut arrival);
            endpoint.release(&mut arrival);
            if !first {
                put(endpoint, &message, flush);
            }
        }
    };
    let Pair { a, b, to_b, to_a } = pair;
    // SAFETY of the borrow: raw bytes are shared read-only.
    race(Sendable(|| echo(a, *to_b, true)).run(), Sendable(|| echo(b, *to_a, false)).run()) / rounds as f64 * 1e9
}

/// The messages refer to bytes by address, which makes them unable to move to a thread by themselves.
struct Sendable<F>(F);
// SAFETY: the bytes outlive the threads and are only read.
unsafe impl<F> Send for Sendable<F> {}
impl<F: FnOnce()> Sendable<F> {
    fn run(self) -> impl FnOnce() + Send {
        move || {
            let whole = self;
            (whole.0)()
        }
    }
}

/// Messages each second, one way, until the receiver has `count`; on a lossy device until it has as many as come.
fn stream<E: Endpoint + Send>(pair: &mut Pair<E>, length: usize, count: u64, copy_out: bool) -> f64 {
    let bytes = vec![7u8; length];
    let head = &bytes[..length.min(INLINE)];
    let body = if length > INLINE { Body::Bytes(bytes[INLINE..].into()) } else { Body::None };
    let Pair { a, b, to_b, to_a } = pair;
    let message = Message { channel: *to_b, head, body };
    let lossy = a.capabilities().lossy;
    let window = if lossy { 256u64 } else { u64::MAX };
    let receive = || {
        let mut arrival = Arrival::empty();
        let mut target = vec![0u8; length];
        let segment = b.segment();
        for number in 1..=count {
            get(b, &mut arrival);
            if copy_out && !arrival.areas().is_empty() {
                arrival.copy_to(&segment, 0, &mut target);
            }
            b.release(&mut arrival);
            // A credit for each half window: what any protocol above does.
            if lossy && number % (window / 2) == 0 || number == count {
                put(b, &Message::small(*to_a, &number.to_le_bytes()), true);
            }
        }
    };
    let send = || {
        let mut arrival = Arrival::empty();
        let mut acknowledged = 0;
        for number in 0..count {
            while number - acknowledged >= window {
                let _ = a.flush();
                get(a, &mut arrival);
                acknowledged = u64::from_le_bytes(arrival.head()[..8].try_into().unwrap());
                a.release(&mut arrival);
            }
            put(a, &message, false);
        }
        let _ = a.flush();
        while acknowledged != count {
            get(a, &mut arrival);
            acknowledged = u64::from_le_bytes(arrival.head()[..8].try_into().unwrap());
            a.release(&mut arrival);
        }
    };
    count as f64 / race(Sendable(send).run(), Sendable(receive).run())
}

/// Bytes each second through a bare ring of 256 KiB: a copy in, a copy out, two positions.
fn bare_ring(chunk: usize, total: usize) -> f64 {
    const SIZE: usize = 256 << 10;
    #[repr(align(128))]
    struct Line(AtomicU64);
    let (tail, head) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let ring = shunt_sys::mapping::reserve_for_children(SIZE).unwrap() as usize;
    let source = vec![7u8; chunk];
    let mut target = vec![0u8; chunk];
    let rounds = total / chunk;
    let seconds = race(
        || {
            for round in 0..rounds {
                let position = round * chunk;
                while position + chunk - head.0.load(Acquire) as usize > SIZE {}
                // SAFETY: chunks divide the ring.
                unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), (ring as *mut u8).add(position % SIZE), chunk) };
                tail.0.store((position + chunk) as u64, Release);
            }
        },
        || {
            for round in 0..rounds {
                let position = round * chunk;
                while (tail.0.load(Acquire) as usize) < position + chunk {}
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping((ring as *const u8).add(position % SIZE), target.as_mut_ptr(), chunk) };
                head.0.store((position + chunk) as u64, Release);
            }
        },
    );
    let _ = shunt_sys::calls::munmap(ring as *mut u8, SIZE);
    (rounds * chunk) as f64 / seconds
}

fn quick() {
    let new = || Shm::new(ShmOptions::default()).unwrap();
    let line = floor();
    println!("line {line:.0}");
    for length in [8, 56, 64, 112] {
        println!("rtt {length} {:.0}", round_trip(&mut pair(new(), new()), length, 50_000));
    }
    for length in [8, 112] {
        println!("rate {length} {:.1}", stream(&mut pair(new(), new()), length, 500_000, false) / 1e6);
    }
    for length in [4096, 16384, 32768 + INLINE] {
        println!("bw {length} {:.1}", stream(&mut pair(new(), new()), length, 20_000, true) * length as f64 / 1e9);
    }
    println!("bare {:.1} line {:.0}", bare_ring(32 << 10, 1 << 30) / 1e9, floor());
}

fn shm() {
    let new = || Shm::new(ShmOptions::default()).unwrap();
    let line = median(floor);
    println!("cache line to and fro                      {line:8.0} ns");
    for length in [8, 48, 56, 64, 112, 1024] {
        let time = median(|| round_trip(&mut pair(new(), new()), length, 200_000));
        println!("shm round trip, {length:4} bytes                  {time:8.0} ns   {:.2} x the line", time / line);
    }
    for length in [8, 56, 112] {
        let rate = median(|| stream(&mut pair(new(), new()), length, 3_000_000, false));
        println!("shm messages, {length:4} bytes                    {:8.1} M/s", rate / 1e6);
    }
    let bare = median(|| bare_ring(32 << 10, 4 << 30));
    println!("bare ring, 32 KiB chunks, copy in and out  {:8.2} GB/s", bare / 1e9);
    for length in [4096, 16384, 32768 + INLINE] {
        let rate = median(|| stream(&mut pair(new(), new()), length, 100_000, true)) * length as f64;
        println!("shm messages, {length:5} bytes, copied out       {:8.2} GB/s   {:.2} x the bare ring", rate / 1e9, rate / bare);
    }
}

/// Kernel TCP, both sides spinning on recv: nanoseconds of a round trip, or bytes each second.
fn tcp(hosts: &[hosts::Host; 2], length: usize, rounds: usize, stream: bool) -> f64 {
    let IpAddr::V4(address) = hosts[1].addresses[0] else { unreachable!() };
    let listener = hosts[1].enter(|| TcpListener::bind((address, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = hosts[0].enter(|| TcpStream::connect((address, port))).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for socket in [&client, &server] {
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(!stream).unwrap();
    }
    let exactly = |socket: &mut TcpStream, bytes: &mut [u8]| {
        let mut done = 0;
        while done < bytes.len() {
            match socket.read(&mut bytes[done..]) {
                Ok(0) => panic!("closed"),
                Ok(count) => done += count,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
    };
    let seconds = race(
        || {
            let mut bytes = vec![1; length];
            for _ in 0..rounds {
                client.write_all(&bytes).unwrap();
                if !stream {
                    exactly(&mut client, &mut bytes);
                }
            }
            if stream {
                exactly(&mut client, &mut [0]);
            }
        },
        || {
            let mut bytes = vec![1; length];
            for _ in 0..rounds {
                exactly(&mut server, &mut bytes);
                if !stream {
                    server.write_all(&bytes).unwrap();
                }
            }
            if stream {
                server.write_all(&[1]).unwrap();
            }
        },
    );
    if stream {
        (rounds * length) as f64 / seconds
    } else {
        seconds / rounds as f64 * 1e9
    }
}

/// Kernel UDP, both sides spinning on recv: nanoseconds of a round trip. What the device is made of.
fn bare_udp(hosts: &[hosts::Host; 2], length: usize, rounds: usize) -> f64 {
    let sockets = [0, 1].map(|host: usize| {
        let IpAddr::V4(address) = hosts[host].addresses[0] else { unreachable!() };
        let socket = hosts[host].enter(|| std::net::UdpSocket::bind((address, 0))).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let names = [0, 1].map(|end: usize| sockets[end].local_addr().unwrap());
    let turn = |end: usize| {
        let (mut bytes, socket) = (vec![1; length], &sockets[end]);
        for _ in 0..rounds {
            if end == 0 {
                socket.send_to(&bytes, names[1]).unwrap();
            }
            while socket.recv_from(&mut bytes).is_err() {}
            if end == 1 {
                socket.send_to(&bytes, names[0]).unwrap();
            }
        }
    };
    race(|| turn(0), || turn(1)) / rounds as f64 * 1e9
}

fn udp() {
    let hosts = match hosts::pair(hosts::Joint::default()) {
        Ok(hosts) => hosts,
        Err(sentence) => return println!("udp: {sentence}"),
    };
    let new = |host: usize, options: Options| {
        let IpAddr::V4(address) = hosts[host].addresses[0] else { unreachable!() };
        hosts[host].enter(|| Udp::bind(&ipv4(address.octets(), 0), options)).unwrap()
    };
    let plain = Options::default();
    let shape = Shape { segment: 64 << 20, ..Shape::SMALL };
    let coalesce = Options { coalesce: true, socket_buffer: 16 << 20, shape, ..plain };
    let kernel = median(|| tcp(&hosts, 8, 10_000, false));
    println!("kernel TCP round trip, 8 bytes, spinning   {kernel:8.0} ns");
    let bare = median(|| bare_udp(&hosts, 24, 10_000));
    println!("kernel UDP round trip, 24 bytes, spinning  {bare:8.0} ns");
    for length in [8, 1024] {
        let time = median(|| round_trip(&mut pair(new(0, plain), new(1, plain)), length, 10_000));
        println!(
            "udp round trip, {length:4} bytes                  {time:8.0} ns   {:.2} x kernel TCP, {:.2} x kernel UDP",
            time / kernel,
            time / bare
        );
    }
    let kernel = median(|| tcp(&hosts, 64 << 10, 8_000, true));
    println!("kernel TCP stream                          {:8.2} GB/s", kernel / 1e9);
    for (name, options) in [("no coalescing", plain), ("coalesced", coalesce)] {
        for length in [8, 1400] {
            let rate = median(|| stream(&mut pair(new(0, options), new(1, options)), length, 200_000, true));
            let bytes = rate * length as f64;
            let (millions, gigabytes, ratio) = (rate / 1e6, bytes / 1e9, bytes / kernel);
            println!(
                "udp messages, {length:4} bytes, {name:13}     {millions:8.2} M/s  {gigabytes:.2} GB/s  {ratio:.2} x kernel TCP"
            );
        }
    }
}

/// A critical section of nothing, and what the same loop takes without it.
fn gate() {
    const ROUNDS: u64 = 50_000_000;
    let gate = std::hint::black_box(Box::new(Gate::new()));
    let each = |body: &(dyn Fn() + Sync)| median(|| race(body, || ())) / ROUNDS as f64 * 1e9;
    let section = || {
        for round in 0..ROUNDS {
            gate.disable();
            std::hint::black_box(round);
            std::hint::black_box(gate.enable());
        }
    };
    let nothing = || (0..ROUNDS).for_each(|round| _ = std::hint::black_box(round));
    println!("upcalls disabled and enabled               {:8.2} ns   an empty loop {:.2}", each(&section), each(&nothing));
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|word| word == name);
    if asked.iter().any(|word| word == "quick") {
        quick();
    }
    if wanted("gate") {
        gate();
    }
    if wanted("shm") {
        shm();
    }
    if wanted("udp") {
        udp();
    }
}
