//! Pipes in every order that the memory model allows, with rings of a few bytes:
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom_ring
//!
//! The checker watches each byte of the rings: a read that nothing orders after its write, or a write that nothing
//! orders after the last read, fails the model, as do bytes that arrive out of order.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use shunt_ring::{Attempt, Byte, Pipe, Trouble, Window};
use shunt_segment::area::{ring_offset, CLASSES};
use shunt_segment::channel::Side;
use shunt_segment::sync::Ordering::Relaxed;

struct Connection {
    sides: [Side; 2],
    link: Vec<Byte>,
    window: Window,
    /// The sender's own memory, where bytes lie that are referred to: each has a place by its position.
    own: Vec<Byte>,
}

/// Bytes of a model's own memory.
const OWN: usize = 16;

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
        Arc::new(Connection {
            sides,
            link: (0..bytes).map(|_| Byte::new(0)).collect(),
            window: Window::new(),
            own: (0..OWN).map(|_| Byte::new(0)).collect(),
        })
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

    /// Sends the next `length` bytes by reference, if that can be; gives whether it could. What lay there before is written over once its
    /// receiver says that it has done with it.
    fn refer(&self, sent: &mut u8, length: usize) -> bool {
        let pipe = self.pipe(0, 0);
        let Some(position) = pipe.may_refer() else { return false };
        if position + length as u64 > pipe.released() + OWN as u64 {
            return false;
        }
        for k in 0..length {
            let byte = &self.own[(position as usize + k) % OWN];
            // SAFETY: the checker watches.
            byte.with_mut(|byte| unsafe { *byte = sent.wrapping_add(k as u8) });
        }
        pipe.refer(length);
        *sent += length as u8;
        true
    }

    /// As [`Connection::receive`], where bytes may be referred to.
    fn receive_referred(&self, received: &mut u8, length: usize) -> usize {
        let (pipe, mut bytes) = (self.pipe(1, 0), vec![0xee; length]);
        // SAFETY: as for receive.
        let count = match unsafe { pipe.receive(bytes.as_mut_ptr(), length) } {
            Err(Trouble::Unmapped) => {
                let (position, available) = pipe.referred(0).expect("an honest peer").expect("nothing else is unmapped");
                let count = available.min(length);
                for (k, byte) in bytes[..count].iter_mut().enumerate() {
                    // SAFETY: the checker watches.
                    *byte = self.own[(position as usize + k) % OWN].with(|byte| unsafe { *byte });
                }
                pipe.pass(count);
                count
            }
            other => other.expect("an honest peer"),
        };
        for (k, &byte) in bytes[..count].iter().enumerate() {
            assert_eq!(byte, received.wrapping_add(k as u8));
        }
        *received += count as u8;
        count
    }

    /// Takes the next bytes that are referred to where they lie; gives their position and number.
    fn hold(&self, received: &mut u8) -> Option<(u64, usize)> {
        let pipe = self.pipe(1, 0);
        let (position, available) = pipe.referred(0).expect("an honest peer")?;
        pipe.hold_from(Some(position), 1);
        pipe.pass(available);
        *received += available as u8;
        Some((position, available))
    }

    /// Reads them, the first of which is the `first` of the stream, and gives them back.
    fn give_back(&self, (position, available): (u64, usize), first: u8) {
        for k in 0..available {
            // SAFETY: the checker watches.
            let byte = self.own[(position as usize + k) % OWN].with(|byte| unsafe { *byte });
            assert_eq!(byte, first.wrapping_add(k as u8));
        }
        self.pipe(1, 0).hold_from(None, 0);
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

/// Steps of a sender: so many bytes by reference, or through a ring.
enum Step {
    Refer(usize),
    Send(usize),
}

fn referred(steps: &'static [Step], reads: &'static [usize]) {
    bounded(move || {
        let connection = Connection::new(2);
        let sender = {
            let connection = connection.clone();
            thread::spawn(move || {
                let mut sent = 0;
                for step in steps {
                    match *step {
                        Step::Refer(length) if connection.refer(&mut sent, length) => {}
                        Step::Refer(length) | Step::Send(length) => connection.send(0, &mut sent, length),
                    }
                }
                sent
            })
        };
        let mut received = 0;
        for &length in reads {
            connection.receive_referred(&mut received, length);
        }
        let sent = sender.join().unwrap();
        while connection.receive_referred(&mut received, 5) > 0 {}
        assert_eq!(received, sent);
    });
}

#[test]
fn references_one_behind_the_other() {
    referred(&[Step::Refer(6), Step::Refer(9), Step::Refer(5)], &[4, 9, 9]);
}

#[test]
fn references_between_bytes_in_rings() {
    referred(&[Step::Send(3), Step::Refer(10), Step::Send(7), Step::Refer(4)], &[3, 9, 30]);
}

#[test]
fn bytes_in_rings_behind_references() {
    referred(&[Step::Refer(5), Step::Send(20), Step::Refer(8), Step::Send(2)], &[9, 20]);
}

#[test]
fn what_is_held_is_read_before_it_is_written_over() {
    bounded(|| {
        let connection = Connection::new(2);
        let sender = {
            let connection = connection.clone();
            thread::spawn(move || {
                let (mut sent, mut went) = (0, 0);
                for length in [9, 7, 5] {
                    went += connection.refer(&mut sent, length) as usize;
                }
                (sent, went)
            })
        };
        let mut received = 0;
        if let Some(held) = connection.hold(&mut received) {
            connection.receive_referred(&mut received, 4);
            connection.give_back(held, 0);
        }
        let (sent, went) = sender.join().unwrap();
        assert!(went >= 2);
        while connection.receive_referred(&mut received, 5) > 0 {}
        assert_eq!(received, sent);
    });
}
