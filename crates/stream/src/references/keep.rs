//! A stream gets other owners, who may have none of its peer's pools mapped: what is referred to is put into the link's file, where any of
//! them finds it.
//!
//! The bytes of a position have one place there, so two that keep the same ones, as a sender does that finds the side shared behind its
//! announcement, do the same.

use super::{borrow, generation, is_taken, of_side, read};
use crate::socket::Socket;
use crate::waiting::wake;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_region::files::Place;
use shunt_segment::area::{kept_offset, KEPT_SIZE};
use shunt_segment::channel::references::place;
use shunt_sys::{calls, mapping};

/// Keeps what `sender`, a side of the stream's, refers to and its peer has not taken. `memory` tells where a record's bytes are in this
/// process, if they are. The caller holds the sender's sending lock or the peer's receiving lock: so no record becomes another's.
#[cold]
pub(super) fn keep(socket: &Socket, sender: usize, memory: impl Fn(&Socket, u64) -> Option<Place>) {
    let reader = &socket.page().sides[sender & 1 ^ 1];
    let (generation, taken) = (generation(socket), reader.receive.position.load(Ordering::Acquire));
    let mut left = KEPT_SIZE;
    for record in &of_side(socket, sender).records {
        let Some((word, start)) = read(record, generation) else { continue };
        let length = place::length(word);
        if word & (place::KEPT | place::OFFER) != 0 || length > left || is_taken(word, start, taken) {
            continue;
        }
        let Some(from) = memory(socket, word) else { continue };
        left -= length;
        if put(socket, sender, start, from, length) {
            let _ = record.place.compare_exchange(word, word | place::KEPT, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// Whether `length` bytes at `from`, which have `position` in the stream, were put into the link. By a mapping: a write of a process that may
/// write short files only (RLIMIT_FSIZE) would end it.
fn put(socket: &Socket, sender: usize, position: u64, from: Place, length: usize) -> bool {
    let file = link::descriptor_unlocked(socket.connected.link_index.load(Ordering::Relaxed) as usize);
    let Ok(base) = mapping::shared_part(file, kept_offset(socket.channel(), sender), KEPT_SIZE) else { return false };
    let at = position as usize & (KEPT_SIZE - 1);
    let first = length.min(KEPT_SIZE - at);
    // SAFETY: `at + first` and the rest are inside what is mapped; the source may fault.
    let whole = unsafe {
        from.copy(base.wrapping_add(at), first) == Ok(first)
            && from.behind(first).copy(base, length - first) == Ok(length - first)
    };
    let _ = calls::munmap(base, KEPT_SIZE);
    whole
}

/// The stream has become shared ([`Socket::share`]), and its other owners have not been told: what its peer refers to is kept. The peer, which
/// may announce more at this moment, looks behind that whether the side is shared.
pub fn on_sharing(socket: &Socket) {
    let (references, generation) = (of_side(socket, socket.side() ^ 1), generation(socket));
    if references.records.iter().any(|record| read(record, generation).is_some()) {
        wake::barrier();
        let held = socket.lock_receive_settled();
        keep(socket, socket.side() ^ 1, borrow::known);
        drop(held);
    }
}

/// The process becomes another user, which is to have of the link no more than its own channels ([`shunt_link::narrow`]): the file goes. What is
/// under way is kept, and mapped; what comes later is copied.
pub fn before_narrowing(socket: &Socket) {
    let (references, generation) = (of_side(socket, socket.side() ^ 1), generation(socket));
    let file = link::descriptor_unlocked(socket.connected.link_index.load(Ordering::Relaxed) as usize);
    if file < 0 || !references.records.iter().any(|record| read(record, generation).is_some()) {
        return;
    }
    socket.share();
    on_sharing(socket);
    if let Ok(base) = mapping::shared_part(file, kept_offset(socket.channel(), socket.side() ^ 1), KEPT_SIZE) {
        socket.connected.loans.map_kept(base);
    }
}
