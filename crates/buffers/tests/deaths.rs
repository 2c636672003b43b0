//! Real processes: what they send each other, and what is left when one is killed with a region in every state.

mod common;

use common::{with_child, SHAPE, UNIT};
use shunt_buffers::costs::Costs;
use shunt_buffers::port::{Error, Port};
use shunt_buffers::Semantics;
use shunt_region::{Audience, Limit, Pages, Pool, Shape};

fn word(port: &mut Port) -> u8 {
    let mut byte = [0];
    port.receive(&mut byte).unwrap();
    byte[0]
}

#[test]
fn a_receiver_that_is_killed_holds_nothing() {
    // Children of a program with one thread.
    common::alone("a_receiver_that_is_killed_holds_nothing", a_receiver_that_is_killed_holds_nothing_alone);
}

fn a_receiver_that_is_killed_holds_nothing_alone() {
    for semantics in Semantics::ALL {
        for stage in 0..3 {
            with_child(
                |fd| {
                    let mut port = Port::accept(fd).unwrap();
                    // 0: nothing received; 1: read in place and never given back; 2: copied, and more under way.
                    match stage {
                        0 => {}
                        1 => std::mem::forget(port.receive_reference().unwrap()),
                        _ => drop(port.receive(&mut vec![0; 2 * UNIT]).unwrap()),
                    }
                    port.send(b"k", false).unwrap();
                    std::mem::forget(port);
                },
                |fd, kill| {
                    let mut port = Port::connect(fd).unwrap();
                    let pool = Pool::create(SHAPE, Pages::Small, Audience::Anyone).unwrap();
                    port.set_costs(Costs::USUAL);
                    port.offer(&pool).unwrap();
                    port.policy().tcow_from = UNIT;
                    port.policy().waiting_from = usize::MAX;
                    let mut kept = Vec::new();
                    for _ in 0..3 {
                        let mut region = pool.allocate(2 * UNIT).unwrap();
                        region.bytes_mut().fill(7);
                        match semantics.index() {
                            0 | 1 => drop(port.send(region.bytes(), semantics.index() == 1).unwrap()),
                            2 | 3 => drop(port.send_shared(&region, 2 * UNIT, semantics).unwrap()),
                            _ => {
                                port.send_region(region, 2 * UNIT, semantics).unwrap();
                                continue;
                            }
                        }
                        kept.push(region);
                    }
                    assert_eq!(word(&mut port), b'k');
                    kill();
                    assert_eq!(port.receive(&mut [0]), Err(Error::Gone));
                    port.abandon();
                    assert_eq!(port.lent(), (0, 0), "{} at {stage}", semantics.name());
                    for region in &mut kept {
                        region.bytes_mut().fill(8);
                    }
                    drop(kept);
                    drop(port);
                    assert_eq!(pool.free(), SHAPE.units, "{} at {stage}", semantics.name());
                },
            );
        }
    }
}

#[test]
fn what_a_sender_sent_before_it_was_killed_is_delivered() {
    // Children of a program with one thread.
    common::alone(
        "what_a_sender_sent_before_it_was_killed_is_delivered",
        what_a_sender_sent_before_it_was_killed_is_delivered_alone,
    );
}

fn what_a_sender_sent_before_it_was_killed_is_delivered_alone() {
    for semantics in
        [Semantics::EMULATED_COPY, Semantics::EMULATED_SHARE, Semantics::EMULATED_MOVE, Semantics::EMULATED_WEAK_MOVE]
    {
        with_child(
            |fd| {
                let mut port = Port::connect(fd).unwrap();
                let pool = Pool::create(SHAPE, Pages::Small, Audience::Anyone).unwrap();
                port.set_costs(Costs::USUAL);
                port.offer(&pool).unwrap();
                port.policy().tcow_from = UNIT;
                let mut region = pool.allocate(UNIT).unwrap();
                region.bytes_mut().fill(5);
                match semantics.index() {
                    1 => {
                        port.send(region.bytes(), true).unwrap();
                        region.bytes_mut()[0] = 6;
                    }
                    3 => drop(port.send_shared(&region, UNIT, semantics).unwrap()),
                    _ => drop(port.send_region(region, UNIT, semantics).unwrap()),
                }
                port.send(b"k", false).unwrap();
                std::mem::forget((port, pool));
            },
            |fd, kill| {
                let mut port = Port::accept(fd).unwrap();
                assert_eq!(port.next_length(), Ok(UNIT));
                kill();
                let mut bytes = vec![0; UNIT];
                assert_eq!(port.receive(&mut bytes), Ok(UNIT));
                assert!(bytes.iter().all(|byte| *byte == 5), "{}", semantics.name());
                // It may have been killed before it sent the next one, which is whole, too, if it did.
                if port.receive(&mut bytes) == Ok(1) {
                    assert_eq!(bytes[0], b'k');
                }
                assert_eq!(port.receive(&mut bytes), Err(Error::Gone));
            },
        );
    }
}

#[test]
fn a_waiting_sender_is_pulled_from_and_never_waits_for_a_stopped_receiver() {
    // Children of a program with one thread.
    common::alone(
        "a_waiting_sender_is_pulled_from_and_never_waits_for_a_stopped_receiver",
        a_waiting_sender_is_pulled_from_and_never_waits_for_a_stopped_receiver_alone,
    );
}

fn a_waiting_sender_is_pulled_from_and_never_waits_for_a_stopped_receiver_alone() {
    for stopped in [false, true] {
        with_child(
            |fd| {
                let mut port = Port::accept(fd).unwrap();
                if stopped {
                    // It looks at nothing.
                    return std::mem::forget(port);
                }
                for round in 0..200u32 {
                    let length = port.next_length().unwrap();
                    let mut bytes = vec![0; length];
                    port.receive(&mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == round as u8), "{round}");
                }
                port.send(b"k", false).unwrap();
                std::mem::forget(port);
            },
            |fd, kill| {
                let mut port = Port::connect(fd).unwrap();
                let pool = Pool::create(Shape { unit: UNIT, units: 256 }, Pages::Small, Audience::Anyone).unwrap();
                port.set_costs(Costs::USUAL);
                port.offer(&pool).unwrap();
                port.policy().waiting_from = 1;
                let mut region = pool.allocate(1 << 20).unwrap();
                let rounds = if stopped { 2 } else { 200 };
                for round in 0..rounds {
                    region.bytes_mut().fill(round as u8);
                    port.send(&region.bytes()[..(round * 7919 + 20_000) % (1 << 20)], false).unwrap();
                }
                // Where the receiver is far behind, messages are copied into the ring.
                let copied: u64 = Limit::ALL.iter().map(|limit| port.copied(*limit)).sum();
                assert_eq!(copied, port.copied(Limit::Pulling) + port.copied(Limit::PoolFull));
                if !stopped {
                    assert_eq!(word(&mut port), b'k');
                }
                kill();
            },
        );
    }
}

#[test]
fn a_quota_makes_a_sender_copy() {
    let (mut here, mut there, pool) = common::joined();
    here.set_quota(UNIT).unwrap();
    let pool = {
        drop(pool);
        Pool::create(SHAPE, Pages::Small, Audience::Anyone).unwrap()
    };
    here.set_costs(Costs::USUAL);
    here.offer(&pool).unwrap();
    let region = pool.allocate(UNIT).unwrap();
    for _ in 0..2 {
        here.send_shared(&region, UNIT, Semantics::EMULATED_SHARE).unwrap();
    }
    assert_eq!(here.copied(Limit::Quota), 1);
    let mut bytes = vec![0; UNIT];
    for _ in 0..2 {
        there.receive(&mut bytes).unwrap();
    }
    here.progress().unwrap();
    here.send_shared(&region, UNIT, Semantics::EMULATED_SHARE).unwrap();
    assert_eq!(here.copied(Limit::Quota), 1);
    // A pool is seen by one peer that is not trusted.
    let (mut other, _far) = Port::pair().unwrap();
    assert_eq!(other.offer(&pool), Err(Error::Limit(Limit::OtherPeer)));
}
