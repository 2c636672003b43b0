//! Whether children of earlier forks still have what they inherited.
//!
//! A fork makes two owners of each socket and set. Most children exec at once, and their copies are gone. A *witness* is
//! a pipe made for a fork: the child and its children hold the write end, close-on-exec, and when the read end hangs up
//! no child has the descriptors any more, unless an exec took them along, which keeps the write end as well.

use super::COMMON;
use super::{all, flag, pin};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use shunt_sys::libc::{self, FD_CLOEXEC};
use shunt_sys::{calls, clock};
use shunt_table::global::SETUP;
use shunt_table::private;

/// Forks that are watched at once; beyond, sockets stay with the kernel.
const MOST: usize = 16;

/// Ticks between two looks (about a millisecond).
const EVERY: u64 = 2_500_000;

/// The bit of a fork that is not watched.
pub const FOR_EVER: u32 = 1 << 31;

/// Witnesses of this process's forks, and of those that it came from.
pub(crate) struct Witnesses {
    /// Read ends; -1: none.
    read: [AtomicI32; MOST],
    /// Write ends of witnesses that ancestors watch; -1: none.
    held: [AtomicI32; MOST],
    /// The write end for the fork that is happening now; -1: none.
    fresh: AtomicI32,
    /// Bits of forks that are watched.
    watching: AtomicU32,
    /// The bit of the fork that is happening now, or of the last one.
    current: AtomicU32,
    /// When they were looked at last, in ticks.
    looked: AtomicU64,
}

impl Witnesses {
    pub(super) const fn new() -> Witnesses {
        Witnesses {
            read: [const { AtomicI32::new(-1) }; MOST],
            held: [const { AtomicI32::new(-1) }; MOST],
            fresh: AtomicI32::new(-1),
            watching: AtomicU32::new(0),
            current: AtomicU32::new(0),
            looked: AtomicU64::new(0),
        }
    }
}

/// Before a fork that makes sockets shared: its bit. The set-up lock is held.
pub(super) fn before_fork() -> u32 {
    gone();
    let bit = watched().unwrap_or(FOR_EVER);
    COMMON.witnesses.current.store(bit, Ordering::Relaxed);
    bit
}

/// The bit of the fork that is happening; where it makes no datagram socket shared, any.
pub fn current() -> u32 {
    match COMMON.witnesses.current.load(Ordering::Relaxed) {
        0 => FOR_EVER,
        bit => bit,
    }
}

fn watched() -> Option<u32> {
    let index = COMMON.witnesses.read.iter().position(|slot| slot.load(Ordering::Relaxed) < 0)?;
    let [read, write] = super::inbox_table::pipe().ok()?;
    match (private::keep(read), private::keep(write)) {
        (Ok(read), Ok(write)) => {
            COMMON.witnesses.read[index].store(read, Ordering::Relaxed);
            COMMON.witnesses.fresh.store(write, Ordering::Relaxed);
            COMMON.witnesses.watching.fetch_or(1 << index, Ordering::Relaxed);
            Some(1 << index)
        }
        (read, write) => {
            private::close(read.unwrap_or(-1));
            private::close(write.unwrap_or(-1));
            None
        }
    }
}

/// After it, in the parent, or when it failed: what hangs up then is gone.
pub(super) fn after_fork() {
    private::close_at(&COMMON.witnesses.fresh);
    clear(&COMMON.witnesses.current);
}

/// A word that is clear already is left alone: after a fork its page is the other process's, too, and would be copied.
fn clear(word: &AtomicU32) {
    if word.load(Ordering::Relaxed) != 0 {
        word.store(0, Ordering::Relaxed);
    }
}

/// In the child: it holds the new witness and those that its parent held, and watches none.
pub(super) fn forked() {
    COMMON.witnesses.read.iter().for_each(private::close_at);
    clear(&COMMON.witnesses.watching);
    clear(&COMMON.witnesses.current);
    if COMMON.witnesses.fresh.load(Ordering::Relaxed) < 0 {
        return;
    }
    let fresh = COMMON.witnesses.fresh.swap(-1, Ordering::Relaxed);
    if let Some(slot) = COMMON.witnesses.held.iter().find(|slot| slot.load(Ordering::Relaxed) < 0) {
        slot.store(fresh, Ordering::Relaxed);
    } // else it stays open until the process ends
}

/// An exec takes sockets or sets along: the next program holds the witnesses, too.
pub fn goes_along() {
    for slot in &COMMON.witnesses.held {
        let fd = slot.load(Ordering::Relaxed);
        if fd >= 0 {
            let flags = calls::fcntl(fd, libc::F_GETFD, 0).unwrap_or(0);
            let _ = calls::fcntl(fd, libc::F_SETFD, (flags & !FD_CLOEXEC) as usize);
        }
    }
}

/// Gives the slots of witnesses back that have hung up, and with them what those forks have shared.
fn gone() {
    let mut forks = 0;
    for (index, slot) in COMMON.witnesses.read.iter().enumerate() {
        let fd = slot.load(Ordering::Relaxed);
        if fd >= 0 && calls::poll_one(fd, 0, 0).is_ok_and(|events| events & libc::POLLHUP != 0) {
            private::close(slot.swap(-1, Ordering::Relaxed));
            forks |= 1 << index;
        }
    }
    if forks == 0 {
        return;
    }
    COMMON.witnesses.watching.fetch_and(!forks, Ordering::Relaxed);
    super::watchers::children_gone(forks);
    all(|fd, socket| {
        if socket.forks.fetch_and(!forks, Ordering::Relaxed) & !forks == 0 {
            if socket.is_local() {
                crate::local::owners::only(socket); // which finds out by itself
            } else {
                // They may have changed the open file's flags, as shells do.
                socket.set_nonblocking(calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) & libc::O_NONBLOCK != 0);
                socket.peer.forget();
                socket.flags.fetch_and(!flag::SHARED, Ordering::Relaxed);
            }
            if let Some(inbox) = socket.inbox() {
                inbox.header().owners.store(1, Ordering::SeqCst);
            }
        }
        if socket.watched_at.fetch_and(!forks, Ordering::Relaxed) & !forks == 0 {
            socket.unpin(pin::FORK);
        }
    });
}

/// Whether there is anything to look at.
#[inline(always)]
pub fn watching() -> bool {
    COMMON.witnesses.watching.load(Ordering::Relaxed) != 0
}

/// Looks, at most once in a millisecond: when no other process has our descriptors any more, sockets and sets are ours alone again.
#[cold]
pub fn look() {
    let now = clock::ticks();
    if now.wrapping_sub(COMMON.witnesses.looked.load(Ordering::Relaxed)) < EVERY {
        return;
    }
    COMMON.witnesses.looked.store(now, Ordering::Relaxed);
    if let Some(_setup) = SETUP.lock() {
        gone();
    }
}

/// A private descriptor got another number.
pub(super) fn moved(from: i32, to: i32) {
    for fd in COMMON.witnesses.read.iter().chain(&COMMON.witnesses.held).chain([&COMMON.witnesses.fresh]) {
        shunt_table::private::renumber(fd, from, to);
    }
}
