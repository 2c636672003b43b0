//! Forks that the rooms above make of this process, for relays and keepers: what all rooms do before and after one. Start-up fills the
//! table in.

use super::UPCALLS;
use core::sync::atomic::Ordering;

/// The moments of a fork.
pub struct Forks {
    /// In the parent, before: everything that the child inherits is about to have two owners.
    pub before: fn(),
    /// In the parent, behind it.
    pub parent: fn(),
    /// In the child.
    pub child: fn(),
    /// In the parent: there is no child.
    pub failed: fn(),
    /// As `before`, where the child takes nothing of the program's, so that nothing gets a second owner. The parent waits until the child has
    /// closed what it inherited.
    pub before_own: fn(),
    /// In the parent, behind that, whether it failed or not.
    pub parent_of_own: fn(),
    /// In that child: its table is empty.
    pub child_of_own: fn(),
}

/// Fills the table in, before a process of ours is forked.
pub fn fill(forks: &'static Forks) {
    UPCALLS.forks.store(core::ptr::from_ref(forks).cast_mut(), Ordering::Release);
}

fn at(moment: impl FnOnce(&Forks) -> fn()) {
    // SAFETY: null, or the static that `fill` was given.
    if let Some(forks) = unsafe { UPCALLS.forks.load(Ordering::Acquire).as_ref() } {
        moment(forks)();
    }
}

/// See [`Forks::before`].
pub fn before() {
    at(|forks| forks.before);
}

/// See [`Forks::parent`].
pub fn parent() {
    at(|forks| forks.parent);
}

/// See [`Forks::child`].
pub fn child() {
    at(|forks| forks.child);
}

/// See [`Forks::failed`].
pub fn failed() {
    at(|forks| forks.failed);
}

/// See [`Forks::before_own`].
pub fn before_own() {
    at(|forks| forks.before_own);
}

/// See [`Forks::parent_of_own`].
pub fn parent_of_own() {
    at(|forks| forks.parent_of_own);
}

/// See [`Forks::child_of_own`].
pub fn child_of_own() {
    at(|forks| forks.child_of_own);
}
