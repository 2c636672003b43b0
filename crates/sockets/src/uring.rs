//! Processes that have an io_uring: the kernel works for them on descriptors without a call that we could see, so none of
//! theirs may be a companion.
//!
//! `io_uring_setup` by syscall(2) is refused (option `io-uring`). liburing makes the call by an instruction of its own:
//! that is noticed by the library's presence, and by the ring's descriptor at the first connections and at each `listen`.
//! What is accelerated by then stays so.

use crate::global;
use crate::receiver::{numbers, target, Path};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FOUND: AtomicBool = AtomicBool::new(false);
static CONNECTIONS: AtomicU32 = AtomicU32::new(0);

/// Connections of the process at which it looks for a ring in any case; then at each doubling.
const FIRST: u32 = 4;

/// The process was loaded with liburing.
pub fn loaded() {
    FOUND.store(true, Ordering::Relaxed);
}

/// Whether the process has an io_uring, before it listens.
pub fn before_listen() -> bool {
    !global::options().io_uring_allowed && (FOUND.load(Ordering::Relaxed) || look())
}

/// The same before it connects, as far as it is known.
#[inline]
pub fn before_connect() -> bool {
    let count = CONNECTIONS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    if count <= FIRST || count.is_power_of_two() {
        return before_listen();
    }
    FOUND.load(Ordering::Relaxed) && !global::options().io_uring_allowed
}

#[cold]
fn look() -> bool {
    let mut found = false;
    let _ = numbers(&Path::new(format_args!("/proc/self/fd\0")), |fd| {
        let mut room = [0u8; 64];
        found = target(&Path::new(format_args!("/proc/self/fd/{fd}\0")), &mut room) == b"anon_inode:[io_uring]";
        found
    });
    FOUND.fetch_or(found, Ordering::Relaxed);
    found
}
