//! Sleepers and those that wake them, in every order that the memory model allows:
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom_waits
//!
//! A lost wake-up shows as a deadlock: the sleeps here have no limit. membarrier(2) is modelled as what it does: between two steps of the others,
//! some time while the caller waits for it, each one's processor executes a full fence.
#![cfg(loom)]

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

mod atomics {
    pub use loom::sync::atomic::{fence, AtomicU32, AtomicUsize, Ordering};
}
#[path = "../src/arrival.rs"]
mod arrival;
#[path = "../src/doze.rs"]
mod doze;

use atomics::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use atomics::{fence, AtomicU32, AtomicUsize};

/// A futex: the comparison and the sleep are one step for those that wake.
struct Futex {
    queue: Mutex<()>,
    wakes: Condvar,
}

impl Futex {
    fn new() -> Futex {
        Futex { queue: Mutex::new(()), wakes: Condvar::new() }
    }

    /// May end before its time, as the real one does.
    fn wait(&self, word: &AtomicU32, value: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(SeqCst) == value {
            drop(self.wakes.wait(queue).unwrap());
        }
    }

    fn wake(&self) {
        let _queue = self.queue.lock().unwrap();
        self.wakes.notify_all();
    }
}

/// Interrupts of membarrier: by thread, how many were asked of it, how many it has had, and whether it runs nothing of ours.
struct Processors {
    asked: Vec<AtomicU32>,
    done: Vec<AtomicU32>,
    away: Vec<AtomicU32>,
    /// Taken only where a processor fences, so that it adds no order of its own.
    answers: Mutex<()>,
    answered: Condvar,
}

impl Processors {
    fn new(count: usize) -> Processors {
        let words = || (0..count).map(|_| AtomicU32::new(0)).collect();
        Processors { asked: words(), done: words(), away: words(), answers: Mutex::new(()), answered: Condvar::new() }
    }

    /// A point between two steps where the interrupt may come.
    fn interrupt(&self, me: usize) {
        let asked = self.asked[me].load(Acquire);
        if asked > self.done[me].load(Relaxed) {
            fence(SeqCst);
            self.done[me].store(asked, Release);
            self.answer();
        }
    }

    fn answer(&self) {
        let _answers = self.answers.lock().unwrap();
        self.answered.notify_all();
    }

    /// A processor that runs something else has fenced when it switched.
    fn leave(&self, me: usize) {
        fence(SeqCst);
        self.away[me].swap(1, AcqRel);
        self.answer();
    }

    /// What others did before they saw that it was away, it sees.
    fn come_back(&self, me: usize) {
        self.away[me].swap(0, AcqRel);
    }

    fn membarrier(&self, me: usize, others: impl Iterator<Item = usize>) {
        self.leave(me);
        for other in others.filter(|other| *other != me) {
            let number = self.asked[other].fetch_add(1, AcqRel) + 1;
            let mut answers = self.answers.lock().unwrap();
            while self.done[other].load(Acquire) < number && self.away[other].fetch_add(0, AcqRel) == 0 {
                answers = self.answered.wait(answers).unwrap();
            }
        }
        self.come_back(me);
    }
}

struct Meeting {
    numbers: Vec<AtomicU32>,
    turn: AtomicU32,
    sleepers: AtomicU32,
    futex: Futex,
    processors: Processors,
    membarrier: bool,
}

impl Meeting {
    fn new(members: usize, membarrier: bool) -> Meeting {
        Meeting {
            numbers: (0..members).map(|_| AtomicU32::new(0)).collect(),
            turn: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            futex: Futex::new(),
            processors: Processors::new(members),
            membarrier,
        }
    }

    fn complete(&self, number: u32) -> bool {
        self.numbers.iter().all(|word| arrival::is_here(word, number))
    }

    /// As `wait::until_gathered`, without its looks before the first sleep; a member that comes late finds them in the other orders.
    fn barrier(&self, me: usize, number: u32) {
        let finish = || arrival::release(&self.turn, &self.sleepers, number, || self.futex.wake());
        self.processors.interrupt(me);
        self.numbers[me].store(number, Release);
        self.processors.interrupt(me);
        if self.complete(number) {
            self.processors.interrupt(me);
            return finish();
        }
        loop {
            let all = || {
                if self.membarrier {
                    self.processors.membarrier(me, 0..self.numbers.len())
                }
            };
            let seen = arrival::lie_down(&self.turn, &self.sleepers, all);
            let mut here = self.complete(number);
            if !here {
                self.processors.leave(me);
                self.futex.wait(&self.turn, seen);
                self.processors.come_back(me);
                here = self.complete(number);
            }
            arrival::rise(&self.sleepers);
            if here {
                return finish();
            }
        }
    }
}

fn meetings(members: usize, barriers: u32, membarrier: bool, preemptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let meeting = Arc::new(Meeting::new(members, membarrier));
        fn run(me: usize, barriers: u32, meeting: &Meeting) {
            (1..=barriers).for_each(|number| meeting.barrier(me, number));
            meeting.processors.leave(me);
        }
        let others: Vec<_> = (1..members)
            .map(|me| {
                let meeting = meeting.clone();
                thread::spawn(move || run(me, barriers, &meeting))
            })
            .collect();
        run(0, barriers, &meeting);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn two_members_meet_twice() {
    meetings(2, 2, true, 3);
}

#[test]
fn three_members_meet() {
    meetings(3, 1, true, 2);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_barrier_of_processors_a_member_is_left_asleep() {
    meetings(2, 1, false, 3);
}

struct Rank {
    asleep: AtomicU32,
    sleepers: AtomicUsize,
    /// The value that is waited for, or `ANY`.
    waits: AtomicU32,
    futex: Futex,
    values: [AtomicU32; 2],
    /// The barrier has to reach it alone; steps of the other sleepers may lie between any of it.
    putter: usize,
    processors: Processors,
}

/// Any value may be the one.
const ANY: u32 = u32::MAX;

impl Rank {
    fn sleep_until(&self, me: usize, value: usize) {
        loop {
            let publish = |alone| self.waits.store(if alone { value as u32 } else { ANY }, Relaxed);
            let barrier = || self.processors.membarrier(me, self.putter..self.putter + 1);
            doze::lie_down(&self.asleep, &self.sleepers, publish, barrier, || self.futex.wake());
            let mut done = self.values[value].load(Acquire) != 0;
            if !done {
                self.processors.leave(me);
                self.futex.wait(&self.asleep, 1);
                self.processors.come_back(me);
                done = self.values[value].load(Acquire) != 0;
            }
            doze::rise(&self.asleep, &self.sleepers, || self.futex.wake());
            if done {
                self.processors.leave(me);
                return;
            }
        }
    }

    fn put(&self, me: usize, value: usize) {
        self.processors.interrupt(me);
        self.values[value].store(1, Release);
        self.processors.interrupt(me);
        if self.asleep.load(Relaxed) != 0 && [value as u32, ANY].contains(&self.waits.load(Relaxed)) {
            doze::rouse(&self.asleep, || self.futex.wake());
        }
        self.processors.interrupt(me);
    }
}

impl Rank {
    fn new(sleepers: usize) -> Arc<Rank> {
        Arc::new(Rank {
            asleep: AtomicU32::new(u32::from(sleepers > 0)),
            sleepers: AtomicUsize::new(sleepers),
            waits: AtomicU32::new(ANY),
            futex: Futex::new(),
            values: [AtomicU32::new(0), AtomicU32::new(0)],
            putter: 2,
            processors: Processors::new(3),
        })
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// So many threads of a rank, each with a value of its own, and one other rank that stores them.
fn sleepers(count: usize, preemptions: usize) {
    check(preemptions, move || {
        let rank = Rank::new(0);
        let threads: Vec<_> = (0..count)
            .map(|value| {
                let rank = rank.clone();
                thread::spawn(move || rank.sleep_until(value, value))
            })
            .collect();
        (0..count).for_each(|value| rank.put(2, value));
        rank.processors.leave(2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_sleeper_hears_of_its_value() {
    sleepers(1, 4);
}

#[test]
fn two_threads_of_a_rank_hear_each_of_its_own() {
    sleepers(2, 2);
}
