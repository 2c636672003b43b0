//! Plain sends that lend their bytes for as long as they last (`SHUNT_SO_OUTPUT`): emulated copy.
//!
//! The receiver copies them out of the sender's memory while the sender is in the call, so that one copy is made and not two; what it has not taken when
//! the call is to return the sender puts into the link ([`shunt_ring::lent`]). So the program may write its memory behind the call as
//! behind any send.
//!
//! ```text
//! lock; record (LENT), position
//!   taken in time                  nothing more
//!   asleep, shared, or too late    the rest is copied into the link; word | KEPT
//! unlock; bell
//! ```
//!
//! The lock is held all the time, and over what the call sends before and behind these bytes: no other send comes between, a fork and a close wait, and
//! handlers of the program do. All of that is bounded: the wait by [`patience`], what is taken back by [`MOST`].
//!
//! **When.** Only where the receiver is likely to wait for just this: it has taken all that was sent before, does not sleep, was seen on another processor,
//! and has sent something since this side's last large send. A stream that goes one way is better off with two copies, which overlap. Each time that
//! bytes are taken back, twice as many large sends as the last time are copied before another one lends.

use super::lend::{self, Announced, Found, Run, LEAST};
use super::{is_taken, keep};
use crate::loans::Lending;
use crate::socket::Socket;
use core::sync::atomic::Ordering;
use shunt_region::files::Place;
use shunt_ring::lent;
use shunt_segment::channel::references::place;
use shunt_segment::channel::{arm, state, word};
use shunt_segment::reason::Reason;
use shunt_sys::{clock, user};
use shunt_table::memory::pieces::Pieces;
use shunt_table::process::status_page;

/// Most bytes of a send that lends. Longer ones gain nothing: of two copies that overlap the second takes as long as the only one (`shunt bench cell
/// zerocopy`). And what is taken back is copied under the lock, which other threads and the program's handlers wait for.
pub const MOST: usize = 256 << 10;
/// Large sends that are copied behind the first that was taken back, and most of them.
const PENALTY: u32 = 64;
const WORST_PENALTY: u32 = 4096;
/// A receiver sleeps, by itself or in a set.
const ASLEEP: u32 = arm::IN | arm::IN << arm::SET_SHIFT;

/// How long a receiver may take, in ticks: a few looks of a thread that turns to several streams, and a copy at 4 GB/s.
fn patience(length: usize) -> u64 {
    clock::ticks_for_ns(8_000 + length as u64 / 4)
}

/// Bytes that are to be lent.
pub struct Loan {
    found: Found,
    data: *const u8,
    length: usize,
    /// Bytes of the call before them.
    pub head: usize,
}

/// Whether a large send of these pieces lends some of them, if it begins now: the first, or the second behind a short one.
///
/// The exchange is a fence, too: what the program has written past the caches (without one of its own, as for a call that copies none is needed) its
/// receiver must see.
#[cold]
pub fn begin(socket: &Socket, pieces: &Pieces, flags: i32) -> Option<Loan> {
    let lending = &socket.connected.loans.lending;
    let heard = socket.own().receive.position.load(Ordering::Relaxed);
    let is_answered = lending.heard.swap(heard, Ordering::SeqCst) != heard;
    let (pipe, armed) = (socket.outgoing(), &socket.peer().wait.armed);
    if !is_answered
        || is_skipped(lending)
        || !pipe.reader_is_elsewhere()
        || armed.load(Ordering::Relaxed) & ASLEEP != 0
        || pipe.unacknowledged() != 0
        || lend::is_for_copies(socket, flags)
    {
        return None;
    }
    let mut rest = pieces.from(0, usize::MAX);
    let (mut head, (mut data, mut length)) = (0, rest.next()?);
    if length < LEAST {
        (head, (data, length)) = (length, rest.next()?);
    }
    if !(LEAST..=MOST).contains(&length) {
        return None;
    }
    let found = lend::find(socket, data, length)?;
    // Memory that is gone, or of a file that has become shorter: the copy says what it is, and no byte is announced that could not be taken back.
    // SAFETY: addresses that are none are an answer.
    unsafe { user::read(data).and(user::read(data.wrapping_add(length - 1))) }.ok()?;
    found.has(length).then_some(Loan { found, data, length, head })
}

fn is_skipped(lending: &Lending) -> bool {
    let left = lending.skipped.load(Ordering::Relaxed);
    if left > 0 {
        lending.skipped.store(left - 1, Ordering::Relaxed);
    }
    left > 0
}

/// What became of a loan.
pub enum Outcome {
    /// So many bytes are sent; the others are to be copied.
    Sent(usize),
    /// They are announced, and could not be copied: the stream cannot go on.
    Lost,
}

/// Lends the bytes until the receiver has them, or takes them back. The caller holds the sending lock, and has looked that nothing has ended since.
///
/// # Safety
/// The bytes are the caller's buffer.
#[cold]
pub unsafe fn send(socket: &Socket, loan: &Loan) -> Outcome {
    let Some(kept) = place_to_keep(socket) else { return never_mind(socket) };
    // SAFETY: passed on.
    match unsafe { lend::announce(socket, &loan.found, (loan.data, loan.length), loan.length, place::LENT) } {
        Err(_) => never_mind(socket),
        Ok(Announced::Offer(few)) => Outcome::Sent(few),
        Ok(Announced::Run(run)) => end(socket, loan, &run, kept),
    }
}

/// A peer that may not read the memory, a quota, no room for mappings: it is not asked for each send.
fn never_mind(socket: &Socket) -> Outcome {
    socket.connected.loans.lending.skipped.store(PENALTY, Ordering::Relaxed);
    Outcome::Sent(0)
}

/// Where what is taken back goes; mapped before anything is lent, as it cannot be taken back otherwise. The caller holds the sending lock.
fn place_to_keep(socket: &Socket) -> Option<*mut u8> {
    let place = &socket.connected.loans.lending.kept;
    let known = place.load(Ordering::Relaxed);
    if !known.is_null() {
        return Some(known);
    }
    let mapped = keep::map(socket, socket.side()).ok()?;
    place.store(mapped, Ordering::Relaxed);
    Some(mapped)
}

/// The run is announced: it is the receiver's until it has been taken, or for as long as it may take.
fn end(socket: &Socket, loan: &Loan, run: &Run, kept: *mut u8) -> Outcome {
    let lending = &socket.connected.loans.lending;
    let is_in_time = !lend::is_shared_by_now(socket) && await_taken(socket, run);
    let penalty = lending.penalty.load(Ordering::Relaxed);
    if is_in_time {
        lending.penalty.store(penalty - penalty.div_ceil(16), Ordering::Relaxed);
        socket.connected.loans.bytes.fetch_add(run.length as u64, Ordering::Relaxed);
        status_page::count(Reason::Lent);
        return Outcome::Sent(run.length);
    }
    lending.skipped.store(penalty.max(PENALTY), Ordering::Relaxed);
    lending.penalty.store((2 * penalty.max(PENALTY)).min(WORST_PENALTY), Ordering::Relaxed);
    status_page::count(Reason::TakenBack);
    match take_back(socket, loan, run, kept) {
        true => Outcome::Sent(run.length),
        false => Outcome::Lost,
    }
}

/// Waits awake until the receiver has taken all of it; false: it sleeps, or does not come in time.
fn await_taken(socket: &Socket, run: &Run) -> bool {
    let (pipe, armed) = (socket.outgoing(), &socket.peer().wait.armed);
    let until = clock::ticks() + patience(run.length);
    loop {
        if is_taken(run.word, run.position, pipe.taken()) {
            return true;
        }
        if armed.load(Ordering::Relaxed) & ASLEEP != 0 || clock::ticks() >= until {
            return false;
        }
        core::hint::spin_loop();
    }
}

/// Copies what the receiver has not taken into the link, and says so. False: that cannot be done. The Acquire by which [`shunt_ring::Pipe::taken`] reads
/// the position orders the receiver's copies of what it has taken before whatever the program writes there.
fn take_back(socket: &Socket, loan: &Loan, run: &Run, kept: *mut u8) -> bool {
    socket.own().receive.state.fetch_or(state::KEEPS, Ordering::Relaxed);
    let taken = socket.outgoing().taken().wrapping_sub(run.position) & word::POSITION;
    // A hostile peer's position is any number: then all of it is kept.
    let taken = if taken > run.length as u64 { 0 } else { taken as usize };
    let from = Place::Memory(loan.data as usize + taken);
    // SAFETY: mapped before the loan, and unmapped when no thread sends.
    let is_kept = unsafe { keep::put_at(kept, run.position.wrapping_add(taken as u64), from, run.length - taken) };
    match is_kept {
        true => lent::take_back(run.record, run.word),
        false => lent::lose(run.record),
    }
    is_kept
}
