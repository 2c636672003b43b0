//! One host: active messages over `shm` against the bare endpoint, a bare ring and UCX.
//!
//! Each end is a thread with a processor of its own at real-time priority: what is measured are nanoseconds. Types are the
//! concrete ones, as a program has them: a call by a table of functions would cost both sides of a ratio the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shunt_am::port::{config_for, memory, Port};
use shunt_am::{Config, Dispatch, Message as Active, Replier, Store};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::{Address, Arrival, Body, Endpoint, Message, SendError, Tags, INLINE};

use super::contender::{first_of_all, pin};
use super::record::{Record, Sheet};
use super::tables::median;
use super::{ucx, Plan};
use crate::cells::pair;
use crate::process::Launch;
use crate::programs::Measuring;

pub const ROUND_TRIPS: &str = "one host, shm: round trip";
pub const RATES: &str = "one host, shm: 8-byte messages, one way";
pub const BULK: &str = "one host, shm: bulk";
/// What a request of one word is on its way.
const REQUEST: usize = 32;
pub const BARE: &str = "bare endpoint, 32 B (a request of one word)";
pub const MESSAGES: &str = "active messages, one word";
const COMBINED: &str = "active messages, one word, combined";
pub const UCT: &str = "UCX, uct am_lat over posix, 8 B";
pub const UCP: &str = "UCX, ucp_am_lat, 8 B";
pub const RING: &str = "bare byte ring of 1 MiB, 64 KiB messages";
pub const LARGEST: &str = "bare endpoint, largest messages, copied out";
pub const STORES: &str = "active messages, stores of 1 MiB";

/// Round trips of a turn in which endpoint and active messages alternate, and turns; those before [`WARM`] are not counted: a process's clock
/// settles in its first 50 ms, and `ucx_perftest` has its warm-up, too.
const TRIPS: u64 = 1000;
const TURNS: u64 = 500;
const WARM: u64 = 300;
/// Messages one way; bytes of one.
const MANY: u64 = 1_000_000;
const BYTES: u64 = 512 << 20;
const BLOCK: usize = 1 << 20;

/// An end that has not been opened yet.
type Loose = (Shm, Tags, Address);

fn ends() -> Result<[Loose; 2], String> {
    let make = || Shm::new(Default::default()).map_err(|errno| format!("an endpoint over shm: {errno:?}"));
    let (mut a, mut b) = (make()?, make()?);
    let tag = |end: &mut Shm| end.new_tag().map_err(|errno| format!("a tag: {errno:?}"));
    let (for_a, for_b) = (tag(&mut a)?, tag(&mut b)?);
    let (at_a, at_b) = (a.address(), b.address());
    Ok([(a, Tags { receive: for_a, send: for_b }, at_b), (b, Tags { receive: for_b, send: for_a }, at_a)])
}

/// Both ends at once, each by a thread on its own processor; what the first gives.
fn race<T: Send>(first: impl FnOnce(Loose) -> T + Send, second: impl FnOnce(Loose) + Send) -> Result<T, String> {
    race_with(ends()?, first, second)
}

/// The same with what each end has to itself.
fn race_with<E: Send, T: Send>(
    [a, b]: [E; 2],
    first: impl FnOnce(E) -> T + Send,
    second: impl FnOnce(E) + Send,
) -> Result<T, String> {
    let there = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            pin(1);
            first_of_all();
            there.store(1, Ordering::Release);
            second(b);
        });
        let first = scope.spawn(|| {
            pin(0);
            first_of_all();
            while there.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            first(a)
        });
        let result = first.join().map_err(|_| "an end panicked".to_string());
        second.join().map_err(|_| "an end panicked".to_string())?;
        result
    })
}

fn push(end: &mut Shm, message: &Message<'_>) {
    while let Err(error) = end.send(message) {
        assert_eq!(error, SendError::NoResource);
    }
}

fn pull(end: &mut Shm, arrival: &mut Arrival) {
    while !end.receive(arrival) {}
    end.release(arrival);
}

/// Nanoseconds of each of `count` messages one way through the bare endpoint; long ones are copied out. The last one is answered.
fn bare_flood(length: usize, count: u64) -> Result<f64, String> {
    let bytes = vec![7u8; length];
    let (head, rest) = bytes.split_at(length.min(INLINE));
    let body = || if rest.is_empty() { Body::None } else { Body::Bytes(rest.into()) };
    race(
        |(mut end, tags, at)| {
            let channel = end.open(&at, tags).expect("a channel");
            let start = Instant::now();
            for _ in 0..count {
                push(&mut end, &Message { channel, head, body: body() });
            }
            pull(&mut end, &mut Arrival::empty());
            start.elapsed().as_nanos() as f64 / count as f64
        },
        |(mut end, tags, at)| {
            let channel = end.open(&at, tags).expect("a channel");
            let (mut arrival, mut target, segment) = (Arrival::empty(), vec![0u8; length], end.segment());
            for _ in 0..count {
                while !end.receive(&mut arrival) {}
                if length > INLINE {
                    arrival.copy_to(&segment, 0, &mut target);
                }
                end.release(&mut arrival);
            }
            push(&mut end, &Message::small(channel, b"done"));
        },
    )
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

/// What the asking side does after both are connected.
type Act = fn(&mut Port<'_, Shm>, &mut Counter, u64);

/// How long the other side may take to connect.
const LIMIT: Duration = Duration::from_secs(5);

/// A port over an end, with a channel to the other one as peer 0.
fn with_port<T>((end, tags, at): Loose, act: impl FnOnce(&mut Port<'_, Shm>, &mut Counter) -> T) -> T {
    with_port_as(config_for(&end, 1), (end, tags, at), act)
}

fn with_port_as<T>(config: Config, (end, tags, at): Loose, act: impl FnOnce(&mut Port<'_, Shm>, &mut Counter) -> T) -> T {
    let mut space = memory(&config);
    let mut port = Port::new(end, &mut space, &config).expect("a port");
    port.open(&at, tags).expect("a channel");
    act(&mut port, &mut Counter { segment: vec![0; BLOCK], ..Counter::default() })
}

/// Nanoseconds of each of `count` operations of `act`; the other side handles `requests` of them meanwhile.
fn active(config: fn(Config) -> Config, act: Act, count: u64, requests: u64) -> Result<f64, String> {
    race(
        |end| {
            with_port_as(config(config_for(&end.0, 1)), end, |port, counter| {
                port.connect(0, counter).expect("a connection");
                let start = Instant::now();
                act(port, counter, count);
                let time = start.elapsed().as_nanos() as f64 / count as f64;
                let _ = port.drain(0, counter);
                time
            })
        },
        |end| {
            with_port_as(config(config_for(&end.0, 1)), end, |port, counter| {
                port.accept(0, counter, LIMIT).expect("a connection");
                while counter.requests < requests {
                    port.poll(counter);
                }
                let _ = port.drain(0, counter);
            });
        },
    )
}

/// Nanoseconds of a round trip of the bare endpoint, as a program would make it (send, receive, release), and of a request with its reply:
/// medians of turns of each beside the other, because the distance of two processors of a virtual machine is another one from second to second.
fn round_trips() -> Result<[f64; 2], String> {
    let ([a, b], [c, d]) = (ends()?, ends()?);
    let bytes = [7u8; REQUEST];
    race_with(
        [(a, c), (b, d)],
        |((mut bare, tags, at), for_messages)| {
            let channel = bare.open(&at, tags).expect("a channel");
            with_port(for_messages, |port, counter| {
                let peer = 0;
                port.connect(peer, counter).expect("a connection");
                let (mut times, mut arrival) = ([vec![], vec![]], Arrival::empty());
                for turn in 0..TURNS {
                    let start = Instant::now();
                    for _ in 0..TRIPS {
                        push(&mut bare, &Message::small(channel, &bytes));
                        pull(&mut bare, &mut arrival);
                    }
                    let between = Instant::now();
                    for round in 1..=TRIPS {
                        port.request(peer, 1, &[round], &[], counter).expect("a request");
                        while counter.replies < turn * TRIPS + round {
                            port.poll(counter);
                        }
                    }
                    if turn >= WARM {
                        times[0].push((between - start).as_nanos() as f64 / TRIPS as f64);
                        times[1].push(between.elapsed().as_nanos() as f64 / TRIPS as f64);
                    }
                }
                let _ = port.drain(peer, counter);
                times.map(median)
            })
        },
        |((mut bare, tags, at), for_messages)| {
            let channel = bare.open(&at, tags).expect("a channel");
            with_port(for_messages, |port, counter| {
                port.accept(0, counter, LIMIT).expect("a connection");
                let mut arrival = Arrival::empty();
                for turn in 1..=TURNS {
                    for _ in 0..TRIPS {
                        pull(&mut bare, &mut arrival);
                        push(&mut bare, &Message::small(channel, &bytes));
                    }
                    while counter.requests < turn * TRIPS {
                        port.poll(counter);
                    }
                }
                let _ = port.drain(0, counter);
            });
        },
    )
}

/// One way; the last one is answered.
fn pour(port: &mut Port<'_, Shm>, counter: &mut Counter, count: u64) {
    for round in 1..=count {
        port.request(0, u8::from(round == count), &[round], &[], counter).expect("a request");
    }
    while counter.replies == 0 {
        port.poll(counter);
    }
}

/// Stores of blocks; `count` counts bytes.
fn store(port: &mut Port<'_, Shm>, counter: &mut Counter, count: u64) {
    let (bytes, blocks) = (vec![7u8; BLOCK], count / BLOCK as u64);
    for _ in 0..blocks {
        port.store(0, &Store { offset: 0, handler: 1, words: &[] }, &bytes, counter).expect("a store");
    }
    while counter.replies < blocks {
        port.poll(counter);
    }
}

/// Bytes in a second of a byte ring without anything above it: a copy in and a copy out, by two processes.
fn ring(plan: &Plan<'_>) -> Result<f64, String> {
    let run = || {
        let finished = Launch::plain("chrt".as_ref())
            .args(["-f", "10"])
            .args([Measuring::Floor.path(plan.scratch)])
            .args(["ring", "--core", "0", "--peer-core", "1", "--capacity", "1048576", "--size", "65536"])
            .args(["--milliseconds", &plan.time.as_millis().to_string()])
            .run(plan.scratch, Duration::from_secs(60))?;
        pair::report(&finished)
    };
    let report = run().map_err(|error: std::io::Error| error.to_string())?;
    Ok(report.operations as f64 * 1e9 / report.elapsed_ns.max(1) as f64)
}

/// Measures and adds the tables.
pub fn add(plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    if plan.cores().1 == 0 {
        record.say("the tables of one host want two processors, and are left out\n");
        return Ok(());
    }
    let deep = |config| Config { window: 1024, replies: 512, ..config };
    let combined = |config| Config { combine: 1, window: 1024, replies: 512, ..config };
    let largest = ends()?[0].0.capabilities().largest as usize;
    let mut turns: Vec<[f64; 10]> = Vec::new();
    for _ in 0..plan.repeats {
        let [bare, messages] = round_trips()?;
        turns.push([
            bare,
            messages,
            ucx::round_trip(plan, "am_lat", &["-x", "posix", "-d", "memory"]).unwrap_or(f64::NAN),
            ucx::round_trip(plan, "ucp_am_lat", &[]).unwrap_or(f64::NAN),
            1e3 / bare_flood(REQUEST, MANY)?,
            1e3 / active(deep, pour, MANY, MANY)?,
            1e3 / active(combined, pour, MANY, MANY)?,
            ring(plan)? / 1e9,
            largest as f64 / bare_flood(largest, BYTES / largest as u64)?,
            1.0 / active(|config| config, store, BYTES, BYTES / BLOCK as u64)?,
        ]);
    }
    let [bare, messages, uct, ucp, flood, pour, together, ring, long, stores] =
        std::array::from_fn(|at| median(turns.iter().map(|turn| turn[at]).collect()));
    let mut trips = Sheet::new(ROUND_TRIPS, &["ns", "/ bare"], &[0, 2]);
    for (name, time) in [(BARE, bare), (MESSAGES, messages), (UCT, uct), (UCP, ucp)] {
        trips.put(name, &[time, time / bare]);
    }
    record.add(trips);
    if uct.is_nan() {
        record.say("ucx_perftest is not installed or does not run here (Debian package ucx-utils)\n");
    }
    let mut rates = Sheet::new(RATES, &["M/s", "/ bare"], &[1, 2]);
    for (name, rate) in [(BARE, flood), (MESSAGES, pour), (COMBINED, together)] {
        rates.put(name, &[rate, rate / flood]);
    }
    record.add(rates);
    let mut bulk = Sheet::new(BULK, &["GB/s", "/ ring", "/ bare"], &[2]);
    for (name, rate) in [(RING, ring), (LARGEST, long), (STORES, stores)] {
        bulk.put(name, &[rate, rate / ring, rate / long]);
    }
    record.add(bulk);
    Ok(())
}
