//! Whether a client that waits in the rendezvous of a shared listener has sent something, as its link tells.
//!
//! A client that is taken off the rendezvous before it is accepted costs a number of its own, a place beside the bells and a timer, and some
//! thirty system calls if it has to be put back for others. So a thread that only wants to know looks into the link through which a
//! client came last: most come from the same process as the one before. The link may tell of one that another process has taken off
//! meanwhile: then accept finds none, as on Linux when another was faster.

use super::pending::{said_something, DEFERRED};
use crate::accept::Arrival;
use crate::reconnect::shared_client;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_ring::bell;
use shunt_segment::channel::{life, ChannelPage};
use shunt_segment::CHANNELS;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::{calls, clock, processor};
use shunt_table::global::Guard;

/// A client that offered its connection so long ago has not just come: 100 us, in ns.
const NEW_NS: u64 = 100_000;

/// How long one is looked for that has just come, in ns.
const SOON_NS: u64 = 7_000;

/// The page of a client that came through the rendezvous.
pub(super) fn page(arrival: &Arrival) -> &'static ChannelPage {
    let page = link::page(link::at(arrival.index).base, arrival.channel);
    DEFERRED.latest.store(arrival.index, Ordering::Relaxed);
    DEFERRED.processor.store(page.sides[0].wait.processor.load(Ordering::Relaxed), Ordering::Relaxed);
    page
}

/// Whether the client sends something within a moment, if others have the listener, too. One that has waited for longer gets none.
pub(super) fn says_soon(listener: &Socket, page: &ChannelPage) -> bool {
    let has_just_come = || clock::ticks().saturating_sub(page.head.began.load(Ordering::Relaxed)) < clock::ticks_for_ns(NEW_NS);
    said_something(page) || listener.has(flag::LISTENER_SHARED) && has_just_come() && soon(|| said_something(page))
}

/// The link through which a client came last, if it is one of this listener's: its first byte.
pub(super) fn latest(listener: &Socket, _setup: &Guard) -> Option<*mut u8> {
    let latest = DEFERRED.latest.load(Ordering::Relaxed);
    if listener.listening.claimed.load(Ordering::Relaxed) == 0 || latest >= link::count() {
        return None;
    }
    let link = *link::at(latest);
    (!link.base.is_null() && !link.ours && link.rendezvous == listener.private_fd.load(Ordering::Relaxed)).then_some(link.base)
}

/// Whether a client that offers a connection in the link at `base` has sent something, or does within a moment: a new one sends
/// some 10 us after it has connected, if it gets a processor. Not known: no. Takes no lock: a link that goes reads as one without
/// offers.
pub(super) fn somebody(base: *mut u8) -> bool {
    let until = clock::ticks() + clock::ticks_for_ns(SOON_NS);
    loop {
        let offers = |channel: &usize| {
            let page = link::page(base, *channel);
            // A client that was ever in a process's list has been asked for stamps, and may be there still.
            page.head.state.load(Ordering::Acquire) == life::OFFERED && !bell::wants_stamp(&page.sides[1].wait)
        };
        let mut offering = (0..CHANNELS).filter(offers).peekable();
        if offering.peek().is_none() {
            return false; // another process was faster
        }
        if offering.any(|channel| said_something(link::page(base, channel))) {
            return true;
        }
        if clock::ticks() >= until {
            return false;
        }
        calls::sched_yield();
    }
}

fn soon(done: impl Fn() -> bool) -> bool {
    shared_client::soon_told(DEFERRED.processor.load(Ordering::Relaxed) == processor::number() + 1, done)
}
