//! Sets inside sets, and in poll: when an epoll descriptor is readable.
//!
//! The kernel finds the inner set's descriptor readable when a bell rang, whatever that meant. So its word is a hint:
//! what holds is seen in memory, and in the kernel's set once it holds nothing but events (see [`settle`]).

use super::control::kernel_side;
use super::entry::{term, Entry};
use super::events;
use super::kernel::harvest;
use super::plain::plain;
use super::set::{activate, Set};
use super::{ET, IN};
use crate::wait as waiting;
use core::sync::atomic::Ordering;
use shunt_sys::{calls, libc};

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
/// the bytes off the companions, and edges of foreign descriptors stay where they are.
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
    {
        let Some(_held) = set.lock.lock() else { return true };
        let foreign = set.foreign.load(Ordering::Relaxed) > 0 || !set.others.is_empty();
        if !foreign && !set.entries.iter().any(|entry| entry.inner().is_some() || kernel_side(entry)) {
            // Nothing but streams: the bells can be heard at once.
            harvest(set, epfd);
        } else {
            for entry in set.entries.iter() {
                if silence(entry) {
                    activate(set, entry);
                }
            }
        }
    }
    in_memory(set) || readable()
}

/// Takes an entry's bells off; true if there were any.
fn silence(entry: &'static Entry) -> bool {
    if let Some(inner) = entry.inner() {
        settle(inner);
        return false;
    }
    let (Some(socket), false) = (entry.socket(), kernel_side(entry)) else { return false };
    let rung = socket.peer().transmit.rung.load(Ordering::Relaxed);
    if rung == socket.own().receive.taken.load(Ordering::Relaxed) {
        return false;
    }
    if let Some(fd) = entry.descriptor() {
        waiting::drain(socket, fd);
    }
    true
}
