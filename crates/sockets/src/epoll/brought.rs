//! What a thread of this process brings to a stream itself, from another host: its sets need no bell.

use super::entry::Entry;
use super::set::{activate, watcher, Set, WATCHERS};
use super::EXCLUSIVE;
use crate::socket::Socket;
use core::sync::atomic::{fence, Ordering};
use shunt_ring::bell;
use shunt_segment::channel::arm;

/// Bytes, space or an end came to a stream by the calling thread's doing: the only set that watches it looks at it from now
/// on, and what that set had announced is taken back. False: somebody else sleeps, or may, who needs a bell.
///
/// The caller may hold any lock, so none is waited for.
pub fn brought(socket: &Socket) -> bool {
    let Some(_watchers) = WATCHERS.try_lock() else { return false };
    let Some((entry, set)) = only_watcher(socket) else { return false };
    let Some(_held) = set.lock.try_lock() else { return false };
    activate(set, entry);
    // Whoever falls asleep from now on arms what is looked at, and looks at it.
    fence(Ordering::SeqCst);
    // The calling thread looks when it has brought what there is, before it sleeps.
    if set.others_asleep() || !set.watchers.load(Ordering::Acquire).is_null() {
        return false;
    }
    bell::disarm(&socket.own().wait, (arm::IN | arm::OUT) << arm::SET_SHIFT);
    true
}

/// The entry and set of a stream that one set watches, in this process alone, and not as one of several that take turns.
fn only_watcher(socket: &Socket) -> Option<(&'static Entry, &'static Set)> {
    let entry = watcher(&socket.watchers).filter(|entry| watcher(&entry.next_watcher).is_none())?;
    let set = entry.set().filter(|set| !set.shared.load(Ordering::Relaxed))?;
    (entry.valid() && entry.wanted() & EXCLUSIVE == 0).then_some((entry, set))
}
