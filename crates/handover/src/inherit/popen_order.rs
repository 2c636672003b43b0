//! Calls of popen take turns: a shell must have none of the pipes to others (popen(3)), so which there are must not change between
//! the look at them and its start.

use core::sync::atomic::{AtomicU32, Ordering};
use shunt_sys::{calls, libc, thread};

/// The thread whose turn it is; 0: none's.
static TURN: AtomicU32 = AtomicU32::new(0);

/// Does `work`, which may sleep, when no other thread does. A handler that interrupted it in this thread goes on at once.
pub fn in_turn<T>(work: impl FnOnce() -> T) -> T {
    let me = thread::id();
    while let Err(owner) = TURN.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
        if owner == me {
            return work();
        }
        let _ = calls::futex(TURN.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, owner, core::ptr::null());
    }
    let result = work();
    TURN.store(0, Ordering::Release);
    let _ = calls::futex(TURN.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1, core::ptr::null());
    result
}

/// In the child after fork: the thread whose turn it was is the parent's.
pub fn forked() {
    TURN.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        in_turn(|| {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            in_turn(std::thread::yield_now); // a handler of the thread itself
                            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                        });
                    }
                });
            }
        });
        assert_eq!(TURN.load(Ordering::Relaxed), 0);
    }
}
