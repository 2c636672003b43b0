//! Several sleepers of one side, and who takes their bells, in every order that the memory model allows:
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom_bell_consumer
//!
//! The companion is modelled as what the kernel makes of it: bytes, which wake all who sleep on them and are looked at again
//! before a sleep ends; ears, which hear each byte that comes, and forget it if the companion is empty when they tell. A lost
//! wake-up shows as a deadlock.
#![cfg(loom)]

use loom::sync::atomic::{fence, AtomicU32, Ordering};
use loom::sync::Notify;
use loom::thread;
use shunt_ring::bell;
use shunt_ring::bell_consumer::BellConsumer;
use shunt_segment::channel::{arm, Side};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

const EARS: usize = 2;

#[derive(Default)]
struct Companion {
    bytes: u32,
    /// Something came since the ear was last asked.
    edges: [bool; EARS],
    /// A set's sleepers were woken by hand.
    kicked: bool,
}

impl Companion {
    /// What the kernel answers whoever asks an ear.
    fn tells(&mut self, ear: usize) -> bool {
        self.edges[ear] &= self.bytes > 0;
        self.edges[ear]
    }
}

struct Model {
    side: Side,
    gate: BellConsumer,
    /// What the peer publishes: stands for the post's word, and for its space.
    published: [AtomicU32; 2],
    companion: Mutex<Companion>,
    /// The kernel's lock of it, as the model checker sees it.
    kernel: AtomicU32,
    /// A sleeper is woken, by number.
    woken: [Notify; 2],
}

// SAFETY: atomics, locks and loom's own types; the padding in `Side` is never touched.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

/// A model that is shared, and stays where it is when the checker panics: it could not drop its parts any more.
struct Shared(ManuallyDrop<Arc<Model>>);

impl Clone for Shared {
    fn clone(&self) -> Shared {
        Shared(ManuallyDrop::new(Arc::clone(&self.0)))
    }
}

impl Deref for Shared {
    type Target = Model;
    fn deref(&self) -> &Model {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: once.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

const CONDITIONS: [u32; 2] = [arm::IN, arm::OUT];

impl Model {
    fn new() -> Shared {
        Shared(ManuallyDrop::new(Arc::new(Model {
            side: Side::new(),
            gate: BellConsumer::default(),
            published: [AtomicU32::new(0), AtomicU32::new(0)],
            companion: Mutex::new(Companion::default()),
            kernel: AtomicU32::new(0),
            woken: [Notify::new(), Notify::new()],
        })))
    }

    /// One step of the kernel's.
    fn kernel(&self) -> MutexGuard<'_, Companion> {
        self.kernel.fetch_add(1, Ordering::AcqRel);
        self.companion.lock().unwrap()
    }

    fn publish_and_ring(&self, what: usize) {
        self.published[what].store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if bell::must_ring(&self.side.wait, CONDITIONS[what]) {
            self.ring();
        }
    }

    fn ring(&self) {
        {
            let mut companion = self.kernel();
            companion.bytes += 1;
            companion.edges = [true; EARS];
        }
        self.woken.iter().for_each(Notify::notify);
    }

    fn holds(&self, what: usize) -> bool {
        self.published[what].load(Ordering::Acquire) != 0
    }

    /// The kernel's sleep: whoever is woken looks again before he goes.
    fn sleep(&self, sleeper: usize, over: impl Fn(&mut Companion) -> bool) {
        while !over(&mut self.kernel()) {
            self.woken[sleeper].wait();
        }
    }

    fn sleep_on_ear(&self, ear: usize) {
        self.sleep(ear, |companion| companion.tells(ear) || companion.kicked);
        let mut companion = self.kernel();
        companion.edges[ear] = false;
        companion.kicked = false;
    }

    fn take_all(&self) {
        self.kernel().bytes = 0;
    }

    fn readable(&self) -> bool {
        self.kernel().bytes > 0
    }

    /// A thread that sleeps on the companion: see `sockets/bells.rs`. `careful`: by the gate.
    fn await_on_bytes(&self, what: usize, careful: bool, told: impl Fn(&Model)) {
        while !self.holds(what) {
            self.gate.enter();
            let heard = if careful {
                let take = || {
                    self.take_all();
                    told(self);
                };
                !self.gate.is_taking() && (!self.readable() || self.gate.when_all_heard(1, take))
            } else {
                self.take_all();
                true
            };
            if heard {
                bell::arm(&self.side.wait, CONDITIONS[what]);
                if !self.holds(what) {
                    self.sleep(what, |companion| companion.bytes > 0); // recv with MSG_PEEK, or poll
                }
            }
            self.gate.leave();
            if !heard {
                thread::yield_now();
            }
        }
    }

    /// A process that sleeps by its ear. `trims`: it takes bells that are more than one, or all of them.
    fn await_by_ear(&self, what: usize, ear: usize, trims: Option<u32>) {
        while !self.holds(what) {
            if let Some(leave) = trims {
                let mut companion = self.kernel();
                companion.bytes = companion.bytes.min(leave);
            }
            bell::arm(&self.side.wait, CONDITIONS[what]);
            if self.holds(what) {
                return;
            }
            self.sleep_on_ear(ear);
        }
    }
}

fn check(bound: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(body);
}

fn two_threads(careful: bool) {
    check(2, move || {
        let model = Model::new();
        let peer = {
            let model = model.clone();
            thread::spawn(move || {
                model.publish_and_ring(0);
                model.publish_and_ring(1);
            })
        };
        let other = {
            let model = model.clone();
            thread::spawn(move || model.await_on_bytes(1, careful, |_| {}))
        };
        model.await_on_bytes(0, careful, |_| {});
        peer.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn threads_take_bells_when_all_have_heard() {
    two_threads(true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_thread_that_takes_bells_at_once_takes_anothers() {
    two_threads(false);
}

/// Each sleeps for something of its own, and takes bells before.
fn two_processes(trims: u32) {
    check(3, move || {
        let model = Model::new();
        let peer = {
            let model = model.clone();
            thread::spawn(move || {
                model.publish_and_ring(0);
                model.publish_and_ring(1);
            })
        };
        let other = {
            let model = model.clone();
            thread::spawn(move || model.await_by_ear(1, 1, Some(trims)))
        };
        model.await_by_ear(0, 0, Some(trims));
        peer.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn processes_hear_by_ears_and_leave_a_bell() {
    two_processes(1);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_process_that_empties_the_companion_takes_anothers_bell() {
    two_processes(0);
}

/// One of two processes that sleep for the same is killed after each of its steps; the other goes on.
#[test]
fn a_killed_process_takes_no_bell_along() {
    for killed_after in 0..5 {
        check(3, move || {
            let model = Model::new();
            let peer = {
                let model = model.clone();
                thread::spawn(move || model.publish_and_ring(0))
            };
            let killed = {
                let model = model.clone();
                thread::spawn(move || {
                    for step in 0..killed_after {
                        match step {
                            0 => drop(bell::arm(&model.side.wait, arm::IN)),
                            1 => drop(model.holds(0)),
                            2 => model.kernel().edges[1] = false,
                            _ => {
                                let mut companion = model.kernel();
                                companion.bytes = companion.bytes.min(1);
                            }
                        }
                    }
                })
            };
            model.await_by_ear(0, 0, Some(1));
            peer.join().unwrap();
            killed.join().unwrap();
        });
    }
}

/// A thread sleeps in a set for bytes, another in a call for space. Who takes the bells off the companion tells the set.
fn a_set_and_a_call(tells: bool) {
    check(2, move || {
        let model = Model::new();
        let peer = {
            let model = model.clone();
            thread::spawn(move || {
                model.publish_and_ring(0);
                model.publish_and_ring(1);
            })
        };
        let caller = {
            let model = model.clone();
            thread::spawn(move || {
                // The first bell may have been for the set: it is taken before the next sleep.
                model.await_on_bytes(1, true, |model| {
                    if tells {
                        bell::arm(&model.side.wait, arm::IN << arm::SET_SHIFT);
                        if model.holds(0) {
                            model.kernel().kicked = true;
                            model.woken[0].notify();
                        }
                    }
                })
            })
        };
        while !model.holds(0) {
            bell::arm(&model.side.wait, arm::IN << arm::SET_SHIFT);
            if model.holds(0) {
                break;
            }
            model.sleep_on_ear(0);
        }
        peer.join().unwrap();
        caller.join().unwrap();
    });
}

#[test]
fn a_call_that_takes_bells_tells_sets() {
    a_set_and_a_call(true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_call_that_takes_bells_in_silence_leaves_a_set_asleep() {
    a_set_and_a_call(false);
}
