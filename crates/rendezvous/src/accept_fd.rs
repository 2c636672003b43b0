//! The number that a blocked accept has claimed: Linux takes it before it sleeps (get_unused_fd_flags in __sys_accept4_file), so
//! what other threads open meanwhile gets others. The number is let go when the sleep ends, and is the lowest again by then.

use core::cell::Cell;
use core::sync::atomic::{AtomicI32, Ordering};
use shunt_link::fd_reserve;
use shunt_sys::libc::{EMFILE, F_DUPFD_CLOEXEC};
use shunt_sys::sleeper::{counted, Account};
use shunt_sys::{calls, Errno, Result};
use shunt_table::{global, private, table};

/// Threads that sleep in accept at the same time and have a number; more sleep without one.
const MOST: usize = 64;

static CLAIMED: [AtomicI32; MOST] = [const { AtomicI32::new(-1) }; MOST];

/// The account of a sleep with a claim.
struct Claim<'a> {
    place: Option<&'static AtomicI32>,
    /// What became of the claim.
    claimed: &'a Cell<Result<()>>,
}

impl Account for Claim<'_> {
    fn enter(&mut self) {
        match take() {
            Ok(place) => self.place = place,
            Err(error) => self.claimed.set(Err(error)),
        }
    }

    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            private::close(place.swap(-1, Ordering::AcqRel));
        }
    }
}

/// Holds the lowest number that is free during `sleep`, where other threads could see the difference. `no_socket`: any descriptor
/// that is none.
///
/// # Errors
/// EMFILE: there is none, and no thread slept. Those of `sleep`.
pub fn during<T>(no_socket: i32, sleep: impl FnOnce() -> Result<T>) -> Result<T> {
    if global::single_threaded() {
        // The number is the first thing that the kernel's accept wants.
        return match calls::accept4(no_socket, core::ptr::null_mut(), core::ptr::null_mut(), 0) {
            Err(Errno(EMFILE)) => Err(Errno(EMFILE)),
            _ => sleep(),
        };
    }
    let claimed = Cell::new(Ok(()));
    counted(Claim { place: None, claimed: &claimed }, |_| claimed.get().and_then(|()| sleep()))
}

/// Takes the number, and a place for it. `None`: there is no place for it, or another thread is busy with such things.
fn take() -> Result<Option<&'static AtomicI32>> {
    // Under the lock the reserve's numbers stay the reserve's.
    let Some(_setup) = global::SETUP.try_lock() else { return Ok(None) };
    let Some(open) = fd_reserve::any() else { return Ok(None) };
    let Some(place) = CLAIMED.iter().find(|place| place.load(Ordering::Relaxed) < 0) else { return Ok(None) };
    let number = match calls::fcntl(open, F_DUPFD_CLOEXEC, 0) {
        Err(Errno(EMFILE)) => return Err(Errno(EMFILE)),
        Err(_) => return Ok(None),
        Ok(number) => number,
    };
    table::set_private(number);
    place.store(number, Ordering::Release);
    Ok(Some(place))
}

/// In a child of fork: the threads that sleep are the parent's.
pub fn forked() {
    CLAIMED.iter().for_each(private::close_at);
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    for place in &CLAIMED {
        private::renumber(place, from, to);
    }
}
