//! Accepting what clients bid for where several processes accept: the acceptors' half of [`crate::rendezvous::bidding`].
//!
//! Each process that has such a listener keeps the companions of connections that it accepted, as one that accepts alone does. A
//! bid names the channels whose pairs are idle at the client; whoever calls accept while it waits looks for one of its own among them.

use crate::rendezvous::accept::{self, Accepted};
use crate::rendezvous::offered::{Place, MOST};
use crate::rendezvous::{again, deferred, kept, offered, relatives};
use crate::socket::{flag, Socket};
use crate::{global, link};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use shunt_ring::bid;
use shunt_segment::channel::{life, release};
use shunt_segment::link::LinkHeader;
use shunt_segment::CHANNELS;
use shunt_sys::libc;
use shunt_sys::{calls, clock, Errno, Result};

/// Links whose clients may bid.
static PLACES: [Place; MOST] = [const { Place::empty() }; MOST];
/// Of each, the last bid that this process could not take.
static DECLINED: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
/// Places that were ever used are the first so many.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Connections of late that came by a bid: with some, accept looks there before it asks the kernel.
static USUAL: AtomicU32 = AtomicU32::new(0);
const MOST_USUAL: u32 = 8;
/// How often clients are looked for that were killed, in connections.
const SWEEP_EVERY: u32 = 32;

fn used() -> &'static [Place] {
    &PLACES[..USED.load(Ordering::Acquire).min(MOST)]
}

/// Whether clients of this listener bid, as far as is known, so that hardly anybody comes another way.
pub fn are_usual(listener: &Socket) -> bool {
    USUAL.load(Ordering::Relaxed) != 0 && listener.has(flag::LISTENER_SHARED)
}

/// A client of a shared listener came through the rendezvous, by link `index`: its next connections may be bid for. Under the set-up
/// lock.
pub(super) fn arrived(index: usize, listener: &Socket) {
    USUAL.store(USUAL.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    let link = link::at(index);
    let header = link::header(link.base);
    if header.bid.intended.load(Ordering::Relaxed) == 0 || link.inherited || has(index) {
        return;
    }
    let Some(number) = PLACES.iter().position(Place::is_empty) else { return };
    DECLINED[number].store(0, Ordering::Relaxed);
    PLACES[number].fill(index, listener.private_fd.load(Ordering::Relaxed));
    USED.fetch_max(number + 1, Ordering::Release);
}

fn has(index: usize) -> bool {
    used().iter().any(|place| place.is_of(index))
}

/// Whether a companion of link `index` is worth keeping for a bid. Under the set-up lock.
pub fn keeps(index: usize) -> bool {
    has(index) && link::header(link::at(index).base).bid.intended.load(Ordering::Relaxed) != 0
}

/// Link `index` goes. Under the set-up lock.
pub fn forget(index: usize) {
    for place in used().iter().filter(|place| place.is_of(index)) {
        place.clear();
    }
}

/// In the child after fork: it has no companions yet.
pub fn forked() {
    PLACES.iter().for_each(Place::clear);
}

/// A rendezvous got another number. Under the set-up lock.
pub fn moved(from: i32, to: i32) {
    PLACES.iter().for_each(|place| place.renumber(from, to));
}

/// This process has the listener no longer, and others may: what is kept of its clients hangs up. Not under the set-up lock.
pub(super) fn retire(listener: &Socket) {
    if USED.load(Ordering::Relaxed) == 0 {
        return;
    }
    let Some(_setup) = global::SETUP.lock() else { return };
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    for place in used() {
        let Some((header, index)) = place.link(rendezvous) else { continue };
        place.clear();
        if header.sole.load(Ordering::Relaxed) != 1 {
            kept::forget_all(index);
        }
    }
}

/// The bids that wait at this listener and were not declined: numbers of their places, headers, indices, words.
fn waiting(listener: &Socket) -> impl Iterator<Item = (usize, &'static LinkHeader, usize, u64)> {
    let rendezvous = listener.private_fd.load(Ordering::Relaxed);
    used().iter().enumerate().filter_map(move |(number, place)| {
        let (header, index) = place.link(rendezvous)?;
        let word = bid::look(&header.bid)?;
        (word != DECLINED[number].load(Ordering::Relaxed)).then_some((number, header, index, word))
    })
}

/// Whether some client bids that [`accept`] has not declined. Takes no lock.
pub fn any(listener: &Socket) -> bool {
    USED.load(Ordering::Relaxed) != 0
        && listener.has(flag::LISTENER_SHARED)
        && !deferred::concern(listener)
        && waiting(listener).next().is_some()
}

/// Takes a bid. EAGAIN: none waits for which this process has a companion.
pub fn accept(listener: &Socket, flags: i32) -> Result<Accepted> {
    if !any(listener) {
        return Err(Errno(libc::EAGAIN));
    }
    let _setup = global::SETUP.lock().ok_or(Errno(libc::EAGAIN))?;
    relatives::look_around(listener);
    for (number, header, index, word) in waiting(listener) {
        match take(header, index, word, listener, flags) {
            Ok(accepted) => {
                USUAL.store(MOST_USUAL, Ordering::Relaxed);
                // Pairs that are kept keep their link, and a client that was killed does not say so.
                if listener.accepts.load(Ordering::Relaxed).is_multiple_of(SWEEP_EVERY) {
                    link::sweep(Some(index));
                }
                return Ok(accepted);
            }
            Err(Some(error)) => return Err(error),
            Err(None) => DECLINED[number].store(word, Ordering::Relaxed),
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
    let kept = kept::get(index, channel).ok_or(None)?;
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
        crate::process::report::count(reason);
        let _ = calls::close(companion);
        offered::refuse(page);
        kept::forget(index, channel);
        None
    })
}

/// Whether the idle pair of a channel is one whose other end this process kept, and its client lives. A pair that another process made on the same channel
/// since is not.
fn is_own(index: usize, channel: usize) -> bool {
    let Some(kept) = kept::get(index, channel) else { return false };
    let page = link::page(link::at(index).base, channel);
    if kept.pair != page.head.pair.load(Ordering::Relaxed) {
        kept::forget(index, channel);
        return false;
    }
    if page.sides.iter().any(|side| side.released.load(Ordering::Acquire) != release::KEPT) {
        return false;
    }
    let alive = again::alive(kept.descriptor(), page, 1) == Ok(true);
    if !alive {
        kept::forget(index, channel);
    }
    alive
}
