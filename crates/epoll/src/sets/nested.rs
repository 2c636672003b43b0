//! Sets inside sets, and in poll: when an epoll descriptor is readable.
//!
//! The kernel finds the inner set's descriptor readable when a bell rang, whatever that meant. So its word is a hint:
//! what holds is seen in memory, and in the kernel's set once it holds nothing but events (see [`settle`]).

use super::all_in_kernel::is_all_in_kernel;
use super::arming::{arm_all, kicked};
use super::control::{change, kernel_event, kernel_side};
use super::entry::{term, Entry};
use super::kernel::{harvest, rearm};
use super::set::{activate, watcher, Set};
use super::{events, frames, ET, EXCLUSIVE, IN};
use core::sync::atomic::{fence, Ordering};
use shunt_rendezvous::accept::deferred;
use shunt_stream::waiting::{bells, wake};
use shunt_sys::libc::{epoll_event, sigset_t};
use shunt_sys::{calls, libc, Result};
use shunt_table::table::Kind;

/// What an epoll descriptor can be ready for (`ep_eventpoll_poll`).
const READABLE: u32 = IN | libc::EPOLLRDNORM as u32;

/// What the entry of an inner set would report, and how many arrivals there were. Under the outer set's lock.
pub(super) fn find(entry: &'static Entry, inner: &'static Set) -> (u32, u32) {
    let mut heard = entry.heard.load(Ordering::Relaxed);
    if heard {
        look_at_deferred(inner, DEEPEST);
    }
    let ready = in_memory(inner);
    let arrivals = inner.arrivals.load(Ordering::Relaxed);
    if heard && !ready && !settle(inner, entry.set()) {
        heard = false;
        entry.heard.store(false, Ordering::Relaxed);
        // It may have held when the kernel spoke, and have had no room in that answer.
        if let Some(outer) = entry.set() {
            rearm(outer, entry);
        }
    }
    // What the kernel says of streams is a bell, or a kick: their arrivals are counted.
    let edge = entry.has(term::FRESH) || arrivals as u64 != entry.terms().seen.load(Ordering::Relaxed);
    let edge = edge || (heard && !inner.lock.lock().is_some_and(|_held| all_are_streams(inner)));
    let wanted = entry.wanted();
    if (ready || heard) && (wanted & ET == 0 || edge) {
        (READABLE & wanted, arrivals)
    } else {
        (0, arrivals)
    }
}

/// Whether the set's streams have events. What was not seen before is an arrival, for the sets around it.
pub fn in_memory(set: &'static Set) -> bool {
    if set.quiet() {
        return false;
    }
    let Some(_held) = set.lock.lock() else { return false };
    let mut ready = false;
    for entry in set.active() {
        if events::find(entry).events != 0 {
            ready = true;
            if events::notice(entry) {
                set.arrivals.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    ready
}

/// Whether the descriptor of a set is readable, when the kernel says `hint`: for poll.
pub fn readable(set: &'static Set, hint: bool) -> bool {
    if is_all_in_kernel(set) {
        return hint;
    }
    if hint {
        look_at_deferred(set, DEEPEST);
    }
    in_memory(set) || (hint && settle(set, None))
}

/// The kernel says that the set is readable, for a client perhaps that has sent nothing to a listener which defers. Such a client
/// leaves the rendezvous for the list, and what it sends is heard: else its event would be spent, for the caller that is told of the set and
/// accepts another.
fn look_at_deferred(set: &'static Set, depth: u32) {
    let Some(_held) = set.lock.lock() else { return };
    for listener in set.listening.iter().filter_map(|entry| entry.socket()).filter(|listener| deferred::concern(listener)) {
        deferred::ready(listener);
    }
    if depth > 0 {
        set.active().filter_map(|entry| entry.inner()).for_each(|inner| look_at_deferred(inner, depth - 1));
    }
}

/// Whether the kernel's set holds companions alone, whatever the kernel says of them. Under the set's lock.
fn all_are_streams(set: &'static Set) -> bool {
    let foreign = set.foreign.load(Ordering::Relaxed) > 0 || !set.others.is_empty();
    !foreign && !set.entries.iter().any(|entry| entry.inner().is_some() || kernel_side(entry))
}

/// The kernel's set of `set` is readable, for bells perhaps: takes these off, and gives whether there are events. `asker`: the
/// set around it that is looked at.
///
/// The kernel forgets an event that no longer holds when it is asked whether the set is readable. So it is enough to take
/// the bytes off the companions, and edges of foreign descriptors stay where they are. Bells that others may need stay: while
/// the kernel is asked, it is told not to look at their companions.
fn settle(set: &'static Set, asker: Option<&'static Set>) -> bool {
    let Some(epfd) = set.descriptor() else { return false };
    let readable = || calls::poll_one(epfd, libc::POLLIN, 0).is_ok_and(|events| events & libc::POLLIN != 0);
    let mut taken = false;
    {
        let Some(_held) = set.lock.lock() else { return true };
        frames::part(set); // of frames it would be readable, too
        for entry in set.active() {
            taken |= matches!(silence(entry), Bells::Taken);
        }
    }
    let mut rest = None;
    if !readable() {
        rest = Some(false);
    } else {
        let Some(_held) = set.lock.lock() else { return true };
        frames::part(set); // it may have the queue again, and an edge of that is not to be heard here
        if all_are_streams(set) {
            // The bells can be heard at once.
            harvest(set, epfd);
            taken = true;
        } else {
            for entry in set.entries.iter() {
                // It would be heard by a thread that waits in the set alone.
                if entry.kicked.load(Ordering::Relaxed) {
                    kicked(set, entry);
                    taken = true;
                }
                match silence(entry) {
                    Bells::None => continue,
                    Bells::Taken => taken = true,
                    Bells::Stay => entry.hushed.store(true, Ordering::Relaxed),
                }
                activate(set, entry);
            }
            if set.entries.iter().any(|entry| entry.hushed.load(Ordering::Relaxed)) {
                change_hushed(set, epfd, true);
                rest = Some(readable());
                change_hushed(set, epfd, false);
                set.entries.iter().for_each(|entry| entry.hushed.store(false, Ordering::Relaxed));
                set.noisy.store(true, Ordering::Relaxed);
            }
        }
    }
    if taken {
        tell_others(set, epfd, asker);
    }
    let holds = in_memory(set) || rest.unwrap_or_else(readable);
    frames::give_ears(set, epfd);
    holds
}

/// The kernel has woken those that sleep in the set and around it, and has nothing to tell them any more: they look at the
/// set's queues only, and have perhaps done so. As [`Change::BellsTaken`](shunt_stream::waiting::watchers::Change::BellsTaken): whatever comes from now on rings, and what
/// has come makes the kernel wake them once more. In `asker` this is [`super::arming::hand_over`]'s.
fn tell_others(set: &'static Set, epfd: i32, asker: Option<&'static Set>) {
    fence(Ordering::SeqCst); // a thread that begins to sleep later looks at the streams
    if !is_slept_for(set, asker, DEEPEST) {
        return;
    }
    if arm_all(set) {
        wake::barrier();
    }
    let Some(_held) = set.lock.lock() else { return };
    if set.active().any(|entry| entry.inner().is_none() && events::find(entry).events != 0) {
        frames::wake_one(set, epfd, None);
    }
}

/// Sets inside one another (EP_MAX_NESTS), and those around one that are looked at: beyond, a thread is taken to sleep.
pub(super) const DEEPEST: u32 = 5;
const WIDEST: u32 = 64;

/// Whether others than the calling thread sleep in the set, or in one around it that is not `asker`, in any process. Without
/// the lock of the lists, which comes before those that the caller holds: in doubt they do.
pub(super) fn is_slept_for(set: &'static Set, asker: Option<&'static Set>, depth: u32) -> bool {
    if set.others_asleep() {
        return true;
    }
    let mut next = watcher(&set.watchers);
    for _ in 0..WIDEST {
        let Some(entry) = next else { return false };
        let inside = entry.inner().is_some_and(|inner| core::ptr::eq(inner, set));
        let Some(outer) = entry.set().filter(|_| inside && depth > 0) else { return true };
        let asks = asker.is_some_and(|asker| core::ptr::eq(asker, outer));
        if !asks && is_slept_for(outer, asker, depth - 1) {
            return true;
        }
        next = watcher(&entry.next_watcher);
    }
    true
}

/// Makes the kernel overlook the companions of hushed entries, or look at them again: what is on them is news then, for
/// those that slept on meanwhile.
fn change_hushed(set: &'static Set, epfd: i32, hushed: bool) {
    for entry in set.entries.iter().filter(|entry| entry.hushed.load(Ordering::Relaxed)) {
        let Some(fd) = entry.descriptor() else { continue };
        if entry.wanted() & EXCLUSIVE == 0 {
            let registered = kernel_event(entry, Kind::Stream);
            change(epfd, entry, fd, epoll_event { events: if hushed { ET } else { registered.events }, ..registered });
        } else if hushed {
            // Which may join and leave only.
            let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, core::ptr::null_mut());
        } else {
            change(epfd, entry, fd, kernel_event(entry, Kind::Stream));
        }
    }
}

/// How long one sleeps, in ns, where the kernel finds a set readable for bells that stay.
const REST: u64 = 500_000;

/// A sleep in the set, or in poll on it, brought nothing: where it is one that the kernel ends at once, it was no sleep.
/// `deadline`, `mask`, `began`: the call's.
pub fn rest_if_noisy(set: &'static Set, deadline: u64, mask: *const sigset_t, began: u64) -> Result<()> {
    match is_noisy(set) {
        true => wake::pause(REST, deadline, mask, began),
        false => Ok(()),
    }
}

/// Whether bells stayed on it, or on a set inside it, since this was last asked.
fn is_noisy(set: &'static Set) -> bool {
    if set.noisy.swap(false, Ordering::Relaxed) {
        return true;
    }
    let Some(_held) = set.lock.lock() else { return false };
    let inside = set.active().filter_map(|entry| entry.inner()).fold(false, |noisy, inner| is_noisy(inner) | noisy);
    inside
}

/// What became of an entry's bells.
enum Bells {
    /// There were none.
    None,
    Taken,
    /// They are others', too.
    Stay,
}

/// Takes an entry's bells off, if no other sleeper may need them.
fn silence(entry: &'static Entry) -> Bells {
    if let Some(inner) = entry.inner() {
        settle(inner, None);
        return Bells::None;
    }
    let (Some(socket), false) = (entry.socket(), kernel_side(entry)) else { return Bells::None };
    let Some(fd) = entry.descriptor().filter(|_| bells::are_counted(socket)) else { return Bells::None };
    let first = watcher(socket.watchers.entries()).is_some_and(|other| core::ptr::eq(other, entry));
    let only = first && entry.next_watcher.load(Ordering::Acquire).is_null();
    match only && bells::silence(socket, fd) {
        true => Bells::Taken,
        false => Bells::Stay,
    }
}
