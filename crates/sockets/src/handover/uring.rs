//! io_uring: the kernel works for the program on descriptors without a call that we could see.
//!
//! `io_uring_setup` by syscall(2) is refused (option `io-uring`). Rings of liburing are left alone: what they are given
//! passes functions of that library, before which [`settle`] makes the kernel's what of ours a request names. From the
//! first such request on the process keeps to the kernel; one that has its ring for files only never does. A ring of
//! another origin is noticed by its descriptor at the first connections and at each `listen`; what is accelerated by then
//! stays so.

use crate::handover::carried;
use crate::handover::receiver::{numbers, target, Path};
use crate::rendezvous::spare;
use crate::socket::flag;
use crate::table::{self, Kind};
use crate::{datagram, global};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use shunt_sys::{libc, Errno, Result};

/// The process uses a ring for its sockets, or has one whose requests are not seen.
static USED: AtomicBool = AtomicBool::new(false);
/// A ring was given a set: what the program adds to it later is the kernel's to look at, too.
static SETS: AtomicBool = AtomicBool::new(false);
static CONNECTIONS: AtomicU32 = AtomicU32::new(0);

/// Rings whose requests are seen, by descriptor plus one; those for which there is no room count as unseen.
static SEEN: [AtomicI32; 256] = [const { AtomicI32::new(0) }; 256];

/// Connections of the process at which it looks for a ring in any case; then at each doubling.
const FIRST: u32 = 4;

/// Listeners that may come before the next look. A look costs as much as there are descriptors, so it is due once for each sixteen that the
/// last one found: with each listener where they are few.
static UNTIL_LOOK: AtomicU32 = AtomicU32::new(0);
const DESCRIPTORS_PER_LISTENER: u32 = 16;

/// The requests of the ring at `fd` come through [`settle`].
pub fn seen(fd: i32) {
    if is_seen(fd) {
        return;
    }
    let _ = SEEN.iter().any(|place| place.compare_exchange(0, fd + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok());
}

/// The ring at `fd` is about to be closed.
pub fn gone(fd: i32) {
    for place in &SEEN {
        let _ = place.compare_exchange(fd + 1, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn is_seen(fd: i32) -> bool {
    SEEN.iter().any(|place| place.load(Ordering::Relaxed) == fd + 1)
}

/// Whether the process keeps to the kernel for a ring's sake, before it listens.
pub fn before_listen() -> bool {
    if USED.load(Ordering::Relaxed) || global::options().io_uring_allowed {
        return USED.load(Ordering::Relaxed);
    }
    let waits = UNTIL_LOOK.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    !waits && look()
}

/// The same before it connects, as far as it is known.
#[inline]
pub fn before_connect() -> bool {
    let count = CONNECTIONS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if count <= FIRST || count.is_power_of_two() {
        return USED.load(Ordering::Relaxed) || (!global::options().io_uring_allowed && look());
    }
    USED.load(Ordering::Relaxed)
}

#[cold]
fn look() -> bool {
    let (mut found, mut count) = (false, 0);
    let _ = numbers(&Path::new(format_args!("/proc/self/fd\0")), |fd| {
        count += 1;
        if table::get(fd as i32).kind() != Kind::Foreign {
            return false; // known for something else
        }
        let mut room = [0u8; 64];
        found = target(&Path::new(format_args!("/proc/self/fd/{fd}\0")), &mut room) == b"anon_inode:[io_uring]"
            && !is_seen(fd as i32);
        found
    });
    UNTIL_LOOK.store(count / DESCRIPTORS_PER_LISTENER, Ordering::Relaxed);
    USED.fetch_or(found, Ordering::Relaxed);
    found
}

/// The kernel is about to work on `fd` for a ring: it is the kernel's from now on, under all its numbers.
///
/// # Errors
/// EAGAIN: it cannot be made so, and is what it was.
pub fn settle(fd: i32) -> Result<()> {
    let word = table::get(fd);
    if let Some(socket) = word.datagram() {
        datagram::options::plain(socket, datagram::pin::ELSEWHERE);
    }
    if word.kind() == Kind::Epoll {
        // Whoever polls a set asks the kernel for all that is in it.
        SETS.store(true, Ordering::Relaxed);
        return everything();
    }
    let Some(socket) = word.socket() else { return Ok(()) };
    USED.store(true, Ordering::Relaxed);
    match word.kind() {
        Kind::Stream => carried::carry(fd, socket),
        Kind::Listener => carried::leave_listener(fd, socket),
        _ => {
            spare::spoil(socket);
            socket.set(flag::PLAIN);
            Ok(())
        }
    }
}

/// As [`settle`], of all that the process has: what a ring is given cannot be told.
///
/// # Errors
/// EAGAIN, as [`settle`]; some may be the kernel's by then.
#[cold]
pub fn everything() -> Result<()> {
    USED.store(true, Ordering::Relaxed);
    for fd in 0..table::high_water() {
        if table::get(fd).kind() != Kind::Epoll {
            settle(fd)?;
        }
    }
    Ok(())
}

/// `fd` came in a message: where a ring watches a set, it may join that. Where the process keeps to the kernel, it does so for this.
pub(crate) fn received(fd: i32) {
    if SETS.load(Ordering::Relaxed) || super::untold::keeps() {
        let _ = settle(fd);
    }
}

/// As [`settle`], before the ring closes `fd`: the number is nobody's from now on.
///
/// # Errors
/// As [`settle`]; EBADF: the program has no such descriptor.
pub fn closing(fd: i32) -> Result<()> {
    if table::get(fd).kind() == Kind::Private {
        return Err(Errno(libc::EBADF));
    }
    settle(fd)?;
    crate::descriptor::closing(fd);
    Ok(())
}
