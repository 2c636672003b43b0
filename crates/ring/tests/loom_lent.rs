//! Bytes that are lent while a send lasts, in every order that the memory model allows: a receiver believes none that were written behind it.
//! RUSTFLAGS="--cfg loom" cargo test --release -p shunt-ring --test loom_lent
#![cfg(loom)]

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;
use shunt_ring::lent::{read, seen, take_back, write, Seen};
use shunt_segment::channel::references::{place, References};

const BYTES: u64 = 2;
const SENT: u64 = 7;
const WRITTEN_ANEW: u64 = 9;

struct Lent {
    references: References,
    /// The sender's memory, and the place in the link.
    own: [AtomicU64; BYTES as usize],
    kept: [AtomicU64; BYTES as usize],
    /// How many the receiver has taken.
    taken: AtomicU64,
}

impl Lent {
    fn new(word: u64) -> Arc<Lent> {
        let lent = Lent {
            references: References::new(),
            own: [AtomicU64::new(SENT), AtomicU64::new(SENT)],
            kept: [AtomicU64::new(0), AtomicU64::new(0)],
            taken: AtomicU64::new(0),
        };
        lent.references.records[0].place.store(word, Ordering::Release);
        Arc::new(lent)
    }

    /// What a send does behind its announcement, and its program behind the send.
    fn end_of_send(&self, word: u64) {
        let taken = self.taken.load(Ordering::Acquire);
        if taken < BYTES {
            for at in taken..BYTES {
                let byte = self.own[at as usize].load(Ordering::Relaxed);
                self.kept[at as usize].store(byte, Ordering::Relaxed);
            }
            take_back(&self.references.records[0], word);
        }
        self.own.iter().for_each(|byte| byte.store(WRITTEN_ANEW, Ordering::Relaxed));
    }

    /// Receives `count` bytes.
    fn receive(&self, count: u64) {
        let (record, taken) = (&self.references.records[0], self.taken.load(Ordering::Relaxed));
        let word = record.place.load(Ordering::Acquire);
        let copy = |from: &[AtomicU64; BYTES as usize]| -> Vec<u64> {
            (taken..taken + count).map(|at| from[at as usize].load(Ordering::Relaxed)).collect()
        };
        let bytes = if word & place::KEPT != 0 {
            copy(&self.kept)
        } else {
            let bytes = copy(&self.own);
            match seen(record, word) {
                Seen::Unchanged => bytes,
                Seen::TakenBack => copy(&self.kept),
                Seen::Nonsense => panic!("an honest sender"),
            }
        };
        assert!(bytes.iter().all(|byte| *byte == SENT), "{bytes:?}");
        self.taken.store(taken + count, Ordering::Release);
    }
}

#[test]
fn what_is_received_is_what_was_sent_whatever_is_written_behind_the_send() {
    for parts in [&[2][..], &[1, 1]] {
        loom::model(move || {
            let word = place::of(0, BYTES as usize, place::LENT);
            let lent = Lent::new(word);
            let receiver = {
                let lent = lent.clone();
                thread::spawn(move || parts.iter().for_each(|count| lent.receive(*count)))
            };
            lent.end_of_send(word);
            receiver.join().unwrap();
        });
    }
}

/// The receiver's side gets other owners meanwhile: it puts what it has copied and found unchanged to where the sender puts the same.
#[test]
fn both_ends_may_keep_the_same_bytes() {
    loom::model(|| {
        let word = place::of(0, BYTES as usize, place::LENT);
        let lent = Lent::new(word);
        let receiver = {
            let lent = lent.clone();
            thread::spawn(move || {
                let record = &lent.references.records[0];
                let seen_whole = (0..BYTES as usize).all(|at| {
                    let byte = lent.own[at].load(Ordering::Relaxed);
                    let unchanged = seen(record, word) == Seen::Unchanged;
                    if unchanged {
                        lent.kept[at].store(byte, Ordering::Relaxed);
                    }
                    unchanged
                });
                if seen_whole {
                    let _ = record.place.compare_exchange(word, word | place::KEPT, Ordering::AcqRel, Ordering::Relaxed);
                }
                lent.receive(2);
            })
        };
        lent.end_of_send(word);
        receiver.join().unwrap();
    });
}

/// The positions of two uses overlap with none of each other's lengths.
#[test]
fn a_record_that_is_used_again_is_read_as_one_of_its_uses() {
    loom::model(|| {
        let lent = Lent::new(0);
        let record = &lent.references.records[0];
        let (first, second) = ((place::of(0, 2, 0), 5), (place::of(9, 7, place::LENT), 30));
        write(record, 1, first.1, first.0);
        let sender = {
            let lent = lent.clone();
            thread::spawn(move || write(&lent.references.records[0], 1, second.1, second.0))
        };
        let found = read(record, 1);
        assert!([None, Some(first), Some(second)].contains(&found), "{found:?}");
        sender.join().unwrap();
        assert_eq!(read(record, 1), Some(second));
    });
}
