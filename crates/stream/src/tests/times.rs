//! When bytes moved, and which came first.

use super::*;
use crate::seen::Seen;
use crate::stamp;
use core::sync::atomic::AtomicU64;
use shunt_sys::clock;

fn now() -> u64 {
    clock::monotonic_ns() / 1_000_000
}

/// A direction of which nothing was asked.
fn unasked() -> Seen {
    pair::start();
    // SAFETY: two words of zeros.
    unsafe { core::mem::transmute::<[AtomicU64; 2], Seen>([AtomicU64::new(0), AtomicU64::new(0)]) }
}

#[test]
fn a_direction_that_never_moved_is_as_idle_as_its_connection_is_old() {
    let seen = unasked();
    assert!((5000..6000).contains(&seen.idle(0, now() - 5000)));
}

#[test]
fn bytes_that_moved_since_the_last_question_moved_now() {
    let seen = unasked();
    seen.idle(0, now() - 5000);
    assert!(seen.idle(7, now() - 5000) < 1000);
}

#[test]
fn nothing_that_moved_since_leaves_the_time_standing() {
    let seen = unasked();
    seen.idle(0, now() - 5000);
    assert!(seen.idle(0, now()) >= 5000, "the beginning was told before");
}

#[test]
fn a_new_connection_is_asked_anew() {
    let seen = unasked();
    seen.idle(7, now());
    seen.reset();
    assert!(seen.idle(0, now() - 3000) >= 3000);
}

/// Sends with a stamp, as to a peer in a set with other streams.
fn send(end: &End, bytes: &[u8]) {
    end.send(bytes, 0).unwrap();
    stamp::arrived(end.socket);
}

#[test]
fn bytes_that_came_first_are_older() {
    let (one, other) = (Pair::new(), Pair::new());
    send(&one.near, b"first");
    send(&other.near, b"second");
    let now = clock::ticks();
    let [first, second] = [&one, &other].map(|pair| stamp::age(pair.far.socket, now));
    assert!(first > second && second > 0, "{first} {second}");
}

#[test]
fn what_was_read_has_no_age() {
    let Pair { near, far } = &Pair::new();
    assert_eq!(stamp::age(far.socket, clock::ticks()), 0);
    send(near, b"x");
    assert!(stamp::age(far.socket, clock::ticks()) > 0);
    far.text(4, 0).unwrap();
    assert_eq!(stamp::age(far.socket, clock::ticks()), 0);
}

#[test]
fn later_bytes_make_those_that_wait_no_younger() {
    let Pair { near, far } = &Pair::new();
    send(near, b"first");
    let then = clock::ticks();
    while clock::ticks() < then + 50_000 {}
    send(near, b"second");
    assert!(stamp::age(far.socket, clock::ticks()) > 50_000);
}

#[test]
fn an_end_has_an_age_as_bytes_have() {
    let Pair { near, far } = &Pair::new();
    near.shut(libc::SHUT_WR).unwrap();
    stamp::arrived(near.socket);
    assert!(stamp::age(far.socket, clock::ticks()) > 0);
}
