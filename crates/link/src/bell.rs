//! The bell of a link: a socket pair that says that connections were made in memory, or that the other process is gone.

use super::drop::drop_unless_awaited;
use super::users::users;
use super::{at, count, header, links, page};
use crate::kept;
use core::sync::atomic::Ordering;
use shunt_ring::offers;
use shunt_segment::channel::release;
use shunt_segment::CHANNELS;
use shunt_table::private;
use shunt_table::process::user;

/// The index of the link through which connections to `listener` are made in memory.
pub fn for_offers(listener: u32) -> Option<usize> {
    let user = user::effective();
    links().listed(listener).find(|index| at(*index).lends_to(listener) && at(*index).bell >= 0 && at(*index).user == user)
}

/// The bell of link `index` goes, and with it connections made in memory.
pub fn end_offers(index: usize) {
    if let Some(users) = users() {
        (users.offers_end)(index);
    }
    let link = at(index);
    if !link.ours && !link.inherited {
        offers::set_backlog(&header(link.base).offers, 0);
    }
    private::close(core::mem::replace(&mut link.bell, -1));
    private::close(core::mem::replace(&mut link.bell_for_server, -1));
}

/// Nobody holds the other end of the bell any more: the client is gone, or wants the link no longer. If the last of its
/// connections was kept for another one, nothing else would say so before the next client comes. (Its number would not:
/// one that nobody has waited for still exists.)
pub fn client_left(index: usize) {
    end_offers(index);
    at(index).left = true;
    let link = *at(index);
    if !link.base.is_null() && !link.ours && link.live == 0 {
        drop_unless_awaited(index);
    }
}

/// Who accepts has the bell's other end. Until the link's header says so (`sole`) it is sent with each connection: several
/// processes accept, and one of them may be left alone.
pub fn bell_known(index: usize) {
    private::close(core::mem::replace(&mut at(index).bell_for_server, -1));
}

/// Room for another pair: those of links that no connection uses now go. A client may be about to offer one, or its offer
/// may wait: such a pair is the one whose side here is not released. Whoever changes that word first has the pair.
pub fn forget_idle_pairs() {
    for index in 0..count() {
        let link = at(index);
        if link.base.is_null() || link.live > 0 {
            continue;
        }
        for channel in (0..CHANNELS).filter(|&channel| kept::get(index, channel).is_some()) {
            let released = &page(link.base, channel).sides[1].released;
            let close = || released.compare_exchange(release::KEPT, release::CLOSED, Ordering::AcqRel, Ordering::Acquire);
            if link.ours || close() != Err(release::NOT) {
                kept::forget(index, channel);
            }
        }
    }
}
