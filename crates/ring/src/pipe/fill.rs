//! Bytes that their source writes straight into a ring: a file's, which the kernel copies from its pages.

use super::room::ahead;
use super::{class_of, switch_of, Pipe, POSITION};
use shunt_segment::area::{FIRST_IN_WINDOW, REFERRED};
use shunt_segment::channel::word;
use shunt_segment::sync::Ordering::Relaxed;

/// What a protocol says before a file.
pub(super) const HEADING: u64 = 4 << 10;

/// Free space of a ring, in two pieces where it lies across the ring's end.
pub type Space = [(*mut u8, usize); 2];

impl Pipe<'_> {
    /// Lets `source` write up to `most` bytes into the free space of the ring as it is, and announces as many as it says it
    /// wrote; gives their number. `None`, and nothing asked, where fewer than `least` bytes are free, or where
    /// [`Pipe::send`] would change to another ring: it is to be used then. With `hold` full segments alone are announced, as by
    /// [`Pipe::hold`].
    ///
    /// A ring of the window in which hardly anything waits is left for the largest one of the base: the source's stores go
    /// through the caches, which rings of megabytes leave (docs/decisions/0030-files-are-read-straight-into-the-ring.md).
    ///
    /// # Safety
    /// The caller holds the side's sending lock. `source` writes nowhere but into the pieces.
    pub unsafe fn fill(&self, least: usize, most: usize, hold: bool, source: impl FnOnce(Space) -> usize) -> Option<usize> {
        let mut current = self.current();
        let tail = current & POSITION;
        let mut ack = self.known_ack();
        if class_of(current) == REFERRED {
            return None;
        }
        if ahead(current, ack) || self.space(current, ack) < most || class_of(current) >= FIRST_IN_WINDOW {
            ack = self.refresh_ack();
        }
        if ahead(current, ack) {
            return None;
        }
        self.settle(current, ack);
        if class_of(current) >= FIRST_IN_WINDOW && self.may_leave(current, ack, HEADING) {
            current = self.switch_class(current, FIRST_IN_WINDOW - 1);
        }
        let class = class_of(current);
        let part = self.space(current, ack).min(most);
        if part < least || (ack == tail && self.class_for_empty(class, part) != class) {
            return None;
        }
        let ring = self.ring(class)?;
        let size = ring.size as usize;
        let at = tail as usize & (size - 1);
        let first = part.min(size - at);
        // No more than there was room for, whatever the source says.
        let filled = source([(ring.base.wrapping_add(at), first), (ring.base, part - first)]).min(part);
        if filled > 0 {
            let next = tail.wrapping_add(filled as u64) & POSITION;
            let current = current & !(POSITION | 63 << word::INLINE_SHIFT);
            if hold {
                self.keep_rest(current | next, filled);
            } else {
                self.publish(current | next);
            }
        }
        Some(filled)
    }

    /// Whether less than `few` bytes wait, all of them in the ring of `current`, and the receiver knows that: changes are numbered
    /// modulo 8, and of those that it does not notice this must not be one.
    pub(super) fn may_leave(&self, current: u64, ack: u64, few: u64) -> bool {
        self.unread(current, ack) < few
            && self.is_settled(current, ack)
            && self.peer.receive.switch.load(Relaxed) & 7 == switch_of(current)
    }
}
