//! Order: of each sender's datagrams and bytes, by whatever way they went, while threads send and receive at once.

use super::*;
use shunt_sys::libc::{AF_INET, MSG_DONTWAIT, SOCK_SEQPACKET, SOCK_STREAM};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// So many may be under way: none is to be dropped.
const AHEAD: usize = 50;

#[test]
fn two_senders_keep_each_its_order() {
    const EACH: usize = 5_000;
    in_both(|world| {
        let far = world.udp(AF_INET);
        let got = AtomicUsize::new(0);
        thread::scope(|scope| {
            for sender in 0..2 {
                let (world, got) = (&world, &got);
                scope.spawn(move || {
                    let near = world.udp(AF_INET);
                    for number in 0..EACH {
                        while number * 2 > got.load(Ordering::Acquire) + AHEAD {
                            thread::yield_now();
                        }
                        world.send_to(near, format!("{sender} {number}").as_bytes(), far).unwrap();
                    }
                });
            }
            let mut next = [0; 2];
            while next != [EACH; 2] {
                let text = world.text(far, 64, 0).unwrap();
                let (sender, number) = text.split_once(' ').unwrap();
                let sender: usize = sender.parse().unwrap();
                assert_eq!(number.parse(), Ok(next[sender]));
                next[sender] += 1;
                got.store(2 * next[0].min(next[1]), Ordering::Release);
            }
        });
    });
}

#[test]
fn two_receivers_get_each_datagram_once() {
    const ALL: usize = 5_000;
    in_both(|world| {
        let (near, far) = world.two();
        let got = AtomicUsize::new(0);
        let mut all = thread::scope(|scope| {
            let receiving = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut mine: Vec<usize> = Vec::new();
                    loop {
                        let text = world.text(far, 64, 0).unwrap();
                        if text == "end" {
                            return mine;
                        }
                        mine.push(text.parse().unwrap());
                        got.fetch_add(1, Ordering::AcqRel);
                    }
                })
            });
            for number in 0..ALL {
                while number > got.load(Ordering::Acquire) + AHEAD {
                    thread::yield_now();
                }
                world.send_to(near, number.to_string().as_bytes(), far).unwrap();
            }
            (0..2).for_each(|_| _ = world.send_to(near, b"end", far).unwrap());
            receiving.map(|receiver| receiver.join().unwrap()).concat()
        });
        all.sort();
        assert!(all.into_iter().eq(0..ALL));
    });
}

#[test]
fn a_receiver_that_sleeps_now_and_then_misses_nothing() {
    const ALL: usize = 1_000;
    in_both(|world| {
        let (near, far) = world.two();
        let got = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..ALL {
                    assert_eq!(world.text(far, 64, 0).unwrap(), number.to_string());
                    got.store(number + 1, Ordering::Release);
                }
            });
            for number in 0..ALL {
                if number % 40 == 0 {
                    thread::sleep(std::time::Duration::from_millis(2)); // it is asleep by now, as a rule
                }
                while number > got.load(Ordering::Acquire) + AHEAD {
                    thread::yield_now();
                }
                world.send_to(near, number.to_string().as_bytes(), far).unwrap();
            }
        });
    });
}

#[test]
fn a_stream_keeps_its_order_through_ring_and_queue() {
    const ALL: usize = 2_000_000;
    in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        let pattern = |at: usize| (at * 7 + at / 251) as u8;
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut at, mut length) = (0, 1);
                while at < ALL {
                    let bytes: Vec<u8> = (at..(at + length).min(ALL)).map(pattern).collect();
                    at += world.send(near, &bytes, 0).unwrap();
                    length = length * 3 % 70_001;
                }
                world.shut(near, shunt_sys::libc::SHUT_WR).unwrap();
            });
            let (mut at, mut most) = (0, 5);
            loop {
                let got = world.receive_message(far, plain(&[most], 0)).unwrap();
                if got.told == 0 {
                    break;
                }
                assert!(got.bytes[..got.told].iter().enumerate().all(|(index, byte)| *byte == pattern(at + index)), "at {at}");
                at += got.told;
                most = (most * 5) % 40_009 + 1;
            }
            assert_eq!(at, ALL);
        });
    });
}

#[test]
fn packets_keep_their_order_and_their_lengths() {
    const ALL: usize = 3_000;
    in_both(|world| {
        let (near, far) = world.pair(SOCK_SEQPACKET);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..ALL {
                    world.send(near, &vec![number as u8; number * 37 % 9_001 + 1], 0).unwrap();
                }
            });
            for number in 0..ALL {
                let got = world.receive_message(far, plain(&[10_000], 0)).unwrap();
                assert_eq!(got.told, number * 37 % 9_001 + 1);
                assert!(got.bytes[..got.told].iter().all(|byte| *byte == number as u8));
            }
        });
    });
}

#[test]
fn to_and_fro_without_losing_a_turn() {
    in_both(|world| {
        for kind in [SOCK_STREAM, SOCK_SEQPACKET] {
            let (near, far) = world.pair(kind);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let text = world.text(far, 8, 0).unwrap();
                        world.send(far, text.as_bytes(), 0).unwrap();
                    }
                });
                for number in 0..2_000 {
                    world.send(near, number.to_string().as_bytes(), 0).unwrap();
                    assert_eq!(world.text(near, 8, 0).unwrap(), number.to_string());
                }
            });
        }
    });
}

#[test]
fn a_gate_that_others_shut_and_open_at_any_moment_loses_nothing_and_doubles_nothing() {
    const ALL: usize = 20_000;
    let world = &World::new(true);
    let (near, far) = world.two();
    let (done, got) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let socket = world.object(far);
            while !done.load(Ordering::Acquire) {
                let how = socket.cool();
                (0..100).for_each(|_| core::hint::spin_loop());
                socket.warm(how);
                (0..100).for_each(|_| core::hint::spin_loop());
            }
        });
        scope.spawn(|| {
            let mut seen = vec![false; ALL];
            for count in 1..=ALL {
                let number: usize = loop {
                    match world.text(far, 64, MSG_DONTWAIT) {
                        Ok(text) => break text.parse().unwrap(),
                        Err(error) => assert_eq!(error, Errno(shunt_sys::libc::EAGAIN)),
                    }
                };
                // One that the kernel carries may pass those in memory where this thread rests between its two looks (`let_drain`).
                assert!(!core::mem::replace(&mut seen[number], true), "{number} came twice");
                got.store(count, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        for number in 0..ALL {
            while number > got.load(Ordering::Acquire) + AHEAD {
                thread::yield_now();
            }
            world.send_to(near, number.to_string().as_bytes(), far).unwrap();
        }
    });
}
