//! Links that are not needed any more: when they may go, and how.

use crate::bell::end_offers;
use crate::channels::return_port;
use crate::list::{at, count, header, links, Link, LINKS};
use crate::{companion_cache, fd_reserve, retired, window};
use core::sync::atomic::Ordering;
use shunt_ring::offers;
use shunt_segment::area::BASE_SIZE;
use shunt_segment::CHANNELS;
use shunt_sys::{calls, libc, mapping, Errno};
use shunt_table::{global, private};

/// Idle links of ours that wait for another connection to their listener. Whether that listener still exists only its
/// process could tell, in memory that it can write, so what bounds their number is this.
const IDLE_MOST: usize = 8;

/// Whether the client may have left connections that still wait to be accepted: its bytes are in them, although it has
/// gone. The kernel's queue knows; the link's own words are the client's to write.
pub(super) fn awaited(link: &Link) -> bool {
    !link.ours
        && ((link.bell >= 0 && offers::waiting(&header(link.base).offers) > 0)
            || calls::poll_one(link.rendezvous, libc::POLLIN, 0).is_ok_and(|events| events & libc::POLLIN != 0))
}

pub(super) fn drop_link(index: usize) {
    let links = links();
    if links.all()[index].lasting || links.all()[index].base.is_null() {
        return;
    }
    for channel in 0..CHANNELS {
        return_port(&mut links.all()[index], channel);
    }
    let link = links.all()[index];
    if !link.ours {
        // Should the client live, it must send the link again with its next connection.
        header(link.base).sole.store(0, Ordering::Release);
    } else if !link.inherited {
        // Servers that have no bell of it would keep it for as long as we live.
        header(link.base).client.ending.store(1, Ordering::Release);
        retired::note(index);
    }
    companion_cache::forget_all(index);
    end_offers(index);
    let links = crate::list::links();
    links.forget(index);
    links.unmap(link.base);
    window::drop_link(index);
    private::close(link.fd);
    fd_reserve::fill();
}

/// Drops a link of a station that was never used.
pub fn drop_lasting(index: usize) {
    at(index).lasting = false;
    drop_link(index);
}

/// Drops a link of a station that this process has left, in which it has no connection. The range serves no other one: a thread that is
/// late may write there.
pub fn part_with(index: usize) {
    let link = *at(index);
    links().forget(index);
    // SAFETY: no connection of ours uses the range any more; late readers accept zeros.
    unsafe { mapping::blank_at_any_price(link.base, BASE_SIZE) };
    window::drop_link(index);
    private::close(link.fd);
}

pub(super) fn drop_unless_awaited(index: usize) {
    if awaited(at(index)) {
        at(index).left = true;
        LINKS.drop_owed.store(true, Ordering::Release);
    } else {
        drop_link(index);
    }
}

/// The other end of the bell is closed in every process: the client is gone, or wants the link no longer. If the last of its
/// connections was kept for another one, nothing else would say so before the next client comes. (Its number would not:
/// that of a process that has not been waited for still exists.)
pub fn client_left(index: usize) {
    end_offers(index);
    at(index).left = true;
    let link = *at(index);
    if !link.base.is_null() && !link.ours && link.live == 0 {
        drop_unless_awaited(index);
    }
}

/// Nothing waits to be accepted at this moment: links that were kept because something might go now.
pub fn drop_owed() {
    if LINKS.drop_owed.load(Ordering::Relaxed) && LINKS.drop_owed.swap(false, Ordering::AcqRel) {
        let Some(_setup) = global::SETUP.lock() else { return };
        for index in 0..count() {
            let link = at(index);
            if !link.base.is_null() && link.left && link.live == 0 {
                drop_unless_awaited(index);
            }
        }
    }
}

/// Drops links that were taken up and turned out to carry nothing.
pub fn drop_unused() {
    for index in 0..links().count {
        let link = links().all()[index];
        if !link.base.is_null() && link.inherited && link.live == 0 {
            drop_link(index);
        }
    }
}

/// Looks at a few idle links: those whose other process is gone are dropped, and those that are not lent any more. Cheap
/// enough for each accept. What is known of link `but` was looked at just now.
pub fn sweep(but: Option<usize>) {
    let links = links();
    for _ in 0..links.count.min(2) {
        links.sweep = (links.sweep + 1) % links.count;
        let index = links.sweep;
        let link = links.all()[index];
        if link.base.is_null() || link.live > 0 || but == Some(index) {
            continue;
        }
        let given_up = match link.ours {
            true => !link.inherited && link.is_retired(),
            false => !link.lasting && header(link.base).client.ending.load(Ordering::Acquire) != 0,
        };
        let gone = || link.other.0 != 0 && calls::kill(link.other.0 as i32, 0) == Err(Errno(libc::ESRCH));
        if (given_up || gone()) && !awaited(&link) {
            drop_link(index);
        }
    }
}

/// Makes room for a link of ours when many are idle: a retired one before others, one without a bell before those by which
/// connections are made in memory. Numbers grow, so the smallest is the oldest.
pub(super) fn drop_oldest_idle() {
    let idle = |link: &Link| !link.base.is_null() && link.ours && !link.inherited && link.live == 0;
    let links = links();
    if links.all().iter().filter(|link| idle(link)).count() < IDLE_MOST {
        return;
    }
    let all = links.all().iter().enumerate().filter(|(_, link)| idle(link));
    if let Some(index) = all.min_by_key(|(_, link)| (!link.is_retired(), link.bell >= 0, link.sequence)).map(|(index, _)| index) {
        drop_link(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::for_offers;
    use crate::make::make;

    #[test]
    fn no_listener_is_left_with_a_link_that_has_no_bell() {
        let _setup = global::SETUP.lock().unwrap();
        shunt_table::process::user::is_now(calls::geteuid());
        let listener = 0x7fff_0100;
        let with_bell = make(listener).unwrap();
        let without = make(listener).unwrap();
        assert!(at(with_bell).bell >= 0 && at(without).bell < 0);
        let others: Vec<usize> = (1..IDLE_MOST as u32).map(|number| make(listener + number).unwrap()).collect();
        assert_eq!(for_offers(listener), Some(with_bell));
        for index in others.into_iter().chain([with_bell]) {
            drop_link(index);
        }
    }
}
