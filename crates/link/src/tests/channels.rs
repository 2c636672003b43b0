//! Channels: each is one connection's until both sides have released it.

use super::*;
use crate::{forked, lends, lent_pages, namespace_changed};
use shunt_segment::channel::release;
use shunt_segment::CHANNELS;

/// The client closes; the server has closed before, if it has.
fn close(offer: &Offer, server_too: bool) {
    let sides = &page(offer.link.base, offer.channel).sides;
    sides[0].released.store(release::CLOSED, Ordering::Relaxed);
    if server_too {
        sides[1].released.store(release::CLOSED, Ordering::Relaxed);
    }
    crate::leave(offer.index, offer.channel, false, false);
}

#[test]
fn a_link_lends_each_channel_once_and_then_another_link_is_made() {
    let mut room = Room::enter();
    let offers: Vec<_> = (0..CHANNELS).map(|_| room.offer(0x7fff_1001)).collect();
    let channels: HashSet<_> = offers.iter().map(|offer| offer.channel).collect();
    assert_eq!(channels.len(), CHANNELS);
    assert!(offers.iter().all(|offer| offer.index == offers[0].index));
    assert_ne!(room.offer(0x7fff_1001).index, offers[0].index);
}

#[test]
fn two_listeners_never_share_a_link() {
    let mut room = Room::enter();
    let [one, other] = [0x7fff_1002, 0x7fff_1002 + 256].map(|listener| room.offer(listener)); // of one list
    assert_ne!(one.index, other.index);
    assert_eq!(room.offer(0x7fff_1002).index, one.index);
}

#[test]
fn a_channel_is_lent_again_once_both_sides_have_released_it() {
    let mut room = Room::enter();
    let offers: Vec<_> = (0..CHANNELS).map(|_| room.offer(0x7fff_1003)).collect();
    close(&offers[5], true);
    let again = room.offer(0x7fff_1003);
    assert_eq!((again.index, again.channel), (offers[5].index, 5));
}

#[test]
fn a_channel_that_its_server_still_has_is_not_lent() {
    let mut room = Room::enter();
    let offers: Vec<_> = (0..CHANNELS).map(|_| room.offer(0x7fff_1004)).collect();
    close(&offers[5], false);
    assert_ne!(room.offer(0x7fff_1004).index, offers[5].index);
    page(offers[5].link.base, 5).sides[1].released.store(release::CLOSED, Ordering::Relaxed);
    assert_eq!(room.offer(0x7fff_1004).index, offers[5].index, "the server has let go meanwhile");
}

#[test]
fn a_channel_begins_with_nothing_of_its_last_connection() {
    let mut room = Room::enter();
    let first = room.offer(0x7fff_1005);
    let head = &page(first.link.base, first.channel).head;
    let generation = head.generation.load(Ordering::Relaxed);
    for side in &page(first.link.base, first.channel).sides {
        side.post.word.store(u64::MAX, Ordering::Relaxed);
        side.receive.state.store(u32::MAX, Ordering::Relaxed);
        side.owners.store(7, Ordering::Relaxed);
        side.family[0].store(1, Ordering::Relaxed);
    }
    close(&first, true);
    let again = room.offer(0x7fff_1005);
    assert_eq!((again.index, again.channel), (first.index, first.channel));
    for side in &page(again.link.base, again.channel).sides {
        assert_eq!(side.post.word.load(Ordering::Relaxed), 0);
        assert_eq!(side.receive.state.load(Ordering::Relaxed), 0);
        assert_eq!(side.family[0].load(Ordering::Relaxed), 0);
        assert_eq!(side.released.load(Ordering::Relaxed), release::NOT);
    }
    assert_ne!(head.generation.load(Ordering::Relaxed), generation, "a late accept of the last offer finds another");
}

#[test]
fn a_link_that_its_server_retired_lends_no_more() {
    let mut room = Room::enter();
    let first = room.offer(0x7fff_1006);
    header(first.link.base).retired.store(1, Ordering::Relaxed);
    assert_ne!(room.offer(0x7fff_1006).index, first.index);
}

#[test]
fn a_link_of_another_effective_user_lends_nothing() {
    let mut room = Room::enter();
    let first = room.offer(0x7fff_1007);
    at(first.index).user ^= 1;
    assert_ne!(room.offer(0x7fff_1007).index, first.index);
}

#[test]
fn a_child_lends_no_channel_of_its_parent_s_links() {
    let mut room = Room::enter();
    let first = room.offer(0x7fff_1008);
    forked();
    assert_ne!(room.offer(0x7fff_1008).index, first.index);
    assert!(at(first.index).inherited && at(first.index).bell < 0);
}

#[test]
fn links_of_a_network_that_was_left_lend_no_channel_and_keep_their_connections() {
    let mut room = Room::enter();
    let first = room.offer(0x7fff_1009);
    namespace_changed();
    assert_ne!(room.offer(0x7fff_1009).index, first.index);
    assert_eq!(at(first.index).live, 1);
    assert_eq!(header(first.link.base).client.ending.load(Ordering::Relaxed), 0);
}

#[test]
fn an_inherited_link_goes_with_its_last_connection() {
    let mut room = Room::enter();
    let offers = [room.offer(0x7fff_100a), room.offer(0x7fff_100a)];
    forked();
    close(&offers[0], false);
    assert!(!at(offers[0].index).base.is_null());
    close(&offers[1], false);
    assert!(at(offers[0].index).base.is_null());
}

#[test]
fn connections_are_told_until_they_are_over_at_both_ends() {
    let mut room = Room::enter();
    let offer = room.offer(0x7fff_100b);
    let is_told = || lent_pages().any(|told| core::ptr::eq(told, page(offer.link.base, offer.channel)));
    let Offer { link: crate::Link { nonce, sequence, .. }, .. } = offer;
    assert!(is_told() && lends(nonce, sequence) && !lends(nonce ^ 1, sequence));
    close(&offer, false);
    assert!(is_told(), "its server may have it yet");
    page(offer.link.base, offer.channel).sides[1].released.store(release::CLOSED, Ordering::Relaxed);
    assert!(!is_told());
}

#[test]
fn a_link_that_goes_tells_its_server_and_the_room_above() {
    let mut room = Room::enter();
    let offer = room.offer(0x7fff_100c);
    let copy = calls::fcntl(offer.link.fd, libc::F_DUPFD_CLOEXEC, 0).unwrap();
    let mapped = crate::list::links().try_map(copy).unwrap();
    drop_link(offer.index);
    assert_eq!(header(mapped).client.ending.load(Ordering::Relaxed), 1);
    assert_eq!(upcalls::OFFERS_END.load(Ordering::Relaxed), offer.index);
    assert!(![offer.link.fd, offer.link.bell, offer.link.bell_for_server].into_iter().any(is_open));
    assert_eq!(header(offer.link.base).magic.load(Ordering::Relaxed), 0, "a late reader finds zeros, and no fault");
    crate::list::links().unmap(mapped);
    calls::close(copy).unwrap();
}

#[test]
fn connections_in_memory_have_one_link_with_a_bell() {
    let mut room = Room::enter();
    let offers: Vec<_> = (0..=CHANNELS).map(|_| room.offer(0x7fff_100d)).collect();
    let [first, last] = [offers[0].index, offers[CHANNELS].index];
    assert!(at(first).bell >= 0 && at(last).bell < 0);
    assert_eq!(crate::for_offers(0x7fff_100d), Some(first));
    crate::end_offers(first);
    assert_eq!(crate::for_offers(0x7fff_100d), None);
}

#[test]
fn a_bell_s_other_end_goes_when_the_server_has_it() {
    let mut room = Room::enter();
    let offer = room.offer(0x7fff_100e);
    let [own, server] = [offer.link.bell, offer.link.bell_for_server];
    assert!(is_open(own) && is_open(server));
    crate::bell_known(offer.index);
    assert!(is_open(own) && !is_open(server));
}

#[test]
fn a_segment_can_neither_shrink_nor_lose_that_promise() {
    let mut room = Room::enter();
    let fd = room.offer(0x7fff_100f).link.fd;
    assert_eq!(calls::ftruncate(fd, 0), Err(shunt_sys::Errno(libc::EPERM)));
    assert!(calls::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_WRITE as usize).is_err());
    assert!(crate::is_segment(fd));
}
