//! Two threads exchange streams in both directions; every byte arrives once, in order, whatever the sizes and classes.

use crate::common::{byte_at, Connection, Random};
use shunt_segment::area::CLASSES;
use shunt_segment::sync::Ordering::Relaxed;

const BYTES: u64 = if cfg!(debug_assertions) { 12 << 20 } else { 96 << 20 };
const LARGEST: usize = 150_000;

/// Both directions of one end, until each has carried `BYTES`.
fn exchange(connection: &Connection, end: usize, seed: u64, largest: usize) {
    let (outgoing, incoming) = (connection.outgoing(end), connection.incoming(end));
    let (mut sent, mut received) = (0u64, 0u64);
    let mut random = Random(seed + end as u64);
    let mut buffer = vec![0u8; largest];
    let mut idle = 0u32;
    while sent < BYTES || received < BYTES {
        let before = (sent, received);
        if sent < BYTES {
            let length = random.length(largest).min((BYTES - sent) as usize);
            for (k, byte) in buffer[..length].iter_mut().enumerate() {
                *byte = byte_at(end as u64, sent + k as u64);
            }
            // SAFETY: `length` bytes were just written; this thread alone sends here.
            sent += unsafe { outgoing.send(buffer.as_ptr(), length) } as u64;
        }
        // Several small reads a write, or one large: lets rings fill, run empty and stop at borders.
        for _ in 0..1 + random.below(6) {
            let length = random.length(largest);
            if random.below(16) == 0 {
                // SAFETY: room for `length`; this thread alone receives here.
                let count = unsafe { incoming.peek(0, buffer.as_mut_ptr(), length) }.expect("an honest peer");
                check(&buffer[..count], 1 - end, received);
            }
            // SAFETY: as above.
            let count = unsafe { incoming.receive(buffer.as_mut_ptr(), length) }.expect("an honest peer");
            check(&buffer[..count], 1 - end, received);
            received += count as u64;
        }
        if random.below(200) == 0 {
            let class = random.below(CLASSES as u64) as u32;
            outgoing.own.transmit.class_limit.store(class, Relaxed);
        }
        // Two cores are shared with other tests: give way when nothing moves.
        idle = if before == (sent, received) { idle + 1 } else { 0 };
        if idle > 50 {
            std::thread::yield_now();
        }
    }
}

fn check(bytes: &[u8], stream: usize, offset: u64) {
    for (k, &byte) in bytes.iter().enumerate() {
        assert_eq!(byte, byte_at(stream as u64, offset + k as u64), "stream {stream}, byte {}", offset + k as u64);
    }
}

fn both_ends(start: u64, largest: usize) {
    let connection = Connection::new([3, 3]);
    connection.set_apart();
    connection.start_at(start);
    std::thread::scope(|scope| {
        for end in 0..2 {
            let connection = &connection;
            scope.spawn(move || exchange(connection, end, 9 + start, largest));
        }
    });
}

#[test]
fn streams_of_mixed_messages() {
    both_ends(0, LARGEST);
}

#[test]
fn streams_of_small_messages_across_the_wrap() {
    both_ends((1 << 48) - BYTES / 2, 300);
}

/// Request and reply: the inline path, with sizes around its limit.
#[test]
fn round_trips() {
    let connection = Connection::new([3, 3]);
    connection.start_at((1 << 48) - 10_000);
    let rounds = if cfg!(debug_assertions) { 20_000u64 } else { 200_000 };
    std::thread::scope(|scope| {
        for end in 0..2usize {
            let connection = &connection;
            scope.spawn(move || {
                let (outgoing, incoming) = (connection.outgoing(end), connection.incoming(end));
                let mut random = Random(5);
                let mut offset = 0;
                for round in 0..rounds * 2 {
                    // Both ends draw the same lengths; they take turns.
                    let length = if round % 50 == 0 { random.length(5000) } else { random.length(64) };
                    let mut buffer: Vec<u8> = (0..length as u64).map(|k| byte_at(round % 2, offset + k)).collect();
                    if round % 2 == end as u64 {
                        let mut sent = 0;
                        while sent < length {
                            // SAFETY: inside `buffer`; this thread alone sends here.
                            sent += unsafe { outgoing.send(buffer.as_ptr().add(sent), length - sent) };
                        }
                    } else {
                        buffer.fill(0);
                        let (mut got, mut spins) = (0, 0u32);
                        while got < length {
                            // SAFETY: inside `buffer`; this thread alone receives here.
                            let part = unsafe { incoming.receive(buffer.as_mut_ptr().add(got), length - got) };
                            got += part.expect("an honest peer");
                            spins += 1;
                            if spins % 200 == 0 {
                                std::thread::yield_now();
                            }
                        }
                        check(&buffer, (round % 2) as usize, offset);
                    }
                    offset += length as u64;
                }
            });
        }
    });
}
