//! The look at the active entries, and the answer that it fills.
//!
//! What is found ready joins the end of a queue, as in the kernel's list; the answer is taken from its beginning. A
//! level-triggered entry goes back to the end, because it may be ready still; another waits for its next edge. So with
//! room for few events all get their turn.

use super::arming::{arm, armed};
use super::entry::{place, term, Entry};
use super::events::{find, take, Finding};
use super::set::{enqueue, Set};
use super::{datagrams, order, ET, EXCLUSIVE, IN, ONESHOT};
use core::sync::atomic::Ordering;
use shunt_rendezvous::accept::deferred;
use shunt_rendezvous::reconnect::shared_server;
use shunt_stream::waiting::{spin, wake as waiting};
use shunt_sys::libc::epoll_event;
use shunt_sys::{clock, libc, user, Errno, Result};
use shunt_table::table::Kind;

/// Ticks without an event after which an active stream is armed, and after which it is left to its doorbell; the second not before the
/// first has passed since it was armed, too: what the peer sent before it could see the flag shows by then.
pub(super) const ARM_AFTER: u64 = 1_000_000;
const COLD_AFTER: u64 = 2_000_000;

/// The program's array of events, being filled.
pub(super) struct Answer {
    pub(super) start: *mut epoll_event,
    pub(super) room: usize,
    pub(super) count: usize,
    /// Tells this answer from the set's other ones.
    pub(super) number: u32,
    /// It names an EPOLLEXCLUSIVE stream: what comes next is for another set, which must hear of it.
    pub(super) exclusive: bool,
    /// The array faults at `count`: nothing more can be told.
    pub(super) fault: bool,
    /// Frames were heard of ([`super::frames`]).
    pub(super) frames: bool,
}

impl Answer {
    /// An answer of the set with `room` for events at `start`.
    pub(super) fn new(set: &Set, start: *mut epoll_event, room: usize) -> Answer {
        let number = set.answers.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        Answer { start, room, count: 0, number, exclusive: false, fault: false, frames: false }
    }

    pub(super) fn full(&self) -> bool {
        self.count == self.room || self.fault
    }

    /// Whether the call is over: there is something to tell, or nothing can be told.
    pub(super) fn done(&self) -> bool {
        self.count > 0 || self.fault
    }

    /// The number of events, as epoll_wait(2) answers. Errors: EFAULT where there would be some.
    pub(super) fn result(&self) -> Result<isize> {
        if self.count == 0 && self.fault {
            return Err(Errno(libc::EFAULT));
        }
        Ok(self.count as isize)
    }

    pub(super) fn push(&mut self, events: u32, data: u64) {
        // SAFETY: count < room, checked by the callers; the array is the program's, and may fault.
        let told = unsafe { user::write(self.start.wrapping_add(self.count), epoll_event { events, u64: data }) };
        self.fault = told.is_err();
        self.count += told.is_ok() as usize;
    }

    /// Whether the entry was reported in this answer already; from now on it was.
    pub(super) fn names(&self, entry: &Entry) -> bool {
        entry.answer.swap(self.number, Ordering::Relaxed) == self.number
    }
}

/// Reports an entry; it goes where it waits for its next event. Under the set's lock.
pub(super) fn deliver(set: &'static Set, entry: &'static Entry, finding: &Finding, answer: &mut Answer) {
    let wanted = entry.wanted();
    let queue = match wanted {
        _ if wanted & ONESHOT != 0 => place::NONE,
        _ if wanted & ET != 0 => place::WATCHED,
        _ => place::READY,
    };
    // SAFETY: the program's array.
    if !answer.full() && !unsafe { user::writable(answer.start.wrapping_add(answer.count).cast()) } {
        answer.fault = true;
        enqueue(set, entry, place::READY); // it will be told again
        return;
    }
    if take(entry, finding) {
        if wanted & ONESHOT != 0 && entry.datagram().is_some() {
            datagrams::disable(set, entry);
        }
        answer.exclusive |= wanted & EXCLUSIVE != 0;
        answer.push(finding.events, entry.terms().data.load(Ordering::Relaxed));
    }
    enqueue(set, entry, queue);
}

/// Looks at the active entries, and reports what there is room for. Under the set's lock.
pub(super) fn scan(set: &'static Set, answer: &mut Answer) {
    let time = clock::ticks();
    let (mut first, mut several) = (None, !set.ready.is_empty());
    for entry in set.watched.iter() {
        let finding = found(set, entry);
        if finding.events != 0 {
            entry.had_event(time);
            enqueue(set, entry, place::READY);
            if let Some(socket) = entry.socket() {
                spin::show_processor(&socket.own().wait);
                set.peer_processor.store(socket.peer().wait.processor.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            several |= first.is_some();
            first = first.or(Some((entry, finding)));
        } else {
            cool_down(set, entry, time);
        }
    }
    if let Some((entry, finding)) = first {
        if several {
            order::line_up(set, entry);
        } else if !answer.full() && !answer.names(entry) {
            // The only one: what was found is told, without another look.
            return deliver(set, entry, &finding, answer);
        }
    }
    let Some(last) = set.ready.last() else { return };
    for entry in set.ready.iter() {
        if answer.full() {
            return;
        }
        let reported = entry.answer.load(Ordering::Relaxed) == answer.number;
        let finding = find(entry);
        if finding.events == 0 {
            entry.had_event(time);
            enqueue(set, entry, place::WATCHED);
            found(set, entry);
        } else if !reported {
            entry.answer.store(answer.number, Ordering::Relaxed);
            deliver(set, entry, &finding, answer);
        }
        if core::ptr::eq(entry, last) {
            return;
        }
    }
}

/// What a watched entry has to report. An EPOLLEXCLUSIVE one is not watched in memory: the kernel chooses which of its
/// sets hears a bell.
fn found(set: &'static Set, entry: &'static Entry) -> Finding {
    let finding = find(entry);
    if finding.events != 0 || entry.wanted() & EXCLUSIVE == 0 || entry.inner().is_some() {
        return finding;
    }
    if arm(entry) {
        waiting::barrier();
    }
    let finding = find(entry);
    if finding.events == 0 {
        enqueue(set, entry, place::NONE);
    }
    finding
}

/// A stream without events is armed, and later left to its bell. What is inside an inner set is looked at for as long as
/// that is in the set.
fn cool_down(set: &'static Set, entry: &'static Entry, time: u64) {
    if entry.has(term::DISABLED | term::DORMANT) || !entry.valid() {
        enqueue(set, entry, place::NONE);
        return;
    }
    let idle = time.saturating_sub(entry.last.load(Ordering::Relaxed));
    if idle <= ARM_AFTER || entry.inner().is_some() {
        return;
    }
    if !armed(entry) {
        arm(entry);
    } else if idle > COLD_AFTER && time.saturating_sub(entry.announced.load(Ordering::Relaxed)) > ARM_AFTER {
        enqueue(set, entry, place::NONE);
    }
}

/// Takes the set's lock, and looks.
pub(super) fn look(set: &'static Set, answer: &mut Answer) -> Result<()> {
    if !set.quiet() {
        let _held = set.lock.lock().ok_or(Errno(libc::EINTR))?;
        scan(set, answer);
    }
    if !set.listening.is_empty() && shared_server::expects() {
        let _held = set.lock.lock().ok_or(Errno(libc::EINTR))?;
        listen(set, answer);
    }
    if deferred::holds_any() && set.inherited.load(Ordering::Relaxed) && !set.listening.is_empty() {
        let _held = set.lock.lock().ok_or(Errno(libc::EINTR))?;
        listen_to_deferred(set, answer);
    }
    Ok(())
}

/// Reports listeners for which clients bid in memory. Not for entries that are disabled by their one event, which the kernel would
/// have to be told. Under the set's lock.
fn listen(set: &'static Set, answer: &mut Answer) {
    for entry in set.listening.iter() {
        let wanted = entry.wanted();
        let events = wanted & (IN | libc::EPOLLRDNORM as u32);
        if answer.full() || events == 0 || wanted & ONESHOT != 0 || !entry.valid() {
            continue;
        }
        let Some(listener) = entry.socket().filter(|socket| socket.kind() == Kind::Listener) else { continue };
        if shared_server::tell(listener, wanted & ET != 0) && !answer.names(entry) {
            answer.push(events, entry.terms().data.load(Ordering::Relaxed));
        }
    }
}

/// Reports listeners of a set from before a fork for which this process has clients in its list that have sent something: the
/// kernel's set has the bells of the process that added the listener. Under the set's lock.
#[cold]
fn listen_to_deferred(set: &'static Set, answer: &mut Answer) {
    for entry in set.listening.iter() {
        let wanted = entry.wanted();
        let events = wanted & (IN | libc::EPOLLRDNORM as u32);
        if answer.full() || events == 0 || entry.has(term::DISABLED) || !entry.valid() {
            continue;
        }
        let Some(ready) = entry.socket().and_then(deferred::ready_ones) else { continue };
        if wanted & ET != 0 && entry.news.swap(ready, Ordering::Relaxed) == ready {
            continue;
        }
        if !answer.names(entry) {
            if wanted & ONESHOT != 0 {
                entry.terms().flags.fetch_or(term::DISABLED, Ordering::Relaxed);
            }
            answer.push(events, entry.terms().data.load(Ordering::Relaxed));
        }
    }
}
