//! Completions of MSG_ZEROCOPY: each number is told once.

use super::*;
use crate::error_queue;
use crate::options::effects;
use crate::socket::Socket;
use shunt_sys::libc;
use std::sync::atomic::{AtomicBool, Ordering};

fn zero_copy(socket: &Socket, value: i32) {
    effects::apply(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &value.to_ne_bytes());
}

/// What is told of so far, in the order of numbers.
fn ranges(mut told: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    told.sort();
    told
}

#[test]
fn numbers_that_follow_each_other_are_told_at_once() {
    let Pair { near, .. } = &Pair::new();
    zero_copy(near.socket, 1);
    assert!(!error_queue::pending(near.socket));
    (0..3).for_each(|_| error_queue::completed(near.socket));
    assert!(error_queue::pending(near.socket));
    let told = error_queue::take(near.socket).expect("a notification");
    assert_eq!((told.ee_info, told.ee_data), (0, 2));
    assert!(error_queue::take(near.socket).is_none() && !error_queue::pending(near.socket));
    error_queue::completed(near.socket);
    let told = error_queue::take(near.socket).expect("a notification");
    assert_eq!((told.ee_info, told.ee_data), (3, 3));
}

#[test]
fn the_queue_outlives_the_option() {
    let Pair { near, .. } = &Pair::new();
    zero_copy(near.socket, 1);
    error_queue::completed(near.socket);
    zero_copy(near.socket, 0);
    assert!(error_queue::pending(near.socket));
    let told = error_queue::take(near.socket).expect("a notification");
    assert_eq!((told.ee_info, told.ee_data), (0, 0));
    assert!(!error_queue::pending(near.socket));
}

#[test]
fn numbers_wrap() {
    let Pair { near, .. } = &Pair::new();
    zero_copy(near.socket, 1);
    near.socket.connected.zero_copies.store(u32::MAX, Ordering::Relaxed);
    near.socket.connected.zero_copies_reported.store(u32::MAX, Ordering::Relaxed);
    (0..2).for_each(|_| error_queue::completed(near.socket));
    let told = error_queue::take(near.socket).expect("a notification");
    assert_eq!((told.ee_info, told.ee_data), (u32::MAX, 0));
}

#[test]
fn threads_that_take_at_once_get_different_numbers() {
    const SENDS: u32 = 3_000_000;
    let Pair { near, .. } = &Pair::new();
    zero_copy(near.socket, 1);
    let done = AtomicBool::new(false);
    let taker = || {
        let mut told = Vec::new();
        loop {
            let last = done.load(Ordering::Acquire);
            match error_queue::take(near.socket) {
                Some(range) => told.push((range.ee_info, range.ee_data)),
                None if last => return told,
                None => core::hint::spin_loop(),
            }
        }
    };
    let told = std::thread::scope(|scope| {
        let takers = [(); 3].map(|()| scope.spawn(taker));
        for _ in 0..SENDS {
            near.socket.connected.zero_copies.fetch_add(1, Ordering::Release);
        }
        done.store(true, Ordering::Release);
        takers.map(|taker| taker.join().expect("a list")).concat()
    });
    let mut next = 0;
    for (first, last) in ranges(told) {
        assert!(first == next && last >= first, "{first}..={last}, where {next} comes next");
        next = last + 1;
    }
    assert_eq!(next, SENDS);
}
