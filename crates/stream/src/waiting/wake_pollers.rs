//! Waking threads of this process that sleep in poll.
//!
//! A thread that sleeps on a companion is woken by the peer's bell, and only the peer can ring it. But `shutdown(SHUT_WR)` ends
//! the sends of this side's own threads, and nothing of it reaches the companion. And poll(2) goes by numbers: it looks them up
//! again whenever it is woken, so a thread that sleeps in it hears nothing of a file that another thread gave another number (a
//! descriptor closed under the call, a private one that made room). So threads that sleep in poll in a process of several do
//! so beside an eventfd of the process. A thread that has news for them makes it readable until all that were asleep by then have
//! woken; they look, and most go to sleep again. That is rare, and may cost.

use super::WAITING;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use shunt_sys::{calls, clock, libc};
use shunt_table::{global, private};

/// Those who sleep beside one eventfd.
pub struct Sleepers {
    /// The eventfd; -1: not made yet.
    descriptor: AtomicI32,
    /// Counts the news.
    turn: AtomicU32,
    /// Sleepers that began in an even turn, and in an odd one.
    counts: [AtomicU32; 2],
    /// One bringer of news at a time.
    bringing: global::Mutex,
}

/// For threads for which what this side's own threads do can be news.
pub fn news() -> &'static Sleepers {
    &WAITING.news
}

/// For threads that are to hear only that a stream has become the kernel's.
pub fn of_carried() -> &'static Sleepers {
    &WAITING.carried
}

/// How long sleepers have to wake, in ns: on a busy machine a thread may not run for long. One that a debugger stopped
/// never does.
const LONGEST: u64 = 10_000_000_000;

/// A thread that is about to sleep: what it sleeps beside, and where it is counted.
#[derive(Clone, Copy)]
pub struct Beside {
    /// The eventfd.
    pub descriptor: i32,
    count: &'static AtomicU32,
}

impl Beside {
    /// The thread is awake.
    pub fn end(self) {
        let _ = self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    }
}

impl Sleepers {
    pub(super) const fn new() -> Sleepers {
        Sleepers {
            descriptor: AtomicI32::new(-1),
            turn: AtomicU32::new(0),
            counts: [AtomicU32::new(0), AtomicU32::new(0)],
            bringing: global::Mutex::new(),
        }
    }

    /// To be called before the last look. `None`: no other thread could have news, or there is no descriptor left.
    pub fn begin(&'static self) -> Option<Beside> {
        if global::single_threaded() {
            return None;
        }
        let count = &self.counts[self.turn.load(Ordering::SeqCst) as usize & 1];
        count.fetch_add(1, Ordering::SeqCst);
        match self.descriptor() {
            -1 => {
                count.fetch_sub(1, Ordering::SeqCst);
                None
            }
            descriptor => Some(Beside { descriptor, count }),
        }
    }

    fn descriptor(&self) -> i32 {
        let known = self.descriptor.load(Ordering::Acquire);
        if known >= 0 {
            return known;
        }
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        let Ok(made) = calls::eventfd(0, flags).and_then(private::keep) else { return -1 };
        match self.descriptor.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => {
                private::close(made);
                other
            }
        }
    }

    /// There is news: they wake and look.
    fn wake(&self) {
        if self.counts.iter().all(|count| count.load(Ordering::SeqCst) == 0) {
            return;
        }
        let Some(_bringing) = self.bringing.lock() else { return };
        let descriptor = self.descriptor.load(Ordering::Acquire);
        if descriptor < 0 {
            return;
        }
        let old = &self.counts[self.turn.fetch_add(1, Ordering::SeqCst) as usize & 1];
        let mut number = 1u64;
        let _ = calls::write(descriptor, (&raw const number).cast(), 8);
        let end = clock::monotonic_ns() + LONGEST;
        // Drained before one of them has looked, it would sleep on.
        let mut rounds = 0;
        while old.load(Ordering::SeqCst) > 0 && clock::monotonic_ns() < end {
            rounds += 1;
            if rounds < 100 {
                calls::sched_yield();
            } else {
                let pause = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
                let _ = calls::nanosleep(&pause, core::ptr::null_mut());
            }
        }
        let _ = calls::read(descriptor, (&raw mut number).cast(), 8);
    }
}

/// There is news for threads that wait for space: they wake and look.
#[cold]
pub fn all() {
    WAITING.news.wake();
}

/// A stream has become the kernel's: all that may sleep on it wake and look.
#[cold]
pub fn carried() {
    WAITING.news.wake();
    WAITING.carried.wake();
}

/// In the child after fork: no thread sleeps, and the eventfds are the parent's.
pub fn forked() {
    for sleepers in [&WAITING.news, &WAITING.carried] {
        sleepers.bringing.reset();
        sleepers.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        private::close(sleepers.descriptor.swap(-1, Ordering::Relaxed));
    }
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    for sleepers in [&WAITING.news, &WAITING.carried] {
        shunt_table::private::renumber(&sleepers.descriptor, from, to);
    }
}
