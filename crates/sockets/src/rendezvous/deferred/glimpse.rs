//! Whether a client that waits in the rendezvous of a shared listener has sent something, as its link tells.
//!
//! A client that is taken off the rendezvous before it is accepted costs a number of its own, a place beside the bells and a timer, and some
//! thirty system calls if it has to be put back for others. So who only wants to know looks into the link through which somebody came
//! last: most come from the same process as the one before. The link may tell of one whom another process has taken off meanwhile: then
//! accept finds nobody, as on Linux when another was faster.

use super::list::said_something;
use crate::global::{Guard, SETUP};
use crate::link;
use crate::rendezvous::accept::Arrival;
use crate::socket::{flag, Socket};
use core::sync::atomic::{AtomicUsize, Ordering};
use shunt_ring::bell;
use shunt_segment::channel::{life, ChannelPage};
use shunt_segment::CHANNELS;
use shunt_sys::{calls, clock};

/// A client that offered its connection so long ago has not just come: 100 us, in ns.
const NEW_NS: u64 = 100_000;

/// How long one is waited for that has just come: it sends some 10 us after it has connected. In ns.
const SOON_NS: u64 = 20_000;

/// The link through which a client came last.
static LATEST: AtomicUsize = AtomicUsize::new(0);

/// The page of a client that came through the rendezvous.
pub(super) fn page(arrival: &Arrival) -> &'static ChannelPage {
    let page = link::page(link::at(arrival.index).base, arrival.channel);
    LATEST.store(arrival.index, Ordering::Relaxed);
    page
}

/// Whether the client has just come, has sent nothing, and others have the listener, too: it gets a moment. One that has waited for longer gets
/// none.
fn is_new(listener: &Socket, page: &ChannelPage) -> bool {
    let age = clock::ticks().saturating_sub(page.head.began.load(Ordering::Relaxed));
    !said_something(page) && listener.has(flag::LISTENER_SHARED) && age < clock::ticks_for_ns(NEW_NS)
}

/// Waits for that moment under the set-up lock, for who holds others' locks.
pub(super) fn awaits(listener: &Socket, page: &ChannelPage) {
    if is_new(listener, page) {
        soon(page);
    }
}

/// Whether the client sends something within such a moment. The lock is let go meanwhile, as other threads of a server close connections under it;
/// `None`: it cannot be had again.
pub(super) fn says_soon(
    listener: &Socket,
    arrival: &Arrival,
    page: &ChannelPage,
    setup: Guard<'static>,
) -> Option<(bool, Guard<'static>)> {
    if !is_new(listener, page) {
        return Some((said_something(page), setup));
    }
    link::enter(arrival.index); // or it may go
    drop(setup);
    let said = soon(page);
    let setup = SETUP.lock()?;
    let live = &mut link::at(arrival.index).live;
    *live = live.saturating_sub(1);
    Some((said, setup))
}

/// Whether somebody who offers a connection to this listener has sent something. Not known: no.
pub(super) fn somebody(listener: &Socket, _setup: &Guard) -> bool {
    let latest = LATEST.load(Ordering::Relaxed);
    if listener.claimed.load(Ordering::Relaxed) == 0 || latest >= link::count() {
        return false;
    }
    let link = *link::at(latest);
    if link.base.is_null() || link.ours || link.rendezvous != listener.private_fd.load(Ordering::Relaxed) {
        return false;
    }
    let waits = |channel: usize| {
        let page = link::page(link.base, channel);
        // Who was ever in a process's list has been asked for stamps, and may be there still.
        let listed = bell::wants_stamp(&page.sides[1].wait);
        page.head.state.load(Ordering::Acquire) == life::OFFERED && !listed && said_something(page)
    };
    (0..CHANNELS).any(waits)
}

/// The client, or who serves others meanwhile, may need this very processor.
fn soon(page: &ChannelPage) -> bool {
    let until = clock::ticks() + clock::ticks_for_ns(SOON_NS);
    while !said_something(page) && clock::ticks() < until {
        calls::sched_yield();
    }
    said_something(page)
}
