//! The sender's half: which pools a stream's peer may see, and what goes by reference.

use super::{generation, is_taken, keep, of_side, read, write};
use crate::pools;
use crate::socket::{flag, Socket};
use crate::{corked, flush_relays};
use core::sync::atomic::{fence, Ordering};
use shunt_region::files::Place;
pub use shunt_region::shown::{Asked, Shown};
use shunt_segment::area::KEPT_SIZE;
use shunt_segment::channel::references::{place, Record, ShownPool, SHOWN};
use shunt_segment::channel::{arm, state, word};
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, iovec};
use shunt_sys::{thread, user, Errno, Result};
use shunt_table::memory::pieces::Pieces;
use shunt_table::process::status_page;

/// Bytes from which on a reference costs less than a copy: what it costs is that the receiver's copy begins when all of it is there, where
/// copies of both ends overlap (`shunt bench cell buffers`).
pub const LEAST: usize = 32 << 10;

/// Lets the peer of `socket` see it, and no longer what cannot be at its addresses any more. Errors: EBUSY: it sees as many as it can; those of [`pools::enter`].
pub fn show(socket: &Socket, shown: Shown) -> Result<()> {
    let number = pools::enter(shown)?;
    let places = &socket.connected.loans.shown;
    for place in places {
        let other = place.load(Ordering::Relaxed);
        if other != number && pools::pool(other).is_none_or(|other| other.is_replaced_by(&shown)) {
            place.store(0, Ordering::Relaxed);
        }
    }
    let is = |number: u32| places.iter().find(|place| place.load(Ordering::Relaxed) == number);
    is(number).or_else(|| is(0)).ok_or(Errno(libc::EBUSY))?.store(number, Ordering::Relaxed);
    Ok(())
}

/// What was shown of files from `address` on is copied from now on, all of it: of two that begin there, one may be unmapped when the other is
/// not. Errors: EINVAL: nothing was.
pub fn hide(socket: &Socket, address: u64) -> Result<()> {
    let begins = |number: u32| pools::pool(number).is_some_and(|shown| shown.file.is_some() && shown.base as u64 == address);
    let places = socket.connected.loans.shown.iter().filter(|place| begins(place.load(Ordering::Relaxed)));
    let hidden = places.map(|place| place.store(0, Ordering::Relaxed)).count();
    if hidden > 0 {
        Ok(())
    } else {
        Err(Errno(libc::EINVAL))
    }
}

/// No more bytes than these may be under way so (`SHUNT_SO_QUOTA`); of a connection that the kernel has, nothing follows from it.
pub fn limit(socket: Option<&Socket>, bytes: u64) {
    socket.into_iter().for_each(|socket| socket.connected.loans.quota.store(bytes, Ordering::Relaxed));
}

/// What plain sends do from now on (`SHUNT_SO_OUTPUT`): 0, they copy; 1, they lend ([`super::emulated`]). Errors: EINVAL.
pub fn choose(socket: Option<&Socket>, number: u64) -> Result<()> {
    if number > 1 {
        return Err(Errno(libc::EINVAL));
    }
    socket.into_iter().for_each(|socket| socket.connected.loans.lending.wanted.store(number as u32, Ordering::Relaxed));
    Ok(())
}

/// Where bytes lie that can go by reference.
#[derive(Clone, Copy)]
pub(super) struct Found {
    slot: usize,
    number: u32,
    shown: Shown,
    offset: usize,
}

impl Found {
    /// Whether `length` bytes are there, and not the zeros that a mapping has behind the end of its file.
    pub(super) fn has(&self, length: usize) -> bool {
        self.shown.reaches(self.offset + length)
    }
}

pub(super) fn find(socket: &Socket, data: *const u8, length: usize) -> Option<Found> {
    if length < LEAST {
        return None;
    }
    (0..SHOWN).find_map(|slot| {
        let number = socket.connected.loans.shown[slot].load(Ordering::Relaxed);
        let shown = if number == 0 { None } else { pools::pool(number) }?;
        let offset = shown.offset(data as usize, length)?;
        Some(Found { slot, number, shown, offset })
    })
}

/// How the next bytes of a send with MSG_ZEROCOPY go.
pub enum Way {
    /// So many went by reference, and the peer is to hear of them.
    Referred(usize),
    /// Nothing can be sent any more, or another is to send first.
    Nothing,
    /// The first buffer is to be copied, and what is behind it looked at again.
    FirstCopied(iovec),
    /// All of it is to be copied.
    Copied,
}

/// One attempt to send what is behind byte `done` of the pieces by reference.
///
/// # Safety
/// The pieces are the caller's buffers.
#[cold]
#[inline(never)]
pub unsafe fn next(socket: &Socket, pieces: &Pieces, done: usize, flags: i32) -> Result<Way> {
    let mut rest = pieces.from(done, usize::MAX);
    let Some((data, length)) = rest.next() else { return Ok(Way::Copied) };
    let Some(found) = find(socket, data, length) else {
        if length >= LEAST {
            not_by_reference(socket, Reason::CopiedNoPool);
        }
        return Ok(match rest.any(|(data, length)| find(socket, data, length).is_some()) {
            true => Way::FirstCopied(iovec { iov_base: data.cast(), iov_len: length }),
            false => Way::Copied,
        });
    };
    let held = socket.lock_send()?;
    if socket.outgoing().announced() & word::FIN != 0 || flush_relays::owed(socket) {
        return Ok(Way::Nothing);
    }
    let referred = match is_for_copies(socket, flags) {
        true => Err(Reason::CopiedBusy),
        // SAFETY: passed on; the lock is held.
        false => unsafe { refer(socket, found, data, length) },
    };
    drop(held);
    Ok(match referred {
        Ok(sent) => Way::Referred(sent),
        Err(reason) => {
            not_by_reference(socket, reason);
            Way::Copied
        }
    })
}

/// Bytes for which a reference would have paid are copied.
fn not_by_reference(socket: &Socket, reason: Reason) {
    socket.connected.loans.copied.fetch_add(1, Ordering::Relaxed);
    status_page::count(reason);
}

/// Whether something about the stream is unusual: other processes have it, it goes on elsewhere, is gathered, or is captured.
pub(crate) fn is_for_copies(socket: &Socket, flags: i32) -> bool {
    const UNUSUAL: u32 = flag::SHARED | flag::MAY_LEAVE | flag::FAR | flag::UNACCEPTED;
    socket.has(UNUSUAL)
        || corked::concerns(socket, flags)
        // One that has become another user has no file of the link, and could keep nothing there.
        || shunt_link::descriptor_unlocked(socket.connected.link_index.load(Ordering::Relaxed) as usize) < 0
        || socket.peer().receive.state.load(Ordering::Acquire) & state::SHARED != 0
        || socket.peer().wait.armed.load(Ordering::Relaxed) & arm::TAP != 0
}

/// What was announced of bytes that can go by reference.
pub(super) enum Announced {
    /// Their pool, with so many of them.
    Offer(usize),
    /// A run of them.
    Run(Run),
}

/// A run of bytes.
pub(super) struct Run {
    pub record: &'static Record,
    pub word: u64,
    /// Of the first of them in the stream.
    pub position: u64,
    pub length: usize,
}

/// Announces as many of the bytes as may be under way, but not fewer than `least`; the caller holds the sending lock. The first send from a pool goes as
/// an offer of it, with its first bytes. `kind`: [`place::LENT`], or 0.
///
/// # Safety
/// `length` bytes at `data`, which may fault.
pub(super) unsafe fn announce(
    socket: &Socket,
    found: &Found,
    (data, length): (*const u8, usize),
    least: usize,
    kind: u64,
) -> core::result::Result<Announced, Reason> {
    let pipe = socket.outgoing();
    let position = pipe.may_refer().ok_or(Reason::CopiedBusy)?;
    let (taken, generation) = (pipe.released(), generation(socket));
    let references = of_side(socket, socket.side());
    let is_free = |record: &Record| read(record, generation).is_none_or(|(word, start)| is_taken(word, start, taken));
    let record = references.records.iter().find(|record| is_free(record)).ok_or(Reason::CopiedBusy)?;
    let write = |word: u64| write(record, generation, position, word);
    let which = if found.slot == 0 { 0 } else { place::POOL };
    let (offer, number) = (&references.shown[found.slot], number_of(found.number, generation));
    // Numbers come again, after as many as fit; secrets do not.
    if (offer.number.load(Ordering::Relaxed), offer.secret[0].load(Ordering::Relaxed)) != (number, found.shown.secret[0]) {
        let of_slot = |record: &Record| !is_free(record) && place::pool(record.place.load(Ordering::Relaxed)) == found.slot;
        if references.records.iter().any(of_slot) {
            return Err(Reason::CopiedBusy);
        }
        // SAFETY: an address that is none is an answer.
        let first = unsafe { user::read(data.cast::<[u8; place::CARRIED]>()) }.map_err(|_| Reason::CopiedBusy)?;
        show_to_peer(offer, &found.shown, number);
        write(place::of(u64::from(u32::from_le_bytes(first)), place::CARRIED, place::OFFER | which));
        pipe.refer(place::CARRIED);
        return Ok(Announced::Offer(place::CARRIED));
    }
    let answer = offer.answer.load(Ordering::Acquire);
    if answer != number {
        return Err(if answer == number - 1 { Reason::CopiedPeer } else { Reason::CopiedBusy });
    }
    let under_way = pipe.unacknowledged();
    let most = (KEPT_SIZE as u64).min(pipe.room_by_limit().saturating_add(under_way));
    let quota = socket.connected.loans.quota.load(Ordering::Relaxed);
    let part = (quota.min(most).saturating_sub(under_way) as usize).min(length).min(place::LONGEST);
    if part < least {
        return Err(if quota < most { Reason::CopiedQuota } else { Reason::CopiedBusy });
    }
    let word = place::of(found.offset as u64, part, which | kind);
    write(word);
    pipe.refer(part);
    Ok(Announced::Run(Run { record, word, position, length: part }))
}

/// Refers to as many of the bytes as may be under way; the caller holds the sending lock.
///
/// # Safety
/// As [`announce`].
unsafe fn refer(socket: &Socket, found: Found, data: *const u8, length: usize) -> core::result::Result<usize, Reason> {
    let loans = &socket.connected.loans;
    // SAFETY: passed on.
    let run = match unsafe { announce(socket, &found, (data, length), LEAST, 0)? } {
        Announced::Offer(few) => {
            loans.copied.fetch_add(1, Ordering::Relaxed);
            return Ok(few);
        }
        Announced::Run(run) => run,
    };
    loans.end.store(run.position.wrapping_add(run.length as u64) & word::POSITION, Ordering::Relaxed);
    loans.bytes.fetch_add(run.length as u64, Ordering::Relaxed);
    loans.referred.fetch_add(1, Ordering::Relaxed);
    status_page::count(Reason::ByReference);
    // The peer's side may have become shared in this moment, and its process keeps what was referred to before: one of both does.
    if is_shared_by_now(socket) {
        keep_own(socket, found.slot, &found.shown);
    }
    Ok(run.length)
}

/// Whether the peer's side is shared, asked behind an announcement: its process keeps what it sees when it becomes so.
pub(super) fn is_shared_by_now(socket: &Socket) -> bool {
    fence(Ordering::SeqCst);
    socket.peer().receive.state.load(Ordering::Relaxed) & state::SHARED != 0
}

/// Puts what lies in this pool and is under way into the link; the caller holds the sending lock. The peer can write the records: one that does
/// not lie in the pool is not this sender's, and other memory of the process is nothing for the peer.
pub fn keep_own(socket: &Socket, slot: usize, shown: &Shown) {
    keep::keep(socket, socket.side(), |_, word| match place::pool(word) == slot {
        true => shown.address(place::offset(word), place::length(word)).map(Place::Memory),
        false => None,
    });
}

/// Names an offer in this connection: odd.
fn number_of(pool: u32, generation: u64) -> u32 {
    (generation as u32) << 16 | pool << 1 & 0xffff | 1
}

fn show_to_peer(offer: &ShownPool, shown: &Shown, number: u32) {
    offer.secret.iter().zip(shown.secret).for_each(|(half, secret)| half.store(secret, Ordering::Relaxed));
    offer.pid.store(thread::process(), Ordering::Relaxed);
    offer.descriptor.store(shown.name(), Ordering::Relaxed);
    offer.answer.store(0, Ordering::Relaxed);
    offer.number.store(number, Ordering::Release);
}
