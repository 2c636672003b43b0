//! The number that a blocked accept has claimed: Linux takes it before it sleeps (get_unused_fd_flags in __sys_accept4_file), so
//! what other threads open meanwhile gets others. The number is let go when the sleep ends, and is the lowest again by then.

use crate::global;
use crate::{private, process, reserve, table};
use core::sync::atomic::{AtomicI32, Ordering};
use shunt_sys::calls;
use shunt_sys::libc::F_DUPFD_CLOEXEC;

/// Threads that sleep in accept at the same time and have a number; more sleep without one.
const MOST: usize = 64;

static CLAIMED: [AtomicI32; MOST] = [const { AtomicI32::new(-1) }; MOST];

/// A claim, until it is dropped.
pub struct Claim(Option<&'static AtomicI32>);

impl Claim {
    /// Claims the lowest number that is free, where somebody could see the difference.
    pub fn new() -> Claim {
        let none = Claim(None);
        if global::single_threaded() {
            return none;
        }
        // Under the lock the reserve's numbers stay the reserve's.
        let Some(_setup) = global::SETUP.try_lock() else { return none };
        let Some(open) = reserve::any() else { return none };
        let Some(place) = CLAIMED.iter().find(|place| place.load(Ordering::Relaxed) < 0) else { return none };
        let Ok(number) = calls::fcntl(open, F_DUPFD_CLOEXEC, 0) else { return none };
        table::set_private(number);
        if place.compare_exchange(-1, number, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            private::close(number);
            return none;
        }
        Claim(Some(place))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            private::close(place.swap(-1, Ordering::AcqRel));
        }
    }
}

/// In a child of fork: the threads that sleep are the parent's.
pub fn forked() {
    for place in &CLAIMED {
        private::close(place.swap(-1, Ordering::AcqRel));
    }
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    for place in &CLAIMED {
        process::renumber(place, from, to);
    }
}
