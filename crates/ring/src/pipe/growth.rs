//! When a sender changes to a ring of another class, and to which.

use super::{class_of, switch_of, Pipe, COPIED, POSITION};
use crate::short::SMALL;
use shunt_segment::area::{CLASSES, FIRST_IN_WINDOW, REFERRED, RING_SIZE};
use shunt_segment::channel::word;
use shunt_segment::sync::Ordering::{Relaxed, Release};

impl Pipe<'_> {
    /// Whether the ring could still change to a larger class: then a sender that finds it full is not blocked.
    pub fn can_grow(&self) -> bool {
        let current = self.announced();
        if class_of(current) == REFERRED {
            return self.can_grow_behind(current);
        }
        class_of(current) < self.growth_limit()
    }

    /// Whether this side sends into the largest ring outside the window now.
    pub fn is_largest_of_base(&self) -> bool {
        class_of(self.announced()) == FIRST_IN_WINDOW - 1
    }

    /// Whether this side sends into a ring of the window now.
    pub fn is_in_window(&self) -> bool {
        (FIRST_IN_WINDOW..REFERRED).contains(&class_of(self.announced()))
    }

    #[inline(always)]
    fn class_limit(&self) -> usize {
        let limit = (self.own.transmit.class_limit.load(Relaxed) as usize).min(CLASSES - 1);
        match self.own.transmit.send_buffer.load(Relaxed) {
            0 => limit,
            set => limit.min(self.class_for(self.room_for(set))),
        }
    }

    /// The largest class to grow to: one in a window only while that can be mapped.
    #[inline(always)]
    pub(super) fn growth_limit(&self) -> usize {
        let limit = self.class_limit();
        if self.window.is_refused() {
            limit.min(FIRST_IN_WINDOW - 1)
        } else {
            limit
        }
    }

    /// As [`Pipe::growth_limit`], of a sender that may be held to the base.
    #[inline(always)]
    pub(super) fn limit_now(&self) -> usize {
        let limit = self.growth_limit();
        if self.window.is_held() {
            limit.min(FIRST_IN_WINDOW - 1)
        } else {
            limit
        }
    }

    /// Which class an empty ring should have for a message of `length` bytes.
    #[inline(always)]
    pub(super) fn class_for_empty(&self, class: usize, length: usize) -> usize {
        if length > Self::size(class) {
            let wanted = self.class_for(length).clamp(class, self.limit_now().max(class));
            return if self.may_use(wanted) { wanted } else { class };
        }
        if class > 0 {
            let small = &self.own.transmit.small;
            // Counting to many before shrinking keeps a mixed load in its large ring.
            let count = if length > SMALL { 0 } else { (small.load(Relaxed) & !COPIED) + 1 };
            let shrink = count >= 256;
            small.store(COPIED | if shrink { 0 } else { count }, Relaxed);
            if shrink {
                return 0;
            }
        }
        class
    }

    /// The class to change to when `left` bytes do not fit.
    ///
    /// Rings grow step by step, so a burst of small messages does not run through megabytes of memory. A peer that does
    /// not read for long leaves bytes in each of them, 5 MiB together: the kernel takes as many before a sender waits.
    #[inline(always)]
    pub(super) fn larger_class(&self, current: u64, left: usize) -> Option<usize> {
        // Loaded once: the peer can change it, and a range that is the wrong way round would panic.
        let (class, limit) = (class_of(current), self.limit_now());
        if class >= limit {
            return None;
        }
        let wanted = self.class_for(left).clamp(class + 1, limit);
        self.may_use(wanted).then_some(wanted)
    }

    /// Whether the ring of `class` can be written; if not, its window is asked for: the caller of [`Pipe::send`] maps it.
    #[inline(always)]
    fn may_use(&self, class: usize) -> bool {
        if class < FIRST_IN_WINDOW || self.window.get().is_some() {
            return true;
        }
        self.window.ask();
        false
    }

    pub(super) fn class_for(&self, length: usize) -> usize {
        (0..CLASSES).find(|&k| RING_SIZE[k] as usize >= length).unwrap_or(CLASSES - 1)
    }

    /// Changes to `class` from the current position on; gives the new word (not yet published).
    ///
    /// The number counts modulo 8, which suffices: at most five changes grow the ring without the receiver noticing
    /// any ([`referred`](super::referred) has a rule of its own), and a change back to class 0 happens when it has received, and so noticed, everything.
    #[inline(never)]
    pub(super) fn switch_class(&self, current: u64, class: usize) -> u64 {
        let old = class_of(current) as u64;
        let number = (switch_of(current) as u64 + 1) & 7;
        let border = (current & POSITION) | old << word::CLASS_SHIFT | number << word::SWITCH_SHIFT;
        self.own.borders[number as usize & 7].store(border, Release);
        self.own.transmit.switch.store(border, Relaxed);
        let kept = current & !(7 << word::CLASS_SHIFT | 7 << word::SWITCH_SHIFT);
        kept | (class as u64) << word::CLASS_SHIFT | number << word::SWITCH_SHIFT
    }
}
