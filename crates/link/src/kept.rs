//! Places in a link for bytes that were sent by reference and are kept, for other owners of the receiving side or because their send has returned
//! ([`shunt_segment::channel::references`]): their memory goes with the connection.

use crate::list::{page, Link};
use core::sync::atomic::Ordering;
use shunt_segment::area::{kept_offset, KEPT_SIZE};
use shunt_segment::channel::references::{place, Record};
use shunt_segment::channel::{state, ChannelPage};
use shunt_sys::{calls, libc};

fn records(page: &ChannelPage) -> impl Iterator<Item = &Record> {
    page.head.references.iter().flat_map(|side| &side.records)
}

/// Gives the memory of a channel's places back, where something is kept: of a side that had several owners, or whose sends have taken back what they
/// lent. Of those no record may tell any more, as records are used again. The other channels' records are not looked at.
pub(crate) fn trim(link: &Link, channel: usize) {
    let page = page(link.base, channel);
    let of_any = |bit: u32| page.sides.iter().any(|side| side.receive.state.load(Ordering::Relaxed) & bit != 0);
    let is_kept = |record: &Record| record.place.load(Ordering::Relaxed) & place::KEPT != 0;
    if link.fd < 0 || !(of_any(state::KEEPS) || of_any(state::SHARED) && records(page).any(is_kept)) {
        return;
    }
    // Both directions' places, one behind the other.
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    if calls::fallocate(link.fd, how, kept_offset(channel, 0) as i64, 2 * KEPT_SIZE as i64).is_ok() {
        records(page).for_each(|record| record.place.store(0, Ordering::Relaxed));
    }
}

const _: () = assert!(kept_offset(3, 0) + KEPT_SIZE == kept_offset(3, 1));
