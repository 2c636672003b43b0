//! Every sender with every receiver, however its bytes come in, over endpoints that a test makes.
#![allow(dead_code)]

use shunt_buffers::costs::Costs;
use shunt_buffers::port::network::{memory, NetworkPort as Port};
use shunt_buffers::port::Ticket;
use shunt_buffers::{Allocation, Integrity, Semantics};
use shunt_endpoint::Endpoint;
use shunt_region::{Audience, Pages, Pool, Region, Shape};

const UNIT: usize = 64 << 10;

fn pool() -> Pool {
    Pool::create(Shape { unit: UNIT, units: 64 }, Pages::Small, Audience::Anyone).unwrap()
}

/// How a message's bytes come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Its input is posted before it is sent.
    Posted,
    /// Nothing is posted.
    Unposted,
    /// It waits at its sender.
    Outboard,
}

pub const WAYS: [Way; 3] = [Way::Posted, Way::Unposted, Way::Outboard];
pub const LENGTHS: [usize; 7] = [0, 1, 1300, 4096, 60_000, UNIT + 1, 300_000];

pub fn byte(at: usize, seed: usize) -> u8 {
    (at.wrapping_mul(2 * seed + 1) >> 3) as u8 ^ seed as u8
}

pub fn fill(bytes: &mut [u8], seed: usize) {
    bytes.iter_mut().enumerate().for_each(|(at, place)| *place = byte(at, seed));
}

pub fn is_filled(bytes: &[u8], seed: usize) -> bool {
    bytes.iter().enumerate().all(|(at, found)| *found == byte(at, seed))
}

pub fn ready<E: Endpoint>(port: &mut Port<'_, E>) {
    port.set_costs(Costs::USUAL);
    port.policy().tcow_from = UNIT;
    // Its overlays are the first of its pool.
    port.progress().unwrap();
}

/// Sends a message, and writes its buffer at once where that is allowed. Gives what is kept until it is under way.
pub fn send<E: Endpoint>(
    port: &mut Port<'_, E>,
    pool: &Pool,
    semantics: Semantics,
    length: usize,
    seed: usize,
) -> (Option<Region>, Ticket) {
    let mut region = pool.allocate(length).unwrap();
    fill(&mut region.bytes_mut()[..length], seed);
    match (semantics.allocation, semantics.integrity) {
        (Allocation::Application, Integrity::Strong) => {
            let ticket = port.send(&region.bytes()[..length], semantics).unwrap();
            region.bytes_mut().fill(0xee);
            (Some(region), ticket)
        }
        (Allocation::Application, Integrity::Weak) => {
            let ticket = port.send_shared(&region, length, semantics).unwrap();
            (Some(region), ticket)
        }
        (Allocation::System, _) => (None, port.send_region(region, length, semantics).unwrap()),
    }
}

pub fn post<E: Endpoint>(port: &mut Port<'_, E>, pool: &Pool, semantics: Semantics, room: usize) {
    match semantics.allocation {
        Allocation::Application => port.post_region(pool.allocate(room).unwrap(), room, semantics).unwrap(),
        Allocation::System => port.post(room, semantics).unwrap(),
    }
}

pub fn receive<E: Endpoint>(port: &mut Port<'_, E>, semantics: Semantics, length: usize, posted: bool) -> Vec<u8> {
    let (region, came) = match (posted, semantics.allocation) {
        (true, _) => port.posted().unwrap(),
        (false, Allocation::System) => port.receive_region(semantics).unwrap(),
        (false, Allocation::Application) => {
            let mut buffer = vec![0x55; length + 3];
            let came = port.receive(&mut buffer, semantics).unwrap();
            assert_eq!(&buffer[came..], [0x55; 3]);
            buffer.truncate(came);
            return buffer;
        }
    };
    assert!(semantics != Semantics::MOVE || region.bytes()[came..].iter().all(|byte| *byte == 0), "zero-completed");
    region.bytes()[..came].to_vec()
}

pub fn cases() -> impl Iterator<Item = (usize, Semantics, Semantics, usize)> {
    let pairs = Semantics::ALL.into_iter().flat_map(|sender| Semantics::ALL.map(|receiver| (sender, receiver)));
    pairs
        .flat_map(|(sender, receiver)| LENGTHS.map(|length| (sender, receiver, length)))
        .enumerate()
        .map(|(seed, (sender, receiver, length))| (seed, sender, receiver, length))
}

pub fn sends_all<E: Endpoint>(port: &mut Port<'_, E>, pool: &Pool, way: Way) {
    for (seed, sender, _, length) in cases() {
        if way == Way::Posted {
            // It says when its input is posted.
            assert_eq!(port.receive(&mut [0], Semantics::COPY), Ok(1));
        }
        let (kept, ticket) = send(port, pool, sender, length, seed);
        while !port.completed(ticket).unwrap() {
            std::thread::yield_now();
        }
        drop(kept);
    }
    assert_eq!(port.receive(&mut [0], Semantics::COPY), Ok(1));
}

pub fn receives_all<E: Endpoint>(port: &mut Port<'_, E>, pool: &Pool, way: Way) {
    if way == Way::Outboard {
        port.set_outboard();
    }
    for (seed, sender, receiver, length) in cases() {
        let posted = way == Way::Posted;
        if posted {
            post(port, pool, receiver, length + 3);
            port.send(b"p", Semantics::COPY).unwrap();
        }
        let bytes = receive(port, receiver, length, posted);
        assert_eq!(bytes.len(), length, "{} to {}, {way:?}", sender.name(), receiver.name());
        assert!(is_filled(&bytes, seed), "{} to {}, {length}, {way:?}", sender.name(), receiver.name());
    }
    port.send(b"k", Semantics::COPY).unwrap();
    // The other side may have gone at once.
    let _ = port.drain();
}

pub fn whole(pool: &Pool) {
    assert_eq!(pool.free(), pool.shape().units);
}

/// Two joined ports with a pool of `units` each, which are whole behind the test.
pub fn between<E: Endpoint>([a, b]: [E; 2], units: usize, test: impl for<'m> FnOnce(Port<'m, E>, Port<'m, E>, &Pool, &Pool)) {
    let pool = || Pool::create(Shape { unit: UNIT, units }, Pages::Small, Audience::Anyone).unwrap();
    let (ours, theirs) = (pool(), pool());
    let (mut for_a, mut for_b) = (memory(&a), memory(&b));
    let (mut here, there) = Port::pair((a, &mut for_a, &ours), (b, &mut for_b, &theirs)).unwrap();
    ready(&mut here);
    test(here, there, &ours, &theirs);
    whole(&ours);
    whole(&theirs);
}

/// Both sides in one process, a thread each, and new endpoints for each way.
pub fn all_pairs<E: Endpoint + Send>(endpoint: impl Fn(u64) -> E) {
    for (number, way) in WAYS.into_iter().enumerate() {
        pairs_over(endpoint(2 * number as u64 + 1), endpoint(2 * number as u64 + 2), way);
    }
}

/// Over these two.
pub fn pairs_over<E: Endpoint + Send>(a: E, b: E, way: Way) {
    let (mut for_a, mut for_b, ours, theirs) = (memory(&a), memory(&b), pool(), pool());
    let (mut here, mut there) = Port::pair((a, &mut for_a, &ours), (b, &mut for_b, &theirs)).unwrap();
    ready(&mut here);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            receives_all(&mut there, &theirs, way);
            drop(there);
        });
        sends_all(&mut here, &ours, way);
        drop(here);
    });
    whole(&ours);
    whole(&theirs);
}
