//! The receiver's half: bytes are copied out of the peer's pool, which is mapped once, or out of its file, which is opened once.

use super::{generation, of_side, read};
use crate::pools;
use crate::socket::Socket;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_region::files::Place;
use shunt_region::shown::View;
use shunt_ring::lent::{self, Seen};
use shunt_ring::{Pipe, Trouble};
use shunt_segment::area::{kept_offset, KEPT_SIZE};
use shunt_segment::channel::references::{place, Record, ShownPool};
use shunt_segment::channel::word;
use shunt_sys::{thread, user};

/// Bytes that are copied between two announcements that they were taken.
const PIECE: usize = 256 << 10;

/// Copies up to `length` bytes that are referred to, behind `skip` bytes that wait; `None`: the next one is not. Trouble may be a fault of
/// the program's ([`thread::take_fault`]). `taking`: they are taken, else only looked at.
///
/// # Safety
/// `target` has room for `length` bytes; where bytes are taken the caller holds the receiving lock.
pub unsafe fn copy(
    socket: &Socket,
    skip: usize,
    target: *mut u8,
    length: usize,
    taking: bool,
) -> core::result::Result<Option<usize>, Trouble> {
    let pipe: Pipe = socket.incoming();
    let mut done = 0;
    while done < length {
        let Some((position, available)) = pipe.referred(if taking { skip } else { skip + done })? else { break };
        let most = available.min(length - done).min(PIECE);
        // SAFETY: passed on.
        let copied = unsafe { copy_at(socket, position, target.wrapping_add(done), most, taking)? };
        if copied == 0 && done == 0 {
            thread::note_fault();
            return Err(Trouble::Unmapped);
        }
        if copied == 0 {
            break;
        }
        if taking {
            pipe.pass(copied);
        }
        done += copied;
    }
    match done {
        0 => Ok(pipe.referred(skip)?.map(|_| 0)),
        done => Ok(Some(done)),
    }
}

/// Where bytes are that are referred to.
pub(crate) enum Where {
    /// In a pool or a file of the peer's, of which `view` is the place in this process's list.
    Pool { place: Place, view: u32 },
    /// In the link, at their position.
    Link,
    /// In the offer of a pool: these, from so many on.
    Offer { bytes: [u8; place::CARRIED], from: usize, slot: usize },
}

/// Bytes that are referred to, in one piece.
pub(crate) struct Piece {
    /// The first of them.
    pub place: Where,
    /// How many.
    pub length: usize,
    /// They are the last of their record.
    pub ends: bool,
    /// They may change as soon as this record has another word than this.
    pub lent: Option<(&'static Record, u64)>,
}

/// Up to `most` bytes from `position` on, of one record. The caller holds the receiving lock.
pub(crate) fn find(socket: &Socket, position: u64, most: usize) -> core::result::Result<Piece, Trouble> {
    let (references, generation) = (of_side(socket, socket.side() ^ 1), generation(socket));
    // Each word of the peer's is loaded once.
    let here = references.records.iter().find_map(|record| {
        let (word, start) = read(record, generation)?;
        let from = position.wrapping_sub(start) & word::POSITION;
        (from < place::length(word) as u64).then_some((record, word, from as usize))
    });
    let (record, word, from) = here.ok_or(Trouble::Violation)?;
    let (length, slot, is_lent) = (place::length(word), place::pool(word), word & place::LENT != 0);
    let place = if word & place::KEPT != 0 && (is_lent || reads_link(socket)) {
        Where::Link
    } else if word & place::OFFER != 0 {
        let bytes = (place::offset(word) as u32).to_le_bytes();
        if length > bytes.len() {
            return Err(Trouble::Violation);
        }
        Where::Offer { bytes, from, slot }
    } else {
        let view = view_of(socket, slot, &references.shown[slot]).ok_or(Trouble::Violation)?;
        let whole = view.place(place::offset(word), length).ok_or(Trouble::Violation)?;
        Where::Pool { place: whole.behind(from), view: socket.connected.loans.views[slot].load(Ordering::Relaxed) }
    };
    let part = most.min(length - from);
    Ok(Piece { place, length: part, ends: from + part == length, lent: is_lent.then_some((record, word)) })
}

/// Copies up to `length` bytes from `position` on, of one record; 0: the target faults.
unsafe fn copy_at(
    socket: &Socket,
    position: u64,
    target: *mut u8,
    length: usize,
    taking: bool,
) -> core::result::Result<usize, Trouble> {
    let Piece { place, length: part, ends, lent } = find(socket, position, length)?;
    if ends {
        socket.connected.loans.ended.store(1, Ordering::Relaxed);
    }
    let copied = match place {
        // SAFETY: passed on.
        Where::Link => return unsafe { from_link(socket, position, target, part) },
        Where::Offer { bytes, from, slot } => {
            answer(socket, slot, &of_side(socket, socket.side() ^ 1).shown[slot]);
            // SAFETY: passed on; `from + part` is no more than there are.
            unsafe { user::copy(bytes[from..].as_ptr(), target, part) }
        }
        Where::Pool { place, .. } => {
            // SAFETY: passed on; inside the view, and a fault is an answer.
            let copied = unsafe { place.copy(target, part) };
            return match lent.map_or(Seen::Unchanged, |(record, word)| lent::seen(record, word)) {
                Seen::Unchanged => {
                    if taking {
                        socket.connected.loans.looks.earn(copied.unwrap_or(0));
                    }
                    copied.map_err(|_| Trouble::Violation)
                }
                // SAFETY: as above. Whatever came of the copy: a file may have got shorter as well.
                Seen::TakenBack => unsafe { from_link(socket, position, target, part) },
                Seen::Nonsense => Err(Trouble::Violation),
            };
        }
    };
    Ok(if copied { part } else { 0 })
}

/// As [`copy_at`], of bytes that were put into the link.
unsafe fn from_link(socket: &Socket, position: u64, target: *mut u8, length: usize) -> core::result::Result<usize, Trouble> {
    let at = position as usize & (KEPT_SIZE - 1);
    let part = length.min(KEPT_SIZE - at);
    let offset = kept_offset(socket.channel(), socket.side() ^ 1) + at;
    let place = match socket.connected.loans.kept.load(Ordering::Acquire) as usize {
        0 => Place::File { descriptor: link_file(socket), offset, mapped: 0 },
        mapped => Place::Memory(mapped + at),
    };
    // SAFETY: passed on; `at + part` is inside what is mapped.
    unsafe { place.copy(target, part) }.map_err(|_| Trouble::Violation)
}

fn link_file(socket: &Socket) -> i32 {
    link::descriptor_unlocked(socket.connected.link_index.load(Ordering::Relaxed) as usize)
}

/// Whether this process can read what is kept in the link. One that has become another user has no file of it: then bytes are where they were, but for
/// those that were lent, and it says of no pool that it reads it.
fn reads_link(socket: &Socket) -> bool {
    link_file(socket) >= 0 || !socket.connected.loans.kept.load(Ordering::Acquire).is_null()
}

/// The peer offers a pool: it is told whether this process reads it.
#[cold]
fn answer(socket: &Socket, slot: usize, offer: &ShownPool) {
    let number = offer.number.load(Ordering::Acquire);
    if number & 1 == 1 && offer.answer.load(Ordering::Relaxed) | 1 != number {
        let reads = reads_link(socket) && view_of(socket, slot, offer).is_some();
        offer.answer.store(if reads { number } else { number - 1 }, Ordering::Release);
    }
}

fn view_of(socket: &Socket, slot: usize, offer: &ShownPool) -> Option<View> {
    let loans = &socket.connected.loans;
    pools::view(&loans.views[slot], &loans.looks, offer)
}

/// Where the bytes of the peer's record are in this process, if they are.
pub(super) fn known(socket: &Socket, word: u64) -> Option<Place> {
    let slot = place::pool(word);
    let view = view_of(socket, slot, &of_side(socket, socket.side() ^ 1).shown[slot])?;
    view.place(place::offset(word), place::length(word))
}
