//! Whatever the network does short of ending, each message is handled once, and channels keep their order.

use crate::network::*;
use proptest::prelude::*;
use shunt_am::{Config, Get, Refused, Store};
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Act {
    Request { data: usize },
    Echo { data: usize },
    Ordered { channel: u16, data: usize },
    Stream { channel: u16, bytes: usize },
    Store { bytes: usize },
    Get { bytes: usize },
    Unknown,
    Pause { micros: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0usize..1300).prop_map(|data| Act::Request { data }),
        4 => (0usize..1300).prop_map(|data| Act::Echo { data }),
        4 => (1u16..4, 0usize..200).prop_map(|(channel, data)| Act::Ordered { channel, data }),
        4 => (1u16..4, 1usize..20_000).prop_map(|(channel, bytes)| Act::Stream { channel, bytes }),
        1 => (0usize..100_000).prop_map(|bytes| Act::Store { bytes }),
        1 => (0usize..100_000).prop_map(|bytes| Act::Get { bytes }),
        1 => Just(Act::Unknown),
        2 => (0u64..3000).prop_map(|micros| Act::Pause { micros }),
    ]
}

fn faults() -> impl Strategy<Value = Faults> {
    (0u32..2000, 0u32..1000, 0u32..500, 1u64..400, 0u64..400, 0u32..1000).prop_map(
        |(loss, duplication, corruption, delay, jitter, refusal)| Faults {
            loss,
            duplication,
            corruption,
            delay: delay * MICROSECOND,
            jitter: jitter * MICROSECOND,
            refusal,
            ..Faults::NONE
        },
    )
}

fn config() -> impl Strategy<Value = Config> {
    (3u32..9, 0u32..3, 300u32..2000, any::<bool>(), 1u32..20, any::<bool>(), any::<bool>()).prop_map(
        |(window, held, frame, combine, every, selective, checked)| {
            let window = 1 << window;
            Config {
                window,
                replies: (window / 4).max(1),
                held: window / 2 * held,
                // Chances are only that: with a fifth of all frames lost, ten in a row are seen.
                lost_after: 600_000,
                combine: u32::from(combine),
                acknowledge_every: every,
                selective: u32::from(selective),
                checked: u32::from(checked),
                ..Config::lossy(2, frame.max(1450))
            }
        },
    )
}

/// What host 0 asked for, in the end to be found at host 1.
#[derive(Default)]
struct Wanted {
    ran: Vec<u64>,
    answered: Vec<u64>,
    returned: Vec<u64>,
    ordered: HashMap<u16, Vec<u64>>,
    streams: HashMap<u16, Vec<u8>>,
    stored: Vec<(u64, u64, u64)>,
    fetched: Vec<(u64, u64, u64)>,
}

/// The receiver takes everything; it lets the sender have 32 KiB at a time.
fn room(world: &mut World) {
    for channel in 1..4u16 {
        world.ask(1, |engine| {
            let received = engine.positions(0, channel).1;
            if engine.is_up(0) {
                engine.grant(0, channel, received + 32_768, 8_192).unwrap();
            }
        });
    }
}

fn retry<T>(world: &mut World, mut act: impl FnMut(&mut World) -> Result<T, Refused>) -> T {
    let deadline = world.now + 600 * SECOND;
    loop {
        match act(world) {
            Ok(value) => return value,
            Err(Refused::NoCredit | Refused::NoRoom) => {
                room(world);
                world.at(0, |engine, now, wires, program| engine.transmit(now, wires, program));
                assert!(world.now < deadline, "blocked for ten minutes: {:?}", world.ask(0, |engine| engine.status(1)));
                let until = world.now + MILLISECOND;
                world.step(until);
            }
            Err(other) => panic!("{other:?}, events {:?}", world.hosts[0].program.events),
        }
    }
}

fn run(config: Config, faults: Faults, acts: &[Act], seed: u64) {
    let mut world = World::new(2, config, faults, seed);
    // Connect from one side, or from both at once.
    if seed.is_multiple_of(3) {
        world.at(1, |engine, now, wires, _| engine.connect(now, 0, wires).unwrap());
    }
    world.connect(0, 1);
    let mut wanted = Wanted::default();
    let far: Vec<u8> = (0..1u32 << 20).map(|at| ((at * 31) >> 3) as u8).collect();
    world.hosts[1].program.segment.copy_from_slice(&far);
    let (mut store_at, mut get_at) = (0usize, 0usize);
    for (number, act) in acts.iter().enumerate() {
        let name = number as u64 + 1;
        room(&mut world);
        match *act {
            Act::Request { data } => {
                retry(&mut world, |world| {
                    world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, COUNT, &[name], &vec![1; data], wires))
                });
                wanted.ran.push(name);
            }
            Act::Echo { data } => {
                retry(&mut world, |world| {
                    world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, ECHO, &[name, 5], &vec![2; data], wires))
                });
                wanted.ran.push(name);
                wanted.answered.push(name);
            }
            Act::Ordered { channel, data } => {
                retry(&mut world, |world| {
                    world.at(0, |engine, now, wires, _| engine.request(now, 1, channel, COUNT, &[name], &vec![3; data], wires))
                });
                wanted.ran.push(name);
                wanted.ordered.entry(channel).or_default().push(name);
            }
            Act::Stream { channel, bytes } => {
                let bytes: Vec<u8> = (0..bytes).map(|at| (at as u64 * 7 + name) as u8).collect();
                let mut done = 0;
                while done < bytes.len() {
                    room(&mut world);
                    done += retry(&mut world, |world| {
                        world.at(0, |engine, now, wires, _| match engine.send(now, 1, channel, &bytes[done..], wires) {
                            Ok(0) => Err(Refused::NoRoom),
                            other => other,
                        })
                    });
                }
                wanted.streams.entry(channel).or_default().extend(bytes);
            }
            Act::Store { bytes } if store_at + bytes <= 1 << 20 => {
                // Written before gets read there: the segment's halves are compared at the end.
                let data: Vec<u8> = far[store_at..store_at + bytes].to_vec();
                let mut done = 0;
                loop {
                    let store = Store { offset: store_at as u64, handler: STORED, words: &[name] };
                    let complete = retry(&mut world, |world| {
                        world.at(0, |engine, now, wires, _| engine.store(now, 1, &store, &data, &mut done, wires))
                    });
                    if complete {
                        break;
                    }
                    let until = world.now + MILLISECOND;
                    world.step(until);
                }
                wanted.stored.push((name, store_at as u64, bytes as u64));
                wanted.ran.push(name);
                wanted.answered.push(name);
                store_at += bytes;
            }
            Act::Get { bytes } if get_at + bytes <= 1 << 20 => {
                let (from, length) = (get_at as u64, bytes as u64);
                let get = Get { from, to: from, length, handler: FETCHED, words: &[name] };
                retry(&mut world, |world| world.at(0, |engine, now, wires, _| engine.get(now, 1, &get, wires)));
                wanted.fetched.push((name, from, length));
                get_at += bytes;
            }
            Act::Store { .. } | Act::Get { .. } => {}
            Act::Unknown => {
                retry(&mut world, |world| {
                    world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, UNKNOWN, &[name], &[], wires))
                });
                wanted.returned.push(name);
            }
            Act::Pause { micros } => {
                let until = world.now + micros * MICROSECOND;
                world.run_until(until);
            }
        }
    }
    // Long enough for anything; then nothing may be under way at either side.
    let quiet = world.run_while(600 * SECOND, |world| {
        room(world);
        let idle = |world: &mut World, host: usize| world.ask(host, |engine| engine.is_idle(1 - host as u32));
        !(idle(world, 0) && idle(world, 1) && world.hosts[0].program.fetched.len() == wanted.fetched.len())
    });
    assert!(quiet, "never quiet: {:?} {:?}", world.ask(0, |engine| engine.status(1)), world.ask(1, |engine| engine.status(0)));
    world.run_until(world.now + SECOND);
    let (status, far_status) = (world.ask(0, |engine| engine.status(1)), world.ask(1, |engine| engine.status(0)));
    let (status, far_status) = (status.unwrap(), far_status.unwrap());
    for status in [status, far_status] {
        assert_eq!((status.queued, status.in_flight, status.lost, status.held), (0, 0, 0, 0), "leaked: {status:?}");
        assert_eq!(status.counters.violations, 0, "{status:?}");
    }
    assert_eq!(far_status.owed, 0, "credit leaked: {far_status:?}");
    // What credit was said may be lost on the way, and nobody repeats it; who needs it asks.
    assert!(status.credit <= config.replies, "credit from nowhere: {status:?}");
    const LAST: u64 = u64::MAX;
    retry(&mut world, |world| world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, ECHO, &[LAST], &[], wires)));
    assert!(world.run_while(600 * SECOND, |world| !world.hosts[0].program.answered.contains_key(&LAST)), "credit leaked");
    for host in &mut world.hosts {
        host.program.answered.remove(&LAST);
        host.program.ran.remove(&LAST);
    }

    let (near, far_host) = (&world.hosts[0].program, &world.hosts[1].program);
    assert_eq!(near.events.len(), 1, "{:?}", near.events);
    let once = |names: &[u64], seen: &HashMap<u64, u32>| {
        assert_eq!(names.len(), seen.len());
        for name in names {
            assert_eq!(seen.get(name), Some(&1), "message {name}");
        }
    };
    once(&wanted.ran, &far_host.ran);
    once(&wanted.answered, &near.answered);
    once(&wanted.returned, &near.returned);
    for (channel, names) in &wanted.ordered {
        assert_eq!(Some(names), far_host.ordered.get(channel));
    }
    for (channel, bytes) in &wanted.streams {
        assert!(Some(bytes) == far_host.streams.get(channel), "channel {channel}");
    }
    assert_eq!(wanted.stored, far_host.stored);
    assert!(far_host.segment == far);
    let mut fetched = near.fetched.clone();
    fetched.sort_unstable();
    assert_eq!(wanted.fetched, fetched);
    assert!(near.segment[..get_at] == far[..get_at]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn each_handler_runs_once(
        config in config(),
        faults in faults(),
        acts in prop::collection::vec(act(), 1..80),
        seed in any::<u64>(),
    ) {
        // A device that checks frames drops those that were changed.
        let faults = if config.checked != 0 { Faults { corruption: 0, ..faults } } else { faults };
        run(config, faults, &acts, seed);
    }

    /// The same over a device that loses nothing and keeps order, but refuses frames when it is full.
    #[test]
    fn over_a_reliable_device(refusal in 0u32..4000, acts in prop::collection::vec(act(), 1..80), seed in any::<u64>(), combine in 0u32..2) {
        let config = Config { combine, lost_after: 600_000, ..Config::reliable(2, 4096) };
        run(config, Faults { refusal, ..Faults::NONE }, &acts, seed);
    }
}
