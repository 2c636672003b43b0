//! Urgent data: one byte of the stream is marked, and may be received out of its turn.
//!
//! The sender marks a position before it announces the byte that stands there ([`mark`]); the newest mark counts. The
//! byte itself lies in the ring, in its place, so a byte that a newer mark replaces is an ordinary one again. Reads stop
//! before the mark; a read that begins there leaves the byte out, unless SO_OOBINLINE is set (tcp_recvmsg, tcp_urg).

use crate::mark::{current, lost};
use crate::socket::{flag, Socket};
use crate::waiting::readiness;
use core::sync::atomic::Ordering;
use shunt_segment::channel::{urgent, word};
use shunt_sys::libc::{self, MSG_PEEK, MSG_TRUNC};
use shunt_sys::{user, Errno, Result};

/// How many bytes a read may take now, under the receiving lock. At the mark the urgent byte is left out; a `patient`
/// reader, which will wait anyway, does that when there is more behind it.
pub fn before_mark(socket: &Socket, patient: bool) -> usize {
    let (_, waiting) = socket.incoming().look();
    if lost(socket) == 1 && waiting > 0 {
        socket.incoming().skip();
        return before_mark(socket, patient);
    }
    match current(socket) {
        None => waiting,
        Some(mark) if mark.ahead > 0 => mark.ahead,
        Some(mark) if socket.has(flag::OOB_INLINE) => {
            socket.own().urgent_taken.store(mark.word | urgent::PASSED, Ordering::Relaxed);
            waiting
        }
        Some(_) if patient && waiting == 1 => 0,
        Some(mark) => {
            socket.own().urgent_taken.store(mark.word | urgent::PASSED, Ordering::Relaxed);
            socket.incoming().skip();
            waiting - 1
        }
    }
}

/// Whether the byte that made `urgent_taken` what it is, `passed`, had been received out of its turn when it was `before`.
pub fn was_read(before: u64, passed: u64) -> bool {
    before & urgent::READ != 0 && (before ^ passed) & (urgent::VALID | word::POSITION) == 0
}

/// How many bytes stand behind the first `seen` and before an urgent one that was received out of its turn; under the receiving lock. If
/// that is the next to receive it is left out.
pub fn before_read(socket: &Socket, seen: usize) -> usize {
    let (_, waiting) = socket.incoming().look();
    match current(socket).filter(|mark| mark.read && !socket.has(flag::OOB_INLINE)) {
        Some(mark) if mark.ahead == 0 && seen == 0 => before_mark(socket, false),
        Some(mark) => mark.ahead.saturating_sub(seen),
        None => waiting.saturating_sub(seen),
    }
}

/// How many bytes stand before any urgent one, in line or not (tcp_read_sock).
pub fn before_any(socket: &Socket) -> usize {
    let (_, waiting) = socket.incoming().look();
    if socket.peer().urgent.load(Ordering::Acquire) == 0 {
        return waiting;
    }
    current(socket).map_or(waiting.saturating_sub(lost(socket)), |mark| mark.ahead)
}

/// Leaves out an urgent byte that a newer one overtook while we stood before it; the caller holds the receiving lock.
pub fn pass_lost(socket: &Socket) {
    if socket.peer().urgent.load(Ordering::Acquire) != 0 && lost(socket) == 1 {
        socket.incoming().skip();
    }
}

/// Where a look (MSG_PEEK) that has `seen` bytes behind it goes on, and how far it may go.
pub fn window(socket: &Socket, seen: usize) -> (usize, usize) {
    let lost = if socket.peer().urgent.load(Ordering::Acquire) == 0 { 0 } else { lost(socket) };
    match current(socket) {
        Some(mark) if seen < mark.ahead => (seen + lost, mark.ahead - seen),
        Some(mark) if seen == mark.ahead && !socket.has(flag::OOB_INLINE) => (seen + lost + 1, usize::MAX),
        _ => (seen + lost, usize::MAX),
    }
}

/// recv with MSG_OOB (tcp_recv_urg): EINVAL when there is no urgent byte or it was received; ENOTCONN when the connection was
/// reset before its end.
///
/// # Safety
/// `data` has room for `length` bytes.
pub unsafe fn receive(socket: &Socket, data: *mut u8, length: usize, flags: i32) -> Result<isize> {
    if socket.has(flag::OOB_INLINE) {
        return Err(Errno(libc::EINVAL));
    }
    let held = socket.lock_receive()?;
    let Some(mark) = current(socket).filter(|mark| !mark.read) else { return Err(Errno(libc::EINVAL)) };
    if readiness::reset_before_end(socket) {
        return Err(Errno(libc::ENOTCONN));
    }
    let mut byte = 0u8;
    // SAFETY: room for one byte.
    let seen = unsafe { crate::peek(socket, mark.ahead + lost(socket), &mut byte, 1) };
    if seen != Ok(1) {
        return Err(Errno(libc::EINVAL));
    }
    if flags & MSG_PEEK == 0 {
        socket.own().urgent_taken.store(mark.word | urgent::READ, Ordering::Relaxed);
    }
    drop(held);
    if length == 0 {
        return Ok(0);
    }
    if flags & MSG_TRUNC == 0 {
        // SAFETY: any address may be the program's.
        unsafe { user::write(data, byte)? };
    }
    Ok(1)
}

/// Marks the next byte to be sent; the caller holds the sending lock and announces the byte afterwards, or takes the
/// mark back with [`unmark`]. Gives what was marked before.
///
/// A reader that stands before the last urgent byte, not yet received, loses that byte (tcp_check_urg).
pub fn mark(socket: &Socket) -> u64 {
    let own = socket.own();
    let before = own.urgent.load(Ordering::Relaxed);
    let reader = socket.peer().receive.position.load(Ordering::Acquire) & word::POSITION;
    if before & urgent::VALID != 0 && before & word::POSITION == reader {
        own.urgent_lost.store(before, Ordering::Release);
    }
    own.urgent.store(urgent::VALID | socket.outgoing().announced() & word::POSITION, Ordering::Release);
    before
}

/// The byte did not fit.
pub fn unmark(socket: &Socket, before: u64) {
    socket.own().urgent.store(before, Ordering::Release);
}
