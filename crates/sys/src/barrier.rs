//! A full fence on other processors: the sleeper's half of an asymmetric one, by membarrier(2).

use crate::{calls, processor};
use core::sync::atomic::{fence, Ordering};

const GLOBAL_EXPEDITED: i32 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

/// Ticks after which what a processor has stored is seen by all, whatever it does: some three microseconds, where a line of cache takes half a
/// one between distant processors.
const SEEN: u64 = 10_000;

/// From now on [`everywhere`], called by any process, reaches the threads of this one.
///
/// # Errors
/// What the kernel answers; then its threads fence themselves.
pub fn register() -> crate::Result<()> {
    calls::membarrier(REGISTER_GLOBAL_EXPEDITED, 0, 0).map(drop)
}

/// Every processor that runs a thread of a registered process executes a full fence, or what it had stored before is seen when this returns.
///
/// The kernel alone does not do that. Where a thread of a registered process ends and another one of the same process runs next on the
/// processor, Linux 6.18 leaves that processor out until it has run another process: the end takes the mark off the processor, and a switch
/// within one address space does not put it on again. In 1.1 million rounds of store and load on two processors, with threads that end on one of
/// them, 85 loads were from before a store that the other side's load did not see either; with this wait, none of 0.9 million. A sleeper whose
/// bell is lost so sleeps until something else wakes it. The call's own interrupts take as long as the wait, so where they were sent nothing is
/// added.
pub fn everywhere() {
    fence(Ordering::SeqCst);
    // Behind the fence: of a thread that is stopped before it the time counts for nothing.
    let begun = processor::ticks();
    let _ = calls::membarrier(GLOBAL_EXPEDITED, 0, 0);
    while processor::ticks().wrapping_sub(begun) < SEEN {
        core::hint::spin_loop();
    }
    fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{compiler_fence, AtomicBool, AtomicU64, Ordering::*};
    use std::time::{Duration, Instant};

    #[repr(align(128))]
    #[derive(Default)]
    struct Word(AtomicU64);

    /// What two sides of an asymmetric fence have: each stores its own word and loads the other's.
    #[derive(Default)]
    struct Sides {
        go: Word,
        done: Word,
        stored: [Word; 2],
        loaded: Word,
        over: AtomicBool,
    }

    impl Sides {
        /// The side that does not fence.
        fn waker(&self) {
            let mut round = 0;
            while !self.over.load(Relaxed) {
                if self.go.0.load(Acquire) == round {
                    std::hint::spin_loop();
                    continue;
                }
                round += 1;
                (0..round % 32).for_each(|_| std::hint::spin_loop());
                self.stored[0].0.store(round, Relaxed);
                compiler_fence(SeqCst);
                self.loaded.0.store(self.stored[1].0.load(Relaxed), Relaxed);
                self.done.0.store(round, Release);
            }
        }

        /// The other one: whether neither saw the other's store.
        fn sleeper_misses(&self, round: u64) -> bool {
            self.go.0.store(round, Release);
            (0..round / 32 % 32).for_each(|_| std::hint::spin_loop());
            self.stored[1].0.store(round, Relaxed);
            compiler_fence(SeqCst);
            everywhere();
            let seen = self.stored[0].0.load(Relaxed);
            while self.done.0.load(Acquire) != round {
                std::hint::spin_loop();
            }
            seen != round && self.loaded.0.load(Relaxed) != round
        }
    }

    fn pin(processor: usize) -> bool {
        // SAFETY: plain bits, as many as are said.
        unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(processor, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set) == 0
        }
    }

    /// Threads end beside the waker all the time.
    #[test]
    fn one_of_two_sides_sees_the_other_whatever_ends_beside_them() {
        if register().is_err() {
            return;
        }
        let sides = Sides::default();
        std::thread::scope(|scope| {
            scope.spawn(|| pin(0).then(|| sides.waker()));
            scope.spawn(|| {
                while !sides.over.load(Relaxed) {
                    std::thread::spawn(|| pin(0)).join().unwrap();
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            // Where there is one processor alone, or this one is not ours, the threads go where they may.
            pin(1);
            let begun = Instant::now();
            let (mut round, mut missed) = (0, 0);
            while begun.elapsed() < Duration::from_secs(3) {
                round += 1;
                missed += u32::from(sides.sleeper_misses(round));
            }
            sides.over.store(true, Relaxed);
            assert_eq!(missed, 0, "of {round} rounds");
        });
    }
}
