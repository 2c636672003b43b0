//! Before and after a sleep: which streams ask their peers for a bell.
//!
//! While a thread sleeps in a set, in whatever process, each of its streams is armed, or has rung a bell that no thread took note
//! of yet, or a thread that is awake in the set will arm it before it leaves ([`hand_over`]).

use super::control::{change, kernel_event, kernel_side};
use super::entry::{place, term, Entry};
use super::events::find;
use super::nested::{is_slept_for, DEEPEST};
use super::scan::ARM_AFTER;
use super::set::{activate, enqueue, watcher, Set};
use super::{datagrams, frames, ET, EXCLUSIVE, IN, OUT, SPACE};
use core::sync::atomic::Ordering;
use shunt_ring::bell;
use shunt_segment::channel::{arm, style};
use shunt_stream::progress::{self, Sleeper};
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::{bells, wake as waiting};
use shunt_stream::{error_queue, events, sleep};
use shunt_sys::clock;
use shunt_sys::libc::{self, epoll_event};
use shunt_table::table::Kind;

/// What a set arms: bits of its own, so that waking takes nothing from a thread that sleeps in recv or poll.
fn conditions(entry: &Entry) -> u32 {
    // Completions of MSG_ZEROCOPY come with the room that the peer makes.
    let room = entry.wanted() & SPACE != 0 || entry.socket().is_some_and(error_queue::awaits);
    (arm::IN | if room { arm::OUT } else { 0 }) << arm::SET_SHIFT
}

/// Arms an entry's stream; true if a barrier is due before the next look.
pub(super) fn arm(entry: &'static Entry) -> bool {
    let note =
        |remote: bool| entry.set().filter(|_| remote).into_iter().for_each(|set| set.remote.store(true, Ordering::Relaxed));
    if let Some(inner) = entry.inner() {
        let due = arm_all(inner);
        note(inner.remote.load(Ordering::Relaxed));
        return due;
    }
    datagrams::cool(entry);
    let Some(socket) = entry.socket() else { return false };
    note(socket.has(flag::REMOTE));
    // Edges do not need the old bells gone.
    if let (true, Some(fd)) = (bells::are_many(socket), entry.descriptor()) {
        bells::trim(socket, fd);
    }
    if entry.announced.load(Ordering::Relaxed) == 0 {
        entry.announced.store(clock::ticks(), Ordering::Relaxed);
    }
    if socket.has(flag::SHARED) {
        hear_of_space(entry, socket);
    }
    sleep::set_style(socket, style::POLL);
    waiting::announce(socket, conditions(entry))
}

/// Where another process could shut the stream down, a waiter for space is to hear of it: from now on, and of a first edge at once.
#[cold]
fn hear_of_space(entry: &'static Entry, socket: &Socket) {
    let wanted = entry.wanted();
    let may = wanted & SPACE != 0 && wanted & EXCLUSIVE == 0 && !entry.has(term::POKED | term::DISABLED | term::DORMANT);
    if !may || events::events(socket, libc::POLLOUT) != 0 {
        return;
    }
    let (Some(epfd), Some(fd)) = (entry.set().and_then(Set::descriptor), entry.descriptor()) else { return };
    entry.terms().flags.fetch_or(term::POKED, Ordering::Relaxed);
    change(epfd, entry, fd, kernel_event(entry, Kind::Stream));
}

/// Whether the entry's bell will ring for what comes next.
pub(super) fn armed(entry: &'static Entry) -> bool {
    if entry.socket().is_some() && entry.announced.load(Ordering::Relaxed) == 0 {
        return false;
    }
    // What is inside an inner set is looked at for as long as that is in the set.
    let cold = entry.datagram().is_none() || (datagrams::is_cold(entry) && find(entry).events == 0);
    cold && entry.inner().is_none() && entry.socket().is_none_or(|s| bell::is_armed(&s.own().wait, conditions(entry)))
}

/// A thread that was counted is about to sleep in the set, or around it: arms all active streams. True if a barrier is due before the next
/// look. By the lock, though nothing may seem active, it sees what another thread has queued that did not see it counted.
pub fn arm_all(set: &'static Set) -> bool {
    let Some(_held) = set.lock.lock() else { return true };
    let mut due = false;
    for entry in set.active() {
        due |= arm(entry);
    }
    due
}

/// Awake again: streams that were busy a moment ago will be looked at, so their peers need not ring; unless another
/// thread or process sleeps in this set or around it, or another set watches the stream, and needs the bell.
pub(super) fn wake(set: &'static Set) {
    let Some(_held) = set.lock.lock() else { return };
    // Under the lock: a thread that begins to sleep later arms later, too.
    if set.sleepers() > 1 || !set.watchers.load(Ordering::Acquire).is_null() {
        return;
    }
    let now = clock::ticks();
    for entry in set.active() {
        let busy = now.saturating_sub(entry.last.load(Ordering::Relaxed)) < ARM_AFTER;
        if busy {
            datagrams::woken(set, entry);
        }
        let Some(socket) = entry.socket() else { continue };
        let first = watcher(socket.watchers.entries()).is_some_and(|e| core::ptr::eq(e, entry));
        let only = first && entry.next_watcher.load(Ordering::Acquire).is_null();
        if busy && only && !socket.has(flag::SHARED) {
            bell::disarm(&socket.own().wait, (arm::IN | arm::OUT) << arm::SET_SHIFT);
        }
    }
}

/// Streams that were armed through a sleep and quiet for long are left to their bells. Quiet is not one whose bell was heard by a
/// thread in poll, which has armed it anew since, and is still on its way into the set.
pub(super) fn cool(set: &'static Set) {
    let Some(_held) = set.lock.lock() else { return };
    let now = clock::ticks();
    for entry in set.watched.iter() {
        let idle = now.saturating_sub(entry.last.load(Ordering::Relaxed));
        if idle > ARM_AFTER && armed(entry) && find(entry).events == 0 {
            enqueue(set, entry, place::NONE);
        }
    }
}

/// A handler ends a sleep in the set, perhaps by a jump, or the thread is cancelled, and what the kernel had said by then is heard by
/// no thread: its edges are gone. So streams that were left to bells that may have rung are looked at from now on, by others at once, and what the
/// queue of frames has is driven.
#[cold]
pub(super) fn recall(set: &'static Set) {
    {
        let Some(_held) = set.lock.lock() else { return };
        let left = |entry: &&Entry| entry.queue.load(Ordering::Relaxed) == place::NONE && !kernel_side(entry);
        for entry in set.entries.iter().filter(left) {
            // In this order: a bell that is still to ring is an edge of its own.
            if !armed(entry) || find(entry).events != 0 {
                activate(set, entry);
            }
        }
    }
    if frames::has(set) {
        drop(progress::watch(Sleeper::Awake));
    }
    if let Some(epfd) = set.descriptor() {
        hand_over(set, epfd, false);
    }
}

/// A thread leaves the set with its answer while others sleep in it, or around it. What it looked at so far must ring
/// from now on; and where more is ready one of the others is woken, as `ep_done_scan` wakes one for what is left in the
/// kernel's list.
#[inline(always)]
pub(super) fn hand_over(set: &'static Set, epfd: i32, exclusive: bool) {
    if exclusive || set.is_awaited() {
        hand_over_now(set, epfd);
    }
}

#[cold]
#[inline(never)]
fn hand_over_now(set: &'static Set, epfd: i32) {
    let deaf = frames::is_deaf(set);
    if set.quiet() && !deaf {
        return;
    }
    if arm_all(set) {
        waiting::barrier();
    }
    let Some(_held) = set.lock.lock() else { return };
    // A sleeper around it, in poll or in a set, was woken perhaps, and found nothing: the kernel's word is taken.
    let left = set.ready.first().is_some() && is_slept_for(set, None, DEEPEST);
    let more = left || set.watched.iter().any(|entry| find(entry).events != 0);
    if more || deaf {
        frames::wake_one(set, set.number(epfd), None);
    }
}

/// Kicks one of the set's active entries, or one of a set inside it: a set itself cannot be kicked. Whether there was one. Under the set's lock.
pub(super) fn kick_inside(set: &'static Set, epfd: i32) -> bool {
    for entry in set.active() {
        if (entry.socket().is_some() || entry.datagram().is_some()) && kick(epfd, entry) {
            return true;
        }
    }
    for inner in set.active().filter_map(|entry| entry.inner()) {
        let (Some(_held), Some(inner_fd)) = (inner.lock.lock(), inner.descriptor()) else { continue };
        if kick_inside(inner, inner_fd) {
            return true;
        }
    }
    false
}

/// Makes the kernel wake one of those that sleep in the set: a companion is always writable, so asking for that is an
/// edge. The thread that hears it changes the registration back. False: it cannot, as by a number that is closed beside a duplicate.
pub(super) fn kick(epfd: i32, entry: &'static Entry) -> bool {
    let Some(fd) = entry.added() else { return false };
    entry.kicked.store(true, Ordering::Relaxed);
    let modes = if entry.datagram().is_some() { ET } else { 0 };
    let events = kernel_event(entry, kind(entry)).events | IN | OUT | modes;
    change(epfd, entry, fd, epoll_event { events, u64: entry.tag.load(Ordering::Relaxed) })
}

/// Wakes one of those that sleep in the set by `entry`, or by another. Under the set's lock.
pub(super) fn rouse(set: &'static Set, epfd: i32, entry: &'static Entry) {
    if !kick(epfd, entry) {
        frames::wake_one(set, epfd, Some(entry));
    }
}

/// The kernel forgets a kick with the registration of `entry`, perhaps before the thread that it woke has run: another entry has it. Under
/// the set's lock.
pub(super) fn pass_kick_on(set: &'static Set, entry: &'static Entry) {
    if entry.kicked.swap(false, Ordering::Relaxed) {
        set.kicked_at.store(0, Ordering::Relaxed);
        if let Some(epfd) = set.descriptor().filter(|_| set.is_awaited()) {
            frames::wake_one(set, epfd, Some(entry));
        }
    }
}

/// The kick was heard.
pub(super) fn kicked(set: &'static Set, entry: &'static Entry) {
    if entry.kicked.swap(false, Ordering::Relaxed) {
        set.kicked_at.store(0, Ordering::Relaxed);
        if let (Some(fd), Some(epfd)) = (entry.descriptor(), set.descriptor()) {
            change(epfd, entry, fd, kernel_event(entry, kind(entry)));
        }
    }
}

fn kind(entry: &Entry) -> Kind {
    entry.datagram().map_or(Kind::Stream, |_| Kind::Datagram)
}
