//! Sets inside sets, and in poll: when an epoll descriptor is readable.
//!
//! The kernel finds the inner set's descriptor readable when a bell rang, whatever that meant. So its word is a hint:
//! what holds is seen in memory, and in the kernel's set once it holds nothing but events (see [`settle`]).

use super::control::{kernel_event, kernel_side};
use super::entry::{term, Entry};
use super::events;
use super::kernel::harvest;
use super::plain::plain;
use super::set::{activate, watcher, Set};
use super::{ET, IN};
use crate::bells;
use crate::table::Kind;
use core::sync::atomic::{AtomicBool, Ordering};
use shunt_sys::libc::epoll_event;
use shunt_sys::{calls, libc, Result};

/// What an epoll descriptor can be ready for (`ep_eventpoll_poll`).
const READABLE: u32 = IN | libc::EPOLLRDNORM as u32;

/// What the entry of an inner set would report, and how many arrivals there were. Under the outer set's lock.
pub(super) fn find(entry: &'static Entry, inner: &'static Set) -> (u32, u32) {
    let ready = in_memory(inner);
    let arrivals = inner.arrivals.load(Ordering::Relaxed);
    let mut heard = entry.heard.load(Ordering::Relaxed);
    if heard && !ready && !settle(inner) {
        heard = false;
        entry.heard.store(false, Ordering::Relaxed);
    }
    let edge = heard || entry.has(term::FRESH) || arrivals as u64 != entry.terms().seen.load(Ordering::Relaxed);
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
    if plain(set) {
        return hint;
    }
    in_memory(set) || (hint && settle(set))
}

/// The kernel's set of `set` is readable, for bells perhaps: takes these off, and gives whether there are events.
///
/// The kernel forgets an event that no longer holds when it is asked whether the set is readable. So it is enough to take
/// the bytes off the companions, and edges of foreign descriptors stay where they are. Bells that others may need stay: while
/// the kernel is asked, it is told not to look at their companions.
fn settle(set: &'static Set) -> bool {
    let Some(epfd) = set.descriptor() else { return false };
    let readable = || calls::poll_one(epfd, libc::POLLIN, 0).is_ok_and(|events| events & libc::POLLIN != 0);
    {
        let Some(_held) = set.lock.lock() else { return true };
        for entry in set.active() {
            silence(entry);
        }
    }
    if !readable() {
        return in_memory(set);
    }
    let mut rest = None;
    {
        let Some(_held) = set.lock.lock() else { return true };
        let foreign = set.foreign.load(Ordering::Relaxed) > 0 || !set.others.is_empty();
        if !foreign && !set.entries.iter().any(|entry| entry.inner().is_some() || kernel_side(entry)) {
            // Nothing but streams: the bells can be heard at once.
            harvest(set, epfd);
        } else {
            for entry in set.entries.iter() {
                match silence(entry) {
                    Bells::None => continue,
                    Bells::Taken => {}
                    Bells::Stay => entry.hushed.store(true, Ordering::Relaxed),
                }
                activate(set, entry);
            }
            if set.entries.iter().any(|entry| entry.hushed.load(Ordering::Relaxed)) {
                change_hushed(set, epfd, |_| epoll_event { events: ET, u64: 0 });
                rest = Some(readable());
                change_hushed(set, epfd, |entry| kernel_event(entry, Kind::Stream));
                set.entries.iter().for_each(|entry| entry.hushed.store(false, Ordering::Relaxed));
                NOISY.store(true, Ordering::Relaxed);
            }
        }
    }
    in_memory(set) || rest.unwrap_or_else(readable)
}

fn change_hushed(set: &'static Set, epfd: i32, event: impl Fn(&Entry) -> epoll_event) {
    for entry in set.entries.iter().filter(|entry| entry.hushed.load(Ordering::Relaxed)) {
        if let Some(fd) = entry.descriptor() {
            let mut event = epoll_event { u64: entry.tag.load(Ordering::Relaxed), ..event(entry) };
            let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, &mut event);
        }
    }
}

/// The kernel finds a set readable for bells that stay.
static NOISY: AtomicBool = AtomicBool::new(false);
/// How long one sleeps then, in ns.
const REST: i64 = 500_000;

/// A sleep around a set brought nothing: where it is one that the kernel ends at once, it was no sleep.
pub fn rest_if_noisy() -> Result<()> {
    match NOISY.swap(false, Ordering::Relaxed) {
        true => calls::nap(REST),
        false => Ok(()),
    }
}

/// What became of an entry's bells.
enum Bells {
    /// There were none.
    None,
    Taken,
    /// They are others', too.
    Stay,
}

/// Takes an entry's bells off, if nobody else may need them.
fn silence(entry: &'static Entry) -> Bells {
    if let Some(inner) = entry.inner() {
        settle(inner);
        return Bells::None;
    }
    let (Some(socket), false) = (entry.socket(), kernel_side(entry)) else { return Bells::None };
    let Some(fd) = entry.descriptor().filter(|_| bells::are_counted(socket)) else { return Bells::None };
    let first = watcher(&socket.watchers).is_some_and(|other| core::ptr::eq(other, entry));
    let only = first && entry.next_watcher.load(Ordering::Acquire).is_null();
    match only && bells::silence(socket, fd) {
        true => Bells::Taken,
        false => Bells::Stay,
    }
}
