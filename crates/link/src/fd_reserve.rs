//! Numbers that a server holds back, so that it can take a new client in when its last descriptor has become that client's.
//!
//! On Linux one free number is enough to accept. Here the first connection of a client's process brings two descriptors more,
//! its link's and its bell's, and moving one to a private number takes another for a moment. A process that listens keeps as
//! many numbers busy, lets them go while such a client introduces itself, and takes what is free of them again afterwards.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use shunt_sys::calls;
use shunt_sys::libc::{AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM};
use shunt_table::private;

/// How many: a link, its bell, and one of them under two numbers.
const MOST: usize = 3;

/// Numbers that are held back.
struct Numbers {
    /// Those that are; -1: none.
    held: [AtomicI32; MOST],
    /// The process listens, so they should be.
    wanted: AtomicBool,
}

static NUMBERS: Numbers = Numbers { held: [const { AtomicI32::new(-1) }; MOST], wanted: AtomicBool::new(false) };

/// The process listens.
pub fn begin() {
    NUMBERS.wanted.store(true, Ordering::Relaxed);
    fill();
}

/// Lets the numbers go.
pub fn lend() {
    for place in &NUMBERS.held {
        private::close(place.swap(-1, Ordering::AcqRel));
    }
}

/// Takes again what is free.
pub fn fill() {
    if !NUMBERS.wanted.load(Ordering::Relaxed) {
        return;
    }
    for place in NUMBERS.held.iter().filter(|place| place.load(Ordering::Relaxed) < 0) {
        // Duplicates of the first: any open file does.
        let made = match any() {
            Some(fd) => private::duplicate(fd).inspect(|fd| shunt_table::table::set_private(*fd)),
            None => calls::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0).and_then(private::keep),
        };
        let Ok(made) = made else { return };
        if place.compare_exchange(-1, made, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            private::close(made);
        }
    }
}

/// One of them, where any open file does.
pub fn any() -> Option<i32> {
    NUMBERS.held.iter().map(|place| place.load(Ordering::Relaxed)).find(|fd| *fd >= 0)
}

/// Whether all that should be held back is. If not, what only makes things faster does without.
pub fn is_whole() -> bool {
    !NUMBERS.wanted.load(Ordering::Relaxed) || NUMBERS.held.iter().all(|place| place.load(Ordering::Relaxed) >= 0)
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    for place in &NUMBERS.held {
        private::renumber(place, from, to);
    }
}
