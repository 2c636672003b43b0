//! Ports that the program bound beside another socket (SO_REUSEADDR, SO_REUSEPORT): none of them is lent.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Ports that the program bound beside another socket, one bit each.
static SHARED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Whether there are such.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether the program bound `port` beside another socket.
#[inline]
pub fn is_shared(port: u16) -> bool {
    ANY.load(Ordering::Relaxed) && SHARED[usize::from(port / 64)].load(Ordering::Relaxed) & 1 << (port % 64) != 0
}

/// The program has bound `port` beside another socket.
pub fn share(port: u16) {
    SHARED[usize::from(port / 64)].fetch_or(1 << (port % 64), Ordering::Relaxed);
    ANY.store(true, Ordering::Relaxed);
}

/// Whether the program bound any port so.
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}
