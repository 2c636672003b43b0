//! io_uring: whether the process has a ring for its sockets, of which requests no call tells.

use crate::process::PROCESS;
use crate::procfs::{numbers, target, Path};
use crate::table::Kind;
use crate::{global, table};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// What is known of the process's rings.
pub(super) struct Rings {
    /// The process uses a ring for its sockets, or has one whose requests are not seen.
    used: AtomicBool,
    /// A ring was given a set: what the program adds to it later is the kernel's to look at, too.
    sets: AtomicBool,
    /// Connections that the process has made, or tried to.
    connections: AtomicU32,
    /// Listeners that may come before the next look. A look costs as much as there are descriptors, so it is due once for each sixteen that
    /// the last one found: with each listener where they are few.
    until_look: AtomicU32,
    /// Rings whose requests are seen, by descriptor plus one; those for which there is no room count as unseen.
    seen: [AtomicI32; 256],
}

impl Rings {
    pub(super) const fn new() -> Rings {
        Rings {
            used: AtomicBool::new(false),
            sets: AtomicBool::new(false),
            connections: AtomicU32::new(0),
            until_look: AtomicU32::new(0),
            seen: [const { AtomicI32::new(0) }; 256],
        }
    }
}

/// Connections of the process at which it looks for a ring in any case; then at each doubling.
const FIRST: u32 = 4;

const DESCRIPTORS_PER_LISTENER: u32 = 16;

/// The requests of the ring at `fd` come through `settle` of the hand-over.
pub fn seen(fd: i32) {
    if is_seen(fd) {
        return;
    }
    let _ =
        PROCESS.rings.seen.iter().any(|place| place.compare_exchange(0, fd + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok());
}

/// The ring at `fd` is about to be closed.
pub fn gone(fd: i32) {
    for place in &PROCESS.rings.seen {
        let _ = place.compare_exchange(fd + 1, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn is_seen(fd: i32) -> bool {
    PROCESS.rings.seen.iter().any(|place| place.load(Ordering::Relaxed) == fd + 1)
}

/// Whether the process keeps to the kernel for a ring's sake, before it listens.
pub fn before_listen() -> bool {
    if PROCESS.rings.used.load(Ordering::Relaxed) || global::options().io_uring_allowed {
        return PROCESS.rings.used.load(Ordering::Relaxed);
    }
    let waits = PROCESS.rings.until_look.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    !waits && look()
}

/// The same before it connects, as far as it is known.
#[inline]
pub fn before_connect() -> bool {
    let count = PROCESS.rings.connections.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if count <= FIRST || count.is_power_of_two() {
        return PROCESS.rings.used.load(Ordering::Relaxed) || (!global::options().io_uring_allowed && look());
    }
    PROCESS.rings.used.load(Ordering::Relaxed)
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
    PROCESS.rings.until_look.store(count / DESCRIPTORS_PER_LISTENER, Ordering::Relaxed);
    PROCESS.rings.used.fetch_or(found, Ordering::Relaxed);
    found
}

/// The process uses a ring for its sockets.
pub fn note_used() {
    PROCESS.rings.used.store(true, Ordering::Relaxed);
}

/// A ring watches a set.
pub fn note_set() {
    PROCESS.rings.sets.store(true, Ordering::Relaxed);
}

/// Whether one does.
pub fn has_set() -> bool {
    PROCESS.rings.sets.load(Ordering::Relaxed)
}
