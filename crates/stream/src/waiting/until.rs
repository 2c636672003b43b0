//! The wait loop: whatever a call waits for, it looks while that pays, and then sleeps.
//!
//! ```text
//! begin    how long to look           (spin: the average of what this thread's waits lasted)
//! look     is it there? no system call, or one in many looks
//! sleep    counted (sleeper): announce, barrier, look again, handlers, sleep
//! woken    what the sleep gave; else once more
//! ```
//!
//! Callers: a stream's receive and send, accept, datagrams, AF_UNIX, poll and select, epoll. Each compiles to a loop of its own.

use super::spin::Spin;
use shunt_sys::clock;

/// What a look found.
pub enum Look<T> {
    /// The call has what it waits for, or an error.
    Found(T),
    /// Nothing yet.
    Nothing,
    /// Nothing, and looking again is of no use.
    Sleep,
}

/// What a call waits for.
pub trait Source {
    /// What the wait ends with.
    type Outcome;
    /// What a sleep gives.
    type Slept;

    /// Begins a round: for how long to look.
    fn begin(&mut self) -> Spin;

    /// One look, between two calls of [`Spin::more`].
    fn look(&mut self, spin: &Spin) -> Look<Self::Outcome>;

    /// Sleeps, unless another look behind the announcement finds something.
    fn sleep(&mut self, spin: &Spin) -> Self::Slept;

    /// After a sleep, whose length is known by now; `None`: there is nothing yet, and the call begins again.
    fn woken(&mut self, slept: Self::Slept) -> Option<Self::Outcome>;
}

/// Waits for `source`.
#[inline(always)]
pub fn until<S: Source>(source: &mut S) -> S::Outcome {
    loop {
        let mut spin = source.begin();
        if let Some(outcome) = looks(&mut spin, |spin| source.look(spin)) {
            return outcome;
        }
        let since = clock::ticks();
        let slept = source.sleep(&spin);
        spin.end_asleep(since);
        if let Some(outcome) = source.woken(slept) {
            return outcome;
        }
    }
}

/// The first half, for a call whose sleep is the program's own call: looks while that pays. `None`: it is time to sleep.
#[inline(always)]
pub fn looks<T>(spin: &mut Spin, mut look: impl FnMut(&Spin) -> Look<T>) -> Option<T> {
    while spin.more() {
        match look(spin) {
            Look::Found(found) => {
                spin.end();
                return Some(found);
            }
            Look::Nothing => {}
            Look::Sleep => break,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::spin;
    use super::*;

    /// Found at a look, or after a number of sleeps; writes down what is asked of it.
    struct Script {
        at_look: u32,
        at_sleep: u32,
        looks: u32,
        trace: Vec<&'static str>,
    }

    impl Source for Script {
        type Outcome = &'static str;
        type Slept = u32;

        fn begin(&mut self) -> Spin {
            self.trace.push("begin");
            spin::always()
        }

        fn look(&mut self, _: &Spin) -> Look<&'static str> {
            self.looks += 1;
            match self.looks {
                looks if looks == self.at_look => Look::Found("seen"),
                looks if looks % 3 == 0 => Look::Sleep,
                _ => Look::Nothing,
            }
        }

        fn sleep(&mut self, _: &Spin) -> u32 {
            self.trace.push("sleep");
            self.at_sleep -= 1;
            self.at_sleep
        }

        fn woken(&mut self, left: u32) -> Option<&'static str> {
            (left == 0).then_some("slept")
        }
    }

    fn run(at_look: u32, at_sleep: u32) -> (&'static str, u32, Vec<&'static str>) {
        let mut script = Script { at_look, at_sleep, looks: 0, trace: Vec::new() };
        let outcome = until(&mut script);
        (outcome, script.looks, script.trace)
    }

    #[test]
    fn what_is_seen_is_not_slept_for() {
        assert_eq!(run(1, 9), ("seen", 1, vec!["begin"]));
        assert_eq!(run(2, 9), ("seen", 2, vec!["begin"]));
    }

    #[test]
    fn each_sleep_in_vain_is_followed_by_looks() {
        assert_eq!(run(8, 9), ("seen", 8, vec!["begin", "sleep", "begin", "sleep", "begin"]));
        assert_eq!(run(99, 2), ("slept", 6, vec!["begin", "sleep", "begin", "sleep"]));
    }

    #[test]
    fn looks_that_end_are_not_a_find() {
        let mut spin = spin::always();
        assert_eq!(looks::<()>(&mut spin, |_| Look::Sleep), None);
        assert_eq!(looks(&mut spin, |_| Look::Found(7)), Some(7));
    }
}
