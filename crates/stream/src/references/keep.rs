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
use shunt_ring::lent::{self, Seen};
use shunt_segment::area::{kept_offset, KEPT_SIZE};
use shunt_segment::channel::references::place;
use shunt_sys::{calls, mapping, Result};

/// Bytes that are put into the link in one step.
const PART: usize = 4096;

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
        let is_unchanged = || word & place::LENT == 0 || lent::seen(record, word) == Seen::Unchanged;
        if put(socket, sender, start, from, length, is_unchanged) {
            let _ = record.place.compare_exchange(word, word | place::KEPT, Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// What a side keeps in the link, mapped: by a write a process that may write short files only (RLIMIT_FSIZE) would end. Errors: those of mmap(2).
pub(super) fn map(socket: &Socket, sender: usize) -> Result<*mut u8> {
    let file = link::descriptor_unlocked(socket.connected.link_index.load(Ordering::Relaxed) as usize);
    mapping::shared_part(file, kept_offset(socket.channel(), sender), KEPT_SIZE)
}

/// Whether `length` bytes at `from`, which have `position` in the stream, were put into the place that is mapped at `base`.
///
/// # Safety
/// [`KEPT_SIZE`] bytes there are mapped, and nothing but this place.
pub(super) unsafe fn put_at(base: *mut u8, position: u64, from: Place, length: usize) -> bool {
    let at = position as usize & (KEPT_SIZE - 1);
    let first = length.min(KEPT_SIZE - at);
    // SAFETY: `at + first` and the rest are inside what is mapped; the source may fault.
    unsafe {
        from.copy(base.wrapping_add(at), first) == Ok(first)
            && from.behind(first).copy(base, length - first) == Ok(length - first)
    }
}

/// Whether `length` bytes at `from` were put into the link. They go by way of memory of this thread's own, and only if `is_unchanged` says that they are
/// still those of the stream: their sender may have put them there itself, and what is at `from` be others by now.
fn put(socket: &Socket, sender: usize, position: u64, from: Place, length: usize, is_unchanged: impl Fn() -> bool) -> bool {
    let Ok(base) = map(socket, sender) else { return false };
    let mut part = [0u8; PART];
    let whole = (0..length).step_by(PART).all(|done| {
        let count = PART.min(length - done);
        // SAFETY: as long; mapped above.
        unsafe {
            from.behind(done).copy(part.as_mut_ptr(), count) == Ok(count)
                && is_unchanged()
                && put_at(base, position.wrapping_add(done as u64), Place::Memory(part.as_ptr() as usize), count)
        }
    });
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
    if let Ok(base) = map(socket, socket.side() ^ 1) {
        socket.connected.loans.map_kept(base);
    }
}
