//! What a process that has become another user keeps of a link: the channels in which it has connections.
//!
//! Everything else that it has mapped of the link becomes memory of its own: the channels of others, and the header, of
//! which it keeps a copy. The memfd, with which all could be mapped again, is closed. Its own channels it can write
//! for as long as it likes, also what says that they are free, so the link is *retired* before: the process that lends the channels lends none
//! of them again, and makes another link. (Of a station's links, which are few, the channels are retired that this process keeps.)

use crate::bell::end_offers;
use crate::channels::return_port;
use crate::drop::drop_link;
use crate::list::{at, count, end_sole, header, Link, LINKS};
use crate::users::users;
use crate::{companion_cache, window};
use core::sync::atomic::Ordering;
use shunt_segment::area::{BASE_SIZE, PAGE, SHARES};
use shunt_segment::CHANNELS;
use shunt_sys::{calls, mapping, Result};
use shunt_table::private;

/// This process has become another user. Under the set-up lock.
pub fn narrow() {
    for index in 0..count() {
        let link = *at(index);
        if link.base.is_null() || link.fd < 0 || link.lasting {
            continue;
        }
        if link.live == 0 {
            drop_link(index);
        } else {
            narrow_to(index, own_channels(&link) | users().map_or(0, |users| (users.deferred)(index)));
        }
    }
}

/// The station of link `index` is not this process's any more, so [`narrow`] is for it, too.
pub fn no_longer_lasting(index: usize) {
    at(index).lasting = false;
}

/// The channels in which this process has connections, one bit each.
fn own_channels(link: &Link) -> u64 {
    users().map_or(0, |users| (users.connections)(link.base))
}

fn narrow_to(index: usize, channels: u64) {
    let link = *at(index);
    let head = header(link.base);
    if link.is_of_a_station() {
        head.retired.fetch_or(channels as u32, Ordering::SeqCst);
    } else {
        head.retired.store(1, Ordering::SeqCst);
    }
    if !link.ours && head.server.pid.load(Ordering::Relaxed) == calls::getpid() {
        end_sole(&link);
    }
    end_offers(index);
    companion_cache::forget_all(index);
    for channel in (0..CHANNELS).filter(|channel| channels & 1 << channel == 0) {
        return_port(at(index), channel);
    }
    window::keep(index, channels);
    // Where memory is locked, what takes its place would count as locked, too, and there may be no room.
    let _ = calls::munlock(link.base, BASE_SIZE);
    if own_header(&link).is_err() {
        give_up(&link);
    }
    let mut from = 0;
    while from < CHANNELS {
        let count = (channels >> from).trailing_zeros().min((CHANNELS - from) as u32) as usize;
        blank_channels(&link, from, count);
        from += count + 1;
    }
    private::close(link.fd);
    let link = at(index);
    (link.fd, link.nonce, link.sequence, link.inherited) = (-1, 0, 0, true);
}

/// A connection in a link that was narrowed has ended, others have not: its channel is no longer this process's to see.
pub(super) fn closed(index: usize, channel: usize) {
    let link = *at(index);
    // Both ends may be here, or a call in another thread.
    if own_channels(&link) & 1 << channel == 0 {
        companion_cache::forget(index, channel);
        window::forget(index, channel);
        blank_channels(&link, channel, 1);
    }
}

fn blank_channels(link: &Link, first: usize, count: usize) {
    for (start, share) in SHARES {
        blank(link.base.wrapping_add(start + first * share), count * share);
    }
}

/// The header becomes a private copy.
///
/// Errors: ENOMEM, EAGAIN where nothing can be mapped; then it still is what all share.
fn own_header(link: &Link) -> Result<()> {
    let (shared, spare) = (link.base.cast::<u64>(), LINKS.spare.get().cast::<u64>());
    for place in 0..PAGE / 8 {
        // SAFETY: the first page of a link, which others may be writing; the spare page is this function's, under the set-up lock.
        unsafe { spare.add(place).write_volatile(shared.add(place).read_volatile()) };
    }
    // A page that is moved needs no room. Another, of zeros, stays in its place.
    // SAFETY: readers of the header find the copy.
    if unsafe { mapping::move_over(spare.cast(), link.base, PAGE) }.is_ok() {
        return Ok(());
    }
    // SAFETY: as above; what the file has is the copy, until it is written.
    unsafe { mapping::private_over(link.base, link.fd, PAGE)? };
    for place in 0..PAGE / 8 {
        // SAFETY: private by now.
        unsafe { shared.add(place).write_volatile(spare.add(place).read_volatile()) };
    }
    Ok(())
}

/// The header cannot be replaced: connections of the link end, rather than that all of it stays shared.
#[cold]
fn give_up(link: &Link) {
    if let Some(users) = users() {
        (users.shut)(link.base);
    }
    blank(link.base, BASE_SIZE);
}

fn blank(start: *mut u8, size: usize) {
    if size > 0 {
        // Rather a fault in a late reader than bytes of others.
        // SAFETY: part of a link in which no connection of ours lies; late readers of closed ones accept zeros.
        unsafe { mapping::blank_at_any_price(start, size) };
    }
}

/// A channel has a bit, in the header, too.
const _: () = assert!(CHANNELS <= 32);
