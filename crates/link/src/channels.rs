//! Channels of links: whether one is lent, waits for its server or serves the next connection, and the port that it has.

use crate::list::{links, page, Link};
use crate::{companion_cache, ports};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{release, ChannelPage};
use shunt_segment::CHANNELS;

/// Makes a channel ready for the next connection on the same companion.
pub fn clear_for_next(page: &ChannelPage) {
    for side in &page.sides {
        side.clear_for_next();
    }
    for settings in &page.settings {
        settings.clear();
    }
    shunt_ring::cut::clear(&page.head);
    page.head.generation.fetch_add(1, Ordering::Relaxed);
}

/// Whether both ends of the last connection on a channel kept their companions.
pub fn reusable(page: &ChannelPage, index: usize, channel: usize) -> bool {
    page.sides.iter().all(|side| side.released.load(Ordering::Acquire) == release::KEPT)
        && companion_cache::get(index, channel).is_some()
}

impl Link {
    /// Whether we have closed the channel's last connection.
    pub fn waiting(&self, channel: usize) -> bool {
        self.waiting[channel / 64] & 1 << (channel % 64) != 0
    }

    /// A connection made in memory begins on a channel that was kept.
    pub fn lend_again(&mut self, channel: usize) {
        self.lend_ready(channel);
        clear_for_next(page(self.base, channel));
    }

    /// The same on a channel that an acceptor has made ready.
    pub fn lend_ready(&mut self, channel: usize) {
        self.waiting[channel / 64] &= !(1 << (channel % 64));
    }

    /// The connection did not come about.
    pub fn withdraw(&mut self, channel: usize) {
        self.waiting[channel / 64] |= 1 << (channel % 64);
    }
}

/// The connection that had the port is over at both ends.
pub(crate) fn return_port(link: &mut Link, channel: usize) {
    let port = core::mem::take(&mut link.ports[channel]);
    if port != 0 && !link.inherited {
        ports::give_back(port);
    }
}

/// Notes the reserved port of a connection, and the listening process (from SO_PEERCRED).
pub fn note(index: usize, channel: usize, port: u16, listener: u32) {
    if let Some(link) = links().all().get_mut(index) {
        link.ports[channel] = port;
        link.other.0 = listener;
    }
}

/// The channels of connections that this process made, and that are not over at both ends.
pub fn lent_pages() -> impl Iterator<Item = &'static ChannelPage> {
    let ours = links().all().iter().filter(|link| !link.base.is_null() && link.ours && !link.inherited);
    ours.flat_map(|link| {
        let used = move |channel: &usize| link.used[channel / 64] & 1 << (channel % 64) != 0;
        (0..CHANNELS).filter(used).map(|channel| page(link.base, channel))
    })
    .filter(|page| !(released(page, 0) && released(page, 1)))
}

/// Whether the link of this name is one of which [`lent_pages`] tells.
pub fn lends(nonce: u64, sequence: u32) -> bool {
    let named = |link: &Link| !link.base.is_null() && link.nonce == nonce && link.sequence == sequence;
    links().all().iter().any(|link| named(link) && link.ours && !link.inherited)
}

/// Whether the last owner of `side` has let go.
pub(crate) fn released(page: &ChannelPage, side: usize) -> bool {
    page.sides[side].released.load(Ordering::Acquire) != release::NOT
}
