//! Links between processes in different network namespaces. They lead from one process to one other, which names itself by a number, and no word in them
//! makes a connection: each is agreed on beside the link. All functions are called under the set-up lock.

use crate::adopt::adopt;
use crate::channels::reusable;
use crate::companion_cache;
use crate::drop::drop_link;
use crate::leave::{enter, let_go};
use crate::lend::{try_offer, Offer};
use crate::list::{at, count, links, page, Link};
use crate::make::make_for_peer;
use core::sync::atomic::Ordering;
use shunt_segment::address::Address;
use shunt_segment::channel::release;
use shunt_segment::CHANNELS;
use shunt_sys::{calls, Errno, Result};

/// Links of such clients that a process takes.
const GUESTS: usize = 512;
/// Of those, of one user at one address: others find room, whatever that one does.
const OF_ONE: usize = 64;
/// Of those, idle ones: their makers may be gone, and nothing tells of it where their namespace of processes is another.
const IDLE: usize = 32;

/// Such a client: process and user as the kernel tells, which may be 0 and nobody where they are of other namespaces, and where its connection comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guest {
    /// The process.
    pub process: u32,
    /// The user.
    pub user: u32,
    /// Where its connection comes from.
    pub address: Address,
}

impl Link {
    /// Whether it leads to another network namespace, or comes from one.
    pub fn is_near(&self) -> bool {
        self.peer != 0
    }
}

/// Marks a link that is theirs, as no process's number does.
const GUEST: u64 = 1 << 63;

impl Guest {
    /// Which clients share what room there is: a number that is none of a process's, and as a rule another one for each user of each address.
    fn group(&self) -> u64 {
        let [high, low] = self.address.words();
        let mixed = (high ^ low.rotate_left(23) ^ u64::from(self.user).rotate_left(41)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29) | GUEST
    }
}

fn is_guest(link: &Link) -> bool {
    !link.base.is_null() && !link.ours && link.peer & GUEST != 0
}

/// A channel for a connection to process `peer`, which is not 0, and whether its link is new: the peer does not have it, and may not be who it says.
///
/// Errors: as [`crate::offer`].
pub fn offer(peer: u64) -> Result<(Offer, bool)> {
    let user = calls::geteuid();
    let fits = |index: &usize| {
        let link = at(*index);
        let lends = !link.base.is_null() && link.ours && !link.inherited && !link.is_retired();
        lends && link.peer == peer && link.proved && link.user == user
    };
    for index in links().listed(peer as u32).filter(fits) {
        if let Some(offer) = try_offer(at(index), index) {
            return Ok((offer, false));
        }
    }
    let index = make_for_peer(peer)?;
    try_offer(at(index), index).map(|offer| (offer, true)).ok_or(Errno(shunt_sys::libc::ENOMEM))
}

/// Pairs of ended connections to process `peer`: link and channel.
pub fn pairs(peer: u64) -> impl Iterator<Item = (usize, usize)> {
    let user = calls::geteuid();
    let lends = move |index: &usize| {
        let link = at(*index);
        let is_ours = !link.base.is_null() && link.ours && !link.inherited && !link.is_retired();
        is_ours && link.peer == peer && link.proved && link.user == user
    };
    let both = |index: usize| {
        let is_kept =
            move |channel: &usize| at(index).waiting(*channel) && reusable(page(at(index).base, *channel), index, *channel);
        (0..CHANNELS).filter(is_kept).map(move |channel| (index, channel))
    };
    links().listed(peer as u32).filter(lends).flat_map(both)
}

/// Takes such a pair for the next connection, which is not to be dropped before it is made. False: the server wants it for itself, or takes no more in this link.
pub fn take_pair(index: usize, channel: usize) -> bool {
    let sides = &page(at(index).base, channel).sides;
    let taken = sides[1].released.compare_exchange(release::KEPT, release::NOT, Ordering::AcqRel, Ordering::Relaxed);
    if taken.is_err() {
        return false;
    }
    if !at(index).count() || at(index).is_retired() {
        sides.iter().for_each(|side| side.released.store(release::CLOSED, Ordering::Release));
        companion_cache::forget(index, channel);
        return false;
    }
    at(index).lend_again(channel);
    enter(index);
    true
}

/// Nobody has taken it: it serves another one.
pub fn put_pair_back(index: usize, channel: usize) {
    page(at(index).base, channel).sides.iter().for_each(|side| side.released.store(release::KEPT, Ordering::Release));
    at(index).withdraw(channel);
    let_go(index);
}

/// Links of clients at `address`, and their users.
pub fn of_clients_at(address: &Address) -> impl Iterator<Item = (usize, u32)> + '_ {
    let is_of = |index: &usize| {
        let link = at(*index);
        let guest = Guest { process: link.other.0, user: link.other.1, address: *address };
        is_guest(link) && !link.inherited && link.peer == guest.group()
    };
    (0..count()).filter(is_of).map(|index| (index, at(index).other.1))
}

/// The peer has proved that it has the link.
pub fn proved(index: usize) {
    at(index).proved = true;
}

/// The link is not lent any more: its peer does not know it, or another process has it.
pub fn abandon(index: usize) {
    at(index).closed = true;
}

/// The link that such a client named, if this process has it from there.
pub fn known(nonce: u64, sequence: u32, guest: &Guest) -> Option<(usize, Link)> {
    crate::adopt::known(nonce, sequence, (guest.process, guest.user)).filter(|(_, link)| link.peer == guest.group())
}

/// Whether another link of such a client is taken.
pub fn has_room(guest: &Guest) -> bool {
    let group = guest.group();
    let guests = || links().all().iter().filter(|link| is_guest(link));
    guests().count() < GUESTS && guests().filter(|link| link.peer == group).count() < OF_ONE
}

/// Takes a link in that such a client sent, as [`crate::adopt()`].
///
/// Errors: EPROTO: it is none, or not what was named; EMFILE, ENOMEM.
pub fn take_in(fd: i32, nonce: u64, sequence: u32, guest: &Guest) -> Result<(usize, Link)> {
    drop_oldest_idle();
    let (index, _) = adopt(fd, nonce, sequence, (guest.process, guest.user), -1)?;
    at(index).peer = guest.group();
    Ok((index, *at(index)))
}

fn drop_oldest_idle() {
    let idle = |index: &usize| is_guest(at(*index)) && at(*index).live == 0;
    let mut all = (0..count()).filter(idle);
    if let Some(first) = all.next().filter(|_| (0..count()).filter(idle).count() >= IDLE) {
        drop_link(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leave::{enter, leave};
    use shunt_table::global::SETUP;

    /// As a client does, whose link is not to be dropped before its connection is made.
    fn offered(peer: u64) -> (Offer, bool) {
        let (offer, new) = offer(peer).unwrap();
        enter(offer.index);
        (offer, new)
    }

    #[test]
    fn only_a_proved_link_is_lent_again() {
        let _setup = SETUP.lock().unwrap();
        shunt_table::process::user::is_now(calls::geteuid());
        let (first, new) = offered(0x7fff_0000_0300);
        assert!(new);
        let (second, new) = offered(0x7fff_0000_0300);
        assert!(new && second.index != first.index, "another handshake has the first");
        proved(second.index);
        let (third, new) = offered(0x7fff_0000_0300);
        assert!(!new && third.index == second.index && third.channel != second.channel);
        let (of_another, new) = offered(0x7fff_0001_0300);
        assert!(new && of_another.index != second.index, "its list is the same, the peer is not");
        let of_a_listener = crate::offer(0x0300).unwrap();
        assert_ne!(of_a_listener.index, second.index, "nor is it one of a listener's");
        enter(of_a_listener.index);
        abandon(second.index);
        let (fourth, new) = offered(0x7fff_0000_0300);
        assert!(new && fourth.index != second.index);
        for offer in [first, second, third, of_another, of_a_listener, fourth] {
            abandon(offer.index);
            leave(offer.index, offer.channel, true, false);
        }
    }

    /// A client that has as many links as one may have leaves room for others, of the same user elsewhere, and of another user at its address.
    #[test]
    fn one_client_does_not_take_the_room_of_others() {
        let _setup = SETUP.lock().unwrap();
        shunt_table::process::user::is_now(calls::geteuid());
        let one = Guest { process: 0, user: 4001, address: Address::v4([10, 0, 0, 2], 5000) };
        let (again, elsewhere) = (
            Guest { address: Address::v4([10, 0, 0, 2], 5001), ..one },
            Guest { address: Address::v4([10, 0, 0, 3], 5000), ..one },
        );
        let another = Guest { user: 4002, ..one };
        let mut taken = Vec::new();
        while has_room(&one) {
            assert!(taken.len() < OF_ONE);
            let made = crate::make::make(0x7fff_0400 + taken.len() as u32).unwrap();
            let fd = calls::fcntl(at(made).fd, shunt_sys::libc::F_DUPFD_CLOEXEC, 0).unwrap();
            let (nonce, sequence) = (at(made).nonce, at(made).sequence);
            crate::drop::drop_link(made);
            let (index, _) = take_in(fd, nonce, sequence, &one).unwrap();
            enter(index);
            assert!(known(nonce, sequence, &one).is_some() && known(nonce, sequence, &another).is_none());
            taken.push(index);
        }
        assert_eq!(taken.len(), OF_ONE);
        assert!(!has_room(&again) && has_room(&elsewhere) && has_room(&another));
        for index in taken {
            crate::leave::let_go(index);
            drop_link(index);
        }
        assert!(has_room(&one));
    }
}
