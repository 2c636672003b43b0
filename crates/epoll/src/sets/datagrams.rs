//! Datagram sockets in sets: see `datagram::epoll`.
//!
//! An entry of theirs has two sources. The kernel's word comes under the entry's tag, as the program asked for it; the
//! inbox is looked at in memory while the entry is active. It is *cold*, its socket's gate pinned, whenever a thread
//! sleeps in the set or around it, and always where another process may.

use super::entry::{term, Entry};
use super::scan::Answer;
use super::set::{activate, Set};
use super::{ET, EXCLUSIVE, ONESHOT, SPACE};
use core::sync::atomic::{fence, Ordering};
use shunt_inbox::datagram;
use shunt_inbox::datagram::epoll::gate;
use shunt_inbox::datagram::pin;
use shunt_sys::libc::{self, epoll_event};
use shunt_sys::{calls, user};
use shunt_table::table;

/// Shuts the socket's gate for this set. Under the set's lock, or with no other thread in the set.
pub(super) fn cool(entry: &'static Entry) {
    if let (gate::WARM, Some(socket)) = (entry.gate.load(Ordering::Relaxed), entry.datagram()) {
        entry.gate.store(socket.cool(), Ordering::Relaxed);
    }
}

/// Takes that back.
pub(super) fn warm(entry: &'static Entry) {
    let how = entry.gate.swap(gate::WARM, Ordering::Relaxed);
    if let (true, Some(socket)) = (how != gate::WARM, entry.datagram()) {
        socket.warm(how);
    }
}

pub(super) fn is_cold(entry: &Entry) -> bool {
    entry.gate.load(Ordering::Relaxed) != gate::WARM
}

/// Whether any but the calling thread, which is counted `own` times, may sleep in the set or around it. Under the
/// set's lock: a thread that begins to sleep later grows cold later.
fn others_sleep(set: &Set, own: u32) -> bool {
    fence(Ordering::SeqCst);
    set.joint.load(Ordering::Relaxed) != 0 || !set.watchers.load(Ordering::Acquire).is_null() || set.sleepers() > own
}

/// A thread is awake in the set: datagrams may come through shared memory. `spinning`: it is about to look for them.
pub(super) fn warm_all(set: &'static Set, spinning: bool) {
    if !set.datagrams.load(Ordering::Relaxed) || set.quiet() {
        return;
    }
    if datagram::fork_sharing::watching() {
        datagram::fork_sharing::look();
    }
    let Some(_held) = set.lock.lock() else { return };
    if others_sleep(set, 0) {
        return;
    }
    for entry in set.active().filter(|entry| !entry.has(term::DISABLED)) {
        let Some(socket) = entry.datagram() else { continue };
        warm(entry);
        if let (true, Some(fd)) = (spinning, entry.descriptor()) {
            datagram::before_spin(fd, socket);
        }
    }
}

/// After a sleep, of which the calling thread is still counted: an entry that was busy a moment ago.
pub(super) fn woken(set: &Set, entry: &'static Entry) {
    if let (Some(socket), false) = (entry.datagram(), others_sleep(set, 1)) {
        warm(entry);
        datagram::reopen(socket);
    }
}

/// What the program asks for is new. True: a sleeper must be told. Under the set's lock.
pub(super) fn appeared(set: &'static Set, entry: &'static Entry) -> bool {
    let Some(socket) = entry.datagram() else { return false };
    let wanted = entry.wanted();
    if wanted & ET != 0 && wanted & SPACE != 0 {
        socket.send_plainly(); // each datagram that leaves is an edge
    }
    if wanted & EXCLUSIVE != 0 {
        socket.pin(pin::SET);
    }
    set.datagrams.store(true, Ordering::Relaxed);
    activate(set, entry);
    if others_sleep(set, 0) {
        cool(entry);
        return datagram::events(socket) as u32 & wanted != 0;
    }
    false
}

/// Another set watches `inner` from now on, whose threads may sleep there.
pub(super) fn watched_from_outside(inner: &'static Set) {
    if let Some(_held) = inner.lock.lock() {
        inner.entries.iter().for_each(cool);
        super::frames::part(inner);
    }
}

/// The inbox made a one-shot entry speak: the kernel's must be silent, too, but for nothing that lasts.
pub(super) fn disable(set: &Set, entry: &Entry) {
    if let (Some(epfd), Some(fd)) = (set.descriptor(), entry.descriptor()) {
        let mut event = epoll_event { events: ET | ONESHOT, u64: entry.tag.load(Ordering::Relaxed) };
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, &mut event);
    }
}

impl Answer {
    /// The entry that `data` stands for was named already, with fewer events.
    #[cold]
    pub(super) fn widen(&mut self, events: u32, data: u64) {
        for i in 0..self.count {
            let place = self.start.wrapping_add(i);
            // SAFETY: the program's array, which may fault.
            unsafe {
                if let Some(told) = user::read(place).ok().filter(|told| told.u64 == data) {
                    let _ = user::write(place, epoll_event { events: told.events | events, u64: data });
                }
            }
        }
    }
}

/// The kernel's set holds the program's own words for the entry from now on.
pub(super) fn leave_to_kernel(epfd: i32, entry: &Entry, fd: i32) {
    if entry.wanted() & EXCLUSIVE == 0 && !entry.has(term::DISABLED) {
        let mut event = epoll_event { events: entry.wanted(), u64: entry.terms().data.load(Ordering::Relaxed) };
        let _ = calls::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, &mut event);
    }
}

/// In the child after fork: the pins are the parent's.
pub(super) fn forked(set: &Set) {
    for entry in set.entries.iter() {
        entry.gate.store(gate::WARM, Ordering::Relaxed);
    }
}

/// Before an exec or a spawn, after which another program may have sets of ours: it shall find its own words there.
pub fn before_exec(keeps: &dyn Fn(i32) -> bool) {
    for epfd in table::numbers() {
        let Some(set) = table::get(epfd).object::<Set>().filter(|set| set.datagrams.load(Ordering::Relaxed)) else { continue };
        let Some(_held) = keeps(epfd).then(|| set.lock.lock()).flatten() else { continue };
        for entry in set.entries.iter() {
            let (Some(socket), Some(fd)) = (entry.datagram(), entry.descriptor()) else { continue };
            datagram::fork_sharing::goes_along();
            socket.pin(pin::ELSEWHERE);
            leave_to_kernel(epfd, entry, fd);
        }
    }
}
