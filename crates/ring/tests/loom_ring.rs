//! Pipes in every order that the memory model allows, with rings of a few bytes:
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom_ring
//!
//! The checker watches each byte of the rings: a read that nothing orders after its write, or a write that nothing
//! orders after the last read, fails the model, as do bytes that arrive out of order.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use shunt_ring::{Attempt, Byte, Pipe, Window};
use shunt_segment::area::{ring_offset, CLASSES};
use shunt_segment::channel::Side;
use shunt_segment::sync::Ordering::Relaxed;

struct Connection {
    sides: [Side; 2],
    link: Vec<Byte>,
    window: Window,
}

// SAFETY: shared by design; the checker watches every access.
unsafe impl Sync for Connection {}
// SAFETY: as above.
unsafe impl Send for Connection {}

impl Connection {
    fn new(class_limit: u32) -> Arc<Connection> {
        let sides = [Side::new(), Side::new()];
        for side in &sides {
            side.transmit.class_limit.store(class_limit, Relaxed);
            // The copy of the word holds already: the sender's first load of the post itself, just before its store,
            // would hide from the checker that the store races with the receiver's look.
            side.transmit.small.store(1 << 31, Relaxed);
        }
        let bytes = if class_limit as usize + 1 < CLASSES { ring_offset(0, 0, class_limit as usize + 1) } else { 0 };
        Arc::new(Connection { sides, link: (0..bytes).map(|_| Byte::new(0)).collect(), window: Window::new() })
    }

    fn pipe(&self, end: usize, sender: usize) -> Pipe<'_> {
        let link = self.link.as_ptr() as *mut u8;
        Pipe { own: &self.sides[end], peer: &self.sides[1 - end], link, channel: 0, sender, window: &self.window }
    }

    /// Sends the next `length` bytes of the counting stream; gives how many went.
    fn send(&self, end: usize, sent: &mut u8, length: usize) {
        let bytes: Vec<u8> = (0..length as u8).map(|k| sent.wrapping_add(k)).collect();
        let pipe = self.pipe(end, end);
        // SAFETY: the whole of `bytes`; one thread sends on an end, so it may put them into the ring last.
        *sent += unsafe {
            if pipe.send_short::<false>(bytes.as_ptr(), length, true) == Attempt::Moved(length) {
                length
            } else {
                pipe.send(bytes.as_ptr(), length)
            }
        } as u8;
    }

    /// Receives once, and checks that the stream goes on where it was.
    fn receive(&self, end: usize, received: &mut u8, length: usize) -> usize {
        let mut bytes = vec![0xee; length];
        // SAFETY: room for `length`; one thread receives on an end.
        let count = unsafe { self.pipe(end, 1 - end).receive(bytes.as_mut_ptr(), length) }.expect("an honest peer");
        for (k, &byte) in bytes[..count].iter().enumerate() {
            assert_eq!(byte, received.wrapping_add(k as u8));
        }
        *received += count as u8;
        count
    }

    fn peek(&self, end: usize, received: u8, length: usize) {
        let mut bytes = vec![0xee; length];
        // SAFETY: as for receive.
        let count = unsafe { self.pipe(end, 1 - end).peek(0, bytes.as_mut_ptr(), length) }.expect("an honest peer");
        for (k, &byte) in bytes[..count].iter().enumerate() {
            assert_eq!(byte, received.wrapping_add(k as u8));
        }
    }
}

/// Every order in which threads are interrupted at most three times: without a bound a model takes minutes to hours.
fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// One end sends messages of the given lengths while the other receives a few times; what is left arrives afterwards.
fn one_way(class_limit: u32, lengths: &'static [usize], reads: &'static [usize], peek: bool) {
    bounded(move || {
        let connection = Connection::new(class_limit);
        let sender = {
            let connection = connection.clone();
            thread::spawn(move || {
                let mut sent = 0;
                for &length in lengths {
                    connection.send(0, &mut sent, length);
                }
                sent
            })
        };
        let mut received = 0;
        for &length in reads {
            if peek {
                connection.peek(1, received, 20);
            }
            connection.receive(1, &mut received, length);
        }
        let sent = sender.join().unwrap();
        while connection.receive(1, &mut received, 5) > 0 {}
        assert_eq!(received, sent);
    });
}

#[test]
fn inline_messages() {
    one_way(0, &[3, 8, 2, 7], &[8, 8, 8, 8], false);
}

#[test]
fn inline_messages_read_in_parts() {
    one_way(0, &[4, 5, 2], &[3, 2, 8], false);
}

#[test]
fn a_full_ring() {
    one_way(0, &[6, 6, 6], &[4, 8, 8], false);
}

#[test]
fn a_change_of_class() {
    one_way(1, &[6, 8, 8, 4], &[5, 8, 8, 8], false);
}

#[test]
fn two_changes_of_class() {
    one_way(2, &[6, 10, 20], &[6, 10, 9, 30], false);
}

#[test]
fn two_borders_at_once() {
    one_way(2, &[6, 14, 20], &[30, 30], true);
}

#[test]
fn peeks_across_a_change_of_class() {
    one_way(1, &[6, 8, 5], &[6, 8], true);
}

/// Requests and replies: each post acknowledges the peer's last message, and the inline bytes are used again.
#[test]
fn acknowledgements_ride_on_replies() {
    bounded(|| {
        let connection = Connection::new(0);
        let server = {
            let connection = connection.clone();
            thread::spawn(move || {
                let (mut sent, mut received) = (0, 0);
                for _ in 0..2 {
                    if connection.receive(1, &mut received, 8) > 0 {
                        connection.send(1, &mut sent, 3);
                    }
                }
                (sent, received)
            })
        };
        let (mut sent, mut received) = (0, 0);
        for length in [5, 7] {
            connection.send(0, &mut sent, length);
            connection.receive(0, &mut received, 8);
        }
        let (answered, mut taken) = server.join().unwrap();
        while connection.receive(0, &mut received, 8) > 0 {}
        while connection.receive(1, &mut taken, 8) > 0 {}
        assert_eq!((taken, received), (sent, answered));
    });
}
