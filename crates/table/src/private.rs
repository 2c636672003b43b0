//! Descriptors that we keep for ourselves: out of the program's way, closed on exec, hidden from its calls.

use crate::limits::{self, LIMITS};
use crate::table;
use core::sync::atomic::{AtomicI32, Ordering};
use shunt_sys::libc::{rlimit64, EINVAL, EMFILE, FD_CLOEXEC, F_DUPFD_CLOEXEC, F_SETFD, RLIMIT_NOFILE};
use shunt_sys::{calls, Errno, Result};

/// Where private descriptors start: above what small programs use, low enough that fork copies a small table.
pub fn base() -> i32 {
    let known = LIMITS.private_base.load(Ordering::Relaxed);
    if known >= 0 {
        return known;
    }
    let limit = calls::soft_limit(RLIMIT_NOFILE).min(1 << 20);
    let base = if limit >= 1024 { 900 } else { ((limit * 3 / 4) as i32).max(LOWEST as i32) };
    LIMITS.private_base.store(base, Ordering::Relaxed);
    base
}

/// Below this limit of open files a program keeps to the kernel: with its first listener and its first connection to itself come some
/// fifteen of ours.
pub const ENOUGH: u64 = 32;

/// Whether the program's limit leaves no room for descriptors of ours beside its own.
pub fn are_scarce() -> bool {
    !limits::takes(ENOUGH)
}

/// A duplicate of `fd` under a private number, which the caller enters in the table.
///
/// Errors: EMFILE; EINVAL: the program has lowered its limit so far that there is none.
pub fn duplicate(fd: i32) -> Result<i32> {
    let made = calls::fcntl(fd, F_DUPFD_CLOEXEC, base() as usize);
    // A program that leaves itself so few means to use them.
    if made != Err(Errno(EINVAL)) || calls::soft_limit(RLIMIT_NOFILE) < FEW {
        return made;
    }
    LIMITS.private_base.store(-1, Ordering::Relaxed); // the limit is lower than it was
    calls::fcntl(fd, F_DUPFD_CLOEXEC, base() as usize)
}

/// Moves `fd` to a private number; the old number is free again. On error the descriptor is closed.
///
/// Where all private numbers are taken it is one of the program's: a client of another process that cannot be taken in would be
/// reset, and the program's own limit is not reached yet; where that is, too, it stays where it is.
pub fn keep(fd: i32) -> Result<i32> {
    if fd >= base() {
        LIMITS.private_short.store(false, Ordering::Relaxed);
        return stay(fd);
    }
    let moved = duplicate(fd);
    LIMITS.private_short.store(moved.is_err(), Ordering::Relaxed);
    match moved.or_else(|_| calls::fcntl(fd, F_DUPFD_CLOEXEC, LOWEST)) {
        Err(Errno(EMFILE)) if fd >= LOWEST as i32 => stay(fd),
        moved => {
            let _ = calls::close(fd);
            table::set_private(moved?);
            moved
        }
    }
}

/// `fd` is private where it is.
fn stay(fd: i32) -> Result<i32> {
    calls::fcntl(fd, F_SETFD, FD_CLOEXEC as usize)?;
    table::set_private(fd);
    Ok(fd)
}

/// Below such a limit nothing but what is needed is kept.
const FEW: u64 = 64;
/// The standard descriptors are never taken.
const LOWEST: usize = 3;

/// Whether private numbers ran out when one was last asked for: what only makes things faster can do without.
pub fn are_short() -> bool {
    LIMITS.private_short.load(Ordering::Relaxed)
}

/// Where private numbers begin.
pub fn lowest() -> i32 {
    base()
}

/// Closes a private descriptor.
pub fn close(fd: i32) {
    if fd >= 0 {
        table::take(fd);
        let _ = calls::close(fd);
    }
}

/// Closes the private descriptor that `place` names, and names none there. Most places name none: that takes a look.
#[inline]
pub fn close_at(place: &AtomicI32) {
    if place.load(Ordering::Relaxed) >= 0 {
        close(place.swap(-1, Ordering::AcqRel));
    }
}

/// The program wants the number `fd` for itself (dup2): moves ours elsewhere and gives its new number. Errors: EMFILE.
pub fn evacuate(fd: i32) -> Result<i32> {
    let above = calls::fcntl(fd, F_DUPFD_CLOEXEC, (base().max(fd) + 1) as usize);
    let moved = above.or_else(|_| calls::fcntl(fd, F_DUPFD_CLOEXEC, LOWEST)).or_else(|error| beyond(fd).ok_or(error))?;
    table::set_private(moved);
    Ok(moved)
}

/// All numbers are taken, and dup2 needs none: one that the program's own limit forbids and the hard one allows.
#[cold]
fn beyond(fd: i32) -> Option<i32> {
    let mut limit = rlimit64 { rlim_cur: 0, rlim_max: 0 };
    calls::prlimit(0, RLIMIT_NOFILE, core::ptr::null(), &mut limit).ok()?;
    let wider = rlimit64 { rlim_cur: (limit.rlim_cur + MOST_BEYOND).min(limit.rlim_max).min(table::LIMIT as u64), ..limit };
    if wider.rlim_cur <= limit.rlim_cur {
        return None;
    }
    calls::prlimit(0, RLIMIT_NOFILE, &wider, core::ptr::null_mut()).ok()?;
    let moved = calls::fcntl(fd, F_DUPFD_CLOEXEC, limit.rlim_cur as usize);
    let _ = calls::prlimit(0, RLIMIT_NOFILE, &limit, core::ptr::null_mut());
    moved.ok()
}

/// Numbers beyond the program's limit.
const MOST_BEYOND: u64 = 1024;

/// Replaces a kept descriptor's number.
pub fn renumber(slot: &AtomicI32, from: i32, to: i32) {
    let _ = slot.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
}

/// Closes a descriptor unless it is taken out.
pub struct Pending(pub i32);

impl Pending {
    /// The descriptor, which is the caller's to close.
    pub fn take(mut self) -> i32 {
        core::mem::replace(&mut self.0, -1)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.0 >= 0 {
            let _ = calls::close(self.0);
        }
    }
}
