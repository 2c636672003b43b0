//! Bells are counted, rung, looked at and taken, in every order that the memory model allows:
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom_tally
//!
//! The companion is the number of bytes on it, and what the kernel's lock makes of each system call: one step.
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;
use shunt_ring::passage::Passage;
use shunt_ring::tally::Tally;
use shunt_segment::channel::Side;

struct Model {
    waker: Side,
    taker: Side,
    companion: AtomicU32,
}

// SAFETY: atomics only; the padding in `Side` is never touched.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model { waker: Side::new(), taker: Side::new(), companion: AtomicU32::new(0) })
    }

    fn tally(&self) -> Tally<'_> {
        Tally::new(&self.waker, &self.taker)
    }

    fn ring(&self) {
        self.tally().ring(|| {
            self.companion.fetch_add(1, Ordering::AcqRel);
            true
        });
    }

    fn waiting(&self) -> u32 {
        self.companion.fetch_add(0, Ordering::AcqRel)
    }

    /// Takes one byte, if there is one. False: it was no bell.
    fn take(&self) -> bool {
        let taken = self.companion.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
        taken.is_err() || self.tally().took(1)
    }

    fn is_foreign(&self) -> bool {
        self.tally().exceeded_by(|| self.waiting())
    }
}

/// What the reader does while two wakers ring, each of whom may stop anywhere.
fn beside_wakers(reader: impl Fn(&Model) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let model = Model::new();
        let wakers = [(); 2].map(|()| {
            let model = model.clone();
            thread::spawn(move || model.ring())
        });
        reader(&model);
        for waker in wakers {
            waker.join().unwrap();
        }
        // Both have rung by now, and nobody else has written.
        assert!(!model.is_foreign());
        while model.waiting() > 0 {
            assert!(model.take());
        }
        assert!(!model.is_foreign());
    });
}

#[test]
fn no_bell_is_foreign() {
    beside_wakers(|model| {
        assert!(!model.is_foreign());
        assert!(model.take());
        assert!(!model.is_foreign());
        assert!(model.take());
    });
}

#[test]
fn nor_to_one_who_looks_while_another_takes() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let model = Model::new();
        model.ring();
        let others = [Model::ring as fn(&Model), |model: &Model| assert!(model.take())].map(|work| {
            let model = model.clone();
            thread::spawn(move || work(&model))
        });
        assert!(!model.is_foreign());
        for other in others {
            other.join().unwrap();
        }
    });
}

/// What was wrong once: bells that are counted and not there were given up, by the count that all go by.
#[test]
#[should_panic(expected = "is_foreign")]
fn a_count_that_is_set_by_what_lies_there_makes_late_bells_foreign() {
    beside_wakers(|model| {
        let astray = model.tally().before().astray(model.waiting());
        model.taker.receive.taken.fetch_add(astray, Ordering::Relaxed);
    });
}

/// One more than was rung, whoever takes or looks.
#[test]
fn a_foreign_byte_is_found() {
    loom::model(|| {
        let model = Model::new();
        let waker = {
            let model = model.clone();
            thread::spawn(move || model.ring())
        };
        model.companion.fetch_add(1, Ordering::AcqRel);
        waker.join().unwrap();
        assert!(model.is_foreign());
        assert!(model.take() && !model.take());
    });
}

/// Nobody rings by a number that is another file's.
#[test]
fn who_rings_while_another_closes_rings_at_the_right_door() {
    const OURS: u32 = 1;
    const ANOTHER: u32 = 2;
    loom::model(|| {
        let shared = Arc::new((Passage::default(), AtomicU32::new(OURS), AtomicU32::new(OURS)));
        let ringers = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (passage, table, file) = &*shared;
                let open = || (table.load(Ordering::Acquire) == OURS).then_some(file);
                passage.while_open(open, |file| assert_eq!(file.load(Ordering::Acquire), OURS));
            })
        });
        let (passage, table, file) = &*shared;
        table.swap(0, Ordering::AcqRel);
        passage.await_ringers(thread::yield_now);
        file.store(ANOTHER, Ordering::Release);
        for ringer in ringers {
            ringer.join().unwrap();
        }
    });
}

/// A process that ends takes no number off its table: who rings has counted before the channel may be another connection's, or
/// rings no more.
#[test]
fn nobody_counts_behind_the_end_of_the_process() {
    loom::model(|| {
        let shared = Arc::new((Passage::default(), AtomicU32::new(0)));
        let ringers = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || {
                let (passage, counted) = &*shared;
                passage.while_open(|| Some(()), |()| _ = counted.fetch_add(1, Ordering::Relaxed));
            })
        });
        let (passage, counted) = &*shared;
        while !passage.shut() {
            thread::yield_now();
        }
        let at_the_end = counted.load(Ordering::Relaxed);
        for ringer in ringers {
            ringer.join().unwrap();
        }
        assert_eq!(counted.load(Ordering::Relaxed), at_the_end, "a bell was counted for the next connection");
    });
}
