//! Under which user this process has what it shares with others.

use crate::process::{identity, PROCESS};
use core::sync::atomic::Ordering;
use shunt_sys::calls;

/// At start-up.
pub fn start() {
    let user = calls::geteuid();
    PROCESS.identity.user.store(user, Ordering::Relaxed);
    PROCESS.identity.effective.store(user, Ordering::Relaxed);
}

/// The effective user, as far as calls tell.
pub fn effective() -> u32 {
    PROCESS.identity.effective.load(Ordering::Relaxed)
}

/// The child of a process that has what it shares under another user is `user`'s now, and has nothing of that any more.
pub fn is_now(user: u32) {
    PROCESS.identity.user.store(user, Ordering::Relaxed);
    PROCESS.identity.effective.store(user, Ordering::Relaxed);
}

/// The user under whom the process has what it shares.
pub fn own() -> u32 {
    PROCESS.identity.user.load(Ordering::Relaxed)
}

/// Whether `user`, as the kernel tells it, is for sure the one under whom the process has what it shares.
pub fn is_own(user: u32) -> bool {
    identity::is_same_user(user, own())
}

/// The process has become another user: the effective one is `user` now.
pub fn set_effective(user: u32) {
    PROCESS.identity.effective.store(user, Ordering::Relaxed);
}

/// What it shares from now on, it has under `user`.
pub fn set_own(user: u32) {
    PROCESS.identity.user.store(user, Ordering::Relaxed);
}
