//! A port of a network whose peer is killed: every buffer is its program's again, what had come is received, and pools are whole.

mod common;

use common::{pool, UNIT};
use shunt_buffers::costs::Costs;
use shunt_buffers::port::network::{memory, NetworkPort};
use shunt_buffers::port::Error;
use shunt_buffers::{Allocation, Integrity, Semantics};
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_region::{Audience, Pages, Pool, Shape};
use std::time::Duration;

/// Longer than what goes unasked.
const LENGTH: usize = 3 * UNIT;

fn with_port<T>(fd: i32, act: impl FnOnce(&mut NetworkPort<'_, Udp>, &Pool) -> T) -> T {
    with_port_of(pool(), fd, act)
}

fn with_port_of<T>(pool: Pool, fd: i32, act: impl FnOnce(&mut NetworkPort<'_, Udp>, &Pool) -> T) -> T {
    let endpoint = Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap();
    let mut memory = memory(&endpoint);
    let mut port = NetworkPort::over(fd, endpoint, &mut memory, &pool).unwrap();
    port.set_costs(Costs::USUAL);
    port.policy().tcow_from = UNIT;
    let result = act(&mut port, &pool);
    drop(port);
    assert_eq!(pool.free(), pool.shape().units);
    result
}

#[test]
fn a_receiver_that_is_killed_has_nothing() {
    common::alone("a_receiver_that_is_killed_has_nothing", || {
        for semantics in Semantics::ALL {
            // It has received nothing; or part of what was sent, and more is under way.
            for received in [0, 1] {
                common::with_child(
                    |fd| {
                        with_port(fd, |port, _| {
                            port.set_outboard();
                            port.send(b"r", Semantics::COPY).unwrap();
                            for _ in 0..received {
                                assert_eq!(port.receive(&mut vec![0; LENGTH], Semantics::COPY), Ok(LENGTH));
                            }
                            port.send(b"k", Semantics::COPY).unwrap();
                            port.drain().unwrap();
                            wait_for_death();
                        });
                    },
                    |fd, kill| {
                        with_port(fd, |port, pool| {
                            let mut kept = vec![];
                            assert_eq!(port.receive(&mut [0], Semantics::COPY), Ok(1));
                            for _ in 0..3 {
                                let mut region = pool.allocate(LENGTH).unwrap();
                                region.bytes_mut().fill(7);
                                match (semantics.allocation, semantics.integrity) {
                                    (Allocation::Application, Integrity::Strong) => {
                                        port.send(region.bytes(), semantics).unwrap();
                                    }
                                    (Allocation::Application, Integrity::Weak) => {
                                        port.send_shared(&region, LENGTH, semantics).unwrap();
                                    }
                                    (Allocation::System, _) => {
                                        port.send_region(region, LENGTH, semantics).unwrap();
                                        continue;
                                    }
                                }
                                kept.push(region);
                            }
                            assert_eq!(port.receive(&mut [0], Semantics::COPY), Ok(1));
                            assert_eq!(port.queued().1, 3 - received, "{}", semantics.name());
                            kill();
                            assert_eq!(port.receive(&mut [0], Semantics::COPY), Err(Error::Gone));
                            port.progress().unwrap();
                            assert_eq!(port.queued(), (0, 0));
                            assert_eq!(port.send(b"x", Semantics::COPY), Err(Error::Gone));
                            kept.iter_mut().for_each(|region| region.bytes_mut().fill(8));
                        });
                    },
                );
            }
        }
    });
}

/// As a program that does something else.
fn wait_for_death() {
    loop {
        std::thread::park();
    }
}

#[test]
fn what_came_before_a_sender_was_killed_is_received() {
    common::alone("what_came_before_a_sender_was_killed_is_received", || {
        for semantics in Semantics::ALL {
            for posted in [false, true] {
                common::with_child(
                    |fd| {
                        with_port(fd, |port, pool| {
                            let mut region = pool.allocate(LENGTH).unwrap();
                            region.bytes_mut().fill(5);
                            port.send_region(region, LENGTH, Semantics::EMULATED_MOVE).unwrap();
                            port.drain().unwrap();
                            // Announced, and never sent: its receiver has no room for it.
                            port.send(&vec![6; 60 * UNIT], Semantics::COPY).unwrap();
                        });
                    },
                    |fd, kill| {
                        with_port(fd, |port, pool| {
                            if posted && semantics.allocation == Allocation::System {
                                port.post(LENGTH, semantics).unwrap();
                            } else if posted {
                                port.post_region(pool.allocate(LENGTH).unwrap(), LENGTH, semantics).unwrap();
                            }
                            assert_eq!(port.next_length(), Ok(LENGTH));
                            while port.semantics().is_none() {
                                port.progress().unwrap();
                            }
                            for _ in 0..1000 {
                                port.progress().unwrap();
                            }
                            kill();
                            let mut own = vec![0; LENGTH];
                            let (region, length) = match (posted, semantics.allocation) {
                                (true, _) => port.posted().map(|(region, length)| (Some(region), length)).unwrap(),
                                (false, Allocation::System) => {
                                    port.receive_region(semantics).map(|(region, length)| (Some(region), length)).unwrap()
                                }
                                (false, Allocation::Application) => (None, port.receive(&mut own, semantics).unwrap()),
                            };
                            let bytes = region.as_ref().map_or(&own[..], |region| region.bytes());
                            assert_eq!(length, LENGTH);
                            assert!(bytes[..LENGTH].iter().all(|byte| *byte == 5), "{}", semantics.name());
                            // It may have announced another before it was killed, of which nothing comes.
                            let last = port.receive(&mut vec![0; 60 * UNIT], Semantics::COPY);
                            assert!(matches!(last, Err(Error::Gone | Error::Limit(_))), "{last:?}");
                        });
                    },
                );
            }
        }
    });
}

/// A program that never waits in a call has its buffers back all the same.
#[test]
fn a_killed_receiver_is_noticed_by_a_program_that_polls() {
    common::alone("a_killed_receiver_is_noticed_by_a_program_that_polls", || {
        common::with_child(
            |fd| {
                with_port(fd, |port, _| {
                    port.set_outboard();
                    port.send(b"k", Semantics::COPY).unwrap();
                    assert_eq!(port.next_length(), Ok(LENGTH));
                    port.send(b"a", Semantics::COPY).unwrap();
                    loop {
                        port.progress().unwrap();
                        std::thread::yield_now();
                    }
                });
            },
            |fd, kill| {
                with_port(fd, |port, pool| {
                    assert_eq!(port.receive(&mut [0], Semantics::COPY), Ok(1));
                    let ticket = port.send_region(pool.allocate(LENGTH).unwrap(), LENGTH, Semantics::EMULATED_MOVE).unwrap();
                    // It is announced, and soon all is acknowledged: then nothing is repeated any more.
                    assert_eq!(port.receive(&mut [0], Semantics::COPY), Ok(1));
                    for _ in 0..200 {
                        port.progress().unwrap();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    kill();
                    while !port.completed(ticket).unwrap() {
                        std::thread::yield_now();
                    }
                    assert_eq!(port.queued(), (0, 0));
                    assert_eq!(port.send(b"x", Semantics::COPY), Err(Error::Gone));
                });
            },
        );
    });
}

/// In the middle of a message: with strong integrity nothing of it is seen, with weak the front of it is where it belongs.
#[test]
fn a_sender_that_is_killed_in_the_middle_of_a_message() {
    // More than one call takes in.
    const LONG: usize = 200 * UNIT;
    let large = || Pool::create(Shape { unit: UNIT, units: 512 }, Pages::Small, Audience::Anyone).unwrap();
    common::alone("a_sender_that_is_killed_in_the_middle_of_a_message", || {
        let called = Semantics::ALL.into_iter().filter(|semantics| semantics.allocation == Allocation::Application);
        let cases = Semantics::ALL.into_iter().flat_map(|semantics| [(semantics, false, true), (semantics, true, true)]);
        // By a call that waits for it, too.
        for (semantics, outboard, posted) in cases.chain(called.map(|semantics| (semantics, true, false))) {
            common::with_child(
                |fd| {
                    with_port_of(large(), fd, |port, _| {
                        port.receive(&mut [0], Semantics::COPY).unwrap();
                        port.send(&vec![5; LONG], Semantics::COPY).unwrap();
                        let _ = port.drain();
                        wait_for_death();
                    });
                },
                |fd, kill| {
                    with_port_of(large(), fd, |port, pool| {
                        if outboard {
                            port.set_outboard();
                        }
                        if !posted {
                            return in_a_call(port, semantics, LONG, kill);
                        }
                        if semantics.allocation == Allocation::System {
                            port.post(LONG, semantics).unwrap();
                        } else {
                            let mut region = pool.allocate(LONG).unwrap();
                            region.bytes_mut().fill(1);
                            port.post_region(region, LONG, semantics).unwrap();
                        }
                        port.send(b"p", Semantics::COPY).unwrap();
                        // More than its first packets do not come before they are acknowledged, in calls of this side.
                        while !port.has_message().unwrap() {}
                        kill();
                        assert_eq!(port.posted().unwrap_err(), Error::Gone, "{}", semantics.name());
                        let Some(region) = port.take_back().unwrap() else { return };
                        let front = region.bytes().iter().take_while(|byte| **byte == 5).count();
                        assert!(region.bytes()[front..].iter().all(|byte| *byte == 1));
                        match semantics.integrity {
                            Integrity::Strong => assert_eq!(front, 0, "{}", semantics.name()),
                            Integrity::Weak => assert!((1..LONG).contains(&front), "{}: {front}", semantics.name()),
                        }
                    });
                },
            );
        }
    });
}

/// The peer is killed while a call receives a message.
fn in_a_call(port: &mut NetworkPort<'_, Udp>, semantics: Semantics, long: usize, kill: &(dyn Fn() + Sync)) {
    port.send(b"p", Semantics::COPY).unwrap();
    assert_eq!(port.next_length(), Ok(long));
    let mut own = vec![1; long];
    let result = std::thread::scope(|scope| {
        scope.spawn(kill);
        port.receive(&mut own, semantics)
    });
    // It may have come before the kill.
    let front = own.iter().take_while(|byte| **byte == 5).count();
    assert!(own[front..].iter().all(|byte| *byte == 1));
    match (result, semantics.integrity) {
        (Ok(length), _) => assert_eq!((length, front), (long, long)),
        (Err(error), Integrity::Strong) => assert_eq!((error, front), (Error::Gone, 0), "{}", semantics.name()),
        (Err(error), Integrity::Weak) => assert_eq!(error, Error::Gone),
    }
}
