//! Taking bytes, or looking at them, without waiting.

use super::distrust;
use crate::socket::{flag, Socket};
use crate::waiting::{readiness, wake};
use crate::{tap, urgent, window};
use core::sync::atomic::Ordering;
use shunt_ring::Trouble;
use shunt_segment::channel::{arm, word};
use shunt_sys::{libc, thread, Errno, Result};
use shunt_table::memory::pieces::Pieces;

/// One attempt to take bytes, without waiting; 0 also when the peer has sent urgent data.
#[inline(always)]
pub(super) unsafe fn take(socket: &Socket, fd: i32, data: *mut u8, length: usize) -> Result<usize> {
    if socket.peer().urgent.load(Ordering::Acquire) != 0 {
        return Ok(0);
    }
    // SAFETY: passed on.
    unsafe { take_ordinary(socket, fd, data, length) }
}

/// Takes `length` bytes that are known to wait, before any mark; the caller holds the receiving lock.
pub unsafe fn take_within(socket: &Socket, data: *mut u8, length: usize) -> core::result::Result<usize, Trouble> {
    let mut done = 0;
    while done < length {
        // SAFETY: `done <= length`.
        let count = unsafe {
            let data = data.wrapping_add(done);
            match socket.incoming().receive_within(data, length - done) {
                Err(Trouble::Unmapped) => window::receive_unmapped(socket, 0, data, length - done, true)?,
                Ok(0) => break, // a fault, if anything
                other => other?,
            }
        };
        done += count;
    }
    Ok(done)
}

/// Copies `length` bytes that are known to wait behind `skip` others, without taking them; fewer only for a fault.
pub unsafe fn peek_within(socket: &Socket, skip: usize, data: *mut u8, length: usize) -> core::result::Result<usize, Trouble> {
    let mut done = 0;
    while done < length {
        // SAFETY: passed on.
        match unsafe { peek(socket, skip + done, data.wrapping_add(done), length - done)? } {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Bytes up to which a vector is filled as a whole or not at all: what the kernel would have in one segment.
const AT_ONCE: usize = 4096;

/// One attempt to take bytes into the pieces, from byte `done` of them on, in one step: without waiting, and not beyond
/// the peer's urgent byte. `patient`: the caller waits when there is nothing.
pub(super) unsafe fn take_pieces(socket: &Socket, fd: i32, pieces: &Pieces, done: usize, patient: bool) -> Result<usize> {
    let held = socket.lock_receive()?;
    let most = if done < pieces.length() { urgent::before_mark(socket, patient) } else { 0 };
    let mut total = 0;
    // A fault leaves all of a small vector's bytes where they are: the kernel copies a segment into all of its buffers.
    let at_once = pieces.single().is_none() && most.min(pieces.length() - done) <= AT_ONCE;
    for (data, length) in pieces.from(done, most) {
        // SAFETY: the caller's buffer; the lock is held, and so many bytes wait.
        match unsafe {
            if at_once {
                peek_within(socket, total, data, length)
            } else {
                take_within(socket, data, length)
            }
        } {
            Ok(taken) => {
                total += taken;
                if taken < length {
                    if thread::take_fault() && (total == 0 || at_once) {
                        return Err(Errno(libc::EFAULT));
                    }
                    break;
                }
            }
            Err(_) if thread::take_fault() && total == 0 => return Err(Errno(libc::EFAULT)),
            Err(_) if total == 0 => {
                drop(held);
                return Err(distrust(socket));
            }
            Err(_) => break,
        }
    }
    if at_once {
        socket.incoming().pass(total);
    }
    if total > 0 && socket.has(flag::TAPPED) {
        let mut behind = total;
        for (data, length) in pieces.from(done, total) {
            behind -= length;
            // SAFETY: the caller's buffers.
            unsafe { tap::received(socket, behind, data, length) };
        }
    }
    drop(held);
    if total > 0 {
        taken(socket, fd);
    }
    Ok(total)
}

#[inline(always)]
unsafe fn take_ordinary(socket: &Socket, fd: i32, data: *mut u8, length: usize) -> Result<usize> {
    let pipe = socket.incoming();
    let held = socket.lock_receive()?;
    // SAFETY: room promised by the caller; the lock is held.
    let mut count = unsafe { pipe.receive(data, length) };
    let goes_on = |count| count < length && (pipe.window.is_wanted() || pipe.stands_at_referred());
    if count == Err(Trouble::Unmapped) || count.is_ok_and(goes_on) {
        // SAFETY: as above.
        count = unsafe { take_from_window(socket, data, length, count.unwrap_or(0)) };
    }
    if let (true, Ok(count @ 1..)) = (socket.has(flag::TAPPED), count) {
        // SAFETY: passed on.
        unsafe { tap::received(socket, 0, data, count) };
    }
    drop(held);
    match count {
        Ok(0) if thread::take_fault() => Err(Errno(libc::EFAULT)),
        Ok(0) => Ok(0),
        Ok(count) => {
            taken(socket, fd);
            Ok(count)
        }
        Err(_) if thread::take_fault() => Err(Errno(libc::EFAULT)),
        Err(_) => Err(distrust(socket)),
    }
}

/// Goes on receiving behind `done` bytes, where the next ones lie in a window that is not mapped, or in no ring.
#[cold]
unsafe fn take_from_window(socket: &Socket, data: *mut u8, length: usize, done: usize) -> core::result::Result<usize, Trouble> {
    let pipe = socket.incoming();
    let (mut done, mut elsewhere) = (done, true);
    loop {
        let (rest, left) = (data.wrapping_add(done), length - done);
        // SAFETY: `done < length`, or nothing is copied.
        let taken = unsafe {
            match elsewhere {
                true => window::receive_unmapped(socket, 0, rest, left, true),
                false => pipe.receive(rest, left),
            }
        };
        match taken {
            Ok(0) if elsewhere => elsewhere = false,
            Err(Trouble::Unmapped) if !elsewhere => elsewhere = true,
            Ok(taken) if taken > 0 && taken < left && (elsewhere || pipe.window.is_wanted() || pipe.stands_at_referred()) => {
                done += taken;
                elsewhere = !elsewhere;
            }
            Err(trouble) if done == 0 => return Err(trouble),
            taken => {
                if done > 0 {
                    thread::take_fault(); // what was taken before is the answer
                }
                return Ok(done + taken.unwrap_or(0));
            }
        }
    }
}

/// Copies what waits behind `skip` bytes without taking it.
///
/// # Safety
/// `target` has room for `length` bytes; the caller holds the receiving lock.
pub unsafe fn peek(socket: &Socket, skip: usize, target: *mut u8, length: usize) -> core::result::Result<usize, Trouble> {
    let mut done = 0;
    loop {
        let (behind, rest, left) = (skip + done, target.wrapping_add(done), length - done);
        // SAFETY: passed on.
        let seen = match unsafe { socket.incoming().peek(behind, rest, left) } {
            // SAFETY: passed on.
            Err(Trouble::Unmapped) => match unsafe { window::receive_unmapped(socket, behind, rest, left, false) } {
                Ok(0) if left > 0 => continue,
                copied => copied,
            },
            seen => seen,
        };
        done += match seen {
            Err(_) if done > 0 => {
                thread::take_fault(); // what was seen before is the answer
                return Ok(done);
            }
            seen => seen?,
        };
        // Runs of bytes that are referred to, and what is between them, are looked at one by one.
        if done == length || seen == Ok(0) || socket.incoming().look().1 <= skip + done {
            if done > 0 {
                thread::take_fault(); // as above
            }
            return Ok(done);
        }
    }
}

/// Bytes were taken.
#[inline(always)]
pub fn taken(socket: &Socket, fd: i32) {
    space_came_free(socket, fd);
    if socket.end_behind.load(Ordering::Relaxed) != 0 {
        readiness::end_may_come(socket);
    }
    if socket.has(flag::ASYNC | flag::TIMESTAMPS) {
        wake::arm_for_signals(socket, fd);
    }
}

/// A sender sleeps for space, by itself or in a set.
///
/// Or it has asked for fences: then what is seen without one proves nothing, and `notify` looks again behind one.
pub const WANTS_SPACE: u32 = arm::OUT | arm::OUT << arm::SET_SHIFT | arm::FENCE | arm::FENCE_ASKED;

/// A sleeping sender is woken when half of its ring is free: not for every byte.
#[inline(always)]
pub fn space_came_free(socket: &Socket, fd: i32) {
    if socket.peer().wait.armed.load(Ordering::Relaxed) & WANTS_SPACE != 0 || socket.has(flag::FENCE) {
        let (_, waiting) = socket.incoming().look();
        let peer = socket.peer().post.word.load(Ordering::Relaxed);
        let class = (peer >> word::CLASS_SHIFT) as usize & 7;
        let size = shunt_segment::area::RING_SIZE[class.min(shunt_segment::area::CLASSES - 1)] as usize;
        if waiting * 2 <= size || socket.connected.loans.ended.swap(0, Ordering::Relaxed) != 0 {
            wake::notify(socket, fd, arm::OUT);
        }
    }
}
