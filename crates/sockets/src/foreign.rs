//! Calls that went past the library: bytes on a companion that are no bells, and bells that are no longer there.
//!
//! A program may make a system call by its own instruction, or by a C library that is not the one we stand before. Written, its
//! bytes lie on the companion among our bells; and it may read these for the peer's data. Bells have a value of their own,
//! [`BELL`], and are counted before they are written and behind that, so whoever takes them knows:
//!
//! - *Other bytes, or more than were rung:* the peer wrote past its library. Where they stand in the stream cannot be told, as
//!   nothing orders them with the ring's. So the connection is reset, on both sides ([`break_off`]).
//! - *Fewer than were written:* somebody of this side read them. The stream lost nothing, so it goes on; the process counts it. Nor
//!   could it be reset for that: who leaves a sleep by `longjmp`, just when it ends, leaves a bell that he took uncounted.
//!
//! It is looked at where bells are taken anyway, where a set hears one, where the kernel is asked whether the peer lives, and before
//! the end is read.

use crate::socket::{flag, Socket};
use crate::{report, stream, table, wait};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{arm, state, word, BELL};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_PEEK};
use shunt_sys::{calls, clock};

/// How long who holds the sending lock is waited for, in ns.
const PATIENCE: u64 = 10_000_000;

/// Bells that the peer has written for sure; to be asked before a look at the companion.
pub fn written(socket: &Socket) -> u32 {
    socket.peer().transmit.written.load(Ordering::Acquire)
}

/// Takes note of `bytes`, which were taken off the companion. True: the peer wrote past its library, and the caller is to
/// [`break_off`] when it holds no lock any more.
pub fn took(socket: &Socket, bytes: &[u8]) -> bool {
    let taken = &socket.own().receive.taken;
    let now = taken.fetch_add(bytes.len() as u32, Ordering::Release).wrapping_add(bytes.len() as u32);
    !are_bells(socket, bytes, now)
}

/// Set in [`Socket::missed`] once the process has counted it.
const TOLD: u32 = 1 << 31;

/// The companion was found empty, after the peer had written `written` bells ([`written`]).
pub fn emptied(socket: &Socket, written: u32) {
    let missing = written.wrapping_sub(socket.own().receive.taken.load(Ordering::Relaxed)) as i32;
    // Another owner may be about to count what it took.
    if missing > 0 && !socket.has(flag::SHARED) {
        miss(socket, missing as u32 & !TOLD);
    }
}

/// A handler may have interrupted the very call that is about to count them: they are missed when they still are at the next look.
#[cold]
fn miss(socket: &Socket, missing: u32) {
    let before = socket.missed.load(Ordering::Relaxed);
    if before == missing {
        report::count(Reason::ForeignReads);
        socket.missed.store(missing | TOLD, Ordering::Relaxed);
    } else if before & !TOLD < missing {
        socket.missed.store(missing, Ordering::Relaxed);
    }
}

/// Whether `bytes` are bells, the last of which would be the peer's `count`th.
fn are_bells(socket: &Socket, bytes: &[u8], count: u32) -> bool {
    // Counted before it is written: what was found is counted by now.
    let rung = socket.peer().transmit.rung.load(Ordering::Acquire);
    count.wrapping_sub(rung) as i32 <= 0 && bytes.iter().all(|byte| *byte == BELL)
}

/// Whether more lies on the companion `fd` than bells. True: as for [`took`].
pub fn is_counted(socket: &Socket, fd: i32) -> bool {
    looks_foreign(socket, |_| {
        let mut waiting = 0i32;
        let known = calls::ioctl(socket.hold.number(fd), libc::FIONREAD, &raw mut waiting as usize).is_ok();
        // Of their values nothing is known.
        (known, 0, waiting.max(0) as u32)
    })
}

/// The same, by a look at the bytes themselves.
#[cold]
pub fn is_there(socket: &Socket, fd: i32) -> bool {
    looks_foreign(socket, |bytes| {
        let (start, nobody) = (bytes.as_mut_ptr().cast(), core::ptr::null_mut());
        let flags = MSG_DONTWAIT | MSG_PEEK;
        let looked = calls::recvfrom(socket.hold.number(fd), start, bytes.len(), flags, nobody, core::ptr::null_mut());
        (looked.is_ok(), looked.unwrap_or(0), looked.unwrap_or(0) as u32)
    })
}

/// `look` tells whether it could, how many bytes it saw and how many there are.
fn looks_foreign(socket: &Socket, look: impl FnOnce(&mut [u8; 64]) -> (bool, usize, u32)) -> bool {
    let own = &socket.own().receive;
    if own.state.load(Ordering::Relaxed) & (state::SHUT_RD | state::DONE) != 0 {
        return false; // nothing that may lie there is asked for any more
    }
    // In this order: what others take meanwhile is missed, and never counted twice.
    let taken = own.taken.load(Ordering::Acquire);
    let mut bytes = [0u8; 64];
    let (looked, seen, waiting) = look(&mut bytes);
    looked && !are_bells(socket, &bytes[..seen], taken.wrapping_add(waiting))
}

/// The peer wrote past its library: the connection is reset, on both sides. The caller may hold the lock of a set, but none of
/// the socket's.
#[cold]
pub fn break_off(socket: &Socket, fd: i32) {
    let bits = state::RESET_DUE | state::DONE | state::END_NOTED;
    let before = socket.own().receive.state.fetch_or(bits, Ordering::AcqRel);
    if before & state::DONE != 0 {
        return;
    }
    socket.set(flag::SPENT); // what lies on the companion would break the next connection off, too
    socket.own().transmit.broken.store(Reason::ForeignBytes as u32, Ordering::Release);
    // Who holds the lock for longer finds the connection over, and ends it when it is closed.
    if let Some(held) = socket.lock_send_until(clock::monotonic_ns() + PATIENCE) {
        socket.outgoing().end(word::RST | word::FIN | word::CLOSED);
        drop(held);
        wait::notify(socket, fd, arm::IN | arm::OUT);
    }
    tell(socket, Reason::ForeignBytes);
    stream::wake_own_sleepers(socket, fd);
}

/// The peer has reset the connection, and may say why.
#[cold]
pub fn note_reset(socket: &Socket) {
    let code = socket.peer().transmit.broken.load(Ordering::Acquire);
    if let Some(reason @ Reason::ForeignBytes) = Reason::from_code(code as u8) {
        tell(socket, reason);
    }
}

/// What `shunt why` tells of the socket from now on.
fn tell(socket: &Socket, reason: Reason) {
    for fd in 0..table::high_water() {
        if table::stream(fd).is_some_and(|other| core::ptr::eq(other, socket)) {
            report::note(fd, kind::STREAM, reason, Some(socket.channel()));
        }
    }
}
