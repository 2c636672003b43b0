//! Bytes that lie in the ring and are not announced yet, because more are to follow (TCP_CORK, MSG_MORE).
//!
//! The sender's copy of the word ([`Pipe::announced`]) runs ahead of the word that the peer sees, so whatever the sender
//! announces next, more bytes or its end, announces them as well. A sender that never calls again does not. So the word that
//! would announce them stands beside, and the peer stores it when their time has come, or the sender is gone: by a
//! compare-and-swap from the word that it saw, which fails once the sender has stored a newer one.

use super::{distance, Pipe, CHUNK, POSITION};
use shunt_segment::sync::Ordering::{Acquire, Relaxed, Release};

/// Bytes of a full segment, which is not held back. Kernel TCP over loopback begins with 32,741, and goes up to 65,483.
pub const SEGMENT: usize = CHUNK;

/// After so many the peer is one that scribbles.
const ATTEMPTS: u32 = 64;

impl Pipe<'_> {
    /// As [`Pipe::send`], but announces full segments alone. The caller has what is left announced by [`Pipe::push`], or at
    /// another time by the peer ([`Pipe::leave_held`]).
    ///
    /// # Safety
    /// As for [`Pipe::send`].
    pub unsafe fn hold(&self, source: *const u8, length: usize) -> usize {
        // SAFETY: passed on.
        unsafe { self.send_ring::<true>(source, length) }
    }

    /// Bytes of this side that are held back.
    pub fn held(&self) -> usize {
        distance(self.own.post.word.load(Relaxed) & POSITION, self.announced() & POSITION) as usize
    }

    /// Whether the peer, which has sent something before, has sent nothing since it received what this side announced last.
    pub fn is_unanswered(&self) -> bool {
        let (answered, announced) = (self.peer.post.ack.load(Acquire), self.own.post.word.load(Relaxed));
        self.peer.post.word.load(Relaxed) & POSITION != 0 && distance(answered, announced & POSITION) != 0
    }

    /// Bytes that are missing to a full segment.
    pub(super) fn left_of_segment(&self) -> usize {
        SEGMENT - self.held() % SEGMENT
    }

    /// The ring's newest byte is now the one before `next`, and the peer is not told.
    pub(super) fn keep(&self, next: u64) {
        self.own.transmit.word.store(next, Relaxed);
    }

    /// As [`Pipe::keep`], for `length` bytes at once, but announces the full segments that they make with what was held before. What
    /// was is less than one, so the border lies among the `length` bytes, in the ring that `next` names.
    pub(super) fn keep_rest(&self, next: u64, length: usize) {
        let all = self.held() + length;
        if all >= SEGMENT {
            let border = (next & POSITION).wrapping_sub((all % SEGMENT) as u64) & POSITION;
            self.publish(next & !POSITION | border);
        }
        self.keep(next);
    }

    /// Announces what is held back; the caller holds the sending lock.
    pub fn push(&self) {
        self.publish(self.current());
        self.own.wait.held.store(0, Release);
    }

    /// As [`Pipe::end`] with a reset, behind which Linux sends nothing any more (`tcp_send_active_reset`): what is held back is not
    /// announced, unless the peer takes it at this very moment.
    #[cold]
    pub(super) fn end_without_held(&self, flags: u64) {
        self.own.wait.held.store(0, Release);
        let word = &self.own.post.word;
        let ended = (0..ATTEMPTS).any(|_| {
            let announced = word.load(Relaxed);
            self.keep(announced | flags);
            word.compare_exchange(announced, announced | flags, Release, Relaxed).is_ok()
        });
        if !ended {
            self.publish(self.current());
        }
    }

    /// Leaves what is held back to the peer from `until` on, in CLOCK_MONOTONIC ns. The caller holds the sending lock. The Release
    /// pairs with the Acquire in [`Pipe::held_by_peer`].
    pub fn leave_held(&self, until: u64) {
        self.own.wait.held_until.store(until, Relaxed);
        self.own.wait.held.store(self.current(), Release);
    }

    /// The peer's word, and the one that would announce what it holds back, if it holds anything back.
    fn held_by_peer(&self) -> Option<(u64, u64)> {
        let held = self.peer.wait.held.load(Acquire);
        let word = self.peer.post.word.load(Acquire);
        let ahead = distance(word & POSITION, held & POSITION);
        (held != 0 && 0 < ahead && ahead < SEGMENT as u64).then_some((word, held))
    }

    /// Until when the peer holds bytes back; `None`: it holds none.
    pub fn held_until(&self) -> Option<u64> {
        self.held_by_peer().map(|_| self.peer.wait.held_until.load(Relaxed))
    }

    /// Announces what the peer holds back; true if there was anything.
    pub fn take_held(&self) -> bool {
        let stored = |(word, held)| self.peer.post.word.compare_exchange(word, held, Release, Relaxed).is_ok();
        self.held_by_peer().is_some_and(stored)
    }
}
