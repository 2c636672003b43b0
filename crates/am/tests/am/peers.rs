//! Peers that stall, die and restart, and callers that wait for them.

use crate::network::*;
use proptest::prelude::*;
use shunt_am::{Config, Event, Get, Reason, Refused, Store};

const LOST_AFTER: u32 = 2_000;

fn configs() -> [Config; 2] {
    let lossy = Config { lost_after: LOST_AFTER, ..Config::lossy(2, 1472) };
    let reliable = Config { lost_after: LOST_AFTER, ..Config::reliable(2, 4096) };
    [lossy, reliable]
}

/// The declared time, with the grain of the simulation.
const DECLARED: u64 = LOST_AFTER as u64 * MILLISECOND + MILLISECOND;

/// Host 0 is told of the loss within the declared time, whatever it was doing; and after that calls are refused at once.
fn expect_loss(world: &mut World, since: u64, reason: Reason) {
    world.run_until(since + DECLARED + SECOND);
    let losses = world.losses(0);
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert_eq!(losses[0].1, reason);
    assert!(losses[0].0 - since <= DECLARED, "{} ms after", (losses[0].0 - since) / MILLISECOND);
    let refused = world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, COUNT, &[1], &[], wires));
    assert_eq!(refused, Err(Refused::NotConnected));
    let status = world.ask(0, |engine| engine.status(1)).unwrap();
    assert_eq!((status.queued, status.in_flight, status.lost, status.held), (0, 0, 0, 0), "{status:?}");
}

#[test]
fn nobody_answers_connect() {
    for config in configs() {
        let mut world = World::new(2, config, Faults::NONE, 1);
        world.hosts[1].alive = false;
        let since = world.now;
        world.at(0, |engine, now, wires, _| engine.connect(now, 1, wires).unwrap());
        expect_loss(&mut world, since, Reason::Unreachable);
    }
}

#[test]
fn a_dead_peer_is_noticed_by_whoever_waits() {
    for config in configs() {
        for what in 0..4 {
            let mut world = World::new(2, config, Faults::NONE, 7);
            world.connect(0, 1);
            world.run_until(world.now + 10 * SECOND);
            world.hosts[1].alive = what == 3;
            world.hosts[1].stalled = what == 3;
            let since = world.now;
            world.at(0, |engine, now, wires, _| match what {
                0 | 3 => {
                    // Until there is no more credit: the caller then waits for it.
                    while engine.request(now, 1, 0, ECHO, &[5], &[], wires).is_ok() {}
                }
                1 => {
                    let get = Get { from: 0, to: 0, length: 10, handler: FETCHED, words: &[1] };
                    engine.get(now, 1, &get, wires).unwrap();
                }
                _ => engine.watch(now, 1, true).unwrap(),
            });
            expect_loss(&mut world, since, Reason::Silent);
        }
    }
}

/// An idle connection costs nothing, and lasts.
#[test]
fn idle_connections_are_silent() {
    for config in configs() {
        let mut world = World::new(2, config, Faults::NONE, 7);
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        let frames = world.frames;
        world.run_until(world.now + 3600 * SECOND);
        assert_eq!(world.frames, frames);
        assert!(world.losses(0).is_empty());
        world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, ECHO, &[9], &[], wires).unwrap());
        world.run_until(world.now + SECOND);
        assert_eq!(world.hosts[0].program.answered.get(&9), Some(&1));
    }
}

/// A watched peer that lives but has nothing to say is not lost.
#[test]
fn a_watched_peer_that_lives_is_kept() {
    for config in configs() {
        let faults = Faults { loss: if config.reliable != 0 { 0 } else { 1000 }, ..Faults::NONE };
        let mut world = World::new(2, config, faults, 11);
        world.connect(0, 1);
        world.at(0, |engine, now, _, _| engine.watch(now, 1, true).unwrap());
        world.run_until(world.now + 20 * SECOND);
        assert!(world.losses(0).is_empty());
    }
}

/// Who has waited for a moment in vain, and comes back much later, has not asked meanwhile: the peer's silence says nothing.
#[test]
fn a_wait_that_ended_ends_no_connection() {
    for config in configs() {
        let mut world = World::new(2, config, Faults::NONE, 11);
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        for _ in 0..3 {
            world.at(0, |engine, now, _, _| {
                engine.watch(now, 1, true).unwrap();
                engine.watch(now + MILLISECOND, 1, false).unwrap();
            });
            world.hosts[0].stalled = true;
            world.run_until(world.now + 10 * SECOND);
            world.resume(0);
            world.run_until(world.now + SECOND);
            assert!(world.losses(0).is_empty(), "{:?}", world.losses(0));
        }
        world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, ECHO, &[9], &[], wires).unwrap());
        world.run_until(world.now + SECOND);
        assert_eq!(world.hosts[0].program.answered.get(&9), Some(&1));
    }
}

#[test]
fn a_stall_shorter_than_the_declared_time_loses_nothing() {
    for config in configs() {
        let mut world = World::new(2, config, Faults::NONE, 3);
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        world.hosts[1].stalled = true;
        world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, ECHO, &[4], &[], wires).unwrap());
        world.run_until(world.now + SECOND);
        world.resume(1);
        world.run_until(world.now + SECOND);
        assert_eq!(world.hosts[0].program.answered.get(&4), Some(&1));
        assert_eq!(world.hosts[1].program.ran.get(&4), Some(&1));
        assert!(world.losses(0).is_empty());
    }
}

/// A path that lets no long frames through any more, while short ones come and go: whoever waits hears of it in the declared time, and the
/// next connection is one that this path carries.
#[test]
fn a_path_that_became_narrow_is_left_and_found_again() {
    const LONG: [u8; 1300] = [7; 1300];
    let [config, _] = configs();
    for talks in [false, true] {
        for loss in [0, 1000] {
            let mut world = World::new(2, config, Faults { loss, ..Faults::NONE }, 5);
            world.connect(0, 1);
            world.run_until(world.now + SECOND);
            world.faults.longest = 1200 - 64;
            let since = world.now;
            world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, COUNT, &[1], &LONG, wires).unwrap());
            while world.losses(0).is_empty() && world.now < since + 10 * SECOND {
                // Short ones in both directions are no sign that the long one arrives.
                if talks {
                    world.at(0, |engine, now, wires, _| {
                        let _ = engine.request(now, 1, 0, ECHO, &[2], &[], wires);
                    });
                }
                world.run_until(world.now + 10 * MILLISECOND);
            }
            let losses = world.losses(0);
            assert!(losses.len() == 1 && losses[0].1 == Reason::Stuck, "{losses:?}");
            assert!(losses[0].0 - since <= DECLARED, "{} ms after", (losses[0].0 - since) / MILLISECOND);
            assert_eq!(world.hosts[1].program.ran.get(&1), None);
            // Whoever connects: the shorter frames are those of both sides.
            let [from, to] = if talks { [0, 1] } else { [1, 0] };
            world.connect(from, to);
            world.run_until(world.now + SECOND);
            let refused = world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, COUNT, &[1], &LONG, wires));
            assert_eq!(refused, Err(Refused::TooLong));
            for host in [0, 1] {
                let (store, mut done) = (Store { offset: 5, handler: STORED, words: &[4] }, 0);
                let mut put = |world: &mut World| {
                    let peer = 1 - host as u32;
                    world.at(host, |engine, now, wires, _| engine.store(now, peer, &store, &[3; 100_000], &mut done, wires))
                };
                while put(&mut world) != Ok(true) {
                    world.run_until(world.now + MILLISECOND);
                }
                world.run_until(world.now + 2 * SECOND);
                assert_eq!(world.hosts[1 - host].program.stored, [(4, 5, 100_000)]);
            }
            assert_eq!(world.losses(0).len(), 1, "{:?}", world.losses(0));
            // After one that was closed the next one tries long frames again.
            world.faults.longest = usize::MAX;
            world.at(0, |engine, now, wires, program| engine.disconnect(now, 1, wires, program).unwrap());
            world.run_until(world.now + SECOND);
            world.connect(0, 1);
            world.run_until(world.now + SECOND);
            world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, COUNT, &[1], &LONG, wires).unwrap());
            world.run_until(world.now + SECOND);
            assert_eq!(world.hosts[1].program.ran.get(&1), Some(&1));
        }
    }
}

/// Silences and restarts, whoever is silent, say nothing of the path: it is still known to be narrow.
#[test]
fn a_narrow_path_is_remembered_over_a_silence() {
    const LONG: [u8; 1300] = [7; 1300];
    let [config, _] = configs();
    for silent in [0, 1] {
        let mut world = World::new(2, config, Faults::NONE, 5);
        world.faults.longest = 1200 - 64;
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        let request =
            |world: &mut World| world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, COUNT, &[1], &LONG, wires));
        request(&mut world).unwrap();
        world.run_until(world.now + 3 * SECOND);
        assert!(matches!(world.losses(0)[..], [(_, Reason::Stuck)]), "{:?}", world.losses(0));
        world.connect(0, 1);
        world.run_until(world.now + SECOND);

        let waiting = 1 - silent;
        let losses = world.losses(waiting).len();
        world.hosts[silent].stalled = true;
        world.at(waiting, |engine, now, wires, _| engine.request(now, silent as u32, 0, ECHO, &[4], &[], wires).unwrap());
        world.run_until(world.now + 3 * SECOND);
        assert!(matches!(world.losses(waiting)[losses..], [(_, Reason::Silent)]), "{:?}", world.losses(waiting));
        world.resume(silent);
        world.connect(waiting, silent);
        world.run_until(world.now + SECOND);
        assert_eq!(request(&mut world), Err(Refused::TooLong));

        // A connection that is closed is the last one with short frames.
        world.faults.longest = usize::MAX;
        world.at(0, |engine, now, wires, program| engine.disconnect(now, 1, wires, program).unwrap());
        world.run_until(world.now + SECOND);
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        request(&mut world).unwrap();
        world.run_until(world.now + SECOND);
        assert_eq!(world.hosts[1].program.ran.get(&1), Some(&1));
    }
}

/// A path for packets of 600 bytes is found, too: it costs two connections, and no more.
#[test]
fn a_path_that_is_narrower_still_is_found() {
    let [config, _] = configs();
    let mut world = World::new(2, config, Faults::NONE, 5);
    world.faults.longest = 600 - 64;
    let store = Store { offset: 5, handler: STORED, words: &[4] };
    for _ in 0..3 {
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        let (losses, end, mut done, mut all) = (world.losses(0).len(), world.now + 10 * SECOND, 0, false);
        while world.losses(0).len() == losses && world.hosts[1].program.stored.is_empty() && world.now < end {
            if !all {
                let put = world.at(0, |engine, now, wires, _| engine.store(now, 1, &store, &[3; 20_000], &mut done, wires));
                all = put == Ok(true);
            }
            world.run_until(world.now + 10 * MILLISECOND);
        }
    }
    let losses = world.losses(0);
    assert!(losses.len() == 2 && losses.iter().all(|(_, reason)| *reason == Reason::Stuck), "{losses:?}");
    assert_eq!(world.hosts[1].program.stored, [(4, 5, 20_000)]);
}

/// The peer comes back with an empty memory: what is sent to its old life is answered by a reset, and nothing of it runs.
#[test]
fn a_restart_is_noticed_by_the_next_message() {
    for config in configs() {
        let mut world = World::new(2, config, Faults::NONE, 3);
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        world.restart(1);
        let since = world.now;
        world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, COUNT, &[4], &[], wires).unwrap());
        expect_loss(&mut world, since, Reason::Reset);
        assert!(world.losses(0)[0].0 - since < MILLISECOND);
        assert!(world.hosts[1].program.ran.is_empty());
        world.connect(0, 1);
    }
}

/// The peer comes back and connects by itself: the old connection is lost, the new one is up.
#[test]
fn a_restart_is_noticed_by_a_new_connection() {
    for config in configs() {
        let mut world = World::new(2, config, Faults::NONE, 3);
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        let old = world.ask(0, |engine| engine.status(1).unwrap().epoch);
        world.restart(1);
        world.connect(1, 0);
        world.run_until(world.now + SECOND);
        assert_eq!(world.losses(0).iter().map(|loss| loss.1).collect::<Vec<_>>(), [Reason::Restarted]);
        assert_eq!(world.ups(0), 2);
        assert_ne!(world.ask(0, |engine| engine.status(1).unwrap().epoch), old);
        world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, ECHO, &[8], &[], wires).unwrap());
        world.run_until(world.now + SECOND);
        assert_eq!(world.hosts[0].program.answered.get(&8), Some(&1));
    }
}

/// Hellos of old connections, replayed by somebody, cost answers and nothing else.
#[test]
fn replayed_hellos_change_nothing() {
    let [config, _] = configs();
    let mut world = World::new(2, config, Faults::NONE, 3);
    let mut hellos = vec![];
    for _ in 0..3 {
        world.at(0, |engine, now, _, program| {
            struct Tap<'t>(&'t mut Vec<Vec<u8>>);
            impl shunt_am::Link for Tap<'_> {
                fn send(&mut self, _: u32, head: &[u8], body: &[u8]) -> bool {
                    self.0.push([head, body].concat());
                    true
                }
            }
            engine.connect(now, 1, &mut Tap(&mut hellos)).unwrap();
            engine.disconnect(now, 1, &mut Tap(&mut hellos), program).unwrap();
        });
    }
    world.hosts[0].program.events.clear();
    world.connect(0, 1);
    world.run_until(world.now + SECOND);
    for hello in hellos {
        world.at(1, |engine, now, wires, program| engine.receive(now, 0, &hello, wires, program));
        world.run_until(world.now + SECOND);
    }
    assert!(world.losses(0).is_empty() && world.losses(1).is_empty());
    world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, ECHO, &[8], &[], wires).unwrap());
    world.run_until(world.now + SECOND);
    assert_eq!(world.hosts[0].program.answered.get(&8), Some(&1));
}

/// Tokens that travelled by another way set up a connection without a frame.
#[test]
fn offers_are_adopted() {
    let [config, _] = configs();
    let mut world = World::new(2, Config { accept: 0, ..config }, Faults::NONE, 3);
    let offers = [0u32, 1].map(|host| world.ask(host as usize, |engine| engine.offer(1 - host).unwrap()));
    for host in 0..2 {
        world.at(host, |engine, now, _, program| engine.adopt(now, 1 - host as u32, &offers[1 - host], program).unwrap());
    }
    assert_eq!(world.frames, 0);
    world.at(1, |engine, now, wires, _| engine.request(now, 0, 0, ECHO, &[8], &[], wires).unwrap());
    world.run_until(world.now + SECOND);
    assert_eq!(world.hosts[1].program.answered.get(&8), Some(&1));
    // An offer is good for one connection.
    let again = world.at(0, |engine, now, _, program| engine.adopt(now, 1, &offers[1], program));
    assert_eq!(again, Err(Refused::Argument));
}

#[test]
fn a_goodbye_is_heard() {
    for config in configs() {
        let mut world = World::new(2, config, Faults::NONE, 3);
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        world.at(1, |engine, now, wires, program| engine.disconnect(now, 0, wires, program).unwrap());
        world.run_until(world.now + SECOND);
        assert_eq!(world.losses(0).iter().map(|loss| loss.1).collect::<Vec<_>>(), [Reason::Closed]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 100, ..ProptestConfig::default() })]

    /// Host 1 dies and comes back at random moments, under load and on a bad network. A message may be lost with the
    /// connection it was sent on, and runs twice never; whoever is owed something hears of each death; in the end both talk
    /// again.
    #[test]
    fn deaths_and_restarts(loss in 0u32..1500, jitter in 0u64..300, seed in any::<u64>(), deaths in 1usize..5) {
        let [config, _] = configs();
        let faults = Faults { loss, jitter: jitter * MICROSECOND, duplication: 300, ..Faults::NONE };
        let mut world = World::new(2, config, faults, seed);
        let mut name = 0;
        for _ in 0..deaths {
            world.at(0, |engine, now, wires, _| engine.connect(now, 1, wires).unwrap());
            for _ in 0..world.dice.below(200) {
                name += 1;
                let up = world.ask(0, |engine| engine.is_up(1));
                if up {
                    let _ = world.at(0, |engine, now, wires, _| engine.request(now, 1, 0, ECHO, &[name], &[7; 100], wires));
                }
                let until = world.now + world.dice.below(400) * MICROSECOND;
                world.run_until(until);
            }
            world.hosts[1].alive = false;
            let until = world.now + world.dice.below(3000) * MILLISECOND;
            world.run_until(until);
            world.restart(1);
        }
        // Either the old connection was found dead, or a new one is made over it.
        let talk = world.run_while(60 * SECOND, |world| {
            world.at(0, |engine, now, wires, _| {
                if engine.is_up(1) {
                    let _ = engine.request(now, 1, 0, ECHO, &[u64::MAX], &[], wires);
                } else {
                    engine.connect(now, 1, wires).unwrap();
                }
            });
            !world.hosts[0].program.answered.contains_key(&u64::MAX)
        });
        prop_assert!(talk, "{:?}", world.hosts[0].program.events);
        for (name, count) in &world.hosts[1].program.ran {
            prop_assert!(*name == u64::MAX || *count == 1, "message {} ran {} times", name, count);
        }
        let downs = world.hosts[0].program.events.iter().filter(|(_, _, event)| *event != Event::Up).count();
        let ups = world.ups(0);
        prop_assert!(ups <= downs + 1 && downs <= ups + deaths);
    }
}

/// What credit the peer says may be lost on the way; a caller that runs dry then asks within a time-out, however long silence is allowed to last,
/// and whether or not it was already owed a sign of life.
#[test]
fn a_caller_without_credit_asks_soon() {
    for seed in 0..20 {
        let config = Config { lost_after: 1 << 30, replies: 2, ..Config::lossy(2, 1472) };
        let mut world = World::new(2, config, Faults::NONE, seed);
        world.connect(0, 1);
        world.at(0, |engine, now, _, _| engine.watch(now, 1, true).unwrap());
        world.faults.loss = 3000;
        let until = world.now + 300 * SECOND;
        for name in 0..100u64 {
            let ask = |engine: &mut shunt_am::Engine<'_>, now, wires: &mut Wires<'_>, _: &mut Program| {
                engine.request(now, 1, 0, ECHO, &[name], &[], wires)
            };
            while world.at(0, ask).is_err() {
                world.at(0, |engine, now, wires, program| engine.transmit(now, wires, program));
                world.step(until);
                assert!(
                    world.now < until,
                    "seed {seed}: request {name} waits for credit: {:?}",
                    world.ask(0, |engine| engine.status(1))
                );
            }
        }
    }
}

/// A program that knows by other means that its peer lives bears its silence, and hears the answer when the peer goes on.
#[test]
fn a_peer_that_is_vouched_for_may_be_silent() {
    for config in configs() {
        let mut world = World::new(2, config, Faults::NONE, 13);
        world.connect(0, 1);
        world.run_until(world.now + SECOND);
        world.hosts[0].program.vouches = true;
        world.hosts[1].stalled = true;
        world.at(0, |engine, now, wires, _| {
            engine.watch(now, 1, true).unwrap();
            engine.request(now, 1, 0, ECHO, &[4], &[], wires).unwrap();
        });
        world.run_until(world.now + 60 * SECOND);
        assert!(world.losses(0).is_empty());
        world.resume(1);
        world.run_until(world.now + SECOND);
        assert_eq!(world.hosts[0].program.answered.get(&4), Some(&1));
        // Once it does not any more, silence ends the connection as ever.
        world.hosts[0].program.vouches = false;
        world.hosts[1].stalled = true;
        world.run_until(world.now + 60 * SECOND);
        assert!(matches!(world.losses(0)[..], [(_, Reason::Silent)]), "{:?}", world.losses(0));
    }
}
