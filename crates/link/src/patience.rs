//! While another process holds a lock that we want: it is let run, and the lock is taken from it if it died.
//!
//! Holders copy at most a chunk and never sleep; but they may be stopped by a signal, a debugger or a freezer, or wait for
//! a page of the program's. A thread that took the lock from such a holder would move positions that the holder moves, too, when
//! it goes on.

use core::sync::atomic::{AtomicU32, Ordering};
use shunt_ring::lock;
use shunt_segment::channel::{Side, FAMILY};
use shunt_sys::libc::{timespec, ESRCH};
use shunt_sys::{calls, clock, Errno};

/// How long a thread has waited, by looks again and again: one that is stopped meanwhile does not wait.
#[derive(Default)]
pub struct Waited {
    time: u64,
    last: u64,
}

/// The most that one look adds, in ns.
const MOST_A_LOOK: u64 = 10_000_000;

impl Waited {
    /// Another look; gives the time so far, in ns.
    pub fn look(&mut self) -> u64 {
        let now = clock::monotonic_ns();
        if self.last != 0 {
            self.time += (now - self.last).min(MOST_A_LOOK);
        }
        self.last = now;
        self.time
    }
}

/// How long one of them has waited for one holder.
#[derive(Default)]
pub struct Patience {
    waited: Waited,
    owner: u32,
}

/// A process that holds a lock this long in ns and is not known to be an owner of the side is dead, whatever its number says:
/// numbers are used again, and a hostile peer can write any.
const STRANGER: u64 = 2_000_000_000;
/// The same of an owner that runs: the number is another thread's by now.
const OWNER: u64 = 30_000_000_000;

impl Patience {
    /// Waits a little for `owner` of the lock `word` of `side`.
    #[cold]
    pub fn outlive(&mut self, word: &AtomicU32, owner: u32, side: &Side) {
        for _ in 0..64 {
            core::hint::spin_loop();
            if word.load(Ordering::Relaxed) != owner {
                // It may be the same one's again by the next look.
                *self = Patience::default();
                return;
            }
        }
        if self.owner != owner {
            *self = Patience { owner, ..Patience::default() };
        }
        let waited = self.waited.look();
        if is_dead(owner, waited) || (waited > STRANGER && self.gives_up(side, waited)) {
            lock::revoke(word, owner);
        } else if waited > STRANGER {
            let _ = calls::nanosleep(&timespec { tv_sec: 0, tv_nsec: 1_000_000 }, core::ptr::null_mut());
        } else {
            calls::sched_yield();
        }
    }

    fn gives_up(&self, side: &Side, waited: u64) -> bool {
        !may_own(side, self.owner) || (waited > OWNER && !is_held_up(self.owner))
    }
}

/// After so long in ns a holder is asked for more than its number.
const BRIEF: u64 = 1_000_000;

fn is_dead(thread: u32, waited: u64) -> bool {
    let known = !shunt_table::process::identity::numbers_are_strange();
    known
        && (calls::tkill(thread as i32, 0) == Err(Errno(ESRCH))
            || (waited > BRIEF && shunt_sys::process::thread_has_ended(thread)))
}

/// Whether `thread` is one of a process that is entered as owner of `side`; or lives, where there are more than can be entered.
fn may_own(side: &Side, thread: u32) -> bool {
    let mut entered = 0;
    for place in &side.family {
        let process = place.load(Ordering::Relaxed);
        entered += usize::from(process != 0);
        if process != 0 && calls::tgkill(process as i32, thread as i32, 0) != Err(Errno(ESRCH)) {
            return true;
        }
    }
    entered == FAMILY && calls::tkill(thread as i32, 0) != Err(Errno(ESRCH))
}

/// Whether a thread is stopped, traced, or waits for a device (proc(5)). A thread whose state is hidden is not.
fn is_held_up(thread: u32) -> bool {
    shunt_table::procfs::status(thread, 0, |state| matches!(state.as_bytes(), b"T" | b"t" | b"D")).unwrap_or(false)
}
