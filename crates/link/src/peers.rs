//! Links between processes in different network namespaces. They lead from one process to one other, which names itself by a number, and no word in them
//! makes a connection: each is agreed on beside the link. All functions are called under the set-up lock.

use crate::adopt::adopt;
use crate::drop::drop_link;
use crate::lend::{try_offer, Offer};
use crate::list::{at, count, links, Link};
use crate::make::make_for_peer;
use shunt_sys::{calls, Errno, Result};

/// Links of such clients that a process takes.
const GUESTS: usize = 512;
/// Of those, idle ones: their makers may be gone, and nothing tells of it where their namespace of processes is another.
const IDLE: usize = 32;

/// Marks a link that is theirs: its maker has no number here.
const GUEST: u64 = u64::MAX;

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

/// The peer has proved that it has the link.
pub fn proved(index: usize) {
    at(index).proved = true;
}

/// The link is not lent any more: its peer does not know it, or another process has it.
pub fn abandon(index: usize) {
    at(index).closed = true;
}

/// The link that a client in another network namespace named, a process and its user as the kernel tells, if this process has it.
pub fn known(nonce: u64, sequence: u32, client: (u32, u32)) -> Option<(usize, Link)> {
    crate::adopt::known(nonce, sequence, client).filter(|(_, link)| link.peer == GUEST)
}

/// Whether another link of such a client is taken.
pub fn has_room() -> bool {
    links().all().iter().filter(|link| !link.base.is_null() && link.peer == GUEST).count() < GUESTS
}

/// Takes a link in that such a client sent, as [`crate::adopt()`].
///
/// Errors: EPROTO: it is none, or not what was named; EMFILE, ENOMEM.
pub fn take_in(fd: i32, nonce: u64, sequence: u32, client: (u32, u32)) -> Result<(usize, Link)> {
    drop_oldest_idle();
    let (index, _) = adopt(fd, nonce, sequence, client, -1)?;
    at(index).peer = GUEST;
    Ok((index, *at(index)))
}

fn drop_oldest_idle() {
    let idle = |index: &usize| {
        let link = at(*index);
        !link.base.is_null() && link.peer == GUEST && link.live == 0
    };
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
}
