//! How often the kernel is asked about what is not seen in memory, while streams keep a set busy: for epoll sets, poll and select.
//!
//! Of listeners and inboxes (*ours*) the kernel is asked once in [`KERNEL_EVERY`] ticks at least. Where descriptors of the kernel's own
//! are in the set, whose events belong in the same answer, these are asked about whenever an answer is given.
//!
//! An epoll set remembers itself when it asked. What poll and select are given has no object: the calling thread remembers the last
//! question that found nothing, and about which descriptors it was. So a thread that turns to another set asks at once, two sets in
//! turn are asked about each time, and what was found once is asked about in each call until the kernel tells of it no more: a state
//! that holds is told each time that it is asked for, as the kernel tells it.

use shunt_epoll::KERNEL_EVERY;
use shunt_rendezvous::answers;
use shunt_sys::{clock, thread};

/// The descriptors of a call that the kernel may be asked about, as one number.
#[derive(Clone, Copy)]
pub(crate) struct Question(u64);

impl Question {
    /// Of none. A connect in this process makes it another one: where the program itself has just become a client of a listener in the
    /// set, the next call tells of it.
    #[inline]
    pub(crate) fn new() -> Question {
        Question(answers::begun() as u64)
    }

    /// The same, and about `events` of `fd`.
    #[inline]
    pub(crate) fn add(&mut self, fd: i32, events: i16) {
        let one = (fd as u32 as u64) << 16 | events as u16 as u64;
        self.0 = (self.0.rotate_left(7) ^ (one + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Whether this thread asked it last, a moment ago, and nothing was found.
    #[inline]
    pub(crate) fn is_quiet(self) -> bool {
        // SAFETY: the calling thread's own block. A handler that asks in between leaves its own question there, or ours with its time,
        // which is later by no more than its work.
        let (question, at) = unsafe { (*thread::block()).polled };
        question == self.0 | 1 && clock::ticks().wrapping_sub(at) <= KERNEL_EVERY
    }

    /// The kernel was asked about all of it, and answered at `at`; `found`: something.
    #[inline]
    pub(crate) fn was_asked(self, at: u64, found: bool) {
        // SAFETY: as above.
        unsafe { (*thread::block()).polled = if found { (0, 0) } else { (self.0 | 1, at) } };
    }
}

/// The kernel was asked about some, and found something: the next call asks about all.
#[inline]
pub(crate) fn found() {
    // SAFETY: as above.
    unsafe { (*thread::block()).polled = (0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::libc::{POLLIN, POLLOUT};

    fn about(entries: &[(i32, i16)]) -> Question {
        let mut question = Question::new();
        entries.iter().for_each(|(fd, events)| question.add(*fd, *events));
        question
    }

    #[test]
    fn a_question_is_quiet_for_a_while_after_it_found_nothing() {
        let question = about(&[(3, POLLIN), (4, POLLIN)]);
        found();
        assert!(!question.is_quiet(), "never asked");
        question.was_asked(clock::ticks(), false);
        // The thread may be preempted for longer than that; not each time.
        let quiet = || {
            question.was_asked(clock::ticks(), false);
            question.is_quiet()
        };
        assert!((0..1000).any(|_| quiet()));
        question.was_asked(clock::ticks() - KERNEL_EVERY - 1, false);
        assert!(!question.is_quiet(), "asked long ago");
        question.was_asked(clock::ticks(), true);
        assert!(!question.is_quiet(), "something was found");
    }

    #[test]
    fn another_set_and_a_connect_are_other_questions() {
        let sets: [&[(i32, i16)]; 6] =
            [&[], &[(3, POLLIN)], &[(4, POLLIN)], &[(3, POLLOUT)], &[(3, POLLIN), (4, POLLIN)], &[(4, POLLIN), (3, POLLIN)]];
        for (number, set) in sets.iter().enumerate() {
            for (other, another) in sets.iter().enumerate() {
                about(set).was_asked(u64::MAX / 2, false);
                // SAFETY: the calling thread's own block.
                let (asked, _) = unsafe { (*thread::block()).polled };
                assert_eq!(asked == about(another).0 | 1, number == other, "{set:?} and {another:?}");
            }
        }
        let before = about(sets[4]);
        answers::begins();
        assert!(before.0 | 1 != about(sets[4]).0 | 1);
    }

    #[test]
    fn a_counter_that_went_back_is_no_moment_ago() {
        let question = about(&[(3, POLLIN)]);
        question.was_asked(clock::ticks() + (1 << 40), false);
        assert!(!question.is_quiet());
    }
}
