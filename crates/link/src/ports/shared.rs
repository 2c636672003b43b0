//! Ports that the program bound beside another socket (SO_REUSEADDR, SO_REUSEPORT): none of them is lent.

use super::PORTS;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Such ports.
pub(super) struct Shared {
    /// Whether there are any.
    any: AtomicBool,
    /// One bit each.
    bits: [AtomicU64; 1024],
}

impl Shared {
    pub(super) const fn new() -> Shared {
        Shared { any: AtomicBool::new(false), bits: [const { AtomicU64::new(0) }; 1024] }
    }
}

/// Whether the program bound `port` beside another socket.
#[inline]
pub fn is_shared(port: u16) -> bool {
    PORTS.shared.any.load(Ordering::Relaxed)
        && PORTS.shared.bits[usize::from(port / 64)].load(Ordering::Relaxed) & 1 << (port % 64) != 0
}

/// The program has bound `port` beside another socket.
pub fn share(port: u16) {
    PORTS.shared.bits[usize::from(port / 64)].fetch_or(1 << (port % 64), Ordering::Relaxed);
    PORTS.shared.any.store(true, Ordering::Relaxed);
}

/// Whether the program bound any port so.
pub fn any() -> bool {
    PORTS.shared.any.load(Ordering::Relaxed)
}
