//! A signal that a call's own mask lets in.

use shunt_sys::calls;
use shunt_sys::libc::{self, sigset_t};

extern "C" fn handle(_: i32) {}

/// Sends SIGURG to the calling thread, which nobody else waits for.
pub fn send_to_self() {
    calls::tgkill(calls::getpid() as i32, calls::gettid() as i32, libc::SIGURG).expect("a thread of ours");
}

/// Runs `act` with such a signal pending; it is given a mask that lets it in. In a thread of its own, whose mask goes with it.
pub fn with_pending_signal<T: Send>(act: impl FnOnce(*const sigset_t) -> T + Send) -> T {
    let run = || {
        // SAFETY: a handler that does nothing, and sets of signals.
        let mask = unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(i32) as usize;
            assert_eq!(libc::sigaction(libc::SIGURG, &action, core::ptr::null_mut()), 0);
            let (mut blocked, mut before) = (core::mem::zeroed::<sigset_t>(), core::mem::zeroed::<sigset_t>());
            libc::sigaddset(&mut blocked, libc::SIGURG);
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, &mut before), 0);
            libc::sigdelset(&mut before, libc::SIGURG);
            before
        };
        send_to_self();
        act(&mask)
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("no failure"))
}
