//! Connecting again: a channel and a companion that an earlier connection to the same listener left serve the next one.
//!
//! Nothing is asked of the kernel but whether the companion's other end still lives (a server that was killed refuses) and
//! whether anything lies on either that was written past the library ([`bypass::is_left`]), and the descriptor of the
//! program's socket becomes a duplicate of the kept one. The server finds the offer in the link's queue, see
//! [`crate::reconnect::server`].

use crate::attach;
use crate::attach::Setting;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_link::ports::shared;
use shunt_ring::offers::{self, Offered};
use shunt_segment::address::Address;
use shunt_segment::channel::{life, release, ChannelPage};
use shunt_segment::link::LinkHeader;
use shunt_segment::reason::Reason;
use shunt_segment::CHANNELS;
use shunt_stream::waiting::bypass;
use shunt_sys::{calls, libc, Result};

/// Tries to connect from an address `source` (its port does not count) to `server`, where `listener` listens. True: done.
/// Called under the set-up lock.
pub fn connect(setting: &Setting, source: &Address, server: &Address, listener: u32) -> bool {
    let Some(index) = link::for_offers(listener) else { return false };
    let base = link::at(index).base;
    let header = link::header(base);
    if header.sole.load(Ordering::Acquire) == 1 {
        link::bell_known(index);
    }
    let Some(channel) = find(index, header, source, server) else { return false };
    let Some(kept) = companion_cache::get(index, channel) else { return false };
    let page = link::page(base, channel);
    // The server may want its descriptor for another pair: the side that takes this word first has the pair.
    let taken = page.sides[1].released.compare_exchange(release::KEPT, release::NOT, Ordering::AcqRel, Ordering::Relaxed);
    if taken.is_err() {
        return false;
    }
    if !link::at(index).count() || link::for_offers(listener) != Some(index) {
        // Closed, or retired at this moment, and the process that said that the pair is free may be another user's. No side has
        // it any more.
        close(page);
        return false;
    }
    link::at(index).lend_again(channel);
    attach::describe(page, &kept.client, server);
    attach::introduce(page, setting.socket);
    kept.set_nonblocking(setting.nonblocking);
    page.head.state.store(life::OFFERED, Ordering::Release);
    let offered = offers::publish(&header.offers, channel);
    if offered == Offered::Closed {
        // The listener goes at this moment. What it has not taken is taken back.
        if shunt_ring::claim::take_back(&page.head) {
            close(page);
            link::at(index).withdraw(channel);
            return false;
        }
    }
    attach::settle(setting, base, index, channel);
    attach::replace(setting.fd, kept.descriptor(), setting.socket, channel, Reason::Accelerated);
    crate::options::connected(setting.socket, setting.fd, true);
    if offered == Offered::Ring && calls::send_byte(link::at(index).bell, 1, 0).is_err() {
        offers::rang_nothing(&header.offers);
    }
    true
}

/// The channel is both ends' no more, and its pair serves no other connection.
fn close(page: &ChannelPage) {
    for side in &page.sides {
        side.released.store(release::CLOSED, Ordering::Release);
    }
}

/// Pairs that a client has before it rather waits a moment for one than makes another through the kernel.
const ENOUGH: usize = 8;
/// How often it then offers its processor, on which the server may have to run.
const YIELDS: usize = 4;
/// Pairs that the server still holds which are looked at before the rest is believed to be the same.
const MISSES: usize = 3;

/// What the pairs of a link are good for now.
enum Choice {
    Found(usize),
    /// So many are at the server.
    Busy(usize),
}

fn find(index: usize, header: &LinkHeader, source: &Address, server: &Address) -> Option<usize> {
    for _ in 0..=YIELDS {
        if header.sole.load(Ordering::Acquire) != 1 || header.offers.taken.backlog.load(Ordering::Acquire) == 0 {
            return None;
        }
        let busy = match choose(index, source, server) {
            Choice::Found(channel) if offers::open(&header.offers) => return Some(channel),
            Choice::Found(_) => ENOUGH,
            Choice::Busy(count) => count,
        };
        if busy < ENOUGH {
            return None;
        }
        calls::sched_yield();
    }
    None
}

/// A channel whose last connection had these addresses, and whose other end lives: the one that was used last, whose
/// lines are warm, or those after it.
fn choose(index: usize, source: &Address, server: &Address) -> Choice {
    let link = link::at(index);
    let (mut busy, mut misses) = (0, 0);
    let first = link.rotor as usize;
    for k in 0..CHANNELS {
        let channel = (first + k) % CHANNELS;
        let Some(kept) = companion_cache::get(index, channel) else { continue };
        if !link.waiting(channel) || kept.server != *server || kept.client.ip != source.ip || shared::is_shared(kept.client.port)
        {
            continue;
        }
        busy += 1;
        if misses < MISSES {
            if !link::reusable(link::page(link.base, channel), index, channel) {
                misses += 1;
                if misses == MISSES {
                    // These may never be: a killed process had them, too, or the server closes late. The next look begins behind
                    // them.
                    link.rotor = ((channel + 1) % CHANNELS) as u8;
                }
            } else if alive(kept.descriptor(), link::page(link.base, channel), 0) == Ok(true) {
                link.rotor = channel as u8;
                return Choice::Found(channel);
            } else {
                companion_cache::forget(index, channel);
            }
        }
    }
    Choice::Busy(busy)
}

/// Whether the other end of `side`'s companion lives, and nothing lies on either that the next connection would be reset for.
pub fn alive(companion: i32, page: &ChannelPage, side: usize) -> Result<bool> {
    let events = calls::poll_one(companion, libc::POLLIN, 0)?;
    let gone = events & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
    Ok(!gone && !bypass::is_left(page, side, companion, events != 0))
}
