//! The swift way of short messages: nothing unusual about the socket, and nothing to wait for.
//!
//! What is checked here once is checked in several places on the general way (`stream`), which takes over whenever one of
//! the answers is not the usual one. Nothing here enters the kernel, allocates, or waits for longer than cache lines take to
//! cross a machine. `scripts/check-hot-path` counts the instructions; docs/PERFORMANCE.md says what may not happen here.
//!
//! What is left to be done is always the last thing that a function does, so the compiler keeps no register for it. So the hooks
//! have a lean way in them, which calls nothing (`LEAN`), and go on from there to one that may.

use crate as stream;
use crate::due;
use crate::socket::{flag, Socket};
use crate::waiting::wake;
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_ring::{Attempt, SHORT};
use shunt_segment::channel::{arm, state, word};
use shunt_sys::libc::{MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{cancel, section, thread};
use shunt_table::global;

/// Flags of a socket that takes the general way.
const UNUSUAL: u32 = flag::SHARED
    | flag::FENCE
    | flag::CORKED
    | flag::SLOW_RECEIVE
    | flag::ASYNC
    | flag::TIMESTAMPS
    | flag::HUNG_UP
    | flag::SHUT_RD
    | flag::UNACCEPTED
    | flag::REMOTE
    | flag::CUT
    | flag::TAPPED;

/// Flags of a call that change nothing while it need not wait.
const USUAL: i32 = MSG_DONTWAIT | MSG_NOSIGNAL;

/// Looks at the peer's word before a receiver begins to wait in earnest: about as long as an answer takes that is on its
/// way between two distant processors. No clock is read meanwhile.
const LOOKS: u32 = 32;

/// Why a call takes the general way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Declined {
    /// Something is unusual.
    Unusual,
    /// The same, and the section that was begun is still open: [`section::leave`] ends it.
    InSection,
    /// Nothing is, but something is to be called: the same without `LEAN` is to be tried, behind the end of the section.
    NotLeanInSection,
}

#[inline(always)]
fn usual(socket: &Socket, flags: i32) -> bool {
    flags & !USUAL == 0 && socket.flags.load(Ordering::Relaxed) & UNUSUAL == 0
}

/// Takes one direction in a section. Handlers wait for its end, so the lock's word is needed only against other threads.
///
/// `ALONE`: the process has one thread. The two kinds are compiled apart, since most programs need only one of them.
#[inline(always)]
fn take<const ALONE: bool>(socket: &Socket, lock: &AtomicU32) -> Result<(), Declined> {
    if global::single_threaded() != ALONE || lock.load(Ordering::Relaxed) != 0 || cancel::noted() != 0 {
        return Err(Declined::Unusual);
    }
    if ALONE {
        section::enter();
        return unshared(socket);
    }
    // SAFETY: the calling thread's own block.
    let me = unsafe { (*thread::block()).tid() };
    if me == 0 {
        return Err(Declined::Unusual);
    }
    section::enter();
    if lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return Err(Declined::InSection);
    }
    unshared(socket).inspect_err(|_| release::<ALONE>(lock))
}

/// Another thread, or a handler, may have forked since the flags were looked at. It waits for those who hold the direction, so a
/// look behind the lock is enough.
#[inline(always)]
fn unshared(socket: &Socket) -> Result<(), Declined> {
    if socket.has(flag::SHARED | flag::CUT) {
        Err(Declined::InSection)
    } else {
        Ok(())
    }
}

/// Lets other threads in; the section is still open.
#[inline(always)]
fn release<const ALONE: bool>(lock: &AtomicU32) {
    if !ALONE {
        lock.store(0, Ordering::Release);
    }
}

/// Sends a short message if there is room: its length. `ALONE`: see [`take`]. `LEAN`: see [`shunt_ring::Pipe::send_short`].
///
/// # Safety
/// `data` may be any address that is not ours.
#[inline(always)]
pub unsafe fn send<const ALONE: bool, const LEAN: bool>(
    socket: &Socket,
    fd: i32,
    data: *const u8,
    length: usize,
    flags: i32,
) -> Result<isize, Declined> {
    const OVER: u32 = state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE;
    /// What a peer may have asked to be told.
    const ASKED: u32 =
        arm::IN | arm::IN << arm::SET_SHIFT | arm::FENCE | arm::FENCE_ASKED | arm::STAMP | arm::ALWAYS | arm::TAP | arm::CUT;
    let pipe = socket.outgoing();
    if !usual(socket, flags)
        || length.wrapping_sub(1) >= SHORT
        || pipe.own.receive.state.load(Ordering::Relaxed) & OVER != 0
        || pipe.peer.post.word.load(Ordering::Relaxed) & (word::FIN | word::CLOSED | word::RST) != 0
    {
        return Err(Declined::Unusual);
    }
    take::<ALONE>(socket, socket.sending())?;
    // SAFETY: passed on; the direction is held, and not shared with another process.
    let attempt = unsafe { pipe.send_short::<LEAN>(data, length, true) };
    if attempt == Attempt::Torn {
        return Ok(put_again::<ALONE>(socket, fd, length));
    }
    release::<ALONE>(socket.sending());
    match attempt {
        Attempt::Declined => return Err(Declined::InSection),
        Attempt::NotLean => return Err(Declined::NotLeanInSection),
        _ => {}
    }
    if !section::leave_quietly() {
        return Ok(interrupted_sender(socket, fd, length));
    }
    // The look must follow the announcement: see `shunt_ring::bell`.
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    // Now and then the peer may turn out to be gone: a thread that only sends would not hear of it until the ring is full.
    let behind = pipe.own.transmit.word.load(Ordering::Relaxed) as usize & (wake::LEAST_LOOK - 1);
    if pipe.peer.wait.armed.load(Ordering::Relaxed) & ASKED != 0 {
        return Ok(tell(socket, fd, length));
    }
    if behind < length {
        return Ok(look(socket, fd, length));
    }
    Ok(length as isize)
}

/// The end of [`send`], where the source went away in the middle.
#[cold]
#[inline(never)]
fn put_again<const ALONE: bool>(socket: &Socket, fd: i32, length: usize) -> isize {
    socket.outgoing().put_again(length);
    release::<ALONE>(socket.sending());
    section::leave();
    tell(socket, fd, length)
}

#[cold]
#[inline(never)]
fn interrupted_sender(socket: &Socket, fd: i32, length: usize) -> isize {
    section::due();
    tell(socket, fd, length)
}

#[cold]
#[inline(never)]
fn tell(socket: &Socket, fd: i32, length: usize) -> isize {
    wake::notify_after(socket, fd, arm::IN, length);
    wake::check_peer_of_sender(socket, fd);
    socket.outgoing().take_time(length);
    length as isize
}

/// A few KiB were sent since the last look: longer messages look less often.
#[cold]
#[inline(never)]
fn look(socket: &Socket, fd: i32, length: usize) -> isize {
    let pipe = socket.outgoing();
    if pipe.announced() as usize & (wake::look_after(length) - 1) < length {
        wake::check_peer_of_sender(socket, fd);
    }
    pipe.take_time(length);
    length as isize
}

/// Takes what is there if it can be had at once: the number of bytes, at least 1. `ALONE`: see [`take`]. `LEAN`: see
/// [`shunt_ring::Pipe::send_short`].
///
/// # Safety
/// `data` may be any address that is not ours.
#[inline(always)]
pub unsafe fn receive<const ALONE: bool, const LEAN: bool>(
    socket: &Socket,
    fd: i32,
    data: *mut u8,
    length: usize,
    flags: i32,
) -> Result<isize, Declined> {
    if !usual(socket, flags) || length as isize <= 0 {
        return Err(Declined::Unusual);
    }
    let pipe = socket.incoming();
    take::<ALONE>(socket, socket.receiving())?;
    // SAFETY: passed on; the direction is held.
    let attempt = unsafe { pipe.receive_short::<LEAN>(data, length) };
    release::<ALONE>(socket.receiving());
    let taken = match attempt {
        Attempt::Moved(taken) => taken,
        Attempt::NotLean => return Err(Declined::NotLeanInSection),
        _ => return Err(Declined::InSection),
    };
    if !section::leave_quietly() {
        return Ok(interrupted_receiver(socket, fd, taken));
    }
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    if pipe.peer.wait.armed.load(Ordering::Relaxed) & stream::WANTS_SPACE != 0 {
        return Ok(give(socket, fd, taken));
    }
    Ok(taken as isize)
}

/// Whether a receive that must not wait has nothing to take, and there is nothing else to say: its answer is EAGAIN. So ends each
/// turn of a program that goes by edges.
pub fn drained(socket: &Socket, fd: i32, flags: i32) -> bool {
    const OVER: u32 = state::DONE | state::PEER_GONE | state::SHUT_RD | state::RESET_DUE | state::PIPE_DUE;
    if !usual(socket, flags) || flags & MSG_DONTWAIT == 0 && !socket.has(flag::NONBLOCK) || socket.incoming().look().1 > 0 {
        return false;
    }
    wake::check_peer(socket, fd);
    due::keep();
    let (word, waiting) = socket.incoming().look();
    waiting == 0
        && word & (word::FIN | word::CLOSED | word::RST) == 0
        && socket.peer().urgent.load(Ordering::Acquire) == 0
        && socket.own().receive.state.load(Ordering::Relaxed) & OVER == 0
        && !socket.has(flag::HUNG_UP)
}

#[cold]
#[inline(never)]
fn interrupted_receiver(socket: &Socket, fd: i32, taken: usize) -> isize {
    section::due();
    give(socket, fd, taken)
}

#[cold]
#[inline(never)]
fn give(socket: &Socket, fd: i32, taken: usize) -> isize {
    stream::space_came_free(socket, fd);
    taken as isize
}

/// Looks for a short while whether `length` bytes arrive, or some of them, before a call that may wait goes the general way.
#[inline(always)]
pub fn arrives(socket: &Socket, length: usize, flags: i32) -> bool {
    // SAFETY: the calling thread's own block.
    let block = unsafe { &mut *thread::block() };
    let (own, peer) = (socket.own(), socket.peer());
    if length > SHORT && socket.incoming().look().1 > SHORT {
        // A long message was there already.
        if socket.connected.sleeps.load(Ordering::Relaxed) > 0 {
            wake::stayed_awake(socket);
        }
        return false;
    }
    // A peer on this processor runs when we do not; where spinning was found to steal from others, none is done.
    let here = own.wait.processor.load(Ordering::Relaxed);
    let apart = here == 0 || here != peer.wait.processor.load(Ordering::Relaxed);
    if !usual(socket, flags) || flags & MSG_DONTWAIT != 0 || socket.has(flag::NONBLOCK) || !apart || block.spin_penalty != 0 {
        return false;
    }
    let pipe = socket.incoming();
    for _ in 0..LOOKS {
        // A look in each few cycles would take the line from the peer while it writes.
        core::hint::spin_loop();
        if pipe.look().1 > 0 {
            if block.expected_wait | socket.connected.sleeps.load(Ordering::Relaxed) as u64 > 3 {
                block.expected_wait -= block.expected_wait / 4;
                wake::stayed_awake(socket);
            }
            return true;
        }
    }
    false
}
