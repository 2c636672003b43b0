//! The lock, in every order that the memory model allows: RUSTFLAGS="--cfg loom" cargo test --release --test loom_lock
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::sync::Arc;
use loom::thread;
use shunt_ring::lock::{acquire, revoke};

struct Guarded {
    lock: AtomicU32,
    count: UnsafeCell<u32>,
}

// SAFETY: `count` is touched under `lock`; the checker verifies just that.
unsafe impl Sync for Guarded {}

const DEAD: u32 = 99;

/// Adds one under the lock; takes the lock from DEAD, whom the kernel would not know any more.
fn add(guarded: &Guarded, me: u32) {
    let held = acquire(&guarded.lock, me, false, |owner| {
        if owner == DEAD {
            revoke(&guarded.lock, owner);
        } else {
            thread::yield_now();
        }
    });
    assert!(held.is_some());
    // SAFETY: under the lock.
    guarded.count.with_mut(|count| unsafe { *count += 1 });
}

/// Two threads: among more, the checker lets two waiters yield to each other for ever.
fn both_count(first_owner: u32, times: u32) {
    loom::model(move || {
        let guarded = Arc::new(Guarded { lock: AtomicU32::new(first_owner), count: UnsafeCell::new(0) });
        let work = move |guarded: &Guarded, me| (0..times).for_each(|_| add(guarded, me));
        let other = {
            let guarded = guarded.clone();
            thread::spawn(move || work(&guarded, 2))
        };
        work(&guarded, 1);
        other.join().unwrap();
        // SAFETY: the other has ended.
        assert_eq!(guarded.count.with(|count| unsafe { *count }), 2 * times);
    });
}

#[test]
fn one_at_a_time() {
    both_count(0, 2);
}

#[test]
fn a_dead_owner_loses_the_lock_once() {
    both_count(DEAD, 1);
    both_count(DEAD, 2);
}

#[test]
fn a_handler_that_interrupts_the_holder_is_told_so() {
    loom::model(|| {
        let word = AtomicU32::new(0);
        for alone in [false, true] {
            let held = acquire(&word, 7, alone, |_| unreachable!());
            assert!(held.is_some());
            assert!(acquire(&word, 7, alone, |_| unreachable!()).is_none());
            drop(held);
            assert!(acquire(&word, 7, alone, |_| unreachable!()).is_some());
        }
    });
}
