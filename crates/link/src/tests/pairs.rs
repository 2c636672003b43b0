//! Companions that are kept for the next connection of their channel.

use super::*;
use crate::companion_cache::{forget, forget_all, get, keep, moved};
use shunt_segment::address::Address;

fn addresses() -> (Address, Address) {
    (Address::v4([127, 0, 0, 1], 1), Address::v4([127, 0, 0, 1], 2))
}

#[test]
fn a_companion_lives_on_as_a_private_duplicate_until_it_is_forgotten() {
    let mut room = Room::enter();
    let offer = room.offer(0x7fff_4001);
    let [near, far] = pair();
    assert!(keep(offer.index, offer.channel, near, true, addresses()));
    calls::close(near).unwrap();
    let kept = get(offer.index, offer.channel).unwrap();
    assert_eq!(shunt_table::table::get(kept.descriptor()).kind(), shunt_table::table::Kind::Private);
    assert_eq!(((kept.client, kept.server), kept.nonblocking), (addresses(), true));
    let hung_up = || calls::poll_one(far, 0, 0).unwrap() & libc::POLLHUP != 0;
    assert!(!hung_up(), "the peer hears nothing of the close");
    forget(offer.index, offer.channel);
    assert!(hung_up() && get(offer.index, offer.channel).is_none());
    calls::close(far).unwrap();
}

#[test]
fn a_channel_keeps_one_companion() {
    let mut room = Room::enter();
    let offer = room.offer(0x7fff_4002);
    let (one, other) = (pair(), pair());
    assert!(keep(offer.index, offer.channel, one[0], false, addresses()));
    let first = get(offer.index, offer.channel).unwrap().descriptor();
    assert!(keep(offer.index, offer.channel, other[0], true, addresses()), "one is kept already");
    assert_eq!(get(offer.index, offer.channel).unwrap().descriptor(), first);
    one.into_iter().chain(other).for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn the_open_file_gets_the_flag_that_the_next_connection_wants() {
    let mut room = Room::enter();
    let offer = room.offer(0x7fff_4003);
    let ends = pair();
    keep(offer.index, offer.channel, ends[0], false, addresses());
    let kept = get(offer.index, offer.channel).unwrap();
    for wanted in [true, true, false] {
        kept.set_nonblocking(wanted);
        let flags = calls::fcntl(ends[0], libc::F_GETFL, 0).unwrap();
        assert_eq!((flags & libc::O_NONBLOCK != 0, kept.nonblocking), (wanted, wanted));
    }
    ends.into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn a_companion_that_moves_is_found_under_its_new_number() {
    let mut room = Room::enter();
    let offer = room.offer(0x7fff_4004);
    let ends = pair();
    keep(offer.index, offer.channel, ends[0], false, addresses());
    let old = get(offer.index, offer.channel).unwrap().descriptor();
    let new = shunt_table::private::evacuate(old).unwrap();
    moved(old, new);
    assert_eq!(get(offer.index, offer.channel).unwrap().descriptor(), new);
    shunt_table::private::close(old);
    forget_all(offer.index);
    assert!(!is_open(new) && get(offer.index, offer.channel).is_none());
    ends.into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn a_pair_of_both_sides_is_reusable_and_goes_last() {
    use shunt_segment::channel::release;
    use shunt_segment::CHANNELS;
    let mut room = Room::enter();
    let offers: Vec<_> = (0..CHANNELS).map(|_| room.offer(0x7fff_4005)).collect();
    let ends = pair();
    let offer = &offers[3];
    let sides = &page(offer.link.base, 3).sides;
    keep(offer.index, 3, ends[0], false, addresses());
    sides[0].released.store(release::KEPT, Ordering::Relaxed);
    crate::leave(offer.index, 3, false, true);
    assert!(!crate::reusable(page(offer.link.base, 3), offer.index, 3), "the server has not closed");
    sides[1].released.store(release::KEPT, Ordering::Relaxed);
    assert!(crate::reusable(page(offer.link.base, 3), offer.index, 3));
    let next = room.offer(0x7fff_4005);
    assert_eq!((next.index, next.channel), (offer.index, 3), "where no other channel is left it gives way");
    assert!(get(offer.index, 3).is_none());
    ends.into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn a_link_that_goes_closes_what_it_kept() {
    let mut room = Room::enter();
    let offer = room.offer(0x7fff_4006);
    let ends = pair();
    keep(offer.index, offer.channel, ends[0], false, addresses());
    let kept = get(offer.index, offer.channel).unwrap().descriptor();
    drop_link(offer.index);
    assert!(!is_open(kept));
    ends.into_iter().for_each(|fd| calls::close(fd).unwrap());
}
