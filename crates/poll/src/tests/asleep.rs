//! Something is done while a call sleeps.

use shunt_sys::calls;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn sleeps(thread: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

/// Makes `call` in another thread, and does `act` when that sleeps: the call's result.
pub fn while_asleep<T: Send>(call: impl FnOnce() -> T + Send, act: impl FnOnce()) -> T {
    let thread = AtomicU32::new(0);
    thread::scope(|scope| {
        let calling = scope.spawn(|| {
            thread.store(calls::gettid(), Ordering::Release);
            call()
        });
        let began = Instant::now();
        // A call that is over before never sleeps.
        while !calling.is_finished() && began.elapsed() < Duration::from_secs(10) && !sleeps(thread.load(Ordering::Acquire)) {
            thread::sleep(Duration::from_micros(200));
        }
        act();
        calling.join().expect("no failure")
    })
}
