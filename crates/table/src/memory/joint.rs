//! Small objects that children of a fork share, carved from one mapping: each such mapping is a file of its own, which costs a child that
//! makes one, and ends soon, several microseconds.

use core::sync::atomic::{AtomicUsize, Ordering};
use shunt_sys::mapping;

/// Bytes that are mapped at a time; pages cost nothing until touched.
const AT_ONCE: usize = 64 << 10;

/// A process's store of them. All calls are under one lock of the caller's.
pub struct Joint {
    next: AtomicUsize,
    end: AtomicUsize,
}

impl Default for Joint {
    fn default() -> Self {
        Joint::new()
    }
}

impl Joint {
    /// Nothing yet.
    pub const fn new() -> Joint {
        Joint { next: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    /// Zeroed memory for an object, which is never given back; `None` when memory is short.
    pub fn take<T>(&self) -> Option<*mut T> {
        let size = core::mem::size_of::<T>();
        let mut at = self.next.load(Ordering::Relaxed).next_multiple_of(core::mem::align_of::<T>());
        if at + size > self.end.load(Ordering::Relaxed) {
            at = mapping::reserve_for_children(AT_ONCE).ok()? as usize;
            self.end.store(at + AT_ONCE, Ordering::Relaxed);
        }
        self.next.store(at + size, Ordering::Relaxed);
        Some(at as *mut T)
    }

    /// In the child after fork: what is left is the parent's to give out.
    pub fn forked(&self) {
        self.next.store(0, Ordering::Relaxed);
        self.end.store(0, Ordering::Relaxed);
    }
}
