//! A descriptor that one thread rings by while another closes it: its number may be any other file's the moment after, for which
//! a doorbell would be a byte of its contents.
//!
//! ```text
//! ringer                               closer
//!   inside += 1                          takes the number off the table
//!   still in the table? else leave       waits while anybody is inside
//!   rings                                closes the descriptor
//!   inside -= 1
//! ```
//!
//! Either the ringer sees that the number is gone, or the closer sees the ringer (Dekker). A ringer never waits inside. Where the
//! number stays, and only the process ends, the passage itself is shut.

use shunt_segment::sync::{fence, AtomicU32, Ordering};

/// No ringer gets in any more; beside the count.
const SHUT: u32 = 1 << 31;

/// Of one socket in one process. All-zero is a fresh one.
#[derive(Default)]
pub struct Passage {
    inside: AtomicU32,
}

impl Passage {
    /// Calls `ring` with the descriptor that `open`, asked inside, says to be the socket's still, if any.
    pub fn while_open<T>(&self, open: impl FnOnce() -> Option<T>, ring: impl FnOnce(T)) {
        let shut = self.inside.fetch_add(1, Ordering::SeqCst) & SHUT != 0;
        fence(Ordering::SeqCst);
        if let Some(number) = open().filter(|_| !shut) {
            ring(number);
        }
        // It may have been reset since: see `reset`.
        let less = |count: u32| (count & !SHUT != 0).then(|| count - 1);
        let _ = self.inside.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }

    /// The descriptor was made unknown, and is closed next: waits for those who ring by it.
    pub fn await_ringers(&self, mut pause: impl FnMut()) {
        fence(Ordering::SeqCst);
        while self.inside.load(Ordering::Acquire) & !SHUT != 0 {
            pause();
        }
    }

    /// No ringer gets in any more. False: one is still inside, to be asked again.
    pub fn shut(&self) -> bool {
        self.inside.fetch_or(SHUT, Ordering::SeqCst) & !SHUT == 0
    }

    /// No ringer is inside: in the child after fork, and in a fresh object, which may have been the parent's.
    pub fn reset(&self) {
        self.inside.store(0, Ordering::Relaxed);
    }
}
