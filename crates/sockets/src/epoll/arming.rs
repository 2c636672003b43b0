//! Before and after a sleep: which streams ask their peers for a bell.

use super::entry::{address, Entry};
use super::scan::ARM_AFTER;
use super::set::{ours, Set};
use super::OUT;
use crate::wait as waiting;
use core::sync::atomic::Ordering;
use shunt_ring::bell;
use shunt_segment::channel::{arm, style};
use shunt_sys::clock;

/// What a set arms: bits of its own, so that waking takes nothing from a thread that sleeps in recv or poll.
fn conditions(entry: &Entry) -> u32 {
    let wanted = entry.events.load(Ordering::Relaxed);
    (arm::IN | if wanted & OUT != 0 { arm::OUT } else { 0 }) << arm::SET_SHIFT
}

/// Arms an entry's stream; true if a barrier is due before the next look.
pub(super) fn arm(entry: &'static Entry) -> bool {
    // SAFETY: null or a slab object.
    if let Some(inner) = unsafe { entry.inner.load(Ordering::Acquire).as_ref() } {
        return arm_all(inner);
    }
    // SAFETY: streams only are active.
    let Some(socket) = (unsafe { entry.socket.load(Ordering::Relaxed).as_ref() }) else { return false };
    let fd = entry.fd.load(Ordering::Relaxed);
    // Edges do not need the old bells gone; a long row of them would fill the companion.
    let rung = socket.peer().transmit.rung.load(Ordering::Relaxed);
    if rung.wrapping_sub(socket.own().receive.taken.load(Ordering::Relaxed)) > 16 {
        waiting::drain(socket, fd);
    }
    waiting::set_style(socket, style::POLL);
    waiting::announce(socket, conditions(entry))
}

pub(super) fn armed(entry: &'static Entry) -> bool {
    if !entry.inner.load(Ordering::Acquire).is_null() {
        return false; // looked at for as long as it is in the set
    }
    // SAFETY: streams only are active.
    let Some(socket) = (unsafe { entry.socket.load(Ordering::Relaxed).as_ref() }) else { return true };
    bell::is_armed(&socket.own().wait, conditions(entry))
}

/// Arms all active streams (for a sleep in this set or in one that holds it); true if a barrier is due.
pub fn arm_all(set: &'static Set) -> bool {
    let Some(_held) = set.lock.lock() else { return true };
    let mut due = false;
    let mut at = ours(&set.active);
    while let Some(entry) = at {
        due |= arm(entry);
        at = ours(&entry.next_active);
    }
    due
}

/// Awake again: streams that were busy a moment ago will be looked at, so their peers need not ring; unless another
/// thread or process sleeps in this set, or another set watches the stream, and needs the bell.
pub(super) fn wake(set: &'static Set) {
    if set.sleepers.load(Ordering::Acquire) > 1 {
        return;
    }
    let Some(_held) = set.lock.lock() else { return };
    let now = clock::ticks();
    let mut at = ours(&set.active);
    while let Some(entry) = at {
        // SAFETY: streams only are active.
        if let Some(socket) = unsafe { entry.socket.load(Ordering::Relaxed).as_ref() } {
            let busy = now.saturating_sub(entry.last.load(Ordering::Relaxed)) < ARM_AFTER;
            let only =
                socket.watchers.load(Ordering::Acquire) == address(entry) && entry.next_watcher.load(Ordering::Acquire).is_null();
            if busy && only && !socket.has(crate::socket::flag::SHARED) {
                bell::disarm(&socket.own().wait, (arm::IN | arm::OUT) << arm::SET_SHIFT);
            }
        }
        at = ours(&entry.next_active);
    }
}

/// Streams that were armed through a sleep and quiet for long are left to their bells.
pub(super) fn cool(set: &'static Set) {
    let Some(_held) = set.lock.lock() else { return };
    let now = clock::ticks();
    let mut link = &set.active;
    while let Some(entry) = ours(link) {
        if now.saturating_sub(entry.last.load(Ordering::Relaxed)) > ARM_AFTER && armed(entry) {
            entry.active.store(false, Ordering::Relaxed);
            link.store(entry.next_active.load(Ordering::Relaxed), Ordering::Relaxed);
        } else {
            link = &entry.next_active;
        }
    }
}
