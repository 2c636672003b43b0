//! Arm, check and sleep against publish, look and ring, in every order that the memory model allows:
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom_bell
//!
//! A lost wake-up shows as a deadlock. membarrier(2) is modelled as what it does: between two steps of the waker, some
//! time while the sleeper waits for it, the waker's processor executes a full fence.
#![cfg(loom)]

use loom::sync::atomic::{fence, AtomicU32, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;
use shunt_ring::bell;
use shunt_segment::channel::{arm, Side};

/// How the store of the waker and its look at the flag are kept apart.
#[derive(Clone, Copy, PartialEq)]
enum Barrier {
    /// Not at all: the model must find the lost wake-up.
    None,
    /// The waker fences.
    Fence,
    /// The sleeper calls membarrier.
    Membarrier,
    /// The sleeper calls membarrier once, and asks the waker to fence from then on.
    Agreed,
}

struct Model {
    side: Side,
    /// What the waker publishes: stands for the post's word, and for the peer's space.
    bytes: AtomicU32,
    space: AtomicU32,
    companion: Notify,
    /// membarrier: how many the sleeper has asked for, and the waker has done.
    asked: AtomicU32,
    done: AtomicU32,
    /// The waker runs no more.
    left: AtomicU32,
}

// SAFETY: atomics only; the padding in `Side` is never touched.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            side: Side::new(),
            bytes: AtomicU32::new(0),
            space: AtomicU32::new(0),
            companion: Notify::new(),
            asked: AtomicU32::new(0),
            done: AtomicU32::new(0),
            left: AtomicU32::new(0),
        })
    }

    /// A point between two steps of the waker where the interrupt of membarrier may come.
    fn interrupt(&self, barrier: Barrier) {
        if matches!(barrier, Barrier::Membarrier | Barrier::Agreed) {
            let asked = self.asked.load(Ordering::Acquire);
            if asked > self.done.load(Ordering::Relaxed) {
                fence(Ordering::SeqCst);
                self.done.store(asked, Ordering::Release);
            }
        }
    }

    fn publish_and_ring(&self, published: &AtomicU32, conditions: u32, barrier: Barrier) {
        self.interrupt(barrier);
        published.store(1, Ordering::Release);
        self.interrupt(barrier);
        if barrier == Barrier::Fence {
            fence(Ordering::SeqCst);
        }
        if bell::must_ring(&self.side.wait, conditions) {
            self.companion.notify();
        }
        self.interrupt(barrier);
    }

    /// The same by a waker who shares his side with others; `killed`: he publishes, and looks, and does not come to ring.
    fn ring_and_take(&self, published: &AtomicU32, conditions: u32, killed: bool) {
        published.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if let Some(due) = bell::due(&self.side.wait, conditions).filter(|_| !killed) {
            self.companion.notify();
            due.rung(&self.side.wait);
        }
    }

    /// A processor that does not run the waker needs no interrupt: it has fenced when it switched.
    fn leave(&self) {
        fence(Ordering::SeqCst);
        self.left.store(1, Ordering::Release);
    }

    fn membarrier(&self) {
        fence(Ordering::SeqCst);
        let number = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        while self.done.load(Ordering::Acquire) < number && self.left.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
    }

    fn sleep_until(&self, published: &AtomicU32, conditions: u32, barrier: Barrier) {
        while published.load(Ordering::Acquire) == 0 {
            let due = bell::arm(&self.side.wait, conditions);
            if due && matches!(barrier, Barrier::Membarrier | Barrier::Agreed) {
                self.membarrier();
            }
            if published.load(Ordering::Acquire) != 0 {
                return;
            }
            self.companion.wait();
        }
    }
}

fn one_waker(barrier: Barrier) {
    loom::model(move || {
        let model = Model::new();
        let waker = {
            let model = model.clone();
            thread::spawn(move || {
                model.publish_and_ring(&model.bytes, arm::IN, barrier);
                model.leave();
            })
        };
        model.sleep_until(&model.bytes, arm::IN, barrier);
        waker.join().unwrap();
    });
}

/// Bytes that are held back: a sleeper looks for them when a time is over, if the holder was told so, or is rung. `other`: one
/// who does not look sleeps on the side already.
fn held_bytes(other: bool) {
    loom::model(move || {
        let model = Model::new();
        let wait = &model.side.wait;
        let held = |model: &Model| model.bytes.load(Ordering::Acquire) != 0;
        let holder = {
            let model = model.clone();
            thread::spawn(move || {
                model.bytes.store(1, Ordering::Release);
                fence(Ordering::SeqCst);
                if !bell::looks(&model.side.wait) && bell::must_ring(&model.side.wait, arm::IN) {
                    model.companion.notify();
                }
            })
        };
        let mut asleep = false;
        if other {
            let _ = bell::arm(wait, arm::IN);
            asleep = !held(&model);
        }
        let (_, looks) = bell::arm_to_look(wait, arm::IN);
        if looks && !held(&model) {
            bell::looked(wait); // the time is over
        }
        if asleep || !held(&model) {
            model.companion.wait();
        }
        holder.join().unwrap();
    });
}

#[test]
fn held_bytes_are_looked_for_or_rung_for() {
    held_bytes(false);
}

#[test]
fn who_does_not_look_is_rung_for_held_bytes() {
    held_bytes(true);
}

#[test]
fn a_waker_that_fences_loses_no_wake_up() {
    one_waker(Barrier::Fence);
}

#[test]
fn a_sleeper_that_interrupts_the_waker_loses_no_wake_up() {
    one_waker(Barrier::Membarrier);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_a_barrier_a_wake_up_is_lost() {
    one_waker(Barrier::None);
}

/// Twice: the second sleep has no barrier, only the waker's fence.
#[test]
fn a_sleeper_that_has_asked_for_fences_loses_no_wake_up() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let model = Model::new();
        let waker = {
            let model = model.clone();
            thread::spawn(move || {
                model.publish_and_ring(&model.bytes, arm::IN, Barrier::Agreed);
                model.publish_and_ring(&model.space, arm::OUT, Barrier::Agreed);
                model.leave();
            })
        };
        bell::agree_on_fences(&model.side.wait, || model.membarrier());
        model.sleep_until(&model.bytes, arm::IN, Barrier::Agreed);
        model.sleep_until(&model.space, arm::OUT, Barrier::Agreed);
        waker.join().unwrap();
    });
}

/// Two threads of the peer ring for bytes while the sleeper goes on to wait for space.
#[test]
fn a_slow_waker_does_not_take_another_condition_away() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let model = Model::new();
        let others = [false, true].map(|gives_space| {
            let model = model.clone();
            thread::spawn(move || {
                model.publish_and_ring(&model.bytes, arm::IN, Barrier::Fence);
                if gives_space {
                    model.publish_and_ring(&model.space, arm::OUT, Barrier::Fence);
                }
            })
        });
        model.sleep_until(&model.bytes, arm::IN, Barrier::Fence);
        model.sleep_until(&model.space, arm::OUT, Barrier::Fence);
        for other in others {
            other.join().unwrap();
        }
    });
}

/// Two processes that share a side ring for bytes while the sleeper goes on to wait for space: who rings first and takes the
/// conditions then takes none of a later sleep.
#[test]
fn a_slow_waker_that_rings_first_does_not_take_a_later_sleep() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let model = Model::new();
        let others = [false, true].map(|gives_space| {
            let model = model.clone();
            thread::spawn(move || {
                model.ring_and_take(&model.bytes, arm::IN, false);
                if gives_space {
                    model.ring_and_take(&model.space, arm::OUT, false);
                }
            })
        });
        model.sleep_until(&model.bytes, arm::IN, Barrier::Fence);
        model.sleep_until(&model.space, arm::OUT, Barrier::Fence);
        for other in others {
            other.join().unwrap();
        }
    });
}

/// One of them is killed when he was about to ring: the other, who has something to say later, rings.
#[test]
fn a_killed_waker_takes_nothing_along() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let model = Model::new();
        let waker = {
            let model = model.clone();
            thread::spawn(move || {
                model.ring_and_take(&model.bytes, arm::IN, true);
                model.ring_and_take(&model.bytes, arm::IN, false);
            })
        };
        model.sleep_until(&model.bytes, arm::IN, Barrier::Fence);
        waker.join().unwrap();
    });
}

/// How one who woke, and another who begins to sleep on the same stream, get on.
fn taken_back(rings: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let model = Model::new();
        // The first one sleeps, and something else has woken it.
        model.side.wait.sleepers.fetch_add(1, Ordering::Relaxed);
        let _ = bell::arm(&model.side.wait, arm::IN);
        let first = {
            let model = model.clone();
            thread::spawn(move || {
                if bell::take_back(&model.side.wait, arm::IN) {
                    match rings {
                        true => model.companion.notify(),
                        false => _ = bell::arm(&model.side.wait, arm::IN),
                    }
                }
                model.side.wait.sleepers.fetch_sub(1, Ordering::Relaxed);
            })
        };
        let waker = {
            let model = model.clone();
            thread::spawn(move || model.publish_and_ring(&model.bytes, arm::IN, Barrier::Fence))
        };
        model.side.wait.sleepers.fetch_add(1, Ordering::Relaxed);
        model.sleep_until(&model.bytes, arm::IN, Barrier::Fence);
        first.join().unwrap();
        waker.join().unwrap();
    });
}

#[test]
fn an_announcement_that_was_taken_back_for_another_is_a_bell() {
    taken_back(true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn announced_anew_it_comes_too_late() {
    taken_back(false);
}
