//! Ports over networks whose calls do not wait for ever: what was not done in time is not lost, and goes on.

mod common;
mod pairs;

use common::UNIT;
use pairs::{between, fill, is_filled, whole};
use shunt_buffers::port::network::{NetworkPort as Port, NotSent};
use shunt_buffers::port::{Awaited, Error};
use shunt_buffers::Semantics;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_region::{Limit, Pool};
use std::time::Duration;

const NO_ROOM: Error = Error::Waited(Awaited::Room);
const NO_MESSAGE: Error = Error::Waited(Awaited::Message);

fn with_pair(test: impl for<'m> FnOnce(Port<'m, Udp>, Port<'m, Udp>, &Pool, &Pool)) {
    let udp = || Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap();
    between([udp(), udp()], 64, test);
}

fn filled(length: usize, seed: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill(&mut bytes, seed);
    bytes
}

fn settle(here: &mut Port<'_, Udp>, there: &mut Port<'_, Udp>) {
    for _ in 0..5000 {
        here.progress().unwrap();
        there.progress().unwrap();
    }
}

/// The same call again, until it has what it waits for; the other side does what it can meanwhile.
fn again<T>(other: &mut Port<'_, Udp>, mut call: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        other.progress().unwrap();
        match call() {
            Err(Error::Waited(_)) => {}
            done => return done.unwrap(),
        }
    }
}

/// Both send more than half of a pool, and neither receives before it has sent: as with sockets, one that does not block goes on.
#[test]
fn two_that_both_send_first_go_on() {
    for patience in [Duration::ZERO, Duration::from_millis(2)] {
        with_pair(|mut here, mut there, _, _| {
            let long = 20 * UNIT;
            for port in [&mut here, &mut there] {
                port.set_outboard();
                port.set_patience(Some(patience));
            }
            let mut sent = [0, 0];
            for (port, sent) in [&mut here, &mut there].into_iter().zip(&mut sent) {
                loop {
                    match port.send(&filled(long, *sent), Semantics::COPY) {
                        Ok(_) => *sent += 1,
                        Err(error) => break assert_eq!(error, NO_ROOM),
                    }
                }
                // Half of the pool has one, and the port's own memory another.
                assert_eq!((*sent, port.has_room(long), port.queued()), (2, Ok(false), (2 * long, 2)));
            }
            // What was refused is sent when there is room, and all is in order.
            let mut buffer = vec![0; long];
            for seed in 0..5 {
                for turn in 0..2 {
                    let (from, to) = if turn == 0 { (&mut here, &mut there) } else { (&mut there, &mut here) };
                    if seed < 3 {
                        assert_eq!(again(from, || to.receive(&mut buffer, Semantics::SHARE)), long);
                        assert!(is_filled(&buffer, seed));
                        again(to, || from.send(&filled(long, 2 + seed), Semantics::EMULATED_COPY));
                    } else {
                        let (region, length) = again(from, || to.receive_region(Semantics::EMULATED_MOVE));
                        assert!(length == long && is_filled(&region.bytes()[..long], seed));
                    }
                }
            }
            assert_eq!((here.queued(), there.queued()), ((0, 0), (0, 0)));
            again(&mut there, || here.drain());
        });
    }
}

/// What is not sent is the program's as before: its region, and its bytes.
#[test]
fn a_region_that_is_not_sent_is_given_back() {
    with_pair(|mut here, mut there, ours, _| {
        there.set_outboard();
        here.set_quota(4 * UNIT);
        let first = ours.allocate(3 * UNIT).unwrap();
        here.send_region(first, 3 * UNIT, Semantics::MOVE).unwrap();
        for semantics in [Semantics::MOVE, Semantics::EMULATED_MOVE, Semantics::WEAK_MOVE, Semantics::EMULATED_WEAK_MOVE] {
            let mut region = ours.allocate(2 * UNIT).unwrap();
            fill(region.bytes_mut(), 7);
            let place = region.pointer();
            let not_sent = here.at_once(|here| here.send_region(region, 2 * UNIT, semantics));
            let Err(NotSent { region: Some(mut region), why: NO_ROOM }) = not_sent else { panic!("{not_sent:?}") };
            assert!(region.pointer() == place && is_filled(region.bytes(), 7));
            region.bytes_mut()[0] = 1;
        }
        let shared = ours.allocate(2 * UNIT).unwrap();
        assert_eq!(here.at_once(|here| here.send_shared(&shared, 2 * UNIT, Semantics::SHARE)), Err(NO_ROOM));
        assert_eq!((here.has_room(UNIT), here.has_room(2 * UNIT), here.queued().1), (Ok(true), Ok(false), 1));
        settle(&mut here, &mut there);
        assert_eq!(here.at_once(|here| here.drain()), Err(Error::Waited(Awaited::Arrival)));
        there.set_patience(Some(Duration::ZERO));
        assert_eq!(again(&mut here, || there.receive(&mut vec![0; 3 * UNIT], Semantics::COPY)), 3 * UNIT);
        again(&mut there, || here.at_once(|here| here.drain()));
        assert_eq!(here.has_room(2 * UNIT), Ok(true));
    });
}

/// A call ends in the middle of a message, whose rest is the next call's, by any semantics, and for a buffer or a region.
#[test]
fn a_message_goes_on_in_the_next_call() {
    for outboard in [false, true] {
        for semantics in Semantics::ALL {
            with_pair(|mut here, mut there, ours, theirs| {
                if outboard {
                    there.set_outboard();
                } else {
                    there.set_pooled(0);
                }
                there.set_patience(Some(Duration::ZERO));
                let length = 10 * UNIT;
                let (mut untouched, mut calls) = (vec![0x55; length], 0);
                let application = semantics.allocation == shunt_buffers::Allocation::Application;
                // Nothing has come; then it is announced, and then it comes.
                assert_eq!(there.next_length(), Err(NO_MESSAGE));
                let mut region = ours.allocate(length).unwrap();
                fill(region.bytes_mut(), 3);
                let ticket = here.send_shared(&region, length, Semantics::SHARE).unwrap();
                loop {
                    calls += 1;
                    let came = match application {
                        true => there.receive(&mut untouched, semantics),
                        false => there.receive_region(semantics).map(|(region, length)| {
                            untouched[..length].copy_from_slice(&region.bytes()[..length]);
                            length
                        }),
                    };
                    match came {
                        Err(error) => assert!(error == NO_MESSAGE && untouched.iter().all(|byte| *byte == 0x55)),
                        Ok(came) => break assert!(came == length && is_filled(&untouched, 3)),
                    }
                    here.progress().unwrap();
                }
                assert!(calls > 2 && here.completed(ticket).unwrap() && there.pooled() == 0);
                drop(there);
                whole(theirs);
            });
        }
    }
}

/// An input that is posted stays so; and where there is no memory for a message it waits.
#[test]
fn what_is_posted_is_still_posted() {
    with_pair(|mut here, mut there, ours, theirs| {
        there.set_pooled(0);
        there.set_patience(Some(Duration::ZERO));
        there.post(2 * UNIT, Semantics::EMULATED_MOVE).unwrap();
        assert_eq!(there.posted().map(|_| ()), Err(NO_MESSAGE));
        let region = ours.allocate(2 * UNIT).unwrap();
        here.send_shared(&region, 2 * UNIT, Semantics::SHARE).unwrap();
        assert_eq!(again(&mut here, || there.posted()).1, 2 * UNIT);
        here.send_shared(&region, 2 * UNIT, Semantics::SHARE).unwrap();
        settle(&mut here, &mut there);
        let mut rest = vec![];
        while let Ok(region) = theirs.allocate(UNIT) {
            rest.push(region);
        }
        let mut buffer = vec![0; 2 * UNIT];
        assert_eq!(there.receive(&mut buffer, Semantics::SHARE), Err(Error::Limit(Limit::PoolFull)));
        drop(rest);
        assert_eq!(again(&mut here, || there.receive(&mut buffer, Semantics::SHARE)), 2 * UNIT);
    });
}

/// A peer that has gone is gone, however little patience there is.
#[test]
fn who_has_gone_is_not_waited_for() {
    with_pair(|mut here, there, _, _| {
        here.set_patience(Some(Duration::ZERO));
        drop(there);
        while here.send(b"x", Semantics::COPY) != Err(Error::Gone) {}
        assert_eq!((here.next_length(), here.has_room(1)), (Err(Error::Gone), Err(Error::Gone)));
    });
}

/// Who has waited in vain, and does something else for longer than a silent peer is waited for, has its connection still.
#[test]
fn who_comes_back_late_finds_its_peer() {
    with_pair(|mut here, mut there, _, _| {
        settle(&mut here, &mut there);
        there.set_patience(Some(Duration::from_millis(1)));
        assert_eq!(there.next_length(), Err(NO_MESSAGE));
        std::thread::sleep(Duration::from_millis(5500));
        assert_eq!(there.next_length(), Err(NO_MESSAGE));
        here.send(b"x", Semantics::COPY).unwrap();
        assert_eq!(again(&mut here, || there.receive(&mut [0], Semantics::COPY)), 1);
    });
}
