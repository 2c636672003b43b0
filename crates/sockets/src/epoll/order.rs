//! The order in which entries that one look finds ready join the queue: that of arrival, as far as senders say.

use super::entry::{place, Entry};
use super::set::{enqueue, Set};
use crate::stamp;
use crate::table::Kind;
use core::sync::atomic::Ordering;
use shunt_ring::bell;
use shunt_sys::clock;

/// So many are put into order. Where more are ready at a time they wait for the program, not it for them.
const MOST: usize = 32;

/// Puts the ready entries from `first` on, which one look has queued as it found them, into order. Under the set's lock.
#[cold]
#[inline(never)]
pub(super) fn line_up(set: &'static Set, first: &'static Entry) {
    let now = clock::ticks();
    let mut found = [(0, first); MOST];
    let mut count = 0;
    let mut at = Some(first);
    while let (Some(entry), true) = (at, count < MOST) {
        found[count] = (entry.socket().map_or(0, |socket| stamp::age(socket, now)), entry);
        count += 1;
        at = set.ready.after(entry);
    }
    let found = &mut found[..count];
    if at.is_some() || found.is_sorted_by(|(before, _), (behind, _)| before >= behind) {
        return;
    }
    // By insertion: equal ones keep their order, and few are out of order.
    for i in 1..found.len() {
        let mut at = i;
        while at > 0 && found[at].0 > found[at - 1].0 {
            found.swap(at, at - 1);
            at -= 1;
        }
    }
    for (_, entry) in found.iter() {
        enqueue(set, entry, place::READY);
    }
}

/// A stream is looked at beside others of its set: from now on its peer says when bytes arrive.
#[inline]
pub(super) fn ask(set: &'static Set, entry: &'static Entry) {
    if !entry.stamped.load(Ordering::Relaxed) && set.count.load(Ordering::Relaxed) > 1 {
        if let Some(socket) = entry.socket().filter(|socket| socket.kind() == Kind::Stream) {
            entry.stamped.store(true, Ordering::Relaxed);
            bell::ask_for_stamps(&socket.own().wait);
        }
    }
}
