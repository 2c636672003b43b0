//! What the guard does when the agent is gone: it gives back what it holds, where one connection holds up no other.
//!
//! A call on a socket can wait for a lock that a thread of its program's holds. So threads give back, and where none gets on another is started.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shunt_xdp::cause::Cause;

use super::lock;
use super::restore::Held;

/// So often a connection is tried whose peer cannot be reached, and so long the guard rests between: a minute.
const ATTEMPTS: u32 = 600;
const REST: Duration = Duration::from_millis(100);
/// So often is looked whether threads get on, while some work.
const LOOK: Duration = Duration::from_millis(5);
/// Looks in a row without anything done, before another thread is started; and the most threads.
const PATIENCE: u32 = 4;
const THREADS: usize = 256;

#[derive(Default)]
struct Work {
    queue: Mutex<Vec<Held>>,
    /// Those that may do better later.
    later: Mutex<Vec<Held>>,
    done: AtomicUsize,
    busy: AtomicUsize,
}

impl Work {
    fn run(&self, is_last: bool) {
        loop {
            // Counted before the queue is looked at, so that a queue that is empty and nobody busy means the end.
            self.busy.fetch_add(1, SeqCst);
            let next = lock(&self.queue).pop();
            let is_over = next.is_none();
            if let Some(mut held) = next {
                if !held.escrow.is_closed() {
                    held.escrow.say(Cause::Agent);
                }
                // What the kernel refuses for good ends as a reset does; no process is left to be told.
                if held.restore(is_last).is_err_and(|refused| refused.is_passing()) && !is_last {
                    lock(&self.later).push(held);
                }
                self.done.fetch_add(1, SeqCst);
            }
            self.busy.fetch_sub(1, SeqCst);
            if is_over {
                return;
            }
        }
    }
}

/// Gives all back; returns when that is done, or some cannot be.
pub fn give_back(all: Vec<Held>) {
    let work = Arc::new(Work { queue: Mutex::new(all), ..Work::default() });
    for attempt in 0..=ATTEMPTS {
        let is_last = attempt == ATTEMPTS;
        let start = || {
            let mine = work.clone();
            std::thread::Builder::new().spawn(move || mine.run(is_last)).is_ok()
        };
        let is_idle = || lock(&work.queue).is_empty() && work.busy.load(SeqCst) == 0;
        let (mut threads, mut idle, mut seen) = (usize::from(start()), 0, 0);
        if threads == 0 {
            work.run(is_last);
        }
        for _ in 0..REST.as_millis() / LOOK.as_millis() {
            if is_idle() {
                break;
            }
            std::thread::sleep(LOOK);
            let done = work.done.load(SeqCst);
            idle = if done == seen { idle + 1 } else { 0 };
            seen = done;
            if idle >= PATIENCE && threads < THREADS && !lock(&work.queue).is_empty() {
                threads += usize::from(start());
                idle = 0;
            }
        }
        if is_idle() {
            let later = std::mem::take(&mut *lock(&work.later));
            if later.is_empty() {
                return;
            }
            *lock(&work.queue) = later;
            std::thread::sleep(REST);
        }
    }
}
