//! Epoll sets that watch a datagram socket: what they do when it goes. The room of sets fills the table in at start-up.

use super::{Datagram, COMMON};
use core::sync::atomic::Ordering;

/// What the room of sets does.
pub struct Watchers {
    /// The last descriptor of this process for the socket closes: it leaves all sets.
    pub forget: fn(&'static Datagram, i32),
    /// The socket is the kernel's alone from now on: its sets go on watching it as they watch any other descriptor. False: one of them
    /// cannot, as it is another process's, too.
    pub leave: fn(&'static Datagram) -> bool,
    /// The children of these forks have ended or exec'd: they do not sleep in sets of this process any more.
    pub children_gone: fn(u32),
}

/// Fills the table in, before there is a set.
pub fn fill(watchers: &'static Watchers) {
    COMMON.watchers.store(core::ptr::from_ref(watchers).cast_mut(), Ordering::Release);
}

fn watchers() -> Option<&'static Watchers> {
    // SAFETY: null, or the static that `fill` was given.
    unsafe { COMMON.watchers.load(Ordering::Acquire).as_ref() }
}

/// See [`Watchers::forget`].
pub fn forget(socket: &'static Datagram, fd: i32) {
    if let Some(watchers) = watchers() {
        (watchers.forget)(socket, fd);
    }
}

/// See [`Watchers::leave`].
pub fn leave(socket: &'static Datagram) -> bool {
    watchers().is_none_or(|watchers| (watchers.leave)(socket))
}

/// See [`Watchers::children_gone`].
pub fn children_gone(forks: u32) {
    if let Some(watchers) = watchers() {
        (watchers.children_gone)(forks);
    }
}
