//! What active messages cost inside: `cargo run --release -p shunt-am --example measure_messages [alone] [loss]`.
//!
//! `alone`: instructions only, both ends in one thread, so that no cache line moves. `loss`: selective retransmission and
//! go-back-N at virtual time. What they do beside other carriers is measured by `shunt bench hosts`.

#[path = "../tests/network/mod.rs"]
mod network;

use network::{Faults, World, MICROSECOND, MILLISECOND, SECOND};
use shunt_am::port::{config_for, memory, Port};
use shunt_am::{Config, Dispatch, Engine, Message as Active, Replier};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::{Address, Arrival, Endpoint, Message, SendError, Tag, Tags};
use std::time::Instant;

fn wired() -> [(Shm, Tags, Address); 2] {
    let make = || Shm::new(Default::default()).expect("shm");
    let (mut a, mut b) = (make(), make());
    let (for_a, for_b): (Tag, Tag) = (a.new_tag().expect("tag"), b.new_tag().expect("tag"));
    let (at_a, at_b) = (a.address(), b.address());
    [(a, Tags { receive: for_a, send: for_b }, at_b), (b, Tags { receive: for_b, send: for_a }, at_a)]
}

/// Nanoseconds of a round trip where one thread is both sides: what the instructions cost, without any transfer of a line between
/// caches. The bare endpoint, and active messages.
fn alone(rounds: u64, config: impl Fn(Config) -> Config) -> [f64; 2] {
    let [a, b] = wired();
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
    let [a, b] = wired();
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

/// Counts, and answers.
#[derive(Default)]
struct Counter {
    requests: u64,
    replies: u64,
}

impl Dispatch for Counter {
    #[inline]
    fn request(&mut self, message: Active<'_>, replier: Replier<'_>) {
        self.requests += 1;
        let _ = replier.reply(1, message.words, message.data);
    }
    #[inline]
    fn reply(&mut self, _message: Active<'_>) {
        self.replies += 1;
    }
}

fn instructions() {
    let [bare, active] = alone(1_000_000, |config| config);
    println!("shm, both ends in one thread, round trip          {bare:8.1} ns   active messages {active:8.1} ns");
    // As over a device that loses frames, and checks them.
    let [_, numbered] = alone(1_000_000, |config| Config { checked: 1, ..Config::lossy(1, config.frame) });
    println!("the same, packets numbered and acknowledged                      active messages {numbered:8.1} ns");
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
    if run("alone") {
        instructions();
    }
    if run("loss") {
        loss();
    }
}
