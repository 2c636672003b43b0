//! The error queue of a stream: completions of MSG_ZEROCOPY.
//!
//! Each send gets a number. One whose bytes were copied is complete at once; one that went by reference ([`crate::references`]) is when the
//! peer has taken them, or never will. They are told of in order, and numbers that follow each other at once, as Linux joins its
//! notifications (Documentation/networking/msg_zerocopy.rst).

use crate::loans::{self, Run, Runs};
use crate::socket::{flag, Connected, Socket};
use crate::waiting::readiness::observe;
use crate::waiting::wake_pollers;
use crate::waiting::watchers::Change;
use core::sync::atomic::Ordering;
use shunt_segment::channel::{state, word};
use shunt_sys::libc::sock_extended_err;

/// A send with MSG_ZEROCOPY has moved bytes, and copied them.
pub fn completed(socket: &Socket) {
    number(socket, None);
}

/// The same, by reference: the bytes before [`crate::loans::Loans::end`] are under way. `copied`: parts of them were.
pub fn begun(socket: &Socket, copied: bool) {
    number(socket, Some(copied));
}

fn number(socket: &Socket, under_way: Option<bool>) {
    let Connected { zero_copies, loans, .. } = &socket.connected;
    let counted = loans.with(|runs| {
        let number = zero_copies.load(Ordering::Relaxed);
        if let Some(copied) = under_way {
            runs.add(Run::of(number, loans.end.load(Ordering::Relaxed), copied), |end| is_complete(socket, end));
        }
        zero_copies.store(number.wrapping_add(1), Ordering::Release);
    });
    if counted.is_none() {
        zero_copies.fetch_add(1, Ordering::Release); // in a handler that was installed past the library
    }
    // An edge. Threads that wait for completions: the peer knows of none yet, and rings for none.
    socket.connected.changes.fetch_add(1, Ordering::Relaxed);
    crate::waiting::watchers::changed(socket, Change::Ready);
    wake_pollers::all();
}

/// Whether the peer has taken what is before `end` and uses it no more, or takes nothing any more.
fn is_complete(socket: &Socket, end: u64) -> bool {
    const OVER: u32 = state::DONE | state::PEER_GONE | state::RESET_DUE;
    let peer = socket.peer().post.word.load(Ordering::Acquire);
    loans::is_behind(socket.outgoing().released(), end)
        || peer & (word::CLOSED | word::RST) != 0
        || observe(socket, peer) & OVER != 0
}

/// Whether sends are under way by reference: a thread that waits for anything is to hear of their completion, and the peer to ring for it.
#[inline(always)]
pub fn awaits(socket: &Socket) -> bool {
    socket.has(flag::ERROR_QUEUE) && socket.connected.loans.are_any()
}

/// Changes when a send that went by reference becomes complete.
pub fn completions(socket: &Socket) -> u32 {
    if !socket.has(flag::ERROR_QUEUE) {
        return 0;
    }
    socket.connected.loans.completions(|end| is_complete(socket, end))
}

/// What is to be told next, of the sends from number `begin` on and before `end`; and whether it is the first of the runs.
fn next(socket: &Socket, runs: &Runs, begin: u32, end: u32) -> Option<(Run, bool)> {
    if begin == end {
        return None;
    }
    let copied = |last: u32| Some((Run { first: begin, last, end: 0, copied: true }, false));
    match runs.first() {
        None => copied(end.wrapping_sub(1)),
        Some(run) if run.first != begin => copied(run.first.wrapping_sub(1)),
        Some(run) => is_complete(socket, run.end).then_some((run, true)),
    }
}

/// Whether something waits in the queue (POLLERR).
pub fn pending(socket: &Socket) -> bool {
    if !socket.has(flag::ERROR_QUEUE) {
        return false;
    }
    let Connected { zero_copies, zero_copies_reported, loans, .. } = &socket.connected;
    let reported = zero_copies_reported.load(Ordering::Relaxed);
    if zero_copies.load(Ordering::Acquire) == reported || !loans.are_any() {
        return zero_copies.load(Ordering::Acquire) != reported;
    }
    let found = loans.with(|runs| {
        let begin = zero_copies_reported.load(Ordering::Relaxed);
        next(socket, runs, begin, zero_copies.load(Ordering::Acquire)).is_some()
    });
    found.unwrap_or(false)
}

/// Takes what waits: one notification for a range.
pub fn take(socket: &Socket) -> Option<sock_extended_err> {
    let Connected { zero_copies, zero_copies_reported, loans, .. } = &socket.connected;
    let told = loans.with(|runs| {
        let (mut begin, end) = (zero_copies_reported.load(Ordering::Relaxed), zero_copies.load(Ordering::Acquire));
        let mut told: Option<Run> = None;
        // What follows and is alike is joined.
        while let Some((run, is_first)) = next(socket, runs, begin, end) {
            if told.is_some_and(|told| !told.is_before(&run)) {
                break;
            }
            if is_first {
                runs.pop();
            }
            told = Some(Run { first: told.map_or(run.first, |told| told.first), ..run });
            begin = run.last.wrapping_add(1);
        }
        zero_copies_reported.store(begin, Ordering::Relaxed);
        told
    })??;
    Some(sock_extended_err {
        ee_errno: 0,
        ee_origin: SO_EE_ORIGIN_ZEROCOPY,
        ee_type: 0,
        ee_code: if told.copied { SO_EE_CODE_ZEROCOPY_COPIED } else { 0 },
        ee_pad: 0,
        ee_info: told.first,
        ee_data: told.last,
    })
}

const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
/// The bytes were copied after all, as on every loopback connection of the kernel's.
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;
