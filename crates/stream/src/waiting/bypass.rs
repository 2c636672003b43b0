//! Calls that went past the library: bytes on a companion that are no bells, and bells that are no longer there.
//!
//! A program may make a system call by its own instruction, or by a C library that is not the one we stand before. Written, its
//! bytes lie on the companion among our bells; and it may read these for the peer's data. Bells have a value of their own,
//! [`BELL`], and are counted ([`shunt_ring::tally`]), so a thread that takes them knows:
//!
//! - *Other bytes, or more than were rung:* the peer wrote past its library. Where they stand in the stream cannot be told, as
//!   nothing orders them with the ring's. So the connection is reset, on both sides ([`break_off`]).
//! - *Fewer than were written:* a process of this side read them. The stream lost nothing, so it goes on; the process counts it.
//!   Nor could it be reset for that: a thread that leaves a sleep by `longjmp`, just when it ends, leaves a bell that it took
//!   uncounted.
//!
//! It is looked at where bells are taken anyway, where a set hears one, where the kernel is asked whether the peer lives, before
//! the end is read, and before a companion serves another connection ([`is_left`]).

use super::WAITING;
use crate::life::{self, Event};
use crate::socket::{flag, Socket};
use crate::waiting::bells;
use crate::waiting::wake;
use core::sync::atomic::Ordering;
use shunt_ring::tally::{Before, Tally};
use shunt_segment::channel::{state, word, ChannelPage, BELL};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_PEEK};
use shunt_sys::{calls, Result};
use shunt_table::process::status_page;

/// Takes note of `bytes`, which were taken off the companion. True: the peer wrote past its library, and the caller is to
/// [`break_off`] when it holds no lock any more.
pub fn took(socket: &Socket, bytes: &[u8]) -> bool {
    note_broken(socket);
    past(socket, bytes)
}

/// As [`took`], by the keeper of the far side of a stream from another host: it has no connection of its own to break off.
pub fn past(socket: &Socket, bytes: &[u8]) -> bool {
    let counted = socket.incoming_bells().took(bytes.len() as u32);
    !counted || !are_bells(bytes)
}

fn are_bells(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == BELL)
}

/// Set in [`crate::socket::Connected::missed`] once the process has counted it.
const TOLD: u32 = 1 << 31;

/// The companion was found empty; `before`: what the peer had counted by then.
pub fn emptied(socket: &Socket, before: Before) {
    let missing = socket.incoming_bells().missing(before);
    // Another owner may be about to count what it took.
    if missing > 0 && !socket.has(flag::SHARED) {
        miss(socket, missing & !TOLD);
    }
}

/// A handler may have interrupted the very call that is about to count them: they are missed when they still are at the next look.
#[cold]
fn miss(socket: &Socket, missing: u32) {
    let before = socket.connected.missed.load(Ordering::Relaxed);
    if before == missing {
        status_page::count(Reason::ForeignReads);
        socket.connected.missed.store(missing | TOLD, Ordering::Relaxed);
    } else if before & !TOLD < missing {
        socket.connected.missed.store(missing, Ordering::Relaxed);
    }
}

/// Looks at the bytes on the companion. True: the connection is over now, for something that was written past the library.
#[cold]
pub fn look(socket: &Socket, fd: i32) -> bool {
    look_by(socket, fd, seen_past)
}

/// As [`look`], where bytes of the ring are on their way to the program too: how many there are is asked, and nothing more.
pub fn look_at_count(socket: &Socket, fd: i32) -> bool {
    look_by(socket, fd, |fd, bells| Ok(bells.exceeded_by(|| calls::bytes_waiting(fd).unwrap_or(0))))
}

fn look_by(socket: &Socket, fd: i32, is_foreign: impl FnOnce(i32, Tally) -> Result<bool>) -> bool {
    if socket.own().receive.state.load(Ordering::Relaxed) & (state::SHUT_RD | state::DONE) != 0 {
        return false; // nothing that may lie there is asked for any more
    }
    if note_broken(socket) {
        return true;
    }
    let mut foreign = false;
    socket.hold.while_open(socket, fd, |fd| foreign = is_foreign(fd, socket.incoming_bells()) == Ok(true));
    if foreign {
        break_off(socket, fd);
    }
    foreign
}

/// Whether other bytes than `bells` are among the first on the companion `fd`, or more than were rung.
fn seen_past(fd: i32, bells: Tally) -> Result<bool> {
    let (mut bytes, mut looked) = ([0u8; 64], Ok(0));
    let many = bells.exceeded_by(|| {
        let (start, nobody) = (bytes.as_mut_ptr().cast(), core::ptr::null_mut());
        looked = calls::recvfrom(fd, start, bytes.len(), MSG_DONTWAIT | MSG_PEEK, nobody, core::ptr::null_mut());
        looked.unwrap_or(0) as u32
    });
    looked.map(|seen| many || !are_bells(&bytes[..seen]))
}

/// Whether something was left on a kept companion by calls past the library, at either end: the next connection would be reset for
/// it. `fd` is the end of `side`, on which `readable` says that something lies.
pub fn is_left(page: &ChannelPage, side: usize, fd: i32, readable: bool) -> bool {
    let (own, peer) = (&page.sides[side], &page.sides[side ^ 1]);
    let unread = || calls::bytes_unread(fd).unwrap_or(u32::MAX) as u64;
    (readable && seen_past(fd, Tally::new(peer, own)) != Ok(false)) || unread() > memory_of_bells(Tally::new(own, peer).owed())
}

/// What the kernel counts for `count` bells that the other end has not read: no bytes, but memory.
fn memory_of_bells(count: u32) -> u64 {
    if count == 0 {
        return 0;
    }
    if WAITING.of_one_bell.load(Ordering::Relaxed) == 0 {
        WAITING.of_one_bell.store(measure().unwrap_or(0), Ordering::Relaxed);
    }
    u64::from(WAITING.of_one_bell.load(Ordering::Relaxed)) * u64::from(count)
}

#[cold]
fn measure() -> Result<u32> {
    let mut pair = [-1; 2];
    calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr())?;
    let unread = if wake::write_bell(pair[0], 0) { calls::bytes_unread(pair[0]) } else { Ok(0) };
    for end in pair {
        let _ = calls::close(end);
    }
    unread
}

/// The peer wrote past its library: the connection is reset, on both sides. No lock is waited for: the caller may hold a set's.
#[cold]
pub fn break_off(socket: &Socket, fd: i32) {
    if !end_here(socket) {
        return;
    }
    socket.set(flag::NOT_REUSABLE); // what lies on the companion would break the next connection off, too
    say_why(socket);
    if let Some(held) = socket.try_lock_send() {
        socket.outgoing().end(word::RST | word::FIN | word::CLOSED);
        drop(held);
    }
    // A thread that holds the lock publishes a word of its own: so the peer hears a bell in any case, and finds the reason
    // ([`note_broken`]).
    wake::ring(socket, fd);
    tell(socket, Reason::ForeignBytes);
    bells::end_companion(socket, fd);
}

/// The connection is over here, with an error. False: it was already, and may have told its error.
fn end_here(socket: &Socket) -> bool {
    life::happens(socket.own(), Event::BrokenOff).1
}

/// Whether the peer has broken the connection off, which ends it here as well: its word may not say so yet.
pub fn note_broken(socket: &Socket) -> bool {
    let broken = socket.peer().transmit.broken.load(Ordering::Acquire) != 0 && end_here(socket);
    if broken {
        note_reset(socket);
    }
    broken
}

/// Lets the peer know why its connection is about to be reset.
pub fn say_why(socket: &Socket) {
    socket.own().transmit.broken.store(Reason::ForeignBytes as u32, Ordering::Release);
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
    for fd in crate::socket::numbers_of(socket) {
        status_page::note(fd, kind::STREAM, reason, Some(socket.channel()));
    }
}
