//! Stores into regions that a peer shows, and gets out of them, over real endpoints; names that are stale, another peer's, for another
//! use, or out of bounds; a peer that dies in the middle; a peer that makes names up.

use proptest::prelude::*;
use shunt_am::port::{config_for, join, memory, Name, Port, Table, Trouble};
use shunt_am::{Access, Config, Store};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::wrapper::fault::{Fault, Faults};
use shunt_endpoint::Endpoint;
use shunt_region::{Audience, Limit, Pages, Pool, Shape};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);
const LENGTH: usize = 600_000;

#[derive(Default)]
struct Seen {
    stored: Vec<(u64, u64, u64)>,
    answers: Vec<u64>,
    returned: Vec<u64>,
}

fn table() -> Table<Seen> {
    let mut table = Table::new(Seen::default());
    table
        .on_request(1, |seen, message, replier| {
            let (at, length) = message.bulk.unwrap_or((u64::MAX, 0));
            seen.stored.push((at, length, message.words[0]));
            replier.reply(2, message.words, &[]).unwrap();
        })
        .on_reply(2, |seen, message| seen.answers.push(message.words[0]))
        .on_return(|seen, message| seen.returned.push(message.words[0]));
    table
}

fn pool() -> Pool {
    Pool::create(Shape { unit: 64 << 10, units: 64 }, Pages::Small, Audience::Anyone).unwrap()
}

fn pattern(seed: u32) -> Vec<u8> {
    (0..LENGTH as u32).map(|at| (at.wrapping_mul(seed) >> 5) as u8).collect()
}

enum Order {
    TakeBack,
    Die,
    Stop,
}

/// What the server has at the end: what was stored in its region, and whose message it refused last, and why.
type AtEnd = (Vec<u8>, Option<(u32, Limit)>);

/// A server that shows a region to store into and one to get from, and does as it is told.
fn serve<E: Endpoint>(
    mut port: Port<'_, E>,
    mut table: Table<Seen>,
    orders: &Receiver<Order>,
    tell: &Sender<[[u64; 2]; 2]>,
) -> AtEnd {
    let pool = pool();
    let mut full = pool.allocate(LENGTH).unwrap();
    full.bytes_mut()[..LENGTH].copy_from_slice(&pattern(11));
    let target = table.regions.show(0, Access::Store, pool.allocate(LENGTH).unwrap(), LENGTH).unwrap();
    let source = table.regions.show(0, Access::Get, full, LENGTH).unwrap();
    tell.send([target.to_words(), source.to_words()]).unwrap();
    let mut stored = vec![];
    loop {
        port.wait(&mut table, Duration::from_millis(1));
        match orders.try_recv() {
            Ok(Order::TakeBack) => {
                stored = table.regions.take_back(target).unwrap().bytes()[..LENGTH].to_vec();
                assert_eq!(table.regions.take_back(target).unwrap_err(), Limit::Stale);
                drop(table.regions.take_back(source).unwrap());
                assert_eq!(pool.free(), pool.shape().units);
                tell.send([[0; 2]; 2]).unwrap();
            }
            Ok(Order::Die) => {
                // As if killed: nothing more is said.
                std::mem::forget(port);
                return (stored, None);
            }
            Ok(Order::Stop) => {
                let _ = port.drain(0, &mut table);
                return (stored, table.regions.last_refusal());
            }
            Err(_) => {}
        }
    }
}

fn with_server<E: Endpoint + Send>(
    a: E,
    b: E,
    lost_after: u32,
    client: impl FnOnce(&mut Port<'_, E>, &mut Table<Seen>, [Name; 2], &Sender<Order>, &Receiver<[[u64; 2]; 2]>),
) -> AtEnd {
    let config = Config { lost_after, ..config_for(&a, 1) };
    let (mut for_a, mut for_b) = (memory(&config), memory(&config));
    let mut port = Port::new(a, &mut for_a, &config).unwrap();
    let mut other = Port::new(b, &mut for_b, &config).unwrap();
    let (mut mine, mut theirs) = (table(), table());
    join((&mut port, &mut mine), (&mut other, &mut theirs)).unwrap();
    let ((order, orders), (tell, told)) = (channel(), channel());
    std::thread::scope(|scope| {
        let server = scope.spawn(move || serve(other, theirs, &orders, &tell));
        let names = told.recv().unwrap().map(|words| Name::from_words(0, words).unwrap());
        client(&mut port, &mut mine, names, &order, &told);
        let _ = order.send(Order::Stop);
        server.join().unwrap()
    })
}

fn moves_regions<E: Endpoint + Send>(a: E, b: E) {
    let block = pattern(7);
    let (stored, refusal) = with_server(a, b, 5_000, |port, table, [target, source], order, told| {
        let pool = pool();
        let mut full = pool.allocate(LENGTH).unwrap();
        full.bytes_mut()[..LENGTH].copy_from_slice(&block);
        port.store_region((target, 0), &full.bytes()[..LENGTH], (1, &[5]), table).unwrap();
        // It may be written again.
        full.bytes_mut().fill(0);
        port.wait_until(0, table, SOON, |table| table.context.answers == [5]).unwrap();

        let mine = table.regions.show(0, Access::Fetch, pool.allocate(LENGTH).unwrap(), LENGTH).unwrap();
        port.get_region((source, 1000), mine, LENGTH as u64 - 1000, SOON, table).unwrap();
        assert!(table.regions.region(mine).unwrap().bytes()[..LENGTH - 1000] == pattern(11)[1000..]);
        port.get_region((source, LENGTH as u64), mine, 0, SOON, table).unwrap();

        // Bounds, ours and theirs, before anything is sent; uses.
        let outside = Err(Trouble::Region(Limit::Outside));
        assert_eq!(port.store_region((target, 1), &block, (1, &[6]), table), outside);
        assert_eq!(port.store_region((target, u64::MAX), &block, (1, &[6]), table), outside);
        assert_eq!(port.get_region((source, 1), mine, LENGTH as u64, SOON, table), outside);
        let small = table.regions.show(0, Access::Fetch, pool.allocate(10).unwrap(), 10).unwrap();
        assert_eq!(port.get_region((source, 0), small, 11, SOON, table), outside);
        let others = table.regions.show(1, Access::Fetch, pool.allocate(10).unwrap(), 10).unwrap();
        assert_eq!(port.get_region((source, 0), others, 10, SOON, table), Err(Trouble::Region(Limit::OtherPeer)));
        let shown = table.regions.show(0, Access::Get, pool.allocate(10).unwrap(), 10).unwrap();
        assert_eq!(port.get_region((source, 0), shown, 10, SOON, table), Err(Trouble::Region(Limit::State)));
        // What is shown to be got is not to be stored into, and the other way round.
        port.store_region((source, 0), &block, (1, &[7]), table).unwrap();
        port.wait_until(0, table, SOON, |table| table.context.returned == [7]).unwrap();
        let refused = Err(Trouble::Region(Limit::Stale));
        assert_eq!(port.get_region((target, 0), mine, 10, SOON, table), refused);

        order.send(Order::TakeBack).unwrap();
        told.recv().unwrap();
        assert_eq!(port.get_region((source, 0), mine, 10, SOON, table), refused);
        port.store_region((target, 0), &block, (1, &[8]), table).unwrap();
        port.wait_until(0, table, SOON, |table| table.context.returned == [7, 8]).unwrap();
        for name in [mine, small, others, shown] {
            drop(table.regions.take_back(name).unwrap());
        }
        drop(full);
        assert_eq!(pool.free(), pool.shape().units);
    });
    assert!(stored == block);
    assert_eq!(refusal, Some((0, Limit::Stale)));
}

fn udp() -> Udp {
    Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap()
}

fn shm() -> Shm {
    Shm::new(Default::default()).unwrap()
}

#[test]
fn over_shared_memory() {
    moves_regions(shm(), shm());
}

#[test]
fn over_udp() {
    moves_regions(udp(), udp());
}

#[test]
fn over_a_bad_network() {
    let bad =
        |seed| Fault::new(udp(), Faults { seed, loss: 20_000, duplicate: 20_000, reorder: 20_000, corrupt: 10_000, delay: 0 });
    moves_regions(bad(3), bad(4));
}

/// The peer dies while a get of ours is answered: the call ends, the region is ours again, and what the peer was shown is out of
/// reach of the next connection.
fn a_peer_dies<E: Endpoint + Send>(a: E, b: E) {
    with_server(a, b, 500, |port, table, [target, source], order, _| {
        let pool = pool();
        let mine = table.regions.show(0, Access::Fetch, pool.allocate(LENGTH).unwrap(), LENGTH).unwrap();
        order.send(Order::Die).unwrap();
        let trouble = loop {
            let got = port.get_region((source, 0), mine, LENGTH as u64, SOON, table);
            let stored = port.store_region((target, 0), &pattern(3), (1, &[1]), table);
            if let Err(trouble) = got.and(stored) {
                break trouble;
            }
        };
        let ends = [Trouble::Lost, Trouble::TimedOut, Trouble::Region(Limit::Stale)];
        assert!(ends.contains(&trouble), "{trouble:?}");
        let _ = port.wait_until(0, table, SOON, |_| false);
        assert!(table.regions.place(0, Access::Fetch, mine.to_words()[0], 1).is_none());
        assert_eq!(table.regions.last_refusal(), Some((0, Limit::Stale)));
        drop(table.regions.take_back(mine).unwrap());
        assert_eq!(pool.free(), pool.shape().units);
    });
}

#[test]
fn a_peer_dies_in_the_middle() {
    a_peer_dies(shm(), shm());
    a_peer_dies(udp(), udp());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A peer stores at addresses that it makes up from one that it was told: only what it was shown to store into changes.
    #[test]
    fn made_up_names_reach_nothing_else(
        stores in prop::collection::vec((0usize..4, 0u32..64, 0u64..9000, 0usize..9000, any::<bool>()), 1..40),
    ) {
        let (a, b) = (shm(), shm());
        let config = config_for(&a, 2);
        let (mut for_a, mut for_b) = (memory(&config), memory(&config));
        let (mut port, mut other) = (Port::new(a, &mut for_a, &config).unwrap(), Port::new(b, &mut for_b, &config).unwrap());
        let (mut hostile, mut honest) = (table(), table());
        join((&mut port, &mut hostile), (&mut other, &mut honest)).unwrap();
        let pool = pool();
        let shows = [(0, Access::Store), (0, Access::Get), (1, Access::Store), (0, Access::Fetch)];
        let names = shows.map(|(peer, access)| honest.regions.show(peer, access, pool.allocate(8000).unwrap(), 8000).unwrap());
        for (which, bit, offset, length, flip) in stores {
            let at = names[which].to_words()[0] ^ (u64::from(flip) << bit);
            let store = Store { offset: at.wrapping_add(offset), handler: 1, words: &[0] };
            port.store(0, &store, &vec![0xaa; length], &mut hostile).unwrap();
            let before = honest.context.stored.len() + hostile.context.returned.len();
            while honest.context.stored.len() + hostile.context.returned.len() == before {
                other.poll(&mut honest);
                port.poll(&mut hostile);
            }
        }
        for (at, length, _) in &honest.context.stored {
            let target = names[0].to_words()[0];
            prop_assert!(*length == 0 && *at < 1 << 63 || *at >= target && at + length <= target + 8000, "{at:x} {length}");
        }
        for (number, name) in names.into_iter().enumerate() {
            let region = honest.regions.take_back(name).unwrap();
            let (shown, rest) = region.bytes().split_at(8000);
            prop_assert!(rest.iter().all(|byte| *byte == 0));
            prop_assert!(number == 0 || shown.iter().all(|byte| *byte == 0));
        }
    }
}
