//! How far pipes are from what the two processors can do: `cargo run --release -p shunt-ring --example floor`.
//!
//! Two pinned threads, at real-time priority where that is permitted. Each figure is the median of five runs, taken in
//! turn with its floor: one cache line bounced to and fro for round trips, a bare byte ring (two indices, each on a line of
//! its own, each side with a copy of the other's) for streams. Compare within one run only: a virtual machine may move
//! its processors between places that share a cache and places that do not.

use shunt_ring::{bell, lock, Pipe, Window};
use shunt_segment::area::{ring_offset, window_offset, CHANNEL_PAGES, LINK_SIZE};
use shunt_segment::channel::{arm, ChannelPage};
use shunt_segment::sync::Ordering::{Acquire, Relaxed, Release};
use shunt_sys::{libc, mapping};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

const RUNS: usize = 5;
const ROUNDS: u64 = 200_000;

/// Memory of one connection: channel 0 of a link.
struct Connection(*mut u8, [Window; 2]);

// SAFETY: shared by design; each pipe end below is used by one thread.
unsafe impl Sync for Connection {}

impl Connection {
    fn new(class_limit: u32) -> Connection {
        let link = mapping::reserve(LINK_SIZE).expect("address space for a link");
        let connection = Connection(link, [Window::new(), Window::new()]);
        for (side, window) in connection.1.iter().enumerate() {
            // SAFETY: the window lies in the link.
            window.set(unsafe { link.add(window_offset(0, side)) });
        }
        for side in &connection.page().sides {
            side.transmit.class_limit.store(class_limit, Relaxed);
        }
        connection
    }

    fn page(&self) -> &ChannelPage {
        // SAFETY: zeroed, page-aligned memory that lives as long as the process.
        unsafe { &*self.0.add(CHANNEL_PAGES).cast() }
    }

    fn outgoing(&self, end: usize) -> Pipe<'_> {
        let sides = &self.page().sides;
        Pipe { own: &sides[end], peer: &sides[1 - end], link: self.0, channel: 0, sender: end, window: &self.1[end] }
    }

    fn incoming(&self, end: usize) -> Pipe<'_> {
        Pipe { sender: 1 - end, window: &self.1[1 - end], ..self.outgoing(end) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = shunt_sys::calls::munmap(self.0, LINK_SIZE);
    }
}

/// Pins the calling thread and asks for real-time priority; false if that was refused.
fn settle_on(processor: usize) -> bool {
    // SAFETY: plain structures on the stack; the calls act on the calling thread.
    unsafe {
        let mut set = [0u64; 16];
        set[processor / 64] |= 1 << (processor % 64);
        let affinity = shunt_sys::syscall!(libc::SYS_sched_setaffinity, 0, size_of_val(&set), set.as_ptr());
        assert!(affinity >= 0, "cannot pin to processor {processor}");
        let priority = 10i32;
        shunt_sys::syscall!(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &priority as *const i32) >= 0
    }
}

/// Runs both closures, each on its processor; gives nanoseconds of the first one.
fn race(first: impl FnOnce() + Send, second: impl FnOnce() + Send) -> f64 {
    let ready = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            settle_on(1);
            ready.store(true, Release);
            second();
        });
        let timed = scope.spawn(|| {
            settle_on(0);
            while !ready.load(Acquire) {
                std::hint::spin_loop();
            }
            let start = Instant::now();
            first();
            start.elapsed().as_nanos() as f64
        });
        timed.join().unwrap()
    })
}

/// Nanoseconds of one bounce of two lines, each written by one side: nothing that two processors agree on is faster.
fn line() -> f64 {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
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
}

fn send_all<const N: usize>(pipe: &Pipe, message: &[u8; N]) {
    let mut sent = 0;
    while sent < N {
        // SAFETY: inside `message`; one sender.
        sent += unsafe { pipe.send(message.as_ptr().add(sent), N - sent) };
    }
}

fn receive_all<const N: usize>(pipe: &Pipe, message: &mut [u8; N]) {
    let mut got = 0;
    while got < N {
        // SAFETY: inside `message`; one receiver.
        got += unsafe { pipe.receive(message.as_mut_ptr().add(got), N - got) }.expect("an honest peer");
    }
}

/// Round trip of `N` bytes through pipes alone.
fn round_trip<const N: usize>() -> f64 {
    let connection = Connection::new(3);
    let play = |end: usize| {
        let (out, incoming) = (connection.outgoing(end), connection.incoming(end));
        let mut message = [7u8; N];
        for _ in 0..ROUNDS {
            if end == 0 {
                send_all(&out, &message);
                receive_all(&incoming, &mut message);
            } else {
                receive_all(&incoming, &mut message);
                send_all(&out, &message);
            }
        }
    };
    race(|| play(0), || play(1)) / ROUNDS as f64
}

/// Round trip of 8 bytes as the engine does it: each call under its lock, with a look at the doorbell after it.
fn round_trip_with_bell() -> f64 {
    let connection = Connection::new(3);
    let play = |end: usize| {
        let (out, incoming) = (connection.outgoing(end), connection.incoming(end));
        let me = 100 + end as u32;
        let mut message = [7u8; 8];
        let send = |message: &[u8; 8]| {
            let held = lock::acquire(&out.own.transmit.lock, me, true, |_| ());
            send_all(&out, message);
            drop(held);
            assert!(!bell::must_ring(&out.peer.wait, arm::IN));
        };
        let receive = |message: &mut [u8; 8]| {
            while incoming.look().1 == 0 {}
            let held = lock::acquire(&incoming.own.receive.lock, me, true, |_| ());
            receive_all(&incoming, message);
            drop(held);
            assert!(!bell::must_ring(&incoming.peer.wait, arm::OUT));
        };
        for _ in 0..ROUNDS {
            if end == 0 {
                send(&message);
                receive(&mut message);
            } else {
                receive(&mut message);
                send(&message);
            }
        }
    };
    race(|| play(0), || play(1)) / ROUNDS as f64
}

/// Messages of `N` bytes one way: nanoseconds each. The receiver asks for `M` bytes at a time.
fn stream<const N: usize, const M: usize>(class_limit: u32, messages: u64) -> f64 {
    let connection = Connection::new(class_limit);
    race(
        || {
            let message = vec![7u8; N];
            let message: &[u8; N] = message.as_slice().try_into().unwrap();
            let out = connection.outgoing(0);
            for _ in 0..messages {
                send_all(&out, message);
            }
            while out.unacknowledged() > 0 {}
        },
        || {
            let mut message = vec![0u8; M];
            let incoming = connection.incoming(1);
            let mut left = messages as usize * N;
            while left > 0 {
                // SAFETY: room for M bytes; one receiver.
                match unsafe { incoming.receive(message.as_mut_ptr(), M) }.expect("an honest peer") {
                    // Without a pause the next look takes the line from the sender before it has written more.
                    0 => std::hint::spin_loop(),
                    got => left -= got,
                }
            }
        },
    ) / messages as f64
}

/// Messages of `N` bytes through a bare ring of `SIZE` bytes: nanoseconds each.
fn bare<const N: usize, const SIZE: usize>(messages: u64) -> f64 {
    #[repr(align(128))]
    struct Index(AtomicU64);
    struct Memory(*mut u8);
    // SAFETY: the indices order the accesses.
    unsafe impl Sync for Memory {}
    let (put, taken) = (Index(AtomicU64::new(0)), Index(AtomicU64::new(0)));
    let ring = Memory(mapping::reserve(SIZE).expect("memory for a ring"));
    let ring = &ring;
    let total = messages * N as u64;
    let ns = race(
        || {
            let message = vec![7u8; N];
            let (mut put_to, mut known) = (0u64, 0u64);
            while put_to < total {
                let from = put_to as usize % N;
                let part = (N - from).min(32 << 10);
                while SIZE as u64 - (put_to - known) < part as u64 {
                    known = taken.0.load(Acquire);
                }
                // SAFETY: messages and parts divide the ring, so none wraps; `part` bytes are free.
                unsafe { ring.0.add(put_to as usize % SIZE).copy_from_nonoverlapping(message.as_ptr().add(from), part) };
                put_to += part as u64;
                put.0.store(put_to, Release);
            }
            while taken.0.load(Acquire) < total {}
        },
        || {
            let mut message = vec![0u8; N];
            let (mut taken_to, mut known) = (0u64, 0u64);
            while taken_to < total {
                let to = taken_to as usize % N;
                let part = (N - to).min(32 << 10);
                while known - taken_to < part as u64 {
                    std::hint::spin_loop();
                    known = put.0.load(Acquire);
                }
                // SAFETY: as above; `part` bytes wait.
                unsafe { ring.0.add(taken_to as usize % SIZE).copy_to_nonoverlapping(message.as_mut_ptr().add(to), part) };
                std::hint::black_box(&mut message);
                taken_to += part as u64;
                taken.0.store(taken_to, Release);
            }
        },
    );
    let _ = shunt_sys::calls::munmap(ring.0, SIZE);
    ns / messages as f64
}

/// Nanoseconds to copy 64 KiB from one warm buffer to another: half of a stream's work, done by one processor.
fn copy() -> f64 {
    let (from, mut to) = (vec![7u8; 64 << 10], vec![0u8; 64 << 10]);
    const COPIES: u64 = 20_000;
    race(
        || {
            for _ in 0..COPIES {
                std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
            }
        },
        || (),
    ) / COPIES as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    assert_eq!(ring_offset(0, 0, 0), CHANNEL_PAGES + 2048);
    let permitted = std::thread::spawn(|| settle_on(0)).join().unwrap();
    println!("real-time priority: {}", if permitted { "yes" } else { "no: other programs disturb the figures" });
    type Measure = (&'static str, fn() -> f64);
    const TRIPS: [Measure; 5] = [
        ("cache line there and back", line),
        ("8 B round trip", round_trip::<8>),
        ("8 B round trip with locks and bells", round_trip_with_bell),
        ("48 B round trip", round_trip::<48>),
        ("49 B round trip (ring)", round_trip::<49>),
    ];
    const SMALL: [Measure; 3] = [
        ("8 B through a bare ring of 256 KiB", || bare::<8, { 256 << 10 }>(2_000_000)),
        ("8 B streamed, read by 8", || stream::<8, 8>(3, 2_000_000)),
        ("8 B streamed, read by 16 KiB", || stream::<8, 16384>(3, 2_000_000)),
    ];
    const LARGE: [Measure; 5] = [
        ("64 KiB through a bare ring of 1 MiB", || bare::<65536, { 1 << 20 }>(5_000)),
        ("64 KiB streamed, rings to 1 MiB", || stream::<65536, 65536>(4, 5_000)),
        ("64 KiB through a bare ring of 256 KiB", || bare::<65536, { 256 << 10 }>(5_000)),
        ("64 KiB streamed, rings to 256 KiB", || stream::<65536, 65536>(3, 5_000)),
        ("memcpy of 64 KiB, one processor", copy),
    ];
    for (group, unit) in [(&TRIPS[..], "round trip"), (&SMALL[..], "message"), (&LARGE[..], "message")] {
        let mut figures = vec![Vec::new(); group.len()];
        for _ in 0..RUNS {
            for (figure, (_, measure)) in figures.iter_mut().zip(group) {
                figure.push(measure());
            }
        }
        let figures: Vec<f64> = figures.into_iter().map(median).collect();
        for ((name, _), ns) in group.iter().zip(&figures) {
            println!("{name:38} {ns:9.1} ns a {unit}  {:8.2} M/s  {:6.2} x {}", 1e3 / ns, ns / figures[0], group[0].0);
        }
    }
}
