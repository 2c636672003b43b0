//! Rings that a process has not mapped: nothing is read or written there, and both ends can go on.

use crate::common::{byte_at, Connection};
use shunt_ring::Trouble;
use shunt_segment::area::{window_offset, CLASSES, FIRST_IN_WINDOW, RING_SIZE};

const SEED: u64 = 7;

fn message(from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|k| byte_at(SEED, k as u64)).collect()
}

/// Sends as much of the stream from `from` on as fits.
fn fill(connection: &Connection, from: usize) -> usize {
    let bytes = message(from, 512);
    let mut sent = 0;
    loop {
        // SAFETY: the whole of `bytes`; one thread sends.
        let part =
            unsafe { connection.outgoing(0).send(bytes.as_ptr().add(sent % bytes.len()), bytes.len() - sent % bytes.len()) };
        if part == 0 {
            return sent;
        }
        sent += part;
    }
}

#[test]
fn a_full_ring_asks_for_its_window_before_it_grows() {
    let connection = Connection::new([CLASSES - 1; 2]);
    let window = connection.window(0);
    window.hold(true);
    window.clear(); // of the socket's last stream
    let smaller: u32 = RING_SIZE[..FIRST_IN_WINDOW].iter().sum();
    assert_eq!(fill(&connection, 0), smaller as usize);
    assert!(window.is_wanted() && connection.outgoing(0).can_grow());
    connection.map_windows();
    let more = fill(&connection, 0);
    let larger: u32 = RING_SIZE[FIRST_IN_WINDOW..].iter().sum();
    assert_eq!(more, larger as usize, "the whole of each ring behind its border");
    assert!(connection.outgoing(0).is_in_window() && !connection.outgoing(0).can_grow());
}

#[test]
fn a_refused_window_leaves_the_smaller_rings() {
    let connection = Connection::new([CLASSES - 1; 2]);
    connection.window(0).refuse();
    let sent = fill(&connection, 0);
    assert_eq!(sent, RING_SIZE[..FIRST_IN_WINDOW].iter().sum::<u32>() as usize);
    assert!(!connection.outgoing(0).can_grow() && !connection.outgoing(0).is_in_window());
}

#[test]
fn a_receiver_without_the_window_learns_where_the_bytes_lie_in_the_file() {
    let connection = Connection::new([CLASSES - 1; 2]);
    let bytes = message(0, 3 << 20);
    // SAFETY: the whole of `bytes`; one thread sends.
    assert_eq!(unsafe { connection.outgoing(0).send(bytes.as_ptr(), bytes.len()) }, bytes.len());
    connection.window(0).refuse();
    let incoming = connection.incoming(1);
    let mut target = vec![0u8; bytes.len()];
    // SAFETY: room for the length; one thread receives.
    assert_eq!(unsafe { incoming.receive(target.as_mut_ptr(), 100) }, Err(Trouble::Unmapped));
    // SAFETY: as above.
    assert_eq!(unsafe { incoming.peek(0, target.as_mut_ptr(), 100) }, Err(Trouble::Unmapped));
    let (offset, length) = incoming.next_in_file(0).unwrap();
    assert!(offset >= window_offset(crate::common::CHANNEL, 0) && length > 0);
    assert_eq!(connection.file(offset, length), &bytes[..length]);
    incoming.pass(1000);
    let (next, _) = incoming.next_in_file(24).unwrap();
    assert_eq!(next, offset + 1024);
    connection.map_windows();
    // SAFETY: as above.
    let got = unsafe { incoming.receive(target.as_mut_ptr(), bytes.len()) }.unwrap();
    assert_eq!((got, &target[..got]), (bytes.len() - 1000, &bytes[1000..]));
}

#[test]
fn a_stream_of_short_messages_leaves_the_largest_ring_once_its_reader_is_near_if_caches_are_large() {
    use shunt_segment::channel::word::CLASS_SHIFT;
    use std::sync::atomic::Ordering::Relaxed;
    let connection = Connection::new([CLASSES - 1; 2]);
    connection.map_windows();
    let (outgoing, incoming) = (connection.outgoing(0), connection.incoming(1));
    outgoing.own.wait.processor.store(1, Relaxed);
    incoming.own.wait.processor.store(2, Relaxed);
    let class = || (outgoing.announced() >> CLASS_SHIFT) as usize & 7;
    let bytes = message(0, 512);
    let (mut sent, mut got) = (fill(&connection, 0), 0);
    assert_eq!(class(), CLASSES - 1, "a reader who is elsewhere and takes nothing");
    let mut take = |most: usize| {
        let mut target = vec![0u8; most];
        // SAFETY: room for the length; one thread receives.
        let taken = unsafe { incoming.receive(target.as_mut_ptr(), most) }.unwrap();
        assert!(target[..taken].iter().enumerate().all(|(k, byte)| *byte == bytes[(got + k) % bytes.len()]));
        got += taken;
        got
    };
    while sent - take(1 << 16) > 128 << 10 {}
    let small = shunt_sys::processor::cache_is_smaller_than(2 << 20);
    for _ in 0..3 {
        // SAFETY: the whole of `bytes`; one thread sends.
        assert_eq!(unsafe { outgoing.send(bytes.as_ptr(), bytes.len()) }, bytes.len());
        sent += bytes.len();
        assert_eq!(class(), if small { CLASSES - 1 } else { FIRST_IN_WINDOW });
    }
    sent += fill(&connection, 0);
    while take(1000) < sent {}
}
