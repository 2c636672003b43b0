//! send and receive on an accelerated stream.

use crate::readiness::{self, observe, take_error, take_reset};
use crate::socket::{flag, Socket};
use crate::wait::{self, nonblocking};
use crate::window;
use core::sync::atomic::Ordering;
use shunt_ring::Trouble;
use shunt_segment::channel::{arm, state, urgent, word};
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, SIGPIPE};
use shunt_sys::{calls, clock, thread, Errno, Result};

/// recv(2) into one buffer.
///
/// # Safety
/// `data` has room for `length` bytes.
#[inline(always)]
pub unsafe fn receive(socket: &Socket, fd: i32, data: *mut u8, length: usize, flags: i32) -> Result<isize> {
    if flags == 0 || flags == MSG_DONTWAIT || flags == MSG_NOSIGNAL {
        // SAFETY: passed on.
        let taken = unsafe { take(socket, fd, data, length)? };
        if taken > 0 {
            return Ok(taken as isize);
        }
    }
    // SAFETY: passed on.
    unsafe { receive_slow(socket, fd, data, length, flags) }
}

/// One attempt to take bytes, without waiting.
#[inline(always)]
unsafe fn take(socket: &Socket, fd: i32, data: *mut u8, length: usize) -> Result<usize> {
    if socket.peer().urgent.load(Ordering::Acquire) != 0 {
        // SAFETY: passed on.
        return unsafe { take_around_mark(socket, fd, data, length) };
    }
    // SAFETY: passed on.
    unsafe { take_ordinary(socket, fd, data, length) }
}

/// Bytes before an urgent one are received first, by themselves (tcp_recvmsg stops at the mark); with SO_OOBINLINE the
/// urgent byte then comes in its place.
#[cold]
unsafe fn take_around_mark(socket: &Socket, fd: i32, data: *mut u8, length: usize) -> Result<usize> {
    let word = socket.peer().urgent.load(Ordering::Acquire);
    let position = socket.own().receive.position.load(Ordering::Relaxed);
    let ahead = word.wrapping_sub(position) & word::POSITION;
    // SAFETY: passed on, with less room.
    unsafe {
        if ahead > 0 && ahead < 1 << 47 {
            return take_ordinary(socket, fd, data, length.min(ahead as usize));
        }
        if inline_due(socket) && length > 0 {
            socket.own().urgent_taken.store(word, Ordering::Relaxed);
            data.write((word >> urgent::BYTE_SHIFT) as u8);
            return Ok(1 + take_ordinary(socket, fd, data.add(1), length - 1)?);
        }
        take_ordinary(socket, fd, data, length)
    }
}

/// Whether an urgent byte is the next one to receive, in the stream.
pub fn inline_due(socket: &Socket) -> bool {
    socket.has(flag::OOB_INLINE) && urgent(socket).is_some() && at_mark(socket)
}

#[inline(always)]
unsafe fn take_ordinary(socket: &Socket, fd: i32, data: *mut u8, length: usize) -> Result<usize> {
    let pipe = socket.incoming();
    let held = socket.lock_receive()?;
    // SAFETY: room promised by the caller; the lock is held.
    let mut taken = unsafe { pipe.receive(data, length) };
    if taken == Err(Trouble::Unmapped) || (taken.is_ok_and(|taken| taken < length) && pipe.window.is_wanted()) {
        // SAFETY: as above.
        taken = unsafe { take_from_window(socket, data, length, taken.unwrap_or(0)) };
    }
    drop(held);
    match taken {
        Ok(0) => Ok(0),
        Ok(taken) => {
            space_came_free(socket, fd);
            if socket.has(flag::ASYNC) {
                wait::arm_for_signals(socket, fd);
            }
            Ok(taken)
        }
        Err(_) => Err(distrust(socket)),
    }
}

/// Goes on receiving behind `done` bytes, where the next ones lie in a window that is not mapped.
#[cold]
unsafe fn take_from_window(socket: &Socket, data: *mut u8, length: usize, done: usize) -> core::result::Result<usize, Trouble> {
    loop {
        // SAFETY: `done < length`, or nothing is copied.
        let taken = match unsafe { window::receive_unmapped(socket, 0, data.add(done), length - done, true)? } {
            // SAFETY: as above.
            0 => unsafe { socket.incoming().receive(data.add(done), length - done) },
            copied => Ok(copied),
        };
        match taken {
            Ok(taken) => return Ok(done + taken),
            Err(Trouble::Unmapped) => {}
            Err(trouble) => return Err(trouble),
        }
    }
}

/// A sender sleeps for space, by itself or in a set.
///
/// Or it has asked for fences: then what is seen without one proves nothing, and `notify` looks again behind one.
const WANTS_SPACE: u32 = arm::OUT | arm::OUT << arm::SET_SHIFT | arm::FENCE | arm::FENCE_ASKED;

/// A sleeping sender is woken when half of its ring is free: not for every byte.
#[inline(always)]
fn space_came_free(socket: &Socket, fd: i32) {
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
fn distrust(socket: &Socket) -> Errno {
    let own = socket.own();
    own.receive.state.fetch_or(state::DONE | state::END_NOTED, Ordering::AcqRel);
    let held = socket.lock_send();
    socket.outgoing().end(word::RST | word::FIN | word::CLOSED);
    drop(held);
    Errno(libc::ECONNRESET)
}

#[inline(never)]
unsafe fn receive_slow(socket: &Socket, fd: i32, data: *mut u8, length: usize, flags: i32) -> Result<isize> {
    const KNOWN: i32 = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_PEEK | MSG_TRUNC | MSG_WAITALL | libc::MSG_CMSG_CLOEXEC;
    if flags & libc::MSG_OOB != 0 {
        // SAFETY: passed on.
        return unsafe { receive_urgent(socket, data, length, flags) };
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        return Err(Errno(libc::EAGAIN));
    }
    let flags = flags & KNOWN;
    let timeout = socket.receive_timeout.load(Ordering::Relaxed);
    let mut deadline = if timeout == 0 { u64::MAX } else { 0 };
    let mut done = 0usize;
    let began = thread::interruptions();
    loop {
        let generation = socket.generation.load(Ordering::Acquire);
        // SAFETY: `done <= length`.
        done += unsafe { attempt(socket, fd, data, length, done, flags)? };
        if (done == length && length > 0) || (done > 0 && flags & MSG_WAITALL == 0) {
            return Ok(done as isize);
        }
        let (peer, waiting) = socket.incoming().look();
        if waiting > 0 && length == 0 {
            return Ok(0); // recv of nothing waits for something, as on TCP
        }
        if waiting > 0 && (flags & MSG_PEEK == 0 || waiting > done) {
            continue;
        }
        let own_state = observe(socket, peer);
        let ended = peer & (word::FIN | word::CLOSED) != 0 || own_state & (state::DONE | state::PEER_GONE | state::SHUT_RD) != 0;
        if ended {
            if done > 0 {
                return Ok(done as isize);
            }
            if let Some(error) = take_reset(socket) {
                return Err(Errno(error));
            }
            // The word may have been published after we looked for bytes.
            if socket.incoming().look().1 > 0 {
                continue;
            }
            return Ok(0);
        }
        if nonblocking(socket, fd, flags) {
            wait::check_peer(socket, fd);
            if readiness::any(socket, arm::IN) && done == 0 {
                continue;
            }
            return if done > 0 { Ok(done as isize) } else { Err(Errno(libc::EAGAIN)) };
        }
        if deadline == 0 {
            deadline = clock::monotonic_ns().saturating_add(timeout);
        }
        if flags & MSG_PEEK != 0 && done > 0 {
            // PEEK with WAITALL: more bytes than seen so far are needed.
            calls::sched_yield();
            continue;
        }
        if let Err(error) = wait::wait(socket, fd, arm::IN, deadline, began) {
            return if done > 0 { Ok(done as isize) } else { Err(error) };
        }
        if socket.generation.load(Ordering::Acquire) != generation {
            return Err(Errno(libc::EBADF));
        }
    }
}

/// One attempt under the flags: plain, peek, or discard (MSG_TRUNC on TCP).
unsafe fn attempt(socket: &Socket, fd: i32, data: *mut u8, length: usize, done: usize, flags: i32) -> Result<usize> {
    // SAFETY: `done <= length` bytes are used up; scratch memory has its own size.
    unsafe {
        if flags & MSG_PEEK != 0 {
            if flags & MSG_TRUNC != 0 {
                return Ok(socket.incoming().look().1.min(length).saturating_sub(done));
            }
            let held = socket.lock_receive()?;
            let seen = peek(socket, done, data.add(done), length - done);
            drop(held);
            return seen.map_err(|_| distrust(socket));
        }
        if flags & MSG_TRUNC != 0 {
            let mut scratch = [0u8; 4096];
            let mut dropped = 0;
            while dropped < length - done {
                let n = take(socket, fd, scratch.as_mut_ptr(), scratch.len().min(length - done - dropped))?;
                if n == 0 {
                    break;
                }
                dropped += n;
            }
            return Ok(dropped);
        }
        take(socket, fd, data.add(done), length - done)
    }
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

/// The peer's urgent byte that was not taken yet.
pub fn urgent(socket: &Socket) -> Option<u8> {
    let word = socket.peer().urgent.load(Ordering::Acquire);
    (word & urgent::VALID != 0 && word != socket.own().urgent_taken.load(Ordering::Relaxed))
        .then_some((word >> urgent::BYTE_SHIFT) as u8)
}

/// Whether the next byte to receive is the one behind which the peer's urgent byte stands (SIOCATMARK).
pub fn at_mark(socket: &Socket) -> bool {
    let word = socket.peer().urgent.load(Ordering::Acquire);
    let position = socket.own().receive.position.load(Ordering::Relaxed) & word::POSITION;
    word & urgent::VALID != 0 && word & word::POSITION == position
}

/// recv with MSG_OOB (tcp_recv_urg): EINVAL when there is none or it was taken.
unsafe fn receive_urgent(socket: &Socket, data: *mut u8, length: usize, flags: i32) -> Result<isize> {
    if socket.has(flag::OOB_INLINE) {
        return Err(Errno(libc::EINVAL));
    }
    let Some(byte) = urgent(socket) else { return Err(Errno(libc::EINVAL)) };
    if flags & MSG_PEEK == 0 {
        let word = socket.peer().urgent.load(Ordering::Acquire);
        socket.own().urgent_taken.store(word, Ordering::Relaxed);
    }
    if length == 0 {
        return Ok(0);
    }
    // SAFETY: room for at least one byte.
    unsafe { data.write(byte) };
    Ok(1)
}

/// send with MSG_OOB: all but the last byte are ordinary, the last is urgent and stands beside the stream.
unsafe fn send_urgent(socket: &Socket, fd: i32, data: *const u8, length: usize, flags: i32) -> Result<isize> {
    let flags = flags & !libc::MSG_OOB;
    // SAFETY: `length >= 1`.
    unsafe {
        if length > 1 {
            let sent = send(socket, fd, data, length - 1, flags)?;
            if (sent as usize) < length - 1 {
                return Ok(sent);
            }
        } else {
            // The errors, and the answer of a peer that has closed, that a byte would get.
            send_slow(socket, fd, data, 0, 0, flags | libc::MSG_OOB, thread::interruptions())?;
        }
        let held = socket.lock_send()?;
        let own = socket.own();
        let turn = (own.urgent.load(Ordering::Relaxed) ^ urgent::TURN) & urgent::TURN;
        let position = socket.outgoing().announced() & word::POSITION;
        let byte = (data.add(length - 1).read() as u64) << urgent::BYTE_SHIFT;
        own.urgent.store(urgent::VALID | turn | byte | position, Ordering::Release);
        drop(held);
    }
    wait::notify(socket, fd, arm::IN);
    Ok(length as isize)
}

/// What Linux takes at most of one send to a peer that has closed: after so much it looks at what came in meanwhile
/// (`sk_flush_backlog` in net/ipv4/tcp.c), finds the reset, and gives the count so far.
const LOST: usize = 512 << 10;

/// Bytes from which on a send takes long enough for a signal to come in the middle.
const LONG: usize = 1024;

/// send(2) from one buffer.
///
/// # Safety
/// `data` holds `length` readable bytes.
#[inline(always)]
pub unsafe fn send(socket: &Socket, fd: i32, data: *const u8, length: usize, flags: i32) -> Result<isize> {
    let own = socket.own();
    let open = own.receive.state.load(Ordering::Relaxed) & (state::DONE | state::PEER_GONE | state::RESET_DUE | state::PIPE_DUE)
        == 0
        && socket.peer().post.word.load(Ordering::Relaxed) & (word::CLOSED | word::RST) == 0;
    if open && length > 0 && flags & libc::MSG_OOB == 0 {
        // A short copy takes no time in which a signal could come.
        let began = if length > LONG { thread::interruptions() } else { 0 };
        // SAFETY: passed on.
        let sent = unsafe { put(socket, fd, data, length, flags)? };
        if sent == length {
            return Ok(sent as isize);
        }
        let began = if length > LONG { began } else { thread::interruptions() };
        // SAFETY: `sent < length`.
        return unsafe { send_slow(socket, fd, data, length, sent, flags, began) };
    }
    if flags & libc::MSG_OOB != 0 && length > 0 {
        // SAFETY: passed on.
        return unsafe { send_urgent(socket, fd, data, length, flags) };
    }
    // SAFETY: passed on.
    unsafe { send_slow(socket, fd, data, length, 0, flags & !libc::MSG_OOB, thread::interruptions()) }
}

/// One attempt to put bytes, without waiting; 0 also after shutdown(SHUT_WR).
#[inline(always)]
unsafe fn put(socket: &Socket, fd: i32, data: *const u8, length: usize, flags: i32) -> Result<usize> {
    let held = socket.lock_send()?;
    if socket.outgoing().announced() & word::FIN != 0 {
        return Ok(0);
    }
    // SAFETY: promised by the caller; the lock is held.
    let sent = unsafe { socket.outgoing().send(data, length) };
    let deceived = sent == 0 && socket.outgoing().deceived();
    drop(held);
    if deceived {
        return Err(distrust(socket));
    }
    if (flags & libc::MSG_MORE != 0 || socket.has(flag::CORKED)) && sent == length {
        wait::cork(fd);
    } else if sent > 0 {
        wait::notify(socket, fd, arm::IN);
    }
    Ok(sent)
}

fn broken_pipe(flags: i32) -> Errno {
    if flags & MSG_NOSIGNAL == 0 {
        let _ = calls::tkill(shunt_sys::thread::id() as i32, SIGPIPE);
    }
    Errno(libc::EPIPE)
}

#[inline(never)]
unsafe fn send_slow(
    socket: &Socket,
    fd: i32,
    data: *const u8,
    length: usize,
    mut done: usize,
    flags: i32,
    began: u32,
) -> Result<isize> {
    let timeout = socket.send_timeout.load(Ordering::Relaxed);
    let mut deadline = if timeout == 0 { u64::MAX } else { 0 };
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
        if length == 0 && flags & libc::MSG_OOB == 0 {
            return Ok(0);
        }
        if peer & word::CLOSED != 0 || own_state & state::PEER_GONE != 0 {
            // The peer closed both directions: its kernel would answer these bytes with RST, so they are taken and
            // lost, and the connection is over (EPIPE from now on).
            let bits = state::PIPE_DUE | state::DONE | state::END_NOTED;
            socket.own().receive.state.fetch_or(bits, Ordering::AcqRel);
            return Ok((length - done).min(LOST).saturating_add(done) as isize);
        }
        if length == 0 {
            return Ok(0);
        }
        // SAFETY: `done < length`.
        let sent = unsafe { put(socket, fd, data.add(done), length - done, flags)? };
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
        if nonblocking(socket, fd, flags) {
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
        if let Err(error) = wait::wait(socket, fd, arm::OUT, deadline, began) {
            return if done > 0 { Ok(done as isize) } else { Err(error) };
        }
    }
}

/// shutdown(2).
pub fn shutdown(socket: &Socket, fd: i32, how: i32) -> Result<isize> {
    if !(0..=2).contains(&how) {
        return Err(Errno(libc::EINVAL));
    }
    // inet_shutdown wakes everybody who polls, whatever changes.
    socket.changes.fetch_add(1, Ordering::Relaxed);
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
    }
    // Our own sleepers must notice as well. Only the peer can ring our bell, so the companion's receiving half is shut
    // down for good: it reads as ended from now on, and waits for space poll instead (`wait::sleep`).
    if how != libc::SHUT_WR {
        let _ = calls::shutdown(fd, libc::SHUT_RD);
    }
    Ok(0)
}
