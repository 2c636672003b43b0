//! Descriptors of a handshake that is under way. A child that is forked meanwhile has duplicates of them, and would keep a connection's end open behind
//! its parent's: so it closes them at once. Whatever makes or closes one does both, and the note of it, under the set-up lock, which forks take.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use shunt_sys::{calls, clock, libc, Errno, Result};
use shunt_table::global::SETUP;
use shunt_table::{private, table};

/// So many at a time. A handshake that finds no place has no descriptors left.
const PLACES: usize = 256;

/// Those of this process.
struct Handshakes {
    /// Their descriptors; -1: none.
    places: [AtomicI32; PLACES],
    /// How often the process has forgotten them: one that a handler's fork has taken along into the child has none.
    forgotten: AtomicU32,
    /// Until when (ns) none begins, nor goes on to where it needs another descriptor; 0: none was barred ever.
    barred: AtomicU64,
}

static UNDER_WAY: Handshakes =
    Handshakes { places: [const { AtomicI32::new(-1) }; PLACES], forgotten: AtomicU32::new(0), barred: AtomicU64::new(0) };

/// How long handshakes may take to end that are under way (ns), as long as the longest; for how long none begins behind that; and between two looks.
const ENDS: u64 = 300_000_000;
const BARS: u64 = 5_000_000;
const NAP: i64 = 50_000;

/// One descriptor, closed on drop, in this process and in a child that is forked before. Its number is one of the library's own, so that a program that
/// closes or takes numbers meanwhile does not meet it.
pub struct Held {
    place: usize,
    forgotten: u32,
}

impl Held {
    /// Makes one.
    ///
    /// Errors: those of `make`; EMFILE: too many handshakes are under way, or there is no number.
    pub fn new(make: impl FnOnce() -> Result<i32>) -> Result<Held> {
        Held::keep(|| make().and_then(private::keep))
    }

    /// A duplicate of `fd`, as [`Held::new`]; where private numbers are taken, another one.
    pub fn duplicate(fd: i32) -> Result<Held> {
        Held::keep(|| {
            let fd = private::duplicate(fd).or_else(|_| calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3))?;
            table::set_private(fd);
            Ok(fd)
        })
    }

    fn keep(make: impl FnOnce() -> Result<i32>) -> Result<Held> {
        let _setup = SETUP.lock();
        let barred = UNDER_WAY.barred.load(Ordering::Relaxed);
        if barred != 0 && clock::monotonic_ns() < barred {
            return Err(Errno(libc::EMFILE));
        }
        // A place is this thread's between the two: others make theirs under the lock.
        let place = UNDER_WAY.places.iter().position(|place| place.load(Ordering::Relaxed) < 0).ok_or(Errno(libc::EMFILE))?;
        UNDER_WAY.places[place].store(make()?, Ordering::Relaxed);
        Ok(Held { place, forgotten: UNDER_WAY.forgotten.load(Ordering::Relaxed) })
    }

    /// Its number now; -1: it is the parent's.
    pub fn fd(&self) -> i32 {
        if self.is_own() {
            UNDER_WAY.places[self.place].load(Ordering::Relaxed)
        } else {
            -1
        }
    }

    /// The number, which stays private and is the caller's to close. Under the set-up lock.
    pub fn take(self) -> i32 {
        if self.is_own() {
            UNDER_WAY.places[self.place].swap(-1, Ordering::Relaxed)
        } else {
            -1
        }
    }

    fn is_own(&self) -> bool {
        self.forgotten == UNDER_WAY.forgotten.load(Ordering::Relaxed)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Where this thread has the lock already it is not had twice.
        let _setup = SETUP.lock();
        // A handler that forked in the middle of this thread's handshake returns in the child, too, where the place may be another handshake's by now.
        if self.is_own() {
            private::close_at(&UNDER_WAY.places[self.place]);
        }
    }
}

/// The process has become another user, and is about to give up what has no descriptor of the program's: other threads' handshakes come to their ends before that. Those that
/// cannot are left to it, as is one that the caller has interrupted.
pub fn user_changed() {
    let until = clock::monotonic_ns() + ENDS;
    loop {
        let setup = SETUP.lock();
        let now = clock::monotonic_ns();
        let has_ended = UNDER_WAY.places.iter().all(|place| place.load(Ordering::Relaxed) < 0);
        UNDER_WAY.barred.store(if has_ended || now >= until { now + BARS } else { until }, Ordering::Relaxed);
        if has_ended || now >= until {
            return;
        }
        drop(setup);
        let _ = calls::poll_one(-1, 0, NAP);
    }
}

/// In the child after fork: they are the parent's.
pub fn forget() {
    UNDER_WAY.barred.store(0, Ordering::Relaxed);
    UNDER_WAY.forgotten.fetch_add(1, Ordering::Relaxed);
    UNDER_WAY.places.iter().for_each(private::close_at);
}

/// The program wanted the number of one.
pub fn moved(from: i32, to: i32) {
    UNDER_WAY.places.iter().for_each(|place| private::renumber(place, from, to));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fork(2), while no other test's thread has the lock, which nobody would give back in the child.
    fn forked() -> i32 {
        let _setup = SETUP.lock().expect("no handler");
        // SAFETY: the child makes plain calls and ends.
        unsafe { libc::fork() }
    }

    #[test]
    fn a_child_has_none_of_them() {
        let make = || calls::eventfd(0, libc::EFD_CLOEXEC);
        let held = Held::new(make).expect("a descriptor");
        let fd = held.fd();
        let is_open = |fd: i32| calls::fcntl(fd, libc::F_GETFD, 0).is_ok();
        let child = forked();
        if child == 0 {
            let before = is_open(fd);
            forget();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!before || is_open(fd))) };
        }
        let mut status = -1;
        // SAFETY: a plain call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(is_open(fd), "it is the parent's still");
        drop(held);
        assert!(!is_open(fd));
    }

    /// What is left of a handshake in the child of a handler's fork closes nothing of the child's own.
    #[test]
    fn a_handshake_of_the_parent_s_closes_nothing_in_the_child() {
        let make = || calls::eventfd(0, libc::EFD_CLOEXEC);
        let held = Held::new(make).expect("a descriptor");
        let child = forked();
        if child == 0 {
            forget();
            let own = Held::new(make).map_or(-1, |own| {
                let fd = own.fd();
                core::mem::forget(own);
                fd
            });
            let is_none = held.fd() < 0;
            drop(held);
            let is_open = calls::fcntl(own, libc::F_GETFD, 0).is_ok();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_none || !is_open)) };
        }
        let mut status = -1;
        // SAFETY: a plain call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// What is under way ends before the process gives anything up, and nothing begins meanwhile.
    #[test]
    fn a_change_of_user_waits_for_handshakes() {
        let child = forked();
        if child == 0 {
            forget();
            let make = || Held::new(|| calls::eventfd(0, libc::EFD_CLOEXEC));
            let held = make().expect("a descriptor");
            let ends = std::thread::spawn(move || {
                while UNDER_WAY.barred.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                let is_barred = make().is_err();
                drop(held);
                is_barred
            });
            user_changed();
            let has_ended = UNDER_WAY.places.iter().all(|place| place.load(Ordering::Relaxed) < 0);
            let is_barred = ends.join().is_ok_and(|is_barred| is_barred);
            while clock::monotonic_ns() < UNDER_WAY.barred.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let begins = make().is_ok();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!(has_ended && is_barred && begins))) };
        }
        let mut status = -1;
        // SAFETY: a plain call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_number_that_the_program_wants_is_followed() {
        let held = Held::new(|| calls::eventfd(0, libc::EFD_CLOEXEC)).expect("a descriptor");
        let before = held.fd();
        let after = private::evacuate(before).expect("a number");
        moved(before, after);
        assert!(held.fd() == after && after != before);
        let _ = calls::close(before);
        drop(held);
        assert!(calls::fcntl(after, libc::F_GETFD, 0).is_err());
    }
}
