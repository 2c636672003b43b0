//! What the kernel would do after a signal handler: restart the call, or end it with EINTR.
//!
//! Most sleeps are in recv on the companion, which the kernel restarts or not by itself. accept sleeps in poll, which
//! never restarts; so the handlers are asked.

use super::WAITING;
use shunt_sys::libc::SA_RESTART;
use shunt_sys::{action, section};
use shunt_table::global::Mutex;

/// What the program installed is changed by one thread after the other, and not while a fork copies it.
pub fn changing() -> &'static Mutex {
    &WAITING.handlers
}

/// Before a fork, in the parent: the child gets a table that is whole, and a lock that no thread holds.
pub fn before_fork() {
    match WAITING.handlers.lock() {
        Some(held) => core::mem::forget(held),
        None => section::enter(),
    }
}

/// After it, in both, whether it failed or not.
pub fn after_fork() {
    WAITING.handlers.reset();
    section::leave();
}

/// Whether every handler that this process has installed asks for SA_RESTART. Where some do and some do not, which one
/// interrupted us is unknown, and the answer is no.
pub fn all_restart() -> bool {
    let mut any = false;
    for action in (1..=64).filter_map(action::current) {
        if action.handler > 1 {
            if action.flags & SA_RESTART as u64 == 0 {
                return false;
            }
            any = true;
        }
    }
    any
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_handler_without_restart_is_found() {
        extern "C" fn nothing(_: i32) {}
        // SAFETY: installs a handler that does nothing for a signal that no thread sends.
        let install = |flags: i32| unsafe {
            let mut action: shunt_sys::libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = flags;
            shunt_sys::libc::sigaction(shunt_sys::libc::SIGUSR2, &action, std::ptr::null_mut());
        };
        install(0);
        assert!(!super::all_restart());
    }
}
