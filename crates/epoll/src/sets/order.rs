//! The order in which entries that one look finds ready join the queue: that of arrival, as far as senders say.

use super::entry::{place, tagged, Entry};
use super::events::is_own;
use super::list::address;
use super::set::{enqueue, Set};
use super::EXCLUSIVE;
use core::sync::atomic::Ordering;
use shunt_ring::bell;
use shunt_stream::socket::Socket;
use shunt_stream::stamp;
use shunt_sys::clock;
use shunt_table::table::Kind;

/// So many are put into order. Where more are ready at a time they wait for the program, not it for them.
const MOST: usize = 32;

/// For how long the stream has had what its entry is about to tell, in ticks; 0: not known.
fn age(entry: &Entry, socket: &Socket, now: u64) -> u64 {
    match socket.connected.changed_at.load(Ordering::Relaxed) {
        changed if changed != 0 && is_own(entry, socket) => now.saturating_sub(changed),
        _ => stamp::age(socket, now),
    }
}

/// Puts the ready entries from `first` on, which one look has queued as it found them, into order. Under the set's lock.
#[cold]
#[inline(never)]
pub(super) fn line_up(set: &'static Set, first: &'static Entry) {
    let now = clock::ticks();
    let mut found = [(0, first); MOST];
    let mut count = 0;
    let mut at = Some(first);
    while let (Some(entry), true) = (at, count < MOST) {
        found[count] = (entry.socket().map_or(0, |socket| age(entry, socket, now)), entry);
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

/// Whether the kernel's events `tags` name streams of the set alone, of all of which it is known when their bytes came.
pub(super) fn all_known(set: &'static Set, tags: impl Iterator<Item = u64>) -> bool {
    if set.count.load(Ordering::Relaxed) < 2 {
        return false;
    }
    let now = clock::ticks();
    let known = |entry: &'static Entry| {
        let ours = entry.set.load(Ordering::Acquire) == address(set) && entry.valid() && entry.wanted() & EXCLUSIVE == 0;
        let stream = entry.socket().filter(|socket| ours && socket.kind() == Kind::Stream);
        stream.is_some_and(|socket| stamp::age(socket, now) > 0)
    };
    let mut count = 0;
    for tag in tags {
        count += 1;
        if count > MOST || !tagged(tag).is_some_and(known) {
            return false;
        }
    }
    count > 0
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
