//! Any sequence of sends, receives and peeks delivers what a queue would.

use crate::common::{byte_at, Connection, CHANNEL};
use proptest::prelude::*;
use shunt_segment::area::{ring_offset, CLASSES, RING_SIZE};
use shunt_segment::channel::word;
use shunt_segment::sync::Ordering::Relaxed;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Operation {
    Send {
        end: usize,
        length: usize,
    },
    /// By a source that may have less than there is room for.
    Fill {
        end: usize,
        least: usize,
        length: usize,
        has: usize,
    },
    Receive {
        end: usize,
        length: usize,
    },
    Peek {
        end: usize,
        skip: usize,
        length: usize,
    },
    /// Looked at, then passed over: how vectors are filled.
    Pass {
        end: usize,
        length: usize,
    },
    PassAll {
        end: usize,
        length: usize,
        count: usize,
    },
    PingPong {
        end: usize,
        length: usize,
        count: usize,
    },
    LimitClass {
        end: usize,
        class: usize,
    },
    /// A message that goes past the ring, if that is empty.
    HandOver {
        end: usize,
        length: usize,
    },
    /// A message in two pieces, for which one ring is chosen first.
    InPieces {
        end: usize,
        first: usize,
        length: usize,
    },
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..=64,
        3 => 1usize..=2048,
        3 => 1usize..=70_000,
        1 => 1usize..=600_000,
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let end = 0usize..2;
    prop_oneof![
        8 => (end.clone(), length()).prop_map(|(end, length)| Operation::Send { end, length }),
        4 => (end.clone(), 0usize..5000, length(), length())
            .prop_map(|(end, least, length, has)| Operation::Fill { end, least, length, has }),
        8 => (end.clone(), length()).prop_map(|(end, length)| Operation::Receive { end, length }),
        4 => (end.clone(), 0usize..3000, length()).prop_map(|(end, skip, length)| Operation::Peek { end, skip, length }),
        6 => (end.clone(), length()).prop_map(|(end, length)| Operation::Pass { end, length }),
        1 => (end.clone(), 1usize..20_000, 1usize..300)
            .prop_map(|(end, length, count)| Operation::PassAll { end, length, count }),
        2 => (end.clone(), 1usize..600, 1usize..300)
            .prop_map(|(end, length, count)| Operation::PingPong { end, length, count }),
        3 => (end.clone(), length()).prop_map(|(end, length)| Operation::HandOver { end, length }),
        3 => (end.clone(), 0usize..200, length()).prop_map(|(end, first, length)| Operation::InPieces { end, first, length }),
        1 => (end, 0usize..CLASSES).prop_map(|(end, class)| Operation::LimitClass { end, class }),
    ]
}

/// Starts near the places where 48 bits and half of them wrap, and at ordinary ones.
fn start() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0u64),
        (0u64..200_000).prop_map(|before| (1 << 48) - before),
        (0u64..200_000).prop_map(|before| (1 << 47) - before),
        (0u64..200_000).prop_map(|before| (5 << 48) - before),
        0u64..1 << 50,
    ]
}

/// One direction beside its queue.
struct Checked<'a> {
    connection: &'a Connection,
    end: usize,
    queue: VecDeque<u8>,
    sent: u64,
}

impl Checked<'_> {
    fn send(&mut self, length: usize) -> usize {
        let pipe = self.connection.outgoing(self.end);
        let bytes: Vec<u8> = (0..length as u64).map(|k| byte_at(self.end as u64, self.sent + k)).collect();
        // SAFETY: the whole of `bytes`; one thread.
        let count = unsafe { pipe.send(bytes.as_ptr(), length) };
        assert!(count <= length);
        self.queue.extend(&bytes[..count]);
        self.sent += count as u64;
        if count < length {
            assert_eq!((pipe.writable().0, pipe.can_grow()), (0, false), "a short send means full");
            assert!(self.queue.len() >= RING_SIZE[0] as usize);
        }
        self.check();
        count
    }

    /// Gives what [`shunt_ring::Pipe::fill`] gave.
    fn fill(&mut self, least: usize, length: usize, has: usize) -> Option<usize> {
        let pipe = self.connection.outgoing(self.end);
        let mut bytes: Vec<u8> = (0..has as u64).map(|k| byte_at(self.end as u64, self.sent + k)).collect();
        let source = |pieces: shunt_ring::pipe::Space| {
            let mut from = 0;
            for (data, room) in pieces {
                let part = room.min(has - from);
                // SAFETY: free space of the ring; one thread.
                unsafe { data.copy_from(bytes[from..].as_ptr(), part) };
                from += part;
            }
            from
        };
        // SAFETY: one thread.
        let filled = unsafe { pipe.fill(least, length, false, source) };
        let count = filled.unwrap_or(0);
        assert!(count <= length.min(has));
        bytes.truncate(count);
        self.queue.extend(bytes);
        self.sent += count as u64;
        self.check();
        filled
    }

    fn receive(&mut self, length: usize) {
        let mut target = vec![0xaau8; length + 8];
        // SAFETY: room for `length`; one thread.
        let count = unsafe { self.connection.incoming(1 - self.end).receive(target.as_mut_ptr(), length) };
        let count = count.expect("an honest peer");
        assert_eq!(count, length.min(self.queue.len()));
        let expected: Vec<u8> = self.queue.drain(..count).collect();
        assert!(target[..count] == expected[..], "received bytes differ");
        assert!(target[count..].iter().all(|&b| b == 0xaa));
        self.check();
    }

    fn peek(&mut self, skip: usize, length: usize) {
        let mut target = vec![0xaau8; length + 8];
        // SAFETY: room for `length`; one thread.
        let count = unsafe { self.connection.incoming(1 - self.end).peek(skip, target.as_mut_ptr(), length) };
        let count = count.expect("an honest peer");
        assert_eq!(count, length.min(self.queue.len().saturating_sub(skip)));
        assert!(self.queue.iter().skip(skip).take(count).eq(&target[..count]), "peeked bytes differ");
        assert!(target[count..].iter().all(|&b| b == 0xaa));
        self.check();
    }

    fn pass(&mut self, length: usize) {
        self.peek(0, length);
        let count = length.min(self.queue.len());
        self.connection.incoming(1 - self.end).pass(count);
        self.queue.drain(..count);
        self.check();
    }

    fn hand_over(&mut self, length: usize) {
        if self.queue.is_empty() {
            self.connection.outgoing(self.end).hand_over(length);
            self.connection.incoming(1 - self.end).pass(length);
            self.sent += length as u64;
            self.check();
        }
    }

    fn send_in_pieces(&mut self, first: usize, length: usize) {
        self.connection.outgoing(self.end).choose_ring(first + length);
        self.check();
        if self.send(first) == first {
            self.send(length);
        }
    }

    fn check(&self) {
        let outgoing = self.connection.outgoing(self.end);
        assert_eq!(self.connection.incoming(1 - self.end).look().1, self.queue.len());
        assert_eq!(outgoing.unacknowledged(), self.queue.len() as u64);
        let (free, size) = outgoing.writable();
        assert!(free <= size);
    }

    fn run(&mut self, operation: &Operation) {
        match *operation {
            Operation::Send { length, .. } => {
                self.send(length);
            }
            Operation::Fill { least, length, has, .. } => {
                self.fill(least, length, has);
            }
            Operation::Receive { length, .. } => self.receive(length),
            Operation::Peek { skip, length, .. } => self.peek(skip, length),
            Operation::Pass { length, .. } => self.pass(length),
            Operation::PassAll { length, count, .. } => {
                for _ in 0..count {
                    let sent = self.send(length);
                    self.pass(sent);
                }
            }
            Operation::PingPong { length, count, .. } => {
                for _ in 0..count {
                    let sent = self.send(length);
                    self.receive(sent);
                }
            }
            Operation::HandOver { length, .. } => self.hand_over(length),
            Operation::InPieces { first, length, .. } => self.send_in_pieces(first, length),
            Operation::LimitClass { class, .. } => {
                self.connection.page().sides[self.end].transmit.class_limit.store(class as u32, Relaxed);
            }
        }
    }
}

fn end_of(operation: &Operation) -> usize {
    match *operation {
        Operation::Send { end, .. }
        | Operation::Fill { end, .. }
        | Operation::Receive { end, .. }
        | Operation::Peek { end, .. }
        | Operation::Pass { end, .. }
        | Operation::PassAll { end, .. }
        | Operation::PingPong { end, .. }
        | Operation::HandOver { end, .. }
        | Operation::InPieces { end, .. }
        | Operation::LimitClass { end, .. } => end,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pipes_are_queues(
        limits in [0usize..CLASSES, 0usize..CLASSES],
        start in start(),
        operations in prop::collection::vec(operation(), 1..120),
    ) {
        let connection = Connection::new(limits);
        connection.start_at(start);
        if start % 2 == 0 {
            connection.set_apart();
        }
        let mut directions = [0, 1].map(|end| Checked { connection: &connection, end, queue: VecDeque::new(), sent: 0 });
        for operation in &operations {
            directions[end_of(operation)].run(operation);
        }
        for direction in &mut directions {
            direction.receive(direction.queue.len());
        }
    }
}

#[test]
fn a_source_that_fills_stays_in_the_rings_that_fit_the_caches() {
    let connection = Connection::new([CLASSES - 1; 2]);
    let mut stream = one_direction(&connection);
    let size = RING_SIZE[3] as usize;
    while stream.queue.len() < 2 * size {
        stream.send(size);
    }
    assert!(connection.outgoing(0).is_in_window());
    stream.receive(stream.queue.len());
    stream.send(500);
    assert_eq!(stream.fill(1, size, 100), Some(100));
    assert!(connection.outgoing(0).is_largest_of_base());
    assert_eq!(stream.fill(1, size, size), Some(size - 100));
    assert_eq!(stream.fill(1, size, size), None);
    stream.receive(500);
    assert_eq!(stream.fill(1, size, size), None, "what was sent before lay elsewhere");
    stream.receive(50);
    assert_eq!((stream.fill(51, size, size), stream.fill(50, size, size)), (None, Some(50)));
    assert_eq!(stream.send(3000), 3000, "a send makes it grow");
    stream.receive(stream.queue.len());
}

#[test]
fn a_ring_that_was_left_with_bytes_in_it_is_not_written_over() {
    let connection = Connection::new([CLASSES - 1; 2]);
    let mut stream = one_direction(&connection);
    let (base, window) = (RING_SIZE[3] as usize, RING_SIZE[4] as usize);
    while !connection.outgoing(0).is_in_window() {
        stream.send(base);
    }
    while !stream.queue.is_empty() {
        stream.receive(stream.queue.len());
    }
    stream.send(500);
    assert!(stream.fill(1, base, base).is_some());
    assert!(connection.outgoing(0).is_largest_of_base());
    // Grows back into the ring in which the first 500 bytes lie, and on.
    while stream.send(1000) > 0 {}
    assert!(stream.queue.len() > window, "{} bytes", stream.queue.len());
    while !stream.queue.is_empty() {
        stream.receive(stream.queue.len().min(70_000));
    }
}

fn one_direction(connection: &Connection) -> Checked<'_> {
    Checked { connection, end: 0, queue: VecDeque::new(), sent: 0 }
}

#[test]
fn a_peek_across_a_change_of_class_leaves_the_old_ring_to_be_read() {
    let connection = Connection::new([CLASSES - 1; 2]);
    let mut stream = one_direction(&connection);
    stream.send(1000);
    stream.send(5000);
    stream.peek(0, 6000);
    stream.receive(10);
    stream.peek(985, 20);
    stream.receive(6000);
}

#[test]
fn a_message_in_pieces_lies_in_one_ring() {
    let connection = Connection::new([CLASSES - 1; 2]);
    let mut stream = one_direction(&connection);
    stream.send_in_pieces(80, 1320);
    let word = stream.connection.outgoing(0).announced();
    assert_eq!((word >> word::CLASS_SHIFT) & 7, 1);
    assert_eq!(
        stream.connection.incoming(1).next_in_file(0),
        stream.connection.incoming(1).next_in_file(80).map(|(at, length)| (at - 80, length + 80))
    );
}

#[test]
fn changes_of_class_that_the_receiver_does_not_notice_one_by_one() {
    let connection = Connection::new([CLASSES - 1; 2]);
    let mut stream = one_direction(&connection);
    // The receiver stops exactly at each border, so that it never reads a byte of the newest ring.
    let mut last = 0;
    for (class, &size) in RING_SIZE.iter().enumerate() {
        while stream.send(size as usize / 4) > 0 {
            if (connection.page().sides[0].post.word.load(Relaxed) >> word::CLASS_SHIFT) as usize & 7 > class {
                break;
            }
            last = stream.queue.len();
        }
        stream.receive(last);
    }
    stream.receive(usize::MAX >> 40);
    assert!(stream.queue.is_empty());
    for _ in 0..300 {
        stream.send(100);
        stream.receive(100);
    }
    assert_eq!((connection.page().sides[0].post.word.load(Relaxed) >> word::CLASS_SHIFT) as usize & 7, 0);
    stream.send(3000);
    stream.peek(0, 3000);
    stream.receive(3000);
}

/// Numbers of changes come again after eight: a reader that only looks and passes over keeps count of them, too.
#[test]
fn changes_of_class_are_counted_by_a_reader_that_passes_over() {
    let connection = Connection::new([CLASSES - 1; 2]);
    let mut stream = one_direction(&connection);
    for _ in 0..40 {
        // What waits grows over a border, and is read in steps that stop before it, at it and behind it.
        stream.send(700);
        stream.send(3000);
        stream.send(40_000);
        for part in [500, 200, 1, 2999, 20_000, 20_000] {
            stream.pass(part);
        }
        assert!(stream.queue.is_empty());
        for _ in 0..300 {
            let sent = stream.send(100);
            stream.pass(sent);
        }
        assert_eq!((connection.page().sides[0].post.word.load(Relaxed) >> word::CLASS_SHIFT) as usize & 7, 0);
    }
}

#[test]
fn a_burst_that_nobody_reads_fills_every_ring_in_turn() {
    for length in [100, 1000, 30_000, 400_000] {
        let connection = Connection::new([CLASSES - 1; 2]);
        let mut stream = one_direction(&connection);
        for _ in 0..2 {
            let mut sent = 0;
            loop {
                match stream.send(length) {
                    0 => break,
                    part => sent += part,
                }
            }
            assert!(sent >= 4 << 20 && sent <= RING_SIZE.iter().map(|&size| size as usize).sum(), "{sent}");
            stream.peek(1000, 2_000_000);
            // Reads that end in the middle of rings, and at their borders.
            for part in [1, 1023, 16 << 10, 1000, 300_000] {
                stream.receive(part);
            }
            while stream.send(length) > 0 {}
            stream.receive(usize::MAX >> 40);
            assert!(stream.queue.is_empty());
            // Back to the smallest ring.
            for _ in 0..300 {
                stream.send(64);
                stream.receive(64);
            }
        }
    }
}

/// Moves a direction in which nothing waits on, as a stream of `bytes` more bytes in the same ring would.
fn let_pass(connection: &Connection, bytes: u64) {
    let [client, server] = &connection.page().sides;
    assert_eq!(connection.outgoing(0).unacknowledged(), 0);
    let old = client.post.word.load(Relaxed);
    let next = (old & word::POSITION).wrapping_add(bytes) & word::POSITION;
    let new = old & !(word::POSITION | 63 << word::INLINE_SHIFT) | next;
    client.post.word.store(new, Relaxed);
    client.transmit.word.store(new, Relaxed);
    server.receive.position.fetch_add(bytes, Relaxed);
    client.transmit.acked.fetch_add(bytes, Relaxed);
}

#[test]
fn old_borders_and_acknowledgements_stay_old_when_positions_wrap() {
    for passed in [1u64 << 47, (1 << 47) + 5000, (1 << 48) - 20_000, (1 << 48) - 100, 1 << 48, 3 << 47] {
        for class_limit in 0..3 {
            let connection = Connection::new([class_limit; 2]);
            let mut stream = one_direction(&connection);
            for _ in 0..2 {
                // A growth, and enough traffic behind it that the sender learns that it is over.
                stream.send(30_000);
                stream.receive(30_000);
                stream.send(100);
                stream.receive(100);
                let_pass(&connection, passed);
                for length in [8, 900, 20_000, 70_000, 8] {
                    while stream.send(length) == length && length > 8 {}
                    stream.receive(777);
                    stream.send(length);
                    stream.receive(stream.queue.len());
                }
            }
        }
    }
}

#[test]
fn a_change_of_class_that_its_sender_did_not_survive_changes_nothing() {
    let connection = Connection::new([2; 2]);
    let mut stream = one_direction(&connection);
    stream.send(1000);
    stream.send(1000);
    // Killed between writing the border and announcing the change; another owner of the side goes on.
    let side = &connection.page().sides[0];
    let current = side.post.word.load(Relaxed);
    stream.receive(1500);
    let class = (current >> word::CLASS_SHIFT) & 7;
    let number = ((current >> word::SWITCH_SHIFT) + 1) & 7;
    let border = (current & word::POSITION) | class << word::CLASS_SHIFT | number << word::SWITCH_SHIFT;
    side.borders[number as usize].store(border, Relaxed);
    side.transmit.switch.store(border, Relaxed);
    while stream.send(1200) > 0 {}
    stream.peek(0, 100_000);
    stream.receive(40_000);
    while stream.send(1200) > 0 {}
    stream.receive(200_000);
    assert!(stream.queue.is_empty());
}

#[test]
fn bytes_whose_sender_did_not_survive_their_announcement_go_with_the_next() {
    let connection = Connection::new([2; 2]);
    let mut stream = one_direction(&connection);
    for length in [8, 30, 300, 5000] {
        let side = &connection.page().sides[0];
        let before = side.post.word.load(Relaxed);
        let waiting = stream.queue.len();
        stream.send(length);
        side.post.word.store(before, Relaxed);
        assert_eq!(connection.incoming(1).look().1, waiting);
        stream.send(20);
        stream.receive(length + 10);
    }
    stream.receive(1000);
}

#[test]
fn what_went_away_between_the_two_copies_is_put_again() {
    let connection = Connection::new([CLASSES - 1; 2]);
    let (out, into) = (connection.outgoing(0), connection.incoming(1));
    let (first, second) = ([0x11u8; 40], [0x22u8; 40]);
    for _ in 0..60 {
        let mut got = [0u8; 80];
        // SAFETY: buffers of these lengths, one thread.
        unsafe {
            // The first send of a connection goes the general way.
            assert_eq!(out.send(first.as_ptr(), 40), 40);
            // What a copy that faulted may have left behind the announcement.
            let at = (connection.page().sides[0].transmit.word.load(Relaxed) & word::POSITION).wrapping_sub(40);
            for k in 0..40 {
                connection.clear(ring_offset(CHANNEL, 0, 0) + (at + k) as usize % RING_SIZE[0] as usize);
            }
            out.put_again(40);
            // Another one behind it: both are taken from the ring.
            assert_eq!(out.send(second.as_ptr(), 40), 40);
            assert_eq!(into.receive(got.as_mut_ptr(), 80), Ok(80));
        }
        assert_eq!(got[..40], first);
        assert_eq!(got[40..], second);
    }
}

/// Cleared as for the next connection on the channel, and as if by one that does not know the copies.
#[test]
fn a_channel_is_used_again() {
    let connection = Connection::new([2; 2]);
    for round in 0..4 {
        let mut stream = one_direction(&connection);
        stream.send(9000 + round);
        stream.receive(100);
        for side in &connection.page().sides {
            side.clear();
            side.transmit.class_limit.store(2, Relaxed);
            if round % 2 == 1 {
                side.transmit.word.store(12345, Relaxed);
            }
        }
    }
}

#[test]
fn ends_ride_on_the_word() {
    let connection = Connection::new([1; 2]);
    let mut stream = one_direction(&connection);
    stream.send(20);
    connection.outgoing(0).end(word::FIN);
    let (seen, waiting) = connection.incoming(1).look();
    assert_eq!((seen & word::FIN, waiting), (word::FIN, 20));
    stream.receive(5);
    connection.outgoing(0).end(word::CLOSED | word::RST);
    stream.receive(15);
    let (seen, waiting) = connection.incoming(1).look();
    assert_eq!((seen & (word::FIN | word::CLOSED | word::RST), waiting), (word::FIN | word::CLOSED | word::RST, 0));
}
