//! Receiving: any flags, any number of buffers, with waiting.

use super::carried::Rest;
use super::take::{peek, take, take_pieces, taken};
use super::{distrust, ends_for_signals};
use crate::fast_path::Declined;
use crate::options::limits;
use crate::progress::Posting;
use crate::socket::{flag, Socket};
use crate::waiting::readiness::{observe, take_reset};
use crate::waiting::wake::nonblocking;
use crate::waiting::{bypass, readiness, wake};
use crate::{due, mark, sleep};
use crate::{error_queue, fast_path, urgent};
use core::sync::atomic::Ordering;
use shunt_segment::channel::arm;
use shunt_sys::libc::{self, iovec, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use shunt_sys::{section, thread, Errno, Result};
use shunt_table::global;
use shunt_table::memory::pieces::Pieces;

/// recv(2) into one buffer.
///
/// # Safety
/// `data` may be any address that is not ours; if it faults, EFAULT.
#[inline(never)]
pub unsafe fn receive(socket: &Socket, fd: i32, data: *mut u8, length: usize, flags: i32) -> Result<isize> {
    let began = thread::handled();
    let alone = global::single_threaded();
    if socket.has(flag::UNACCEPTED) {
        readiness::while_unaccepted(socket, fd);
    }
    if !alone || fast_path::arrives(socket, length, flags) {
        // SAFETY: passed on.
        match unsafe {
            if alone {
                fast_path::receive::<true, false>(socket, fd, data, length, flags)
            } else {
                fast_path::receive::<false, false>(socket, fd, data, length, flags)
            }
        } {
            Ok(taken) => return Ok(taken),
            Err(Declined::InSection | Declined::NotLeanInSection) => section::leave(),
            Err(Declined::Unusual) => {}
        }
    }
    if length > 0 && fast_path::drained(socket, fd, flags) {
        return Err(Errno(libc::EAGAIN));
    }
    let simple = flags == 0 || flags == MSG_DONTWAIT || flags == MSG_NOSIGNAL;
    if simple && !socket.has(flag::SLOW_RECEIVE) && (length as isize) >= 0 {
        // SAFETY: passed on.
        let taken = unsafe { take(socket, fd, data, length)? };
        if taken > 0 {
            if socket.has(flag::MAY_LEAVE) {
                crate::progress::leave(socket, fd); // as below
            }
            return Ok(taken as isize);
        }
    }
    if super::is_no_range(data, length) {
        return Err(Errno(libc::EFAULT));
    }
    let piece = iovec { iov_base: data.cast(), iov_len: length };
    // SAFETY: passed on.
    unsafe { receive_pieces_since(socket, fd, &Pieces::one(&piece), flags, began) }
}

/// The general case of recv: any flags, any number of buffers.
///
/// # Safety
/// The pieces are the caller's buffers.
pub unsafe fn receive_pieces(socket: &Socket, fd: i32, pieces: &Pieces, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { receive_pieces_since(socket, fd, pieces, flags, thread::handled()) }
}

/// [`receive_pieces`] of a call that began when [`thread::handled`] was `began`.
#[inline(never)]
unsafe fn receive_pieces_since(socket: &Socket, fd: i32, pieces: &Pieces, flags: i32, mut began: u64) -> Result<isize> {
    const KNOWN: i32 = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_PEEK | MSG_TRUNC | MSG_WAITALL | libc::MSG_CMSG_CLOEXEC;
    let length = pieces.length();
    crate::options::owners::catch_up(socket);
    if flags & libc::MSG_OOB != 0 {
        if socket.has(flag::MAY_LEAVE) && crate::progress::leave(socket, fd) {
            // The byte that it asks for is there, perhaps.
            return Rest { socket, fd, pieces, done: 0, enough: length, flags, deadline: u64::MAX, began }.receive();
        }
        let (data, length) = pieces.from(0, usize::MAX).next().unwrap_or((core::ptr::null_mut(), 0));
        // SAFETY: the first buffer.
        return unsafe { urgent::receive(socket, data, length, flags) };
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return error_queue::take(socket).map(|_| 0).ok_or(Errno(libc::EAGAIN));
    }
    let given = flags;
    let timeout = socket.receive_timeout.load(Ordering::Relaxed);
    let flags = flags & KNOWN | if timeout == limits::AT_ONCE { MSG_DONTWAIT } else { 0 };
    let peeking = flags & MSG_PEEK != 0;
    // sock_rcvlowat: a call that waits is content with so many bytes.
    let enough = if flags & MSG_WAITALL != 0 { length } else { length.min(socket.low_water.load(Ordering::Relaxed) as usize) };
    let offset = socket.peek_offset.load(Ordering::Relaxed);
    let base = if peeking { offset.max(0) as usize } else { 0 };
    let mut deadline = if timeout == 0 { u64::MAX } else { 0 };
    let mut hasty = None;
    let mut done = 0usize;
    let done = loop {
        let generation = socket.generation.load(Ordering::Acquire);
        let was_over = readiness::over(socket);
        let patient = !was_over && flags & MSG_DONTWAIT == 0 && !socket.has(flag::NONBLOCK);
        // SAFETY: `done <= length`.
        match unsafe { attempt(socket, fd, pieces, Progress { base, done, patient }, flags) } {
            Ok(count) => done += count,
            Err(_) if done > 0 => break done,
            Err(error) => return Err(error),
        }
        if done > 0 && (done >= enough || done == length || mark::stands_at(socket, if peeking { base + done } else { 0 })) {
            break done;
        }
        let (peer, waiting) = socket.incoming().look();
        if waiting > 0 && length == 0 {
            return Ok(0); // recv of nothing waits for something, as on TCP
        }
        // What is there and does not count: bytes that a look has seen, the urgent byte.
        let seen = if peeking { urgent::window(socket, base + done).0 } else { mark::withheld(socket) };
        if waiting > seen {
            continue;
        }
        if socket.has(flag::MAY_LEAVE) && crate::progress::leave(socket, fd) {
            return Rest { socket, fd, pieces, done, enough, flags, deadline, began }.receive();
        }
        observe(socket, peer);
        if readiness::over(socket) {
            if done > 0 {
                break done;
            }
            if let Some(error) = take_reset(socket) {
                return Err(Errno(error));
            }
            // The word may have been published after we looked for bytes.
            if socket.incoming().look().1 > seen || !was_over {
                continue;
            }
            if bypass::look(socket, fd) {
                continue;
            }
            if readiness::is_dissolved(socket) {
                return Err(Errno(libc::ENOTCONN));
            }
            return Ok(0);
        }
        let conditions = arm::IN | (seen as u32) << readiness::SEEN_SHIFT;
        // Asked once: a call that waits goes on when O_NONBLOCK is set meanwhile.
        if *hasty.get_or_insert_with(|| nonblocking(socket, fd, flags)) {
            wake::check_peer(socket, fd);
            due::keep();
            if socket.has(flag::REMOTE) {
                let mut posting = post(socket, generation, pieces, done, flags);
                crate::progress::drive_into(posting.as_mut()); // what has come is there
                done += settled(socket, generation, fd, posting);
            }
            if readiness::any(socket, conditions) && done == 0 {
                continue;
            }
            if done > 0 {
                break done;
            }
            return Err(Errno(libc::EAGAIN));
        }
        if deadline == 0 {
            deadline = limits::deadline(timeout);
        }
        let mut posting = post(socket, generation, pieces, done, flags);
        let waited = sleep::wait_into(
            socket,
            fd,
            conditions,
            ends_for_signals(deadline, given, done.max((length == 0) as usize)),
            began,
            posting.as_mut(),
        );
        done += settled(socket, generation, fd, posting);
        if socket.hold.is_carried() && waited.is_ok() && (done == 0 || done < enough) {
            return Rest { socket, fd, pieces, done, enough, flags, deadline, began }.receive();
        }
        if done > 0 && (done >= enough || waited.is_err()) {
            break done;
        }
        if length == 0 && (waited.is_err() || readiness::any(socket, conditions)) {
            return Ok(0); // one wait, however it ends: tcp_recvmsg_locked asks for errors and signals only before another
        }
        waited?;
        if done == 0 && timeout == 0 && thread::restarted(began) != began {
            // The kernel begins the call anew after the handler: O_NONBLOCK may have been set meanwhile.
            began = thread::restarted(began);
            hasty = None;
        }
        if socket.generation.load(Ordering::Acquire) != generation {
            if done > 0 {
                break done;
            }
            return Err(Errno(libc::EBADF));
        }
    };
    if offset >= 0 {
        // sk_peek_offset_fwd and _bwd: looks go on where the last one ended, and reads take from the front.
        let moved = if peeking { offset.saturating_add(done as i32) } else { offset.saturating_sub(done as i32).max(0) };
        socket.peek_offset.store(moved, Ordering::Relaxed);
    }
    if socket.has(flag::MAY_LEAVE) && !peeking && done > 0 {
        crate::progress::leave(socket, fd); // a program that stops there may find its ring empty in no other call
    }
    Ok(done as isize)
}

/// The rest of the call's buffer, to be filled by what it brings itself, where bytes come from another host.
#[inline(always)]
fn post(socket: &Socket, generation: u32, pieces: &Pieces, done: usize, flags: i32) -> Option<Posting> {
    if !socket.has(flag::REMOTE) || flags & (MSG_PEEK | MSG_TRUNC) != 0 || pieces.single().is_none() {
        return None;
    }
    let (data, room) = pieces.from(done, usize::MAX).next()?;
    Some(Posting::new(socket, generation, data, room))
}

/// What the buffer got; the socket may have been closed since, and be another.
#[inline(always)]
fn settled(socket: &Socket, generation: u32, fd: i32, posting: Option<Posting>) -> usize {
    let got = posting.map_or(0, |posting| posting.taken);
    if got > 0 && socket.generation.load(Ordering::Acquire) == generation {
        taken(socket, fd);
    }
    got
}

/// How far a call has come.
struct Progress {
    /// Where a look begins (SO_PEEK_OFF).
    base: usize,
    /// Bytes received or seen so far.
    done: usize,
    /// The call waits when there is nothing.
    patient: bool,
}

/// One attempt under the flags: plain, peek, or discard (MSG_TRUNC on TCP).
unsafe fn attempt(socket: &Socket, fd: i32, pieces: &Pieces, progress: Progress, flags: i32) -> Result<usize> {
    let Progress { base, done, patient } = progress;
    if flags & MSG_PEEK != 0 {
        let held = socket.lock_receive()?;
        let (mut seen, most) = urgent::window(socket, base + done);
        if flags & MSG_TRUNC != 0 {
            let waiting = socket.incoming().look().1.saturating_sub(seen);
            return Ok(waiting.min(most).min(pieces.length() - done));
        }
        let mut total = 0;
        for (data, length) in pieces.from(done, most) {
            // SAFETY: the caller's buffer; the lock is held.
            let count = match unsafe { peek(socket, seen, data, length) } {
                Ok(0) if thread::take_fault() => return Err(Errno(libc::EFAULT)),
                Ok(count) => count,
                Err(_) if thread::take_fault() => return Err(Errno(libc::EFAULT)),
                Err(_) => {
                    drop(held);
                    return Err(distrust(socket));
                }
            };
            total += count;
            seen += count;
            if count < length {
                break;
            }
        }
        return Ok(total);
    }
    if flags & MSG_TRUNC != 0 {
        let mut scratch = [0u8; 4096];
        let mut dropped = 0;
        while dropped < pieces.length() - done {
            let piece =
                iovec { iov_base: scratch.as_mut_ptr().cast(), iov_len: scratch.len().min(pieces.length() - done - dropped) };
            // SAFETY: scratch memory has its own size.
            let count = unsafe { take_pieces(socket, fd, &Pieces::one(&piece), 0, patient)? };
            if count == 0 {
                break;
            }
            dropped += count;
            if mark::stands_at(socket, 0) {
                break; // as a read that gives its bytes
            }
        }
        return Ok(dropped);
    }
    // SAFETY: passed on.
    unsafe { take_pieces(socket, fd, pieces, done, patient) }
}
