//! Sets inside sets, and in poll.

use super::entry::Entry;
use super::events::signature;
use super::set::{ours, Set};
use super::{ERR, ET, HUP, IN, MODES};
use crate::readiness;
use crate::table::Kind;
use core::sync::atomic::Ordering;

/// A set is readable while it has events; as an edge when that begins.
pub(super) fn report_inner(entry: &'static Entry, inner: &'static Set) -> u32 {
    let wanted = entry.events.load(Ordering::Relaxed);
    let now = readable(inner);
    let before = entry.seen.swap(now as u64, Ordering::Relaxed) != 0;
    if now && (wanted & ET == 0 || !before || entry.fresh.swap(false, Ordering::Relaxed)) {
        wanted & IN
    } else {
        0
    }
}

/// Whether the set has events in memory: for poll on an epoll descriptor.
pub fn readable(set: &'static Set) -> bool {
    let Some(_held) = set.lock.lock() else { return false };
    let mut at = ours(&set.active);
    while let Some(entry) = at {
        let disabled = entry.disabled.load(Ordering::Relaxed);
        // SAFETY: null or a slab object.
        if let (false, Some(inner)) = (disabled, unsafe { entry.inner.load(Ordering::Acquire).as_ref() }) {
            if readable(inner) {
                return true;
            }
        }
        // SAFETY: streams only are active.
        if let (false, Some(socket)) = (disabled, unsafe { entry.socket.load(Ordering::Relaxed).as_ref() }) {
            let wanted = entry.events.load(Ordering::Relaxed);
            let now = readiness::events(socket) as u16 as u32 & (wanted & !MODES | ERR | HUP);
            let quiet = wanted & ET != 0
                && !entry.fresh.load(Ordering::Relaxed)
                && signature(socket) == entry.seen.load(Ordering::Relaxed);
            if now != 0 && !quiet {
                return true;
            }
        }
        at = ours(&entry.next_active);
    }
    false
}

/// Whether the kernel's part of an inner set reports anything but bells. Bells are taken note of.
pub(super) fn inner_ready(inner: &'static Set) -> bool {
    // Without an array of the program's to fill, the kernel's events cannot be taken out to see what they are: a set that
    // holds anything but streams is believed.
    if readable(inner) || inner.foreign.load(Ordering::Relaxed) > 0 {
        return true;
    }
    let Some(_held) = inner.lock.lock() else { return true };
    let mut at = ours(&inner.entries);
    while let Some(entry) = at {
        // SAFETY: null or a slab object.
        let socket = unsafe { entry.socket.load(Ordering::Relaxed).as_ref() };
        if socket.map(|s| s.kind()) != Some(Kind::Stream) {
            return true;
        }
        at = ours(&entry.next_in_set);
    }
    false
}
