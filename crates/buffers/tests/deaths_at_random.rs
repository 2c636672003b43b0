//! Two processes that send without end by all semantics, of which one is killed at any time: the other hears of it whatever it waits for, its
//! pool is whole, and no message came that was not sent.

mod common;

use common::{with_child, SHAPE, UNIT};
use shunt_buffers::costs::Costs;
use shunt_buffers::port::{Error, Port};
use shunt_buffers::Semantics;
use shunt_region::{Audience, Pages, Pool};
use std::time::Duration;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// As often as `KILLS` says (`make soak`): which of the two, and in the middle of what, is chance.
#[test]
fn whoever_is_killed_at_any_time_leaves_a_pool_whole() {
    common::alone("whoever_is_killed_at_any_time_leaves_a_pool_whole", || {
        let kills = number("KILLS").unwrap_or(120);
        let mut seed = number("SHUNT_TEST_SEED").unwrap_or(u64::from(std::process::id()));
        println!("SHUNT_TEST_SEED={seed}");
        for number in 0..kills {
            // A linear congruential generator (Knuth's constants).
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let chance = seed >> 33;
            let delay = Duration::from_micros(chance % 2_000);
            // SAFETY: a plain call. One that waits for ever is ended by the signal.
            unsafe { libc::alarm(60) };
            if number % 2 == 0 {
                a_receiver_dies(chance, delay);
            } else {
                a_sender_dies(chance, delay);
            }
        }
    });
}

/// Sends until the peer is gone, by all semantics. Each message is one byte, over and over.
fn send_all(port: &mut Port, pool: &Pool, chance: u64) -> Error {
    let mut kept = Vec::new();
    for number in 0u64.. {
        let semantics = Semantics::ALL[((number + chance) % 8) as usize];
        let size = UNIT * (1 + (number % 3) as usize);
        let sent = pool.allocate(size).map_err(Error::Limit).and_then(|mut region| {
            region.bytes_mut().fill(number as u8);
            let sent = match semantics.index() {
                0 | 1 => port.send(&region.bytes()[..size], semantics.index() == 1 && number % 4 == 0),
                2 | 3 => port.send_shared(&region, size, semantics),
                _ => return port.send_region(region, size, semantics),
            };
            if semantics.index() == 1 {
                // The message is what was there at the call.
                region.bytes_mut()[0] = region.bytes()[0].wrapping_add(1);
            }
            kept.push((region, sent?));
            sent
        });
        match sent {
            Ok(_) | Err(Error::Limit(_)) => {}
            Err(error) => return error,
        }
        if let Err(error) = port.progress() {
            return error;
        }
        kept.retain(|(_, ticket)| port.completed(*ticket) == Ok(false));
    }
    unreachable!("numbers end after the test")
}

/// Receives until the peer is gone, in place and by copies. Messages are whole, whatever their sender did since.
fn receive_all(port: &mut Port) -> Error {
    let mut bytes = vec![0; 3 * UNIT];
    for number in 0u64.. {
        let got = if number % 3 == 0 {
            port.receive(&mut bytes).inspect(|length| assert!(bytes[..*length].iter().all(|byte| *byte == bytes[0])))
        } else {
            port.receive_reference().and_then(|message| {
                let length = message.length();
                port.give_back(message).map(|()| length)
            })
        };
        match got {
            Ok(length) => assert!(length % UNIT == 0 && length > 0),
            Err(error) => return error,
        }
    }
    unreachable!("numbers end after the test")
}

fn sender(fd: i32) -> (Port, Pool) {
    let mut port = Port::connect(fd).unwrap();
    let pool = Pool::create(SHAPE, Pages::Small, Audience::Anyone).unwrap();
    port.set_costs(Costs::USUAL);
    port.offer(&pool).unwrap();
    port.policy().tcow_from = UNIT;
    (port, pool)
}

fn a_receiver_dies(chance: u64, delay: Duration) {
    with_child(
        |fd| {
            receive_all(&mut Port::accept(fd).unwrap());
        },
        |fd, kill| {
            let (mut port, pool) = sender(fd);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(delay);
                    kill();
                });
                assert_eq!(send_all(&mut port, &pool, chance), Error::Gone);
            });
            port.abandon();
            assert_eq!(port.lent(), (0, 0));
            drop(port);
            assert_eq!(pool.free(), SHAPE.units);
        },
    );
}

fn a_sender_dies(chance: u64, delay: Duration) {
    with_child(
        |fd| {
            let (mut port, pool) = sender(fd);
            send_all(&mut port, &pool, chance);
        },
        |fd, kill| {
            let mut port = Port::accept(fd).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(delay);
                    kill();
                });
                assert_eq!(receive_all(&mut port), Error::Gone);
            });
        },
    );
}
