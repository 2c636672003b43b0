//! How a receiver of many short messages stays behind their sender.
//!
//! A receiver takes a short message sooner than its sender makes one. So it would be where the sender is, and each look at the
//! sender's line, and at the line of the ring that is being filled, takes it away in the middle of the sender's stores: both then do what
//! two processors can of that, some 20 M messages in a second. One that leaves the sender alone for a while finds ten messages instead
//! of three, and twice as many pass.
//!
//! It does so only behind a stream: where the last look found several messages, but not many, and they were taken one by one, by
//! calls of one length. What comes alone, or in reply, or a head and a body, is found as soon as ever.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use shunt_segment::channel::Wait;
use shunt_sys::clock;

/// What a receiver remembers of its last look, in private memory.
#[derive(Default)]
pub struct Pace {
    /// Bytes of one call, if the last look found a few of that length; with [`EMPTIED`], if all were taken so.
    piece: AtomicU32,
}

const EMPTIED: u32 = 1 << 31;

/// Messages that make a stream.
const SEVERAL: usize = 3;
/// Bytes from which on a receiver is far enough behind.
const MANY: usize = 512;
/// Ticks of the time stamp counter for which the sender is left alone: about 150 ns.
const LEFT_ALONE: u64 = 400;

/// Bytes that a receiver asks for ahead of those it takes: their lines come while it does other things. Of many small messages a
/// processor has but a few under way, for the instructions in between.
pub const AHEAD: u32 = 1024;

/// Bytes that a sender asks for, to write them, ahead of those it stores, where its receiver is behind. Stores wait in a buffer for
/// their lines, and what it holds of a send's other stores it does not hold of lines.
pub const AHEAD_OF_STORES: u64 = 2048;
/// Shorter messages ask for nothing.
pub const PREPARED: usize = 512;

impl Pace {
    /// Nothing known.
    pub const fn new() -> Pace {
        Pace { piece: AtomicU32::new(0) }
    }

    /// A look found `waiting` bytes, of which a call took `part`.
    #[inline(always)]
    pub fn found(&self, waiting: usize, part: usize) {
        let few = waiting >= SEVERAL * part && waiting < MANY;
        self.piece.store(if few { part as u32 } else { 0 }, Relaxed);
    }

    /// A call took the last `length` bytes of those.
    #[inline(always)]
    pub fn emptied(&self, length: usize) {
        if self.piece.load(Relaxed) == length as u32 {
            self.piece.store(length as u32 | EMPTIED, Relaxed);
        }
    }

    /// Whether a look for `length` bytes is best put off: once, so a thread that does it says [`Pace::forget`].
    #[inline(always)]
    pub fn is_ahead(&self, length: usize) -> bool {
        self.piece.load(Relaxed) == length as u32 | EMPTIED
    }

    /// A look was put off.
    #[inline(always)]
    pub fn forget(&self) {
        self.piece.store(0, Relaxed);
    }
}

/// Leaves the sender alone, unless it runs only when its receiver does not: on the same processor.
#[cold]
#[inline(never)]
pub fn hold_off(own: &Wait, peer: &Wait) {
    let here = own.processor.load(Relaxed);
    if here != 0 && here == peer.processor.load(Relaxed) {
        return;
    }
    let start = clock::ticks();
    while clock::ticks().wrapping_sub(start) < LEFT_ALONE {
        core::hint::spin_loop();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_put_off_once_behind_a_few_messages_of_one_length() {
        let pace = Pace::new();
        pace.found(24, 8);
        assert!(!pace.is_ahead(8), "two are left");
        pace.found(24, 8);
        pace.emptied(8);
        assert!(!pace.is_ahead(16), "another length is asked for");
        assert!(pace.is_ahead(8));
        pace.forget();
        assert!(!pace.is_ahead(8), "once");
    }

    #[test]
    fn what_is_no_stream_or_far_ahead_is_looked_for_at_once() {
        for (waiting, part, last) in [(16, 8, 8), (8, 8, 8), (104, 4, 100), (MANY, 8, 8)] {
            let pace = Pace::new();
            pace.found(waiting, part);
            pace.emptied(last);
            assert!(!pace.is_ahead(part), "{waiting} {part} {last}");
        }
    }
}
