//! Connections of a link: counted in, and what is done when one has ended.

use crate::channels::{released, return_port};
use crate::drop::{drop_link, drop_unless_awaited, sweep};
use crate::list::{header, links, page, Link};
use crate::{companion_cache, kept, narrow, window};
use core::sync::atomic::Ordering;
use shunt_segment::area::{ring_offset, FIRST_IN_WINDOW, RING_SIZE};
use shunt_sys::{calls, clock, libc, process};
use shunt_table::global;

/// Counts a connection of this process in or out of link `index`.
pub fn enter(index: usize) {
    if let Some(link) = links().all().get_mut(index) {
        link.live += 1;
    }
}

/// Takes back an [`enter`] of which no connection came.
pub fn let_go(index: usize) {
    let Some(link) = links().all().get_mut(index) else { return };
    link.live = link.live.saturating_sub(1);
    if link.live == 0 && link.inherited {
        drop_link(index);
    }
}

/// A connection of this process has ended. `peer_gone`: the other process vanished, so the link has no future. `kept`:
/// its companion may serve another connection. The channel can be lent again once both sides have released it.
pub fn leave(index: usize, channel: usize, peer_gone: bool, kept: bool) {
    let links = links();
    let Some(link) = links.all().get_mut(index) else { return };
    link.live = link.live.saturating_sub(1);
    if !kept {
        companion_cache::forget(index, channel);
    }
    if link.ours && !link.inherited {
        let page = page(link.base, channel);
        let over = released(page, 0) && (peer_gone || released(page, 1));
        if over {
            // Only we can lend the channel again, and not before this.
            trim(link.base, channel);
            window::trim(index, channel);
            kept::trim(link, channel);
        }
        let (word, bit) = (channel / 64, 1u64 << (channel % 64));
        if over && !kept {
            link.used[word] &= !bit;
            return_port(link, channel);
        } else {
            link.waiting[word] |= bit;
        }
    }
    if link.fd < 0 && link.live > 0 {
        narrow::closed(index, channel);
    }
    let idle = link.live == 0;
    let forsaken = link.ours && !link.inherited && link.is_retired();
    let dead = idle && (peer_gone || link.left || forsaken || (!link.ours && (!kept || link.bell < 0) && client_ended(link)));
    if idle && link.inherited {
        drop_link(index);
    } else if dead {
        drop_unless_awaited(index);
    }
    if !kept {
        sweep(Some(index));
    }
}

/// How often the kernel is asked whether a client lives, in ticks (some 10 ms): it takes three system calls, a fifth of what a
/// server pays for a connection through the rendezvous.
const ASK_EVERY: u64 = 25_000_000;

/// Whether the client of an idle link has ended: nothing would look at the link again before another client comes. It says
/// so itself when it ends in good order; of one that was killed right after it had closed its last connection, and within
/// [`ASK_EVERY`] of an earlier one, the next client's [`sweep`] will tell.
fn client_ended(link: &mut Link) -> bool {
    let now = clock::ticks() | 1;
    let said = header(link.base).client.ending.load(Ordering::Acquire) != 0;
    if link.other.0 == 0 || (!said && link.asked != 0 && now.wrapping_sub(link.asked) < ASK_EVERY) {
        return said;
    }
    link.asked = now;
    said || process::has_ended(link.other.0)
}

/// This process ends, in good order: its servers keep its links no longer than its connections. Said before the
/// connections' own ends, which make servers look.
pub fn ending() {
    let Some(_setup) = global::SETUP.try_lock() else { return };
    for link in links().all() {
        if !link.base.is_null() && link.ours && !link.inherited {
            header(link.base).client.ending.store(1, Ordering::Release);
        }
    }
}

/// The server is about to release a channel: if its client has done so already, the memory goes now, because afterwards
/// the client may lend the channel again. The caller holds the socket's locks, so this one is not waited for.
pub fn about_to_release(index: usize, base: *mut u8, channel: usize, side: usize) {
    if side == 1 && released(page(base, channel), 0) {
        if let Some(_setup) = global::SETUP.try_lock() {
            trim(base, channel);
            window::trim(index, channel);
            if let Some(link) = links().all().get(index) {
                kept::trim(link, channel);
            }
        }
    }
}

/// Gives the memory of large rings back; small ones stay warm for the next connection.
fn trim(base: *mut u8, channel: usize) {
    for side in 0..2 {
        let word = page(base, channel).sides[side].post.word.load(Ordering::Relaxed);
        let class = (word >> shunt_segment::channel::word::CLASS_SHIFT) as usize & 7;
        if class >= FIRST_IN_WINDOW {
            let largest = FIRST_IN_WINDOW - 1;
            // SAFETY: the ring lies in the link; a peer that still reads it sees zeros: its connection is over.
            let ring = unsafe { base.add(ring_offset(channel, side, largest)) };
            let _ = calls::madvise(ring, RING_SIZE[largest] as usize, libc::MADV_REMOVE);
        }
    }
}
