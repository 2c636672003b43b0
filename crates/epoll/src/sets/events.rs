//! What an entry would report: levels and edges, computed in memory.
//!
//! An edge is what makes the kernel queue an entry again (`ep_poll_callback`): bytes that arrive, for entries that ask for
//! anything about receiving; space after it was wanted, for those that ask for it; the end of a direction, for all.

use super::entry::{term, Entry};
use super::{nested, ERR, ET, HUP, IN, MODES, SPACE};
use core::sync::atomic::Ordering;
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_stream::edges::signature;
use shunt_stream::events;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::readiness;
use shunt_sys::libc;

/// What would be reported, and what is to be remembered if it is.
pub(super) struct Finding {
    /// 0: nothing.
    pub(super) events: u32,
    signature: u64,
    /// The part of the signature that the peer makes.
    news: u64,
    blocked: u32,
}

pub(super) const NOTHING: Finding = Finding { events: 0, signature: 0, news: 0, blocked: 0 };

/// Whether the peer has done nothing since an edge-triggered entry was told last: what it has to tell is this process's own doing.
pub(super) fn is_own(entry: &Entry, socket: &Socket) -> bool {
    let wanted = entry.wanted();
    wanted & ET != 0 && !entry.has(term::FRESH) && signature(socket, wanted).1 == entry.news.load(Ordering::Relaxed)
}

/// What the entry would report now. Changes nothing.
pub(super) fn find(entry: &'static Entry) -> Finding {
    let terms = entry.terms();
    let flags = terms.flags.load(Ordering::Relaxed);
    if flags & (term::DISABLED | term::DORMANT) != 0 || !entry.valid() {
        return NOTHING;
    }
    if let Some(inner) = entry.inner() {
        let (events, arrivals) = nested::find(entry, inner);
        return Finding { events, signature: arrivals as u64, ..NOTHING };
    }
    if let Some(socket) = entry.datagram() {
        return in_inbox(entry, socket, terms.events.load(Ordering::Relaxed), flags);
    }
    // Streams and sets only are looked at.
    let Some(socket) = entry.socket() else { return NOTHING };
    let wanted = terms.events.load(Ordering::Relaxed);
    let asked = wanted & !MODES | ERR | HUP;
    if wanted & ET == 0 {
        return Finding { events: events::events(socket, asked as i16) as u16 as u32, ..NOTHING };
    }
    // In this order: what comes in between is then another edge, not a lost one.
    let (signature, news) = signature(socket, wanted);
    let blocked = socket.own().transmit.blocked.load(Ordering::Acquire);
    let changed = flags & term::FRESH != 0 || signature != terms.seen.load(Ordering::Relaxed);
    if !changed && asked & SPACE == 0 {
        return Finding { events: 0, signature, news, blocked };
    }
    let now = events::events(socket, asked as i16) as u16 as u32;
    let space = now & SPACE != 0 && (flags & term::NO_SPACE != 0 || blocked != terms.unblocked.load(Ordering::Relaxed));
    Finding { events: if changed || space { now } else { 0 }, signature, news, blocked }
}

/// Whether the entry of a stream, which asks for `wanted`, has to tell of bytes next. False: perhaps of what only [`find`] knows.
/// `waiting`: some wait already.
#[inline(always)]
pub(super) fn awaits_bytes(entry: &'static Entry, socket: &Socket, wanted: u32, waiting: bool) -> bool {
    let (space, terms) = (wanted & SPACE, entry.terms());
    if wanted & ET == 0 {
        return space == 0 && readiness::is_plain(socket);
    }
    terms.flags.load(Ordering::Relaxed) & (term::FRESH | term::NO_SPACE) == 0
        && socket.own().transmit.blocked.load(Ordering::Acquire) == terms.unblocked.load(Ordering::Relaxed)
        && readiness::is_plain(socket)
        // What came and was taken without a word of ours is an edge of all that holds.
        && (waiting || space == 0 || signature(socket, wanted).0 == terms.seen.load(Ordering::Relaxed))
}

/// What the entry of a stream, which asks for `wanted`, would report where bytes are all that can have come. `None`: nothing, or
/// [`find`] is to say.
#[inline(always)]
pub(super) fn find_bytes(entry: &'static Entry, socket: &Socket, wanted: u32) -> Option<Finding> {
    let terms = entry.terms();
    let flags = terms.flags.load(Ordering::Relaxed);
    let bytes = wanted & (IN | libc::EPOLLRDNORM as u32);
    if flags & (term::DISABLED | term::DORMANT) != 0 || !entry.valid() || bytes == 0 {
        return None;
    }
    let space = wanted & SPACE;
    if wanted & ET == 0 {
        return (space == 0 && readiness::bytes_alone(socket)).then_some(Finding { events: bytes, ..NOTHING });
    }
    // In this order: what comes in between is then another edge, not a lost one.
    let (signature, news) = signature(socket, wanted);
    let blocked = socket.own().transmit.blocked.load(Ordering::Acquire);
    let edge = signature != terms.seen.load(Ordering::Relaxed) && blocked == terms.unblocked.load(Ordering::Relaxed);
    if !edge || flags & (term::FRESH | term::NO_SPACE) != 0 || !readiness::bytes_alone(socket) {
        return None;
    }
    if space != 0 && events::events(socket, space as i16) as u16 as u32 != space {
        return None;
    }
    Some(Finding { events: bytes | space, signature, news, blocked })
}

/// Takes note that such a finding of an edge is reported: no other process has the set. Under its lock.
#[inline(always)]
pub(super) fn take_bytes(entry: &'static Entry, finding: &Finding) {
    entry.terms().seen.store(finding.signature, Ordering::Relaxed);
    entry.news.store(finding.news, Ordering::Relaxed);
}

/// What the entry of a datagram socket reports because of its inbox; the kernel reports the rest.
fn in_inbox(entry: &'static Entry, socket: &'static Datagram, wanted: u32, flags: u32) -> Finding {
    let asked = wanted & !MODES | ERR | HUP;
    // In this order: what arrives in between is then another edge, not a lost one.
    let signature = socket.arrivals();
    let mut events = datagram::events(socket) as u32 & asked;
    let edge = wanted & ET == 0 || flags & term::FRESH != 0 || signature != entry.terms().seen.load(Ordering::Relaxed);
    // An arrival is an edge of all that holds, even if what came was taken since (`ep_poll_callback`).
    let space = events == 0 && socket.is_local() && wanted & ET != 0 && signature != entry.terms().seen.load(Ordering::Relaxed);
    if !edge || events == 0 && !(space && asked & SPACE != 0) {
        return Finding { signature, ..NOTHING };
    }
    if let Some(fd) = entry.descriptor() {
        events |= socket.rest(fd, asked, events);
    }
    Finding { events, signature, ..NOTHING }
}

/// Takes note that the finding is reported. False: another process that shares the set was quicker.
pub(super) fn take(entry: &'static Entry, finding: &Finding) -> bool {
    let terms = entry.terms();
    let wanted = terms.events.load(Ordering::Relaxed);
    let heard = entry.heard.load(Ordering::Relaxed) && entry.heard.swap(false, Ordering::Relaxed);
    let mut due = true;
    if wanted & ET != 0 {
        let old = terms.seen.swap(finding.signature, Ordering::Relaxed);
        entry.news.store(finding.news, Ordering::Relaxed);
        let mut gone = term::FRESH;
        let mut left = terms.flags.load(Ordering::Relaxed);
        due = heard || old != finding.signature || left & (term::FRESH | term::NO_SPACE) != 0;
        if finding.events & SPACE != 0 {
            due |= terms.unblocked.swap(finding.blocked, Ordering::Relaxed) != finding.blocked;
            gone |= term::NO_SPACE;
        } else if wanted & SPACE != 0 && left & term::NO_SPACE == 0 {
            left = terms.flags.fetch_or(term::NO_SPACE, Ordering::Relaxed);
        }
        if left & gone != 0 {
            terms.flags.fetch_and(!gone, Ordering::Relaxed);
        }
    }
    if wanted & super::ONESHOT != 0 {
        due &= terms.flags.fetch_or(term::DISABLED, Ordering::Relaxed) & term::DISABLED == 0;
    }
    due
}

/// Whether something arrived since the entry was last noticed, by a set around its own.
pub(super) fn notice(entry: &'static Entry) -> bool {
    let now = match (entry.inner(), entry.socket()) {
        (Some(inner), _) => inner.arrivals.load(Ordering::Relaxed) as u64 + 1,
        (_, Some(socket)) => signature(socket, entry.wanted()).0 | 1,
        _ => match entry.datagram() {
            Some(socket) => socket.arrivals() | 1,
            None => return false,
        },
    };
    entry.noticed.swap(now, Ordering::Relaxed) != now
}
