//! When this process looks after its streams although nothing happens to them: time limits that no other process keeps
//! ([`crate::stalled`], [`crate::corked`], and beside them [`crate::beside`]).
//!
//! There is no thread of ours to sleep until then. So a thread that sleeps in this process for anything sleeps no longer than to
//! the next look, and one that finds it due looks after all streams that ask for it; so does a thread that finds nothing in a call
//! that does not wait.
//!
//! A stream asks first, and notes its time here then. So a look finds it, or leaves a time standing.

use core::sync::atomic::{AtomicU64, Ordering};
use shunt_sys::clock;

/// The time of the looks.
struct Looks {
    next: Next,
    /// Before when there is no other look: a peer decides when the bytes that it holds back are due, and could have a look at all streams
    /// follow upon the last for ever.
    not_before: AtomicU64,
    /// When the kernel is asked next for the ends of TCP connections beside streams.
    lifelines: AtomicU64,
}

static LOOKS: Looks =
    Looks { next: Next(AtomicU64::new(NEVER)), not_before: AtomicU64::new(0), lifelines: AtomicU64::new(NEVER) };

/// Between two looks at least, in ns, and as a multiple of what the first of them took: so much of a processor they cost at most.
const PAUSE: u64 = 1_000_000;
const SHARE: u64 = 16;
/// No time.
pub const NEVER: u64 = u64::MAX;

/// How long a look may take before another thread begins one, in ns. So long others sleep while it goes on, because its news need
/// not reach them.
const LOOKING: u64 = 5_000_000;

/// Until when a call may sleep before it must keep the time ([`crate::due`]). To be asked before the last look at what it sleeps for: another
/// thread may keep it in between.
#[inline]
pub fn next() -> u64 {
    LOOKS.next.time().min(lifelines().load(Ordering::Relaxed))
}

/// When the kernel is asked next for the ends of TCP connections beside streams (ns); `u64::MAX`: at no time.
#[inline(always)]
pub fn lifelines() -> &'static AtomicU64 {
    &LOOKS.lifelines
}

/// The next look is due at `time`, if not before; `u64::MAX`: at no time. The stream asks for it already.
pub fn look_at(time: u64) {
    LOOKS.next.note(time.max(LOOKS.not_before.load(Ordering::Relaxed)));
}

/// When there may be another look after one that began at `began` and ended at `ended`: a thread that was stopped in between did
/// not look all the time.
fn not_before(began: u64, ended: u64) -> u64 {
    ended + PAUSE.max(ended.saturating_sub(began).min(LOOKING) * SHARE)
}

/// It is `now`: the caller is to look, if any thread is, and to say the result to [`end`].
pub(crate) fn begin(now: u64) -> Option<u64> {
    LOOKS.next.begin(now)
}

/// The look that began at `began` is over, and `first` asks first.
pub(crate) fn end(look: u64, began: u64, first: u64) {
    let again = not_before(began, clock::monotonic_ns());
    LOOKS.not_before.store(again, Ordering::Relaxed);
    LOOKS.next.end(look, first.max(again));
}

/// The time of the next look, in CLOCK_MONOTONIC ns, a little late. The lowest bits count the notes, by which a thread that has looked
/// sees that there were others meanwhile.
struct Next(AtomicU64);

const NOTES: u64 = (1 << 16) - 1;

/// A time that is not before `time`, with no notes.
fn rounded(time: u64) -> u64 {
    time.saturating_add(NOTES) & !NOTES
}

impl Next {
    fn time(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn note(&self, time: u64) {
        if time == NEVER {
            return;
        }
        let noted = |next: u64| Some(next.min(rounded(time)) & !NOTES | next.wrapping_add(1) & NOTES);
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, noted);
    }

    /// It is `now`: the caller is to look, if any thread is, and to say the result to [`Next::end`]. If it never does, another
    /// looks.
    fn begin(&self, now: u64) -> Option<u64> {
        let due = self.time();
        let look = rounded(now + LOOKING) | due & NOTES;
        let mine = now >= due && self.0.compare_exchange(due, look, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        mine.then_some(look)
    }

    /// The caller has looked, and `first` asks first. Where others noted times meanwhile, theirs and this are the next look's to find.
    fn end(&self, look: u64, first: u64) {
        let next = if first == NEVER { NEVER } else { rounded(first) | look & NOTES };
        let _ = self.0.compare_exchange(look, next, Ordering::SeqCst, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn looked_at(next: &Next, now: u64) -> u64 {
        next.begin(now).expect("a look that is due")
    }

    #[test]
    fn the_earliest_time_stands_and_is_not_early() {
        let next = Next(AtomicU64::new(NEVER));
        next.note(NEVER);
        assert_eq!(next.time(), NEVER);
        for time in [3 * SECOND, 2 * SECOND, 4 * SECOND] {
            next.note(time);
        }
        assert!((2 * SECOND..2 * SECOND + 2 * NOTES).contains(&next.time()));
        assert!(next.begin(2 * SECOND - 1).is_none());
        let look = looked_at(&next, 3 * SECOND);
        assert!(next.begin(3 * SECOND).is_none(), "one look at a time");
        next.end(look, NEVER);
        assert_eq!(next.time(), NEVER);
    }

    #[test]
    fn a_note_during_a_look_leaves_a_time_standing() {
        for (noted, first) in [(SECOND, NEVER), (9 * SECOND, NEVER), (9 * SECOND, 5 * SECOND)] {
            let next = Next(AtomicU64::new(NEVER));
            next.note(SECOND);
            let look = looked_at(&next, 2 * SECOND);
            next.note(noted);
            next.end(look, first);
            assert!(next.time() <= look + NOTES, "{noted} {first}");
        }
    }

    #[test]
    fn looks_leave_time_for_other_things() {
        assert_eq!(not_before(SECOND, SECOND), SECOND + PAUSE);
        assert_eq!(not_before(SECOND, SECOND + 2 * PAUSE), SECOND + 2 * PAUSE * (1 + SHARE));
        assert_eq!(not_before(SECOND + 1, SECOND), SECOND + PAUSE);
    }

    #[test]
    fn who_looks_too_long_takes_nothing_from_the_next_one() {
        let next = Next(AtomicU64::new(NEVER));
        next.note(SECOND);
        let slow = looked_at(&next, SECOND + NOTES + 1);
        let second = looked_at(&next, 2 * SECOND);
        next.end(slow, NEVER);
        assert!(next.time() != NEVER);
        next.end(second, 5 * SECOND);
        next.end(slow, NEVER);
        assert!((5 * SECOND..5 * SECOND + 2 * NOTES).contains(&next.time()));
    }
}
