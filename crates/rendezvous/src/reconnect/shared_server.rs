//! Accepting what clients bid for where several processes accept: the acceptors' half of [`crate::reconnect::shared_client`].
//!
//! Each process that has such a listener keeps the companions of connections that it accepted, as one that accepts alone does. A
//! bid names the channels whose pairs are idle at the client; a process that calls accept while it waits looks for one of its own
//! among them. A thread that is awake in poll or in a set tells the program that the listener is readable ([`tell`]); the client waits
//! for its accept.

use crate::accept;
use crate::accept::acceptors::patience_with_bids;
use crate::accept::{deferred, Accepted};
use crate::listen::sharing;
use crate::reconnect::server::{Place, MOST};
use crate::reconnect::{client, server};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_ring::bid;
use shunt_segment::channel::{life, release};
use shunt_segment::link::LinkHeader;
use shunt_segment::CHANNELS;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::{calls, clock, libc, Errno, Result};
use shunt_table::global;

/// Where clients bid, and what this process did about their bids.
struct Bids {
    /// A connection was closed whose client means to bid for its next one: a thread that waits next looks for a while, however long
    /// clients took of late. Without that none is awake for the first bid, and so none is made.
    near: AtomicBool,
    /// Links whose clients may bid.
    places: [Place; MOST],
    /// Of each, the last bid that this process could not take.
    declined: [AtomicU64; MOST],
    /// Of each, the last bid of which this process told its program ([`bid::number`]); 0: none, or that one was accepted.
    told: [AtomicU64; MOST],
    /// Of each, whose client made it.
    users: [AtomicU32; MOST],
    /// Places that were ever used are the first so many.
    used: AtomicUsize,
    /// Connections of late that came by a bid: with some, accept looks there before it asks the kernel.
    usual: AtomicU32,
}

static BIDS: Bids = Bids {
    near: AtomicBool::new(false),
    places: [const { Place::empty() }; MOST],
    declined: [const { AtomicU64::new(0) }; MOST],
    told: [const { AtomicU64::new(0) }; MOST],
    users: [const { AtomicU32::new(0) }; MOST],
    used: AtomicUsize::new(0),
    usual: AtomicU32::new(0),
};

const MOST_USUAL: u32 = 8;
/// How long a client is waited for of which the program was told, and that is on its way through the kernel since, in ns. It takes 30 us, if
/// it is not preempted.
const ON_ITS_WAY: i64 = 100_000_000;

/// How often clients are looked for that were killed, in connections.
const SWEEP_EVERY: u32 = 32;

fn used() -> &'static [Place] {
    &BIDS.places[..BIDS.used.load(Ordering::Acquire).min(MOST)]
}

/// Whether clients of this listener bid, as far as is known, so that hardly any comes another way.
pub fn are_usual(listener: &Socket) -> bool {
    BIDS.usual.load(Ordering::Relaxed) != 0 && listener.has(flag::LISTENER_SHARED)
}

/// A client of a shared listener came through the rendezvous, by link `index`: its next connections may be bid for. Under the set-up
/// lock.
pub(crate) fn arrived(index: usize, listener: &Socket) {
    BIDS.usual.store(BIDS.usual.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    let link = link::at(index);
    let header = link::header(link.base);
    if header.bid.intended.load(Ordering::Relaxed) == 0 || link.inherited || has(index) {
        return;
    }
    let Some(number) = BIDS.places.iter().position(Place::is_empty) else { return };
    BIDS.declined[number].store(0, Ordering::Relaxed);
    BIDS.told[number].store(0, Ordering::Relaxed);
    BIDS.users[number].store(link.other.1, Ordering::Relaxed);
    BIDS.places[number].fill(index, listener.private_fd.load(Ordering::Relaxed));
    BIDS.used.fetch_max(number + 1, Ordering::Release);
}

fn has(index: usize) -> bool {
    used().iter().any(|place| place.is_of(index))
}

/// Whether a companion of link `index`, whose connection ends, is worth keeping for a bid. Under the set-up lock.
pub fn keeps(index: usize) -> bool {
    let keeps = has(index) && link::header(link::at(index).base).bid.intended.load(Ordering::Relaxed) != 0;
    if keeps {
        BIDS.near.store(true, Ordering::Relaxed);
    }
    keeps
}

/// Whether a client is about to bid, as far as is known. Asked once for each connection.
#[inline(always)]
pub fn bid_is_near() -> bool {
    BIDS.near.load(Ordering::Relaxed) && BIDS.near.swap(false, Ordering::Relaxed)
}

/// Link `index` goes. Under the set-up lock.
pub fn forget(index: usize) {
    for place in used().iter().filter(|place| place.is_of(index)) {
        place.clear();
    }
}

/// In the child after fork: it has no companions yet.
pub fn forked() {
    BIDS.places.iter().for_each(Place::clear);
}

/// A rendezvous got another number. Under the set-up lock.
pub fn moved(from: i32, to: i32) {
    BIDS.places.iter().for_each(|place| place.renumber(from, to));
}

/// This process has the listener no longer, and others may: what is kept of its clients hangs up. Not under the set-up lock.
pub(crate) fn retire(listener: &Socket) {
    if BIDS.used.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(_setup) = global::SETUP.lock() else { return };
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    for place in used() {
        let Some((header, index)) = place.link(rendezvous) else { continue };
        place.clear();
        if header.sole.load(Ordering::Relaxed) != 1 {
            companion_cache::forget_all(index);
        }
    }
}

/// The bids that wait at this listener and were not declined: numbers of their places, headers, indices, words.
fn waiting(listener: &Socket) -> impl Iterator<Item = (usize, &'static LinkHeader, usize, u64)> {
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    used().iter().enumerate().filter_map(move |(number, place)| {
        let (header, index) = place.link(rendezvous)?;
        let word = bid::look(&header.bid)?;
        (word != BIDS.declined[number].load(Ordering::Relaxed)).then_some((number, header, index, word))
    })
}

/// Whether clients bid at any listener of this process, as far as is known.
#[inline(always)]
pub fn expects() -> bool {
    BIDS.used.load(Ordering::Relaxed) != 0
}

/// Whether clients may bid at `listener`. Takes no lock.
fn may_wait(listener: &Socket) -> bool {
    BIDS.used.load(Ordering::Relaxed) != 0 && listener.has(flag::LISTENER_SHARED) && !deferred::concern(listener)
}

/// Whether some client bids that [`accept()`] has not declined. Takes no lock.
pub fn any(listener: &Socket) -> bool {
    may_wait(listener) && waiting(listener).next().is_some()
}

/// Whether the program is to be told that `listener` is readable, because of a bid that it can accept. Each is one process's to tell of:
/// no herd comes. `edge`: only of what it was not told before. For those who wait in poll or in a set, whose locks they may hold.
pub fn tell(listener: &Socket, edge: bool) -> bool {
    let tells = may_wait(listener)
        && (0..used().len()).any(|number| match tell_of(number, listener) {
            News::New => true,
            News::Known => !edge,
            News::None => false,
        });
    if tells {
        accept::told();
    }
    tells
}

/// What there is to tell of a bid.
enum News {
    None,
    New,
    Known,
}

fn tell_of(number: usize, listener: &Socket) -> News {
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    let Some((header, index)) = BIDS.places[number].link(rendezvous) else { return News::None };
    let told = BIDS.told[number].load(Ordering::Relaxed);
    let Some(word) = bid::look(&header.bid) else {
        // It is in the kernel's queue by now, or will be, if no acceptor has taken it.
        if told == 0 || accept_would_find(number, listener) {
            return if told == 0 { News::None } else { News::Known };
        }
        BIDS.told[number].store(0, Ordering::Relaxed);
        return News::None;
    };
    if told == bid::number(word) {
        return News::Known;
    }
    if word == BIDS.declined[number].load(Ordering::Relaxed) {
        return News::None;
    }
    let Some(_setup) = global::SETUP.try_lock() else { return News::None };
    let same = BIDS.places[number].link(rendezvous).is_some_and(|(_, now)| now == index);
    let idle = |channel: usize| word & 1 << channel != 0 && is_idle(index, channel);
    if !same || header.retired.load(Ordering::Acquire) != 0 || !(0..CHANNELS).any(idle) {
        BIDS.declined[number].store(word, Ordering::Relaxed);
        return News::None;
    }
    if !bid::tell(&header.bid, word) {
        return News::None;
    }
    BIDS.told[number].store(bid::number(word), Ordering::Relaxed);
    News::New
}

/// Whether the client of the bid that was told last is in the rendezvous, or will be in a moment.
fn accept_would_find(number: usize, listener: &Socket) -> bool {
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    let told = BIDS.told[number].load(Ordering::Relaxed);
    let coming = || BIDS.places[number].link(rendezvous).is_some_and(|(header, _)| bid::is_coming(&header.bid, told));
    let user = coming().then(|| BIDS.users[number].load(Ordering::Relaxed));
    let wait = user.map_or(0, |uid| patience_with_bids().of(uid).min(ON_ITS_WAY));
    let found = calls::poll_one(rendezvous, libc::POLLIN, wait);
    if let (Some(uid), Ok(0), true) = (user, found, coming()) {
        patience_with_bids().failed(uid);
    }
    found.is_ok_and(|events| events != 0)
}

/// The program was told of a bid, and accept finds none: whether it should look again, as the client has come through the kernel since.
/// It is asked once for each. No other process need have the listener any more: that is found out while a bid is taken
/// ([`sharing::look_around`]).
pub(crate) fn comes(listener: &Socket) -> bool {
    if !expects() || deferred::concern(listener) {
        return false;
    }
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    let told =
        |number: &usize| BIDS.told[*number].load(Ordering::Relaxed) != 0 && BIDS.places[*number].link(rendezvous).is_some();
    (0..used().len()).filter(told).fold(false, |found, number| {
        let finds = accept_would_find(number, listener);
        BIDS.told[number].store(0, Ordering::Relaxed);
        found || finds
    })
}

/// Takes a bid. EAGAIN: none waits for which this process has a companion.
pub fn accept(listener: &Socket, flags: i32) -> Result<Accepted> {
    if !any(listener) {
        return Err(Errno(libc::EAGAIN));
    }
    let _setup = global::SETUP.lock().ok_or(Errno(libc::EAGAIN))?;
    sharing::look_around(listener);
    for (number, header, index, word) in waiting(listener) {
        match take(header, index, word, listener, flags) {
            Ok(accepted) => {
                BIDS.told[number].store(0, Ordering::Relaxed);
                BIDS.usual.store(MOST_USUAL, Ordering::Relaxed);
                // Pairs that are kept keep their link, and a client that was killed does not say so.
                if listener.listening.accepts.load(Ordering::Relaxed).is_multiple_of(SWEEP_EVERY) {
                    link::sweep(Some(index));
                }
                return Ok(accepted);
            }
            Err(Some(error)) => return Err(error),
            Err(None) => BIDS.declined[number].store(word, Ordering::Relaxed),
        }
    }
    Err(Errno(libc::EAGAIN))
}

/// `Err(None)`: this process has none of the pairs, or another was faster.
fn take(
    header: &LinkHeader,
    index: usize,
    word: u64,
    listener: &Socket,
    flags: i32,
) -> core::result::Result<Accepted, Option<Errno>> {
    if header.retired.load(Ordering::Acquire) != 0 {
        return Err(None);
    }
    let base = link::at(index).base;
    let has = |channel: &usize| word & 1 << channel != 0 && is_own(index, *channel);
    let channel = (0..CHANNELS).find(has).ok_or(None)?;
    let page = link::page(base, channel);
    let kept = companion_cache::get(index, channel).ok_or(None)?;
    let (client, server) = (kept.client, kept.server);
    accept::plausible(&client, &server, listener).map_err(|_| None)?;
    let duplicate = if flags & libc::SOCK_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    let companion = calls::fcntl(kept.descriptor(), duplicate, 0)
        .map_err(|error| Some(if error.0 == libc::EINVAL { Errno(libc::EMFILE) } else { error }))?;
    let claimed = bid::claim(&page.sides);
    if claimed {
        link::clear_for_next(page);
        page.sides[0].owners.store(1, Ordering::Relaxed);
        page.head.began.store(header.bid.began.load(Ordering::Relaxed), Ordering::Relaxed);
        page.head.since.store((clock::monotonic_ns() / 1_000_000_000) as u32, Ordering::Relaxed);
        page.head.state.store(life::ACCEPTED, Ordering::Relaxed);
    }
    if !claimed || !bid::take(&header.bid, word, channel) {
        if claimed {
            bid::give_back(&page.sides);
        }
        let _ = calls::close(companion);
        return Err(None);
    }
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    kept.set_nonblocking(nonblocking);
    let accepted = Accepted { companion, client, server, index, channel };
    accept::seat(&accepted, base, listener, nonblocking).map(|()| accepted).map_err(|reason| {
        shunt_table::process::status_page::count(reason);
        let _ = calls::close(companion);
        server::refuse(page);
        companion_cache::forget(index, channel);
        None
    })
}

/// Whether the idle pair of a channel is one whose other end this process kept. A pair that another process made on the same channel
/// since is not.
fn is_idle(index: usize, channel: usize) -> bool {
    let Some(kept) = companion_cache::get(index, channel) else { return false };
    let page = link::page(link::at(index).base, channel);
    if kept.pair != page.head.pair.load(Ordering::Relaxed) {
        companion_cache::forget(index, channel);
        return false;
    }
    page.sides.iter().all(|side| side.released.load(Ordering::Acquire) == release::KEPT)
}

/// The same, and its client lives.
fn is_own(index: usize, channel: usize) -> bool {
    if !is_idle(index, channel) {
        return false;
    }
    let Some(kept) = companion_cache::get(index, channel) else { return false };
    let alive = client::alive(kept.descriptor(), link::page(link::at(index).base, channel), 1) == Ok(true);
    if !alive {
        companion_cache::forget(index, channel);
    }
    alive
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_stream::socket;
    use shunt_sys::libc::{AF_INET, AF_UNIX, SOCK_CLOEXEC, SOCK_STREAM};

    /// The rendezvous of a listener, by an address that the kernel gives.
    fn listening() -> (i32, libc::sockaddr_un, libc::socklen_t) {
        let fd = calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0).unwrap();
        let mut name = libc::sockaddr_un { sun_family: AF_UNIX as u16, sun_path: [0; 108] };
        let mut length = core::mem::size_of_val(&name) as libc::socklen_t;
        calls::bind(fd, (&raw const name).cast(), 2).unwrap();
        calls::listen(fd, 8).unwrap();
        calls::getsockname(fd, (&raw mut name).cast(), &mut length).unwrap();
        (fd, name, length)
    }

    #[test]
    fn a_client_that_was_told_of_comes_though_nobody_else_has_the_listener_meanwhile() {
        let (rendezvous, name, length) = listening();
        let listener = socket::allocate(AF_INET).unwrap();
        listener.private_fd.store(rendezvous, Ordering::Relaxed);
        listener.set(flag::LISTENER_SHARED);
        let setup = global::SETUP.lock().unwrap();
        let index = link::make_lasting(shunt_segment::link::STATIONS).unwrap();
        let bid = &link::header(link::at(index).base).bid;
        bid.intended.store(1, Ordering::Relaxed);
        arrived(index, listener);
        drop(setup);
        let number = used().iter().position(|place| place.is_of(index)).expect("its client may bid");
        let word = bid::open(bid, 1, 0);
        assert!(bid::tell(bid, word));
        BIDS.told[number].store(bid::number(word), Ordering::Relaxed);

        listener.clear(flag::LISTENER_SHARED);
        assert_eq!(bid::close(bid, word), bid::Closed::Told);
        let client = calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0).unwrap();
        calls::connect(client, (&raw const name).cast(), length).unwrap();
        bid::arrived(bid);
        assert!(comes(listener), "it waits in the rendezvous");
        assert!(!comes(listener), "asked once");

        for fd in [client, rendezvous] {
            calls::close(fd).unwrap();
        }
        let _setup = global::SETUP.lock().unwrap();
        link::drop_lasting(index);
        socket::free(listener);
    }
}
