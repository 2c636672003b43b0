//! Descriptors of a handshake that is under way. A child that is forked meanwhile has duplicates of them, and would keep a connection's end open behind
//! its parent's: so it closes them at once. Whatever makes or closes one does both, and the note of it, under the set-up lock, which forks take.

use core::sync::atomic::{AtomicI32, Ordering};
use shunt_sys::{calls, libc, Errno, Result};
use shunt_table::global::SETUP;

/// So many at a time. A handshake that finds no place has no descriptors left.
const PLACES: usize = 256;

static UNDER_WAY: [AtomicI32; PLACES] = [const { AtomicI32::new(-1) }; PLACES];

/// One descriptor, closed on drop, in this process and in a child that is forked before.
pub struct Held {
    /// Its number.
    pub fd: i32,
    place: usize,
}

impl Held {
    /// Makes one.
    ///
    /// Errors: those of `make`; EMFILE: too many handshakes are under way.
    pub fn new(make: impl FnOnce() -> Result<i32>) -> Result<Held> {
        let _setup = SETUP.lock();
        // A place is this thread's between the two: others make theirs under the lock.
        let place = UNDER_WAY.iter().position(|place| place.load(Ordering::Relaxed) < 0).ok_or(Errno(libc::EMFILE))?;
        let fd = make()?;
        UNDER_WAY[place].store(fd, Ordering::Relaxed);
        Ok(Held { fd, place })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Where this thread has the lock already it is not had twice.
        let _setup = SETUP.lock();
        // A handler that forked in the middle of this thread's handshake returns in the child, too, where the number may be another file's by now.
        if UNDER_WAY[self.place].swap(-1, Ordering::Relaxed) == self.fd {
            let _ = calls::close(self.fd);
        }
    }
}

/// In the child after fork: they are the parent's.
pub fn forget() {
    for place in &UNDER_WAY {
        let fd = place.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            let _ = calls::close(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_none_of_them() {
        let make = || calls::eventfd(0, libc::EFD_CLOEXEC);
        let held = Held::new(make).expect("a descriptor");
        let fd = held.fd;
        let is_open = |fd: i32| calls::fcntl(fd, libc::F_GETFD, 0).is_ok();
        // SAFETY: the child makes plain calls and ends.
        let child = unsafe { libc::fork() };
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
}
