//! The look at the active streams.

use super::arming::{arm, armed};
use super::entry::{address, Entry};
use super::events::report;
use super::set::{ours, Set};
use super::ONESHOT;
use crate::wait as waiting;
use core::sync::atomic::Ordering;
use shunt_segment::channel::state;
use shunt_sys::libc::epoll_event;
use shunt_sys::{clock, libc, Errno, Result};

/// Ticks without an event after which an active stream is armed, and after which it is left to its doorbell. Between
/// the two it is still looked at: what the peer sent before it could see the flag shows by then.
pub(super) const ARM_AFTER: u64 = 1_000_000;

const COLD_AFTER: u64 = 2_000_000;

/// The program's array of events, being filled.
pub(super) struct Events {
    pub(super) start: *mut epoll_event,
    pub(super) room: usize,
    pub(super) count: usize,
}

impl Events {
    pub(super) fn full(&self) -> bool {
        self.count == self.room
    }
    pub(super) fn push(&mut self, events: u32, data: u64) {
        // SAFETY: count < room, checked by the callers; the array is the program's.
        unsafe { self.start.add(self.count).write_unaligned(epoll_event { events, u64: data }) };
        self.count += 1;
    }
}

/// Looks at the active streams; writes up to `room` events. Under the set's lock.
fn scan(set: &'static Set, events: &mut Events) {
    let time = clock::ticks();
    let mut link = &set.active;
    while let Some(entry) = ours(link) {
        if events.full() {
            // Those not looked at come first next time: rotate the list so that it begins here.
            rotate(set, entry);
            return;
        }
        let now = report(entry);
        if now != 0 {
            entry.last.store(time, Ordering::Relaxed);
            events.push(now, entry.data.load(Ordering::Relaxed));
            if entry.events.load(Ordering::Relaxed) & ONESHOT != 0 {
                entry.disabled.store(true, Ordering::Relaxed);
            }
        } else {
            let idle = time.saturating_sub(entry.last.load(Ordering::Relaxed));
            if idle > ARM_AFTER {
                if !armed(entry) {
                    arm(entry);
                } else if idle > COLD_AFTER {
                    entry.active.store(false, Ordering::Relaxed);
                    link.store(entry.next_active.load(Ordering::Relaxed), Ordering::Relaxed);
                    continue;
                }
            }
        }
        link = &entry.next_active;
    }
}

fn rotate(set: &'static Set, first: &'static Entry) {
    let head = set.active.load(Ordering::Relaxed);
    if head == address(first) {
        return;
    }
    let mut link = &set.active;
    while let Some(entry) = ours(link) {
        if core::ptr::eq(entry, first) {
            link.store(core::ptr::null_mut(), Ordering::Relaxed);
            break;
        }
        link = &entry.next_active;
    }
    let mut link = &first.next_active;
    while let Some(entry) = ours(link) {
        link = &entry.next_active;
    }
    link.store(head, Ordering::Relaxed);
    set.active.store(address(first), Ordering::Relaxed);
}

pub(super) fn look(set: &'static Set, events: &mut Events) -> Result<()> {
    if set.active.load(Ordering::Relaxed).is_null() {
        return Ok(());
    }
    let _held = set.lock.lock().ok_or(Errno(libc::EINTR))?;
    scan(set, events);
    Ok(())
}

pub(super) fn check_peers(set: &'static Set) -> bool {
    let Some(_held) = set.lock.lock() else { return false };
    let mut gone = false;
    let mut at = ours(&set.active);
    while let Some(entry) = at {
        // SAFETY: streams only are active.
        if let Some(socket) = unsafe { entry.socket.load(Ordering::Relaxed).as_ref() } {
            waiting::check_peer(socket, entry.fd.load(Ordering::Relaxed));
            gone |= socket.own().receive.state.load(Ordering::Relaxed) & state::PEER_GONE != 0;
        }
        at = ours(&entry.next_active);
    }
    gone
}
