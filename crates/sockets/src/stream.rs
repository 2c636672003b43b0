//! send and receive on an accelerated stream.

use crate::pieces::{self, Pieces};
use crate::readiness::{self, observe, take_error, take_reset};
use crate::socket::{flag, Socket};
use crate::swift::{self, Declined};
use crate::wait::{self, nonblocking};
use crate::{error_queue, global, options, settle, urgent, window};
use core::sync::atomic::Ordering;
use shunt_ring::{bell, Trouble};
use shunt_segment::channel::{arm, state, word};
use shunt_sys::libc::{self, iovec, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, SIGPIPE};
use shunt_sys::{calls, clock, section, thread, Errno, Result};

/// recv(2) into one buffer.
///
/// # Safety
/// `data` may be any address that is not ours; if it faults, EFAULT.
#[inline(never)]
pub unsafe fn receive(socket: &Socket, fd: i32, data: *mut u8, length: usize, flags: i32) -> Result<isize> {
    let began = thread::handled();
    let alone = global::single_threaded();
    if !alone || swift::arrives(socket, flags) {
        // SAFETY: passed on.
        match unsafe {
            if alone {
                swift::receive::<true>(socket, fd, data, length, flags)
            } else {
                swift::receive::<false>(socket, fd, data, length, flags)
            }
        } {
            Ok(taken) => return Ok(taken),
            Err(Declined::InSection) => section::leave(),
            Err(Declined::Unusual) => {}
        }
    }
    let simple = flags == 0 || flags == MSG_DONTWAIT || flags == MSG_NOSIGNAL;
    if simple && !socket.has(flag::CAREFUL) && (length as isize) >= 0 {
        // SAFETY: passed on.
        let taken = unsafe { take(socket, fd, data, length)? };
        if taken > 0 {
            return Ok(taken as isize);
        }
    }
    if (length as isize) < 0 {
        return Err(Errno(libc::EFAULT)); // no such range (access_ok)
    }
    let piece = iovec { iov_base: data.cast(), iov_len: length };
    // SAFETY: passed on.
    unsafe { receive_pieces_since(socket, fd, &Pieces::one(&piece), flags, began) }
}

/// One attempt to take bytes, without waiting; 0 also when the peer has sent urgent data.
#[inline(always)]
unsafe fn take(socket: &Socket, fd: i32, data: *mut u8, length: usize) -> Result<usize> {
    if socket.peer().urgent.load(Ordering::Acquire) != 0 {
        return Ok(0);
    }
    // SAFETY: passed on.
    unsafe { take_ordinary(socket, fd, data, length) }
}

/// Takes `length` bytes that are known to wait, before any mark; the caller holds the receiving lock.
pub(crate) unsafe fn take_within(socket: &Socket, data: *mut u8, length: usize) -> core::result::Result<usize, Trouble> {
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
pub(crate) unsafe fn peek_within(
    socket: &Socket,
    skip: usize,
    data: *mut u8,
    length: usize,
) -> core::result::Result<usize, Trouble> {
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
unsafe fn take_pieces(socket: &Socket, fd: i32, pieces: &Pieces, done: usize, patient: bool) -> Result<usize> {
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
    if count == Err(Trouble::Unmapped) || (count.is_ok_and(|count| count < length) && pipe.window.is_wanted()) {
        // SAFETY: as above.
        count = unsafe { take_from_window(socket, data, length, count.unwrap_or(0)) };
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

/// Goes on receiving behind `done` bytes, where the next ones lie in a window that is not mapped.
#[cold]
unsafe fn take_from_window(socket: &Socket, data: *mut u8, length: usize, done: usize) -> core::result::Result<usize, Trouble> {
    loop {
        // SAFETY: `done < length`, or nothing is copied.
        let taken = match unsafe { window::receive_unmapped(socket, 0, data.wrapping_add(done), length - done, true)? } {
            // SAFETY: as above.
            0 => unsafe { socket.incoming().receive(data.wrapping_add(done), length - done) },
            copied => Ok(copied),
        };
        match taken {
            Ok(taken) => {
                if done > 0 {
                    thread::take_fault(); // what was taken before is the answer
                }
                return Ok(done + taken);
            }
            Err(Trouble::Unmapped) => {}
            Err(trouble) => return Err(trouble),
        }
    }
}

/// Bytes were taken.
#[inline(always)]
pub(crate) fn taken(socket: &Socket, fd: i32) {
    space_came_free(socket, fd);
    if socket.has(flag::ASYNC | flag::TIMED) {
        wait::arm_for_signals(socket, fd);
    }
}

/// A sender sleeps for space, by itself or in a set.
///
/// Or it has asked for fences: then what is seen without one proves nothing, and `notify` looks again behind one.
pub(crate) const WANTS_SPACE: u32 = arm::OUT | arm::OUT << arm::SET_SHIFT | arm::FENCE | arm::FENCE_ASKED;

/// A sleeping sender is woken when half of its ring is free: not for every byte.
#[inline(always)]
pub(crate) fn space_came_free(socket: &Socket, fd: i32) {
    if socket.peer().wait.armed.load(Ordering::Relaxed) & WANTS_SPACE != 0 || socket.has(flag::FENCE) {
        let (_, waiting) = socket.incoming().look();
        let peer = socket.peer().post.word.load(Ordering::Relaxed);
        let class = (peer >> word::CLASS_SHIFT) as usize & 7;
        let size = shunt_segment::area::RING_SIZE[class.min(shunt_segment::area::CLASSES - 1)] as usize;
        if waiting * 2 <= size {
            wait::notify(socket, fd, arm::OUT);
        }
    }
}

/// The peer wrote nonsense into shared memory: this connection is reset.
#[cold]
pub(crate) fn distrust(socket: &Socket) -> Errno {
    let own = socket.own();
    own.receive.state.fetch_or(state::DONE | state::END_NOTED, Ordering::AcqRel);
    let held = socket.lock_send();
    socket.outgoing().end(word::RST | word::FIN | word::CLOSED);
    drop(held);
    Errno(libc::ECONNRESET)
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
    options::catch_up(socket);
    if flags & libc::MSG_OOB != 0 {
        let (data, length) = pieces.from(0, usize::MAX).next().unwrap_or((core::ptr::null_mut(), 0));
        // SAFETY: the first buffer.
        return unsafe { urgent::receive(socket, data, length, flags) };
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return error_queue::take(socket).map(|_| 0).ok_or(Errno(libc::EAGAIN));
    }
    let flags = flags & KNOWN;
    let peeking = flags & MSG_PEEK != 0;
    // sock_rcvlowat: a call that waits is content with so many bytes.
    let enough = if flags & MSG_WAITALL != 0 { length } else { length.min(socket.low_water.load(Ordering::Relaxed) as usize) };
    let offset = socket.peek_offset.load(Ordering::Relaxed);
    let base = if peeking { offset.max(0) as usize } else { 0 };
    let timeout = socket.receive_timeout.load(Ordering::Relaxed);
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
        if done > 0 && (done >= enough || done == length || urgent::stands_at(socket, if peeking { base + done } else { 0 })) {
            break done;
        }
        let (peer, waiting) = socket.incoming().look();
        if waiting > 0 && length == 0 {
            return Ok(0); // recv of nothing waits for something, as on TCP
        }
        // What is there and does not count: bytes that a look has seen, the urgent byte.
        let seen = if peeking { urgent::window(socket, base + done).0 } else { urgent::withheld(socket) };
        if waiting > seen {
            continue;
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
            return Ok(0);
        }
        let conditions = arm::IN | (seen as u32) << readiness::SEEN_SHIFT;
        // Asked once: a call that waits goes on when O_NONBLOCK is set meanwhile.
        if *hasty.get_or_insert_with(|| nonblocking(socket, fd, flags)) {
            wait::check_peer(socket, fd);
            if socket.has(flag::REMOTE) {
                crate::remote::drive(); // what has come is there
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
            deadline = clock::monotonic_ns().saturating_add(timeout);
        }
        if let Err(error) = wait::wait(socket, fd, conditions, ends_for_signals(deadline, done), began) {
            if done > 0 {
                break done;
            }
            return Err(error);
        }
        if done == 0 && timeout == 0 && thread::restarted(began) != began {
            // The kernel begins the call anew after the handler: O_NONBLOCK may have been set meanwhile.
            began = thread::restarted(began);
            hasty = None;
        }
        if socket.generation.load(Ordering::Acquire) != generation {
            return Err(Errno(libc::EBADF));
        }
    };
    if offset >= 0 {
        // sk_peek_offset_fwd and _bwd: looks go on where the last one ended, and reads take from the front.
        let moved = if peeking { offset.saturating_add(done as i32) } else { offset.saturating_sub(done as i32).max(0) };
        socket.peek_offset.store(moved, Ordering::Relaxed);
    }
    Ok(done as isize)
}

/// A call that has moved bytes gives these when a signal comes, also with SA_RESTART: it sleeps as one with a time limit, which never goes on.
fn ends_for_signals(deadline: u64, done: usize) -> u64 {
    if done > 0 {
        deadline.min(u64::MAX - 1)
    } else {
        deadline
    }
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

/// Copies what waits behind `skip` bytes without taking it.
///
/// # Safety
/// `target` has room for `length` bytes; the caller holds the receiving lock.
pub unsafe fn peek(socket: &Socket, skip: usize, target: *mut u8, length: usize) -> core::result::Result<usize, Trouble> {
    loop {
        // SAFETY: passed on.
        let seen = unsafe { socket.incoming().peek(skip, target, length) };
        if seen != Err(Trouble::Unmapped) {
            return seen;
        }
        // SAFETY: passed on.
        let copied = unsafe { window::receive_unmapped(socket, skip, target, length, false)? };
        if copied > 0 {
            return Ok(copied);
        }
    }
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
            if urgent::stands_at(socket, 0) {
                break; // as a read that gives its bytes
            }
        }
        return Ok(dropped);
    }
    // SAFETY: passed on.
    unsafe { take_pieces(socket, fd, pieces, done, patient) }
}

/// Sends that are more than putting bytes.
const SPECIAL: i32 = libc::MSG_OOB | libc::MSG_ZEROCOPY | libc::MSG_FASTOPEN;

/// send with MSG_OOB, MSG_ZEROCOPY or both; MSG_FASTOPEN asks for a connection, and there is one.
#[cold]
unsafe fn send_special(socket: &Socket, fd: i32, pieces: &Pieces, flags: i32) -> Result<isize> {
    if flags & libc::MSG_FASTOPEN != 0 {
        return Err(Errno(libc::EISCONN));
    }
    let quiet = flags & !SPECIAL;
    let length = pieces.length();
    // SAFETY: passed on.
    let sent = unsafe {
        if flags & libc::MSG_OOB == 0 || length == 0 {
            send_pieces(socket, fd, pieces, 0, quiet, thread::handled())?
        } else {
            // All but the last byte are ordinary, the last one is urgent.
            let ordinary = pieces.without_last();
            let mut sent = 0;
            if length > 1 {
                sent = send_pieces(socket, fd, &ordinary, 0, quiet, thread::handled())?;
            }
            if sent as usize == length - 1 {
                match send_pieces(socket, fd, pieces, length - 1, quiet | libc::MSG_OOB, thread::handled()) {
                    Ok(all) => all,
                    Err(_) if sent > 0 => sent,
                    Err(error) => return Err(error),
                }
            } else {
                sent
            }
        }
    };
    if sent > 0 && flags & libc::MSG_ZEROCOPY != 0 && socket.has(flag::ZERO_COPY) {
        error_queue::completed(socket);
    }
    Ok(sent)
}

/// What Linux takes at most of one send to a peer that has closed: after so much it looks at what came in meanwhile
/// (`sk_flush_backlog` in net/ipv4/tcp.c), finds the reset, and gives the count so far.
const LOST: usize = 512 << 10;

/// Bytes from which on a send takes long enough for a signal to come in the middle.
const LONG: usize = 1024;

/// send(2) from one buffer.
///
/// # Safety
/// As for [`receive`].
#[inline(never)]
pub unsafe fn send(socket: &Socket, fd: i32, data: *const u8, length: usize, flags: i32) -> Result<isize> {
    if socket.has(flag::FENCE) {
        wait::reconsider_fence(socket);
    }
    if !global::single_threaded() {
        // SAFETY: passed on.
        match unsafe { swift::send::<false>(socket, fd, data, length, flags) } {
            Ok(sent) => return Ok(sent),
            Err(Declined::InSection) => section::leave(),
            Err(Declined::Unusual) => {}
        }
    }
    let own = socket.own();
    let open = own.receive.state.load(Ordering::Relaxed) & (state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE)
        == 0
        && socket.peer().post.word.load(Ordering::Relaxed) & (word::FIN | word::CLOSED | word::RST) == 0;
    let piece = iovec { iov_base: data.cast_mut().cast(), iov_len: length };
    if flags & SPECIAL != 0 && (length as isize) >= 0 {
        // SAFETY: passed on.
        return unsafe { send_special(socket, fd, &Pieces::one(&piece), flags) };
    }
    if open && (length as isize) > 0 {
        // A short copy takes no time in which a signal could come; no call moves more than MAX_RW_COUNT.
        let (length, began) = if length > LONG { (length.min(pieces::MOST), thread::handled()) } else { (length, 0) };
        // SAFETY: passed on.
        let sent = unsafe { put(socket, fd, data, length, flags)? };
        if sent == length {
            return Ok(sent as isize);
        }
        let began = if length > LONG { began } else { thread::handled() };
        // SAFETY: `sent < length`.
        return unsafe { send_pieces(socket, fd, &Pieces::one(&piece), sent, flags, began) };
    }
    if (length as isize) < 0 {
        return Err(Errno(libc::EFAULT)); // no such range (access_ok)
    }
    // SAFETY: passed on.
    unsafe { send_pieces(socket, fd, &Pieces::one(&piece), 0, flags, thread::handled()) }
}

/// send from several buffers, in one step as long as there is room: while it waits, others may send.
///
/// # Safety
/// The pieces are the caller's buffers.
pub unsafe fn send_vector(socket: &Socket, fd: i32, pieces: &Pieces, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        if flags & SPECIAL != 0 {
            return send_special(socket, fd, pieces, flags);
        }
        send_pieces(socket, fd, pieces, 0, flags, thread::handled())
    }
}

/// One attempt to put bytes, without waiting; 0 also after shutdown(SHUT_WR).
#[inline(always)]
unsafe fn put(socket: &Socket, fd: i32, data: *const u8, length: usize, flags: i32) -> Result<usize> {
    let held = socket.lock_send()?;
    if socket.outgoing().announced() & word::FIN != 0 || settle::owed(socket) {
        return Ok(0);
    }
    // SAFETY: promised by the caller; the lock is held.
    let mut sent = unsafe { socket.outgoing().send(data, length) };
    if sent < length {
        let piece = iovec { iov_base: data.cast_mut().cast(), iov_len: length };
        // SAFETY: as above.
        sent = unsafe { put_rest(socket, &Pieces::one(&piece), sent) };
    }
    if sent == 0 {
        drop(held);
        return put_nothing(socket);
    }
    drop(held);
    put_done(socket, fd, sent, length, flags);
    Ok(sent)
}

/// Sends what `source` gives of up to `most` bytes at `data`, asked under the sending lock, if there is room for all of
/// them now; `None`, and nothing asked, where there is not or the connection is not open in this direction. Gives the
/// number, and whether `source` gave `most`.
///
/// # Safety
/// `source` writes up to `most` bytes to `data`.
pub(crate) unsafe fn put_from(
    socket: &Socket,
    fd: i32,
    data: *mut u8,
    most: usize,
    flags: i32,
    source: impl FnOnce() -> Result<usize>,
) -> Option<Result<(usize, bool)>> {
    if socket.has(flag::FENCE) {
        wait::reconsider_fence(socket);
    }
    options::catch_up(socket);
    let held = match socket.lock_send() {
        Ok(held) => held,
        Err(error) => return Some(Err(error)),
    };
    let pipe = socket.outgoing();
    let peer = socket.peer().post.word.load(Ordering::Acquire);
    let ended = state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE;
    if observe(socket, peer) & ended != 0
        || peer & (word::CLOSED | word::RST) != 0
        || (peer & word::FIN != 0 && socket.peer().receive.state.load(Ordering::Acquire) & state::SHUT_RD != 0)
        || pipe.announced() & word::FIN != 0
        || pipe.writable().0 < most
    {
        return None;
    }
    let got = match source() {
        Err(Errno(libc::EOPNOTSUPP)) => return None,
        Err(error) => return Some(Err(error)),
        Ok(got) => got,
    };
    let piece = iovec { iov_base: data.cast(), iov_len: got };
    let pieces = Pieces::one(&piece);
    // SAFETY: the caller's buffer; the lock is held.
    let sent = unsafe { put_rest(socket, &pieces, put_once(socket, &pieces, 0)) };
    drop(held);
    if sent > 0 {
        put_done(socket, fd, sent, got, flags);
    }
    if sent < got {
        // Room was there. Under the lock it goes away by a peer that takes its acknowledgements back, or by an SO_SNDBUF
        // that another thread makes smaller in this moment; bytes are missing then, which no reader may overlook.
        return Some(Err(distrust(socket)));
    }
    Some(Ok((sent, sent == most)))
}

/// Why nothing was put: a fault, a peer that acknowledges what was never sent, or no room.
#[cold]
fn put_nothing(socket: &Socket) -> Result<usize> {
    if thread::take_fault() {
        return Err(Errno(libc::EFAULT));
    }
    let held = socket.lock_send()?;
    let deceived = socket.outgoing().deceived();
    drop(held);
    if deceived {
        return Err(distrust(socket));
    }
    Ok(0)
}

/// Wakes whoever waits for what was put.
#[inline(always)]
fn put_done(socket: &Socket, fd: i32, sent: usize, length: usize, flags: i32) {
    if (flags & libc::MSG_MORE != 0 || socket.has(flag::CORKED)) && sent == length && !wait::peer_is_signalled(socket) {
        wait::cork(fd);
    } else if sent > 0 {
        wait::notify(socket, fd, arm::IN);
    }
}

/// Puts what fits of the pieces behind byte `done`; gives the new `done`. The caller holds the sending lock.
unsafe fn put_once(socket: &Socket, pieces: &Pieces, before: usize) -> usize {
    let mut done = before;
    for (data, length) in pieces.from(done, usize::MAX) {
        // SAFETY: the caller's buffer; the lock is held.
        let part = unsafe { socket.outgoing().send(data, length) };
        if part == 0 && done > before {
            thread::take_fault(); // what was put before is the answer
        }
        done += part;
        if part < length {
            break;
        }
    }
    done
}

/// Goes on after [`put_once`] as long as a window has to be mapped for it: the lock is kept, so that no other thread's
/// bytes come in between.
unsafe fn put_rest(socket: &Socket, pieces: &Pieces, mut done: usize) -> usize {
    while done < pieces.length() && window::provided_for_sending(socket) == Ok(true) {
        // SAFETY: passed on.
        done = unsafe { put_once(socket, pieces, done) };
    }
    done
}

/// As [`put`], from byte `done` of the pieces on; with MSG_OOB the one byte that is left is marked.
unsafe fn put_pieces(socket: &Socket, fd: i32, pieces: &Pieces, done: usize, flags: i32) -> Result<usize> {
    let held = socket.lock_send()?;
    let pipe = socket.outgoing();
    if pipe.announced() & word::FIN != 0 || settle::owed(socket) {
        return Ok(0);
    }
    let marked = (flags & libc::MSG_OOB != 0).then(|| urgent::mark(socket));
    // SAFETY: the caller's buffers; the lock is held.
    let sent = unsafe { put_rest(socket, pieces, put_once(socket, pieces, done)) } - done;
    if let (Some(before), 0) = (marked, sent) {
        urgent::unmark(socket, before);
    }
    drop(held);
    if sent == 0 {
        return put_nothing(socket);
    }
    if marked.is_some() && socket.peer().receive.state.load(Ordering::Acquire) & state::OWNED != 0 {
        bell::must_ring(&socket.peer().wait, arm::IN);
        wait::ring_urgent(socket, fd);
        if wait::peer_is_signalled(socket) {
            wait::ring(socket, fd); // for the byte beside the announcement (tcp_urg, tcp_data_queue)
        }
        return Ok(sent);
    }
    put_done(socket, fd, sent, pieces.length() - done, flags);
    Ok(sent)
}

fn broken_pipe(flags: i32) -> Errno {
    if flags & MSG_NOSIGNAL == 0 {
        let _ = calls::tkill(shunt_sys::thread::id() as i32, SIGPIPE);
    }
    Errno(libc::EPIPE)
}

/// The general case of send: what is left behind byte `done` of the pieces, with waiting. `began` is
/// [`thread::handled`] when the call began.
#[inline(never)]
unsafe fn send_pieces(socket: &Socket, fd: i32, pieces: &Pieces, mut done: usize, flags: i32, mut began: u64) -> Result<isize> {
    let length = pieces.length();
    options::catch_up(socket);
    let timeout = socket.send_timeout.load(Ordering::Relaxed);
    let mut deadline = if timeout == 0 { u64::MAX } else { 0 };
    let mut hasty = None;
    loop {
        let peer = socket.peer().post.word.load(Ordering::Acquire);
        let own_state = observe(socket, peer);
        let shut = socket.outgoing().announced() & word::FIN != 0;
        if shut || own_state & (state::DONE | state::RESET_DUE | state::PIPE_DUE) != 0 {
            if done > 0 {
                return Ok(done as isize);
            }
            return Err(match take_error(socket) {
                Some(error) if error != libc::EPIPE => Errno(error),
                _ => broken_pipe(flags),
            });
        }
        // Nothing is sent, so nothing is answered by a peer that has closed: its RST is for bytes.
        if length == 0 {
            return Ok(0);
        }
        if peer & word::CLOSED != 0 || own_state & state::PEER_GONE != 0 {
            // The peer closed both directions: its kernel would answer these bytes with RST, so they are taken and
            // lost, and the connection is over (EPIPE from now on).
            let bits = state::PIPE_DUE | state::DONE | state::END_NOTED;
            socket.own().receive.state.fetch_or(bits, Ordering::AcqRel);
            tell_own_sleepers(socket, fd);
            return Ok((length - done).min(LOST).saturating_add(done) as isize);
        }
        if peer & word::FIN != 0 && socket.peer().receive.state.load(Ordering::Acquire) & state::SHUT_RD != 0 {
            refuse_for(socket, fd)?;
            return Ok((length - done).min(LOST).saturating_add(done) as isize);
        }
        // SAFETY: `done < length`.
        let sent = match unsafe { put_pieces(socket, fd, pieces, done, flags) } {
            Ok(sent) => sent,
            Err(_) if done > 0 => return Ok(done as isize),
            Err(error) => return Err(error),
        };
        done += sent;
        if done == length {
            return Ok(done as isize);
        }
        if sent > 0 {
            continue;
        }
        match window::provided_for_sending(socket) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(_) => return Err(distrust(socket)),
        }
        socket.own().transmit.blocked.fetch_add(1, Ordering::AcqRel);
        // Asked once: a call that waits goes on when O_NONBLOCK is set meanwhile.
        if *hasty.get_or_insert_with(|| nonblocking(socket, fd, flags)) {
            wait::check_peer(socket, fd);
            if socket.own().receive.state.load(Ordering::Relaxed) & (state::DONE | state::PEER_GONE) != 0 {
                continue;
            }
            return if done > 0 { Ok(done as isize) } else { Err(Errno(libc::EAGAIN)) };
        }
        if deadline == 0 {
            deadline = clock::monotonic_ns().saturating_add(timeout);
        }
        // Space that is there to a look and not to a send is a hostile peer's work: its death must end the wait for it.
        wait::check_peer(socket, fd);
        if let Err(error) = wait::wait(socket, fd, arm::OUT, ends_for_signals(deadline, done), began) {
            return if done > 0 { Ok(done as isize) } else { Err(error) };
        }
        if done == 0 && timeout == 0 && thread::restarted(began) != began {
            // The kernel begins the call anew after the handler: O_NONBLOCK may have been set meanwhile.
            began = thread::restarted(began);
            hasty = None;
        }
    }
}

/// The peer has shut down both directions and keeps its descriptor: its kernel would reset the connection for these bytes, on both sides
/// (tcp_rcv_state_process in FIN_WAIT, after RFC 1122). They are taken and lost; here EPIPE follows, there ECONNRESET.
#[cold]
fn refuse_for(socket: &Socket, fd: i32) -> Result<()> {
    let held = socket.lock_send()?;
    socket.outgoing().end(word::RST | word::FIN | word::CLOSED);
    drop(held);
    let bits = state::PIPE_DUE | state::DONE | state::END_NOTED;
    socket.own().receive.state.fetch_or(bits, Ordering::AcqRel);
    wait::notify(socket, fd, arm::IN);
    tell_own_sleepers(socket, fd);
    Ok(())
}

/// The connection is over by what this thread did, and no bell tells others of this side: sets are told, and who sleeps on
/// the companion finds that it reads as ended.
#[cold]
fn tell_own_sleepers(socket: &Socket, fd: i32) {
    crate::epoll::changed(socket);
    if !socket.alone() {
        socket.set(flag::SPENT);
        let _ = calls::shutdown(socket.hold.number(fd), libc::SHUT_RD);
    }
}

/// shutdown(2).
pub fn shutdown(socket: &Socket, fd: i32, how: i32) -> Result<isize> {
    if !(0..=2).contains(&how) {
        return Err(Errno(libc::EINVAL));
    }
    // inet_shutdown wakes everybody who polls, whatever changes.
    socket.changes.fetch_add(1, Ordering::Relaxed);
    readiness::ask_if_refused(socket, fd);
    if readiness::closed(socket) {
        return Err(Errno(libc::ENOTCONN));
    }
    if how != libc::SHUT_WR {
        socket.set(flag::SHUT_RD);
        socket.own().receive.state.fetch_or(state::SHUT_RD, Ordering::AcqRel);
    }
    if how != libc::SHUT_RD {
        let held = socket.lock_send()?;
        socket.outgoing().end(word::FIN);
        drop(held);
        wait::notify(socket, fd, arm::IN);
        if wait::peer_is_signalled(socket) {
            wait::ring(socket, fd); // an end signals twice (tcp_fin, tcp_data_queue)
        }
        crate::nudge::all();
    }
    // Our own sleepers must notice as well. Only the peer can ring our bell, so the companion's receiving half is shut
    // down for good: it reads as ended from now on, and waits for space poll instead (`wait::sleep`).
    if how != libc::SHUT_WR {
        let _ = calls::shutdown(fd, libc::SHUT_RD);
    }
    crate::epoll::changed(socket);
    Ok(0)
}
