//! Channels of our links, lent to one connection after another.

use crate::channels::{released, return_port, reusable};
use crate::list::{at, header, links, page, Link, WORDS};
use crate::make::make;
use crate::retired;
use crate::{companion_cache, kept};
use core::sync::atomic::Ordering;
use shunt_ring::{bid, claim};
use shunt_segment::channel::release;
use shunt_segment::reason::Reason;
use shunt_segment::CHANNELS;
use shunt_sys::{calls, clock, libc, process, Errno, Result};
use shunt_table::process::status_page;

/// A channel for a new connection to the listener with inode `listener`.
pub struct Offer {
    /// Index of the link.
    pub index: usize,
    /// The channel.
    pub channel: usize,
    /// The link.
    pub link: Link,
}

/// Finds or makes a link to `listener` with a free channel, and takes that channel.
///
/// Errors: ENOMEM, EMFILE, EFBIG (RLIMIT_FSIZE).
pub fn offer(listener: u32) -> Result<Offer> {
    let user = calls::geteuid();
    let fits = |index: &usize| at(*index).lends_to(listener) && at(*index).user == user;
    // That of connections in memory first, as the server says in each link for itself that it accepts alone; then the newest, as
    // older ones are full as a rule.
    for index in links().listed(listener).filter(fits) {
        if let Some(offer) = try_offer(at(index), index) {
            return Ok(offer);
        }
    }
    for index in links().listed(listener).filter(fits) {
        if reclaim(at(index), index) {
            if let Some(offer) = try_offer(at(index), index) {
                return Ok(offer);
            }
        }
    }
    if let Some(offer) = await_server(listener, user) {
        return Ok(offer);
    }
    let index = make(listener)?;
    if retired::makes_up(listener) {
        status_page::count(Reason::UserChanged);
    }
    try_offer(at(index), index).ok_or(Errno(libc::ENOMEM))
}

/// Takes a channel. A link that was retired at this moment gives none: it may be one that was said to be free by a process that is
/// another user's by now.
pub(super) fn try_offer(link: &mut Link, index: usize) -> Option<Offer> {
    let channel = take_channel(link, index)?;
    if !link.count() || link.is_retired() {
        link.withdraw(channel);
        return None;
    }
    Some(Offer { index, channel, link: *link })
}

/// How long a client that is ahead of its server waits for a channel, in ticks (some 20 us): as long as a link takes to be made
/// here, and taken in there. It comes to that once in [`CHANNELS`] connections.
const AHEAD: u64 = 50_000;

/// Waits a moment, if all channels of a link are closed here and not yet there: rather than run on into links whose pages are
/// untouched, a client lets its server catch up, on one processor by letting it run.
fn await_server(listener: u32, user: u32) -> Option<Offer> {
    let ahead = |index: &usize| {
        let link = at(*index);
        let waiting: u32 = link.waiting.iter().map(|word| word.count_ones()).sum();
        link.lends_to(listener) && link.user == user && waiting == CHANNELS as u32
    };
    let index = links().listed(listener).find(ahead)?;
    let until = clock::ticks() + AHEAD;
    while clock::ticks() < until {
        calls::sched_yield();
        if let Some(offer) = try_offer(at(index), index) {
            return Some(offer);
        }
    }
    None
}

/// Channels that we closed, and whose server's end will not be closed: processes that share a connection after a fork may exit
/// without a word. True: some were found.
fn reclaim(link: &mut Link, index: usize) -> bool {
    let abandoned = forget_abandoned(link, index);
    let server = &header(link.base).server;
    // Numbers of processes mean the same to us as to them only in one PID namespace.
    if link.other.0 == 0 || server.pid.load(Ordering::Relaxed) != link.other.0 {
        return abandoned;
    }
    let mut any = abandoned;
    for channel in (0..CHANNELS).filter(|channel| link.waiting(*channel)) {
        let page = page(link.base, channel);
        let side = &page.sides[1];
        let alive = |pid: u32| !process::has_ended(pid);
        if released(page, 0) && !released(page, 1) && side.orphaned(side.owners.load(Ordering::Acquire).max(1), alive) {
            side.released.store(release::CLOSED, Ordering::Release);
            any = true;
        }
    }
    any
}

/// Idle pairs that an acceptor had claimed for a bid when it was killed.
fn forget_abandoned(link: &mut Link, index: usize) -> bool {
    let mut any = false;
    for channel in (0..CHANNELS).filter(|channel| link.waiting(*channel)) {
        let Some(kept) = companion_cache::get(index, channel) else { continue };
        let sides = &page(link.base, channel).sides;
        let claimed = || sides[1].released.load(Ordering::Acquire) == release::NOT;
        let hung_up = |events: i16| events & libc::POLLHUP != 0;
        if claimed() && calls::poll_one(kept.descriptor(), 0, 0).is_ok_and(hung_up) && claimed() {
            sides.iter().for_each(|side| side.released.store(release::CLOSED, Ordering::Release));
            companion_cache::forget(index, channel);
            any = true;
        }
    }
    any
}

fn take_channel(link: &mut Link, index: usize) -> Option<usize> {
    for k in 0..WORDS {
        let mut waiting = link.waiting[k];
        // Channels that the server let go meanwhile come first: their lines are warm.
        while waiting != 0 {
            let channel = k * 64 + waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            let page = page(link.base, channel);
            if released(page, 0) && released(page, 1) && !reusable(page, index, channel) && bid::withhold(&page.sides[1]) {
                return Some(lend(link, index, channel));
            }
            if waiting.count_ones() < link.waiting[k].count_ones().saturating_sub(8) {
                break;
            }
        }
    }
    for k in 0..WORDS {
        if link.used[k] != u64::MAX {
            let channel = k * 64 + (!link.used[k]).trailing_zeros() as usize;
            return Some(lend(link, index, channel));
        }
    }
    // What is kept for other addresses gives way.
    let idle = (0..CHANNELS).find(|channel| {
        let page = page(link.base, *channel);
        link.waiting(*channel) && reusable(page, index, *channel) && bid::withhold(&page.sides[1])
    })?;
    Some(lend(link, index, idle))
}

/// Makes an unused channel ready for a connection with a companion of its own.
fn lend(link: &mut Link, index: usize, channel: usize) -> usize {
    let (word, bit) = (channel / 64, 1u64 << (channel % 64));
    link.waiting[word] &= !bit;
    link.used[word] |= bit;
    companion_cache::forget(index, channel);
    return_port(link, channel);
    kept::trim(link, channel); // of a connection whose last owner was killed, or was another process
    let page = page(link.base, channel);
    page.head.owes.iter().for_each(|owes| owes.store(0, Ordering::Relaxed));
    for (side, carriage) in page.sides.iter().zip(&page.carriages) {
        // Only a relay that was killed leaves its name behind, and its entry among the owners with it.
        if side.family.iter().any(|place| place.load(Ordering::Relaxed) != 0) {
            carriage.clear();
        }
        side.clear();
    }
    for settings in &page.settings {
        settings.clear();
    }
    claim::renew(&page.head);
    channel
}
