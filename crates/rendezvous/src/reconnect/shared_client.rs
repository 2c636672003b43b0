//! Connecting again where several processes accept: a bid for whichever of them is in accept at this moment.
//!
//! An offer in memory would wait for the one process that has the pair's other end. So the client asks for any of its idle pairs, and
//! waits for no longer than an acceptor that is awake takes to answer; otherwise the connection is made through the
//! kernel, which any process may accept. What is gained is the kernel's part; what is lost, where no acceptor is ever awake,
//! becomes rare ([`shunt_link::bids`]).

use crate::answers;
use crate::attach;
use crate::attach::Setting;
use crate::reconnect::client;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_link::bids::AWAKE_NS;
use shunt_link::companion_cache;
use shunt_link::ports::shared;
use shunt_ring::bid::{self, Closed};
use shunt_segment::address::Address;
use shunt_segment::channel::life;
use shunt_segment::reason::Reason;
use shunt_segment::CHANNELS;
use shunt_sys::{calls, clock, processor};

/// Pairs that one bid names.
const MOST: u32 = 8;

/// How long one takes whose program was told and has to call accept, in ns.
const TOLD_NS: u64 = 20_000;
/// How often the client offers its processor to one that it shares it with.
const YIELDS: usize = 2;
/// A yield that took this many ticks (some 100 us) gave the processor to others than an acceptor.
const LONG_YIELD: u64 = 250_000;

/// A connection was made through the kernel, in so many ticks. Under the set-up lock.
pub(crate) fn met(index: usize, channel: usize, ticks: u64) {
    if let Some(bidder) = link::for_offers(link::at(index).listener) {
        let bids = &mut link::at(bidder).bids;
        bids.last = Some((index as u16, channel as u8));
        let ticks = ticks.min(clock::ticks_for_ns(AWAKE_NS[1])); // others may have had the processor meanwhile
        bids.kernel = if bids.kernel == 0 { ticks } else { (3 * bids.kernel + ticks) / 4 };
    }
}

/// A connection has come about in whatever way, or not: what was said of a bid is so. Under the set-up lock.
pub(crate) fn arrived() {
    if answers::bid_on_its_way().load(Ordering::Relaxed) != 0 {
        let index = answers::bid_on_its_way().swap(0, Ordering::Relaxed) as usize - 1;
        let link = link::at(index);
        if !link.base.is_null() {
            bid::arrived(&link::header(link.base).bid);
        }
    }
}

/// Whether all that came to `listener` before a bid by link `bidder` has been accepted.
fn all_accepted(listener: u32, bidder: usize) -> bool {
    let Some((index, channel)) = link::at(bidder).bids.last else { return true };
    let link = link::at(index as usize);
    let waits = !link.base.is_null()
        && link.listener == listener
        && link::page(link.base, channel as usize).head.state.load(Ordering::Acquire) == life::OFFERED;
    !waits
}

/// Tries to connect from an address `source` (its port does not count) to `server`, where `listener` listens. True: done.
/// Called under the set-up lock.
pub fn connect(setting: &Setting, source: &Address, server: &Address, listener: u32) -> bool {
    let Some(index) = link::for_offers(listener) else { return false };
    let link = link::at(index);
    let header = link::header(link.base);
    if header.sole.load(Ordering::Acquire) == 1 || !link.bids.are_due(&header.bid) {
        return false;
    }
    let channels = choose(index, source, server);
    if channels == 0 {
        return false;
    }
    let first = link::page(link.base, channels.trailing_zeros() as usize);
    let here = first.sides[1].wait.processor.load(Ordering::Relaxed) == processor::number() + 1;
    let patience = link.bids.patience();
    if !soon(here, patience, || all_accepted(listener, index)) || !link.count() {
        link.bids.was_in_vain(&header.bid);
        return false;
    }
    let word = bid::open(&header.bid, channels, clock::ticks());
    let taken = || bid::is_taken(&header.bid, word);
    if !soon(here, patience, taken) && bid::is_told(&header.bid) {
        soon_told(here, taken);
    }
    let channel = match bid::close(&header.bid, word) {
        Closed::Taken(channel) => channel,
        closed => {
            link.bids.was_in_vain(&header.bid);
            if closed == Closed::Told {
                answers::bid_on_its_way().store(index as u32 + 1, Ordering::Relaxed);
            } else {
                forget_dead(index, channels);
            }
            return false;
        }
    };
    link.bids.was_taken();
    link.rotor = channel as u8;
    let page = link::page(link.base, channel);
    // It has been accepted, and may be over: there is no other way for it now.
    let Some(kept) = companion_cache::get(index, channel) else { return false };
    link.lend_ready(channel);
    attach::introduce(page, setting.socket);
    kept.set_nonblocking(setting.nonblocking);
    attach::settle(setting, link.base, index, channel);
    attach::replace(setting.fd, kept.descriptor(), setting.socket, channel, Reason::Accelerated);
    crate::options::connected(setting.socket, setting.fd, true);
    true
}

/// Idle pairs whose last connection had these addresses, one bit each: the one that was used last, and those after it.
fn choose(index: usize, source: &Address, server: &Address) -> u32 {
    let link = link::at(index);
    let mut channels = 0u32;
    for k in 0..CHANNELS {
        let channel = (link.rotor as usize + k) % CHANNELS;
        let Some(kept) = companion_cache::get(index, channel) else { continue };
        let fits = link.waiting(channel)
            && kept.server == *server
            && kept.client.ip == source.ip
            && !shared::is_shared(kept.client.port);
        if fits && link::reusable(link::page(link.base, channel), index, channel) {
            channels |= 1 << channel;
            if channels.count_ones() == MOST {
                break;
            }
        }
    }
    channels
}

/// Waits a moment for `done`, for so many ticks. `here`: for an acceptor that needs this processor.
fn soon(here: bool, ticks: u64, done: impl Fn() -> bool) -> bool {
    if here {
        yielding(YIELDS, done)
    } else {
        looking(ticks, done)
    }
}

/// The same, of one whose program was told.
pub(crate) fn soon_told(here: bool, done: impl Fn() -> bool) -> bool {
    if here {
        yielding(2 * YIELDS, done)
    } else {
        looking(clock::ticks_for_ns(TOLD_NS), done)
    }
}

fn yielding(times: usize, done: impl Fn() -> bool) -> bool {
    let mut before = clock::ticks();
    for _ in 0..times {
        if done() {
            return true;
        }
        calls::sched_yield();
        let after = clock::ticks();
        if after - before > LONG_YIELD {
            break; // it went to another thread
        }
        before = after;
    }
    done()
}

fn looking(ticks: u64, done: impl Fn() -> bool) -> bool {
    let until = clock::ticks() + ticks;
    loop {
        if done() {
            return true;
        }
        if clock::ticks() >= until {
            return false;
        }
        core::hint::spin_loop();
    }
}

/// No acceptor took any of these pairs: those of acceptors that have ended go, and the next bid names others.
#[cold]
fn forget_dead(index: usize, channels: u32) {
    let link = link::at(index);
    for channel in (0..CHANNELS).filter(|channel| channels & 1 << channel != 0) {
        let page = link::page(link.base, channel);
        let dead = companion_cache::get(index, channel).is_some_and(|kept| client::alive(kept.descriptor(), page, 0) != Ok(true));
        if dead && bid::withhold(&page.sides[1]) {
            companion_cache::forget(index, channel);
        }
        link.rotor = (channel + 1) as u8 % CHANNELS as u8;
    }
}
