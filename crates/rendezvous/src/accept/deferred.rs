//! TCP_DEFER_ACCEPT: clients that have connected and sent nothing are not accepted yet (tcp(7)).
//!
//! On Linux the hand-shake of such a client stays unfinished until bytes or an end come, or until the time is over
//! (tcp_check_req, reqsk_timer_handler). Here a listener that defers takes clients off its queues into a list, their
//! channels still offered, and accept gives out those of them that have something. Their companions and a timer lie beside
//! the clients' bells, so a thread that waits for the listener, in whatever call, is woken for them.
//!
//! The list is a process's own. One that shares its listener puts back what it holds before it leaves accept with a connection,
//! since others may be idle while it is busy; so does every process before it shares a listener, or closes a shared one.

mod next_ready;
mod peek_queued;
mod pending;

pub use pending::{channels_of, forked, moved, rest, to_rendezvous};

use crate::accept::{Accepted, Arrival};
use crate::reconnect::server;
use crate::reconnect::server::Offer;
use crate::{accept, listen};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use next_ready::{first, next};
use pending::{drop_client, has_room, join, leave, list, places, put_back, said_something, show, take, Waiting, DEFERRED};
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_ring::offers;
use shunt_segment::CHANNELS;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::{calls, libc, thread, Errno, Result};
use shunt_table::global::{Guard, SETUP};

/// Clients that are put back with each connection that a listener that does not block gives: it takes some microseconds each.
const PUT_BACK: usize = 16;

/// Whether the listener's clients have to be looked at here.
#[inline(always)]
pub fn concern(listener: &Socket) -> bool {
    listener.listening.defers.load(Ordering::Relaxed) != 0 || DEFERRED.count.load(Ordering::Relaxed) != 0
}

/// Whether any listener of this process may have clients in the list. Takes no lock.
#[inline(always)]
pub fn holds_any() -> bool {
    DEFERRED.count.load(Ordering::Relaxed) != 0
}

/// Whether the listener has clients in the list.
pub fn any(listener: &Socket) -> bool {
    DEFERRED.count.load(Ordering::Relaxed) != 0 && SETUP.try_lock().is_some_and(|_setup| places(listener).next().is_some())
}

/// accept of a listener that defers. EAGAIN: no client has sent anything.
pub fn accept(listener: &Socket, flags: i32) -> Result<Accepted> {
    loop {
        let sufficed = match gather(listener, flags) {
            ControlFlow::Break(accepted) => return Ok(accepted),
            ControlFlow::Continue(sufficed) => sufficed,
        };
        match (from_list(listener, flags), sufficed) {
            (Err(Errno(libc::EAGAIN)), Ok(true)) => {} // the one that had sent something has gone, and no other was looked at
            (Err(Errno(libc::EAGAIN)), Err(error)) => return Err(error),
            (result, _) => return result,
        }
    }
}

/// Takes clients off the rendezvous into the list, until one suffices (true); breaks with the one that is the usual case. Errors: no
/// descriptor is left for a client that waits there.
fn gather(listener: &Socket, flags: i32) -> ControlFlow<Accepted, Result<bool>> {
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    while has_room(listener) {
        if SETUP.lock().is_some_and(|setup| suffices(listener, &setup)) {
            return ControlFlow::Continue(Ok(true));
        }
        let (arrival, setup) = match accept::arrive(listener, flags, None) {
            Ok(arrived) => arrived,
            Err(error @ Errno(libc::EMFILE | libc::ENFILE)) => return ControlFlow::Continue(Err(error)),
            Err(_) => break,
        };
        // The usual case: no client waits here, and this one has sent something already.
        let page = peek_queued::page(&arrival);
        if DEFERRED.count.load(Ordering::Relaxed) == 0 && peek_queued::says_soon(listener, page) {
            if let Ok(accepted) = accept::welcome(&arrival, listener, nonblocking) {
                companion_cache::forget(arrival.index, arrival.channel); // of an earlier companion
                return ControlFlow::Break(accepted);
            }
            let _ = calls::close(arrival.companion);
            continue;
        }
        take(listener, arrival, &setup);
    }
    ControlFlow::Continue(Ok(false))
}

/// The client of the list that is accepted next.
fn from_list(listener: &Socket, flags: i32) -> Result<Accepted> {
    let mut setup = SETUP.lock().ok_or(Errno(libc::EAGAIN))?;
    if let Some(accepted) = usual_offer(listener, flags, &setup)? {
        return Ok(accepted);
    }
    take_offers(listener, &setup);
    if listener.has(flag::LISTENER_SHARED) {
        if let Some(place) = next(listener, &setup) {
            let others = places(listener).count() - 1;
            if others != 0 && (others <= PUT_BACK || !listen::nonblocking(listener)) {
                put_back(listener, Some(place));
                // Signals that came meanwhile are heard before there is a client in hand: a handler may end the process,
                // as uWSGI's does in a worker that has none, or jump away.
                show(place);
                drop(setup);
                setup = SETUP.lock().ok_or(Errno(libc::EAGAIN))?;
            }
        }
    }
    while let Some(place) = next(listener, &setup) {
        match give(place, listener, flags, &setup) {
            Ok(accepted) => return Ok(accepted),
            Err(Some(error)) => {
                first(listener, &setup);
                return Err(error);
            }
            Err(None) => {}
        }
    }
    drop(setup);
    if has_room(listener) {
        return Err(Errno(libc::EAGAIN));
    }
    server::accept(listener, flags).or_else(|_| accept::from_rendezvous(listener, flags))
}

/// Whether accept would give a client. For those who wait in poll or in a set, whose locks they may hold: where another thread
/// is busy with clients at this moment, yes.
pub fn ready(listener: &Socket) -> bool {
    let mut looked = false;
    loop {
        let Some(mut setup) = SETUP.try_lock() else { return true };
        // A client that stays in the rendezvous has had its edge: edge-triggered sets are to hear of each when it sends.
        let edges = server::is_watched_by_edges(listener);
        if !edges && suffices(listener, &setup) && first(listener, &setup).is_some() {
            return true;
        }
        if !has_room(listener) {
            break;
        }
        let shared = listener.has(flag::LISTENER_SHARED);
        let anyone = || accept::anyone(listener.private_fd.load(Ordering::Acquire));
        if shared {
            if !anyone() {
                break;
            }
            // Once, without the lock, under which other threads close connections, and with no client in hand.
            if let Some(latest) =
                peek_queued::latest(listener, &setup).filter(|_| !looked && !edges && DEFERRED.count.load(Ordering::Relaxed) == 0)
            {
                drop(setup);
                looked = true;
                if peek_queued::somebody(latest) {
                    return true;
                }
                let Some(again) = SETUP.try_lock() else { return true };
                setup = again;
                if !anyone() {
                    break; // another process was faster
                }
            }
        }
        let Ok((arrival, setup)) = accept::arrive(listener, libc::SOCK_CLOEXEC, Some(setup)) else {
            if shared && anyone() {
                return true; // without a descriptor for the client nothing but accept can tell
            }
            break;
        };
        peek_queued::page(&arrival);
        take(listener, arrival, &setup);
    }
    let Some(setup) = SETUP.try_lock() else { return true };
    take_offers(listener, &setup);
    if first(listener, &setup).is_some() {
        return true;
    }
    if has_room(listener) {
        return false;
    }
    let rendezvous = listener.private_fd.load(Ordering::Acquire);
    server::waiting(listener) || calls::poll_one(rendezvous, libc::POLLIN, 0).is_ok_and(|events| events != 0)
}

/// What changes with each client of the list that becomes ready to be given; `None`: none is.
pub fn ready_ones(listener: &Socket) -> Option<u64> {
    let setup = SETUP.try_lock()?;
    first(listener, &setup)?;
    let said = places(listener).filter_map(|place| list()[place]).filter(Waiting::has_something);
    // No sum of numbers alone: those of two that have gone would be that of one that came.
    let mixed =
        |number: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xd6e8_feb8_6659_fd93);
    Some(said.fold(0, |sum: u64, waiting| sum.wrapping_add(mixed(waiting.number))))
}

/// Whether a client of the list can be given, whichever others may wait.
pub fn any_ready(listener: &Socket) -> bool {
    DEFERRED.count.load(Ordering::Relaxed) != 0 && SETUP.try_lock().is_none_or(|setup| first(listener, &setup).is_some())
}

/// Whether there is one to give, so that other clients that wait are left where other processes find them: each that is taken off the
/// rendezvous and not given is put back there. A process that has the listener alone takes all, and gives them in their order.
fn suffices(listener: &Socket, _setup: &Guard) -> bool {
    let ready = |place: usize| list()[place].is_some_and(|waiting| waiting.holds() && waiting.has_something());
    DEFERRED.count.load(Ordering::Relaxed) != 0 && listener.has(flag::LISTENER_SHARED) && places(listener).any(ready)
}

/// Any client of the list, whatever it did: the listener goes elsewhere.
pub fn evict(listener: &Socket, flags: i32) -> Result<Accepted> {
    let setup = SETUP.lock().ok_or(Errno(libc::EAGAIN))?;
    while let Some(place) = places(listener).next() {
        match give(place, listener, flags, &setup) {
            Err(None) => {}
            other => return other.map_err(|error| error.unwrap_or(Errno(libc::EAGAIN))),
        }
    }
    Err(Errno(libc::EAGAIN))
}

/// A client that cannot go where other processes would accept it waits here, due at once. Under the set-up lock.
pub fn keep(listener: &Socket, arrival: Arrival, setup: &Guard) {
    if !has_room(listener) {
        let _ = calls::close(arrival.companion);
        return;
    }
    take(listener, arrival, setup);
    first(listener, setup); // sets the timer
}

/// The oldest offer of a client, where no client waits in the list, and it has sent something already.
fn usual_offer(listener: &Socket, flags: i32, _setup: &Guard) -> Result<Option<Accepted>> {
    if DEFERRED.count.load(Ordering::Relaxed) != 0 || !server::waiting(listener) {
        return Ok(None);
    }
    for (header, index) in server::places(listener) {
        let base = link::at(index).base;
        let Some(channel) = offers::oldest(&header.offers).filter(|&channel| said_something(link::page(base, channel))) else {
            continue;
        };
        let taken = server::take(index, base, channel, listener, flags);
        if let Err(Some(error)) = taken {
            return Err(error); // no descriptor for it: it waits
        }
        offers::take(&header.offers);
        server::taken(listener, header, index);
        if let Ok(accepted) = taken {
            return Ok(Some(accepted));
        }
    }
    Ok(None)
}

/// What clients offer in memory joins the list.
fn take_offers(listener: &Socket, _setup: &Guard) {
    if !server::waiting(listener) {
        return;
    }
    for (header, index) in server::places(listener) {
        for _ in 0..CHANNELS {
            let Some(channel) = offers::oldest(&header.offers).filter(|_| has_room(listener)) else { break };
            let page = link::page(link::at(index).base, channel);
            if let Some(Offer { client, server, generation, .. }) = server::honest(index, page, channel, listener) {
                join(listener, Arrival { companion: -1, client, server, index, channel, generation });
            }
            offers::take(&header.offers);
            server::taken(listener, header, index);
        }
    }
}

/// Gives the client at `place` out. `Err(None)`: it has gone.
fn give(place: usize, listener: &Socket, flags: i32, _setup: &Guard) -> core::result::Result<Accepted, Option<Errno>> {
    let waiting = list()[place].ok_or(None)?;
    let duplicate = if flags & libc::SOCK_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let companion = calls::fcntl(waiting.descriptor(), duplicate, 0)
        .map_err(|error| Some(if error.0 == libc::EINVAL { Errno(libc::EMFILE) } else { error }))?;
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    match companion_cache::get(waiting.index, waiting.channel) {
        Some(kept) => {
            kept.set_nonblocking(nonblocking);
            kept.client = waiting.client;
        }
        None => {
            let wanted = libc::O_RDWR | if nonblocking { libc::O_NONBLOCK } else { 0 };
            let _ = calls::fcntl(companion, libc::F_SETFL, wanted as usize);
        }
    }
    let Waiting { index, channel, generation, client, server, .. } = waiting;
    match accept::welcome(&Arrival { companion, client, server, index, channel, generation }, listener, nonblocking) {
        Ok(accepted) => {
            leave(place);
            Ok(accepted)
        }
        Err(_) => {
            let _ = calls::close(companion);
            drop_client(place);
            Err(None)
        }
    }
}

/// The program waits for clients of this listener no longer, in one set at least: those that this process has looked at are for
/// the processes that do, as Apache's busy processes leave theirs to the others.
pub fn leave_to_others(listener: &Socket) {
    if DEFERRED.count.load(Ordering::Relaxed) == 0 || !listener.has(flag::LISTENER_SHARED) {
        return;
    }
    if let Some(_setup) = SETUP.lock() {
        to_rendezvous(listener);
    }
}

/// This thread looks at such a listener.
pub fn polls() {
    DEFERRED.poller.store(thread::id(), Ordering::Relaxed);
}

/// This thread looks, or waits, in poll or select, for the listeners that `asked` names: of those that it looked at before, and leaves
/// out now, others get the clients.
#[inline(always)]
pub fn polls_only(asked: impl Fn(&Socket) -> bool) {
    if DEFERRED.count.load(Ordering::Relaxed) != 0 {
        leave_unasked(asked);
    }
}

#[cold]
#[inline(never)]
fn leave_unasked(asked: impl Fn(&Socket) -> bool) {
    if DEFERRED.poller.load(Ordering::Relaxed) != thread::id() {
        return;
    }
    let Some(_setup) = SETUP.lock() else { return };
    for listener in pending::listeners().filter(|listener| listener.has(flag::LISTENER_SHARED) && !asked(listener)) {
        to_rendezvous(listener);
        DEFERRED.poller.store(0, Ordering::Relaxed);
    }
}

/// The listener is about to close or to listen no longer.
pub fn listener_ends(listener: &Socket) {
    if DEFERRED.count.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(_setup) = SETUP.lock() else { return };
    if listener.has(flag::LISTENER_SHARED) {
        to_rendezvous(listener);
    }
    for place in places(listener) {
        drop_client(place);
    }
}
