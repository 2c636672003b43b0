//! Bytes that are held back: the receiver sees them when they are pushed, when a segment is full, when more is sent or the end,
//! and when it takes them itself.

use crate::common::{byte_at, Connection};
use shunt_ring::SEGMENT;
use shunt_segment::area::CLASSES;
use shunt_segment::channel::word;

const SEED: u64 = 7;

fn connection() -> Connection {
    Connection::new([CLASSES - 1; 2])
}

fn message(from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|k| byte_at(SEED, k as u64)).collect()
}

fn hold(connection: &Connection, from: usize, length: usize) {
    let bytes = message(from, length);
    // SAFETY: the whole of `bytes`; one thread sends.
    let kept = unsafe { connection.outgoing(0).hold(bytes.as_ptr(), length) };
    assert_eq!(kept, length);
}

fn send(connection: &Connection, from: usize, length: usize) {
    let bytes = message(from, length);
    // SAFETY: as above.
    let sent = unsafe { connection.outgoing(0).send(bytes.as_ptr(), length) };
    assert_eq!(sent, length);
}

fn waiting(connection: &Connection) -> usize {
    connection.incoming(1).look().1
}

fn assert_received(connection: &Connection, from: usize, length: usize) {
    assert_eq!(waiting(connection), length);
    let mut bytes = vec![0; length];
    let mut got = 0;
    while got < length {
        // SAFETY: the rest of `bytes`; one thread receives.
        got += unsafe { connection.incoming(1).receive(bytes.as_mut_ptr().add(got), length - got) }.expect("no trouble");
    }
    assert!(bytes == message(from, length));
}

/// Of `length` bytes that were held so far.
fn assert_full_segments_announced(connection: &Connection, length: usize) {
    let rest = length % SEGMENT;
    assert_eq!((waiting(connection), connection.outgoing(0).held()), (length - rest, rest));
}

#[test]
fn a_push_or_the_next_message_announces_all() {
    let connection = connection();
    hold(&connection, 0, 3);
    hold(&connection, 3, 300);
    assert_eq!((waiting(&connection), connection.outgoing(0).held()), (0, 303));
    connection.outgoing(0).push();
    assert_received(&connection, 0, 303);
    hold(&connection, 303, 5);
    send(&connection, 308, 4);
    assert_received(&connection, 303, 9);
    assert_eq!(connection.outgoing(0).held(), 0);
}

#[test]
fn full_segments_are_announced_whatever_ring_they_lie_in() {
    let connection = connection();
    let mut at = 0;
    for length in [10, 1000, SEGMENT, 3 * SEGMENT + 7, 5] {
        hold(&connection, at, length);
        at += length;
        assert_full_segments_announced(&connection, at);
    }
    connection.outgoing(0).push();
    assert_received(&connection, 0, at);
}

#[test]
fn a_source_that_fills_is_held_as_well_and_its_full_segments_are_announced() {
    let connection = connection();
    let (mut at, mut filled) = (0, 0);
    for length in [10, SEGMENT, 300, 2 * SEGMENT - 7, SEGMENT + 5, SEGMENT] {
        let bytes = message(at, length);
        let source = |pieces: [(*mut u8, usize); 2]| {
            let mut from = 0;
            for (data, room) in pieces {
                let part = room.min(length - from);
                // SAFETY: free space of the ring; one thread.
                unsafe { data.copy_from(bytes[from..].as_ptr(), part) };
                from += part;
            }
            from
        };
        // SAFETY: one thread.
        let part = unsafe { connection.outgoing(0).fill(1, length, true, source) }.unwrap_or(0);
        hold(&connection, at + part, length - part);
        filled += part;
        at += length;
        assert_full_segments_announced(&connection, at);
    }
    assert!(filled >= SEGMENT, "{filled}");
    connection.outgoing(0).push();
    assert_received(&connection, 0, at);
}

#[test]
fn the_end_announces_what_was_held() {
    let connection = connection();
    hold(&connection, 0, 3);
    connection.outgoing(0).end(word::FIN);
    assert_received(&connection, 0, 3);
}

#[test]
fn a_reset_announces_nothing_that_was_held() {
    let connection = connection();
    send(&connection, 0, 5);
    hold(&connection, 5, 3);
    connection.outgoing(0).leave_held(17);
    connection.outgoing(0).end(word::RST | word::CLOSED);
    assert!(connection.incoming(1).held_until().is_none());
    assert_eq!(connection.outgoing(0).held(), 0);
    assert_received(&connection, 0, 5);
    assert!(connection.incoming(1).look().0 & word::RST != 0);
}

#[test]
fn the_receiver_takes_what_was_left_to_it_and_nothing_older() {
    let connection = connection();
    assert!(connection.incoming(1).held_until().is_none());
    hold(&connection, 0, 3);
    connection.outgoing(0).leave_held(17);
    assert_eq!(connection.incoming(1).held_until(), Some(17));
    assert!(connection.incoming(1).take_held());
    assert_received(&connection, 0, 3);
    assert!(!connection.incoming(1).take_held());

    hold(&connection, 3, 4);
    connection.outgoing(0).leave_held(18);
    hold(&connection, 7, 5);
    assert!(connection.incoming(1).take_held()); // the word that it was left, and not the newest byte
    assert_eq!((waiting(&connection), connection.outgoing(0).held()), (4, 5));
    send(&connection, 12, 1);
    assert!(connection.incoming(1).held_until().is_none());
    assert_received(&connection, 3, 10);
}
