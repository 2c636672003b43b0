//! splice(2) between streams and pipes, as do_splice of Linux: what one end does not take stays in the other.
//!
//! Nothing here blocks on a pipe while it holds a lock. Bytes of a stream go into the pipe under the receiving lock, by a
//! write that takes what fits, and are passed as far as it did. Bytes of a pipe are read out under the sending lock, and
//! only as many as the ring has room for then. Where the ring has less room than there are bytes (it may grow, or the
//! call may wait), they are copied with tee(2) into a pipe of our own first, sent, and dropped from the program's pipe
//! when that is done: a thread that reads the same pipe meanwhile sees them, too, where the kernel would keep it waiting.
//!
//! A pipe that has been seen by nothing but this is kept in memory ([`kept_pipes`]): two copies, as of a program that receives
//! and sends, and no call of the kernel's. It stays so while a call sleeps for a stream. Where a call would sleep for the pipe, that is
//! made the kernel's first.

mod patience;

use crate as stream;
use crate::options::limits;
use crate::sleep;
use crate::socket::{flag, Socket};
use crate::waiting::readiness::{observe, take_reset};
use crate::waiting::wake::nonblocking;
use crate::waiting::{bypass, holding, readiness, wake};
use crate::{carried, urgent};
use core::sync::atomic::Ordering;
use patience::Patience;
use shunt_pipes::kept_pipes::{self, Bytes, Kept, Scratch};
use shunt_segment::channel::arm;
use shunt_sys::libc::{self, iovec, pollfd, EAGAIN, EBADF, EINTR, EINVAL, EOPNOTSUPP, EPIPE, O_ACCMODE, O_NONBLOCK, O_PATH};
use shunt_sys::{calls, sleeping, thread, Errno, Result};
use shunt_table::table;

/// Bytes moved per step.
const STEP: usize = Scratch::SIZE;
const KNOWN_FLAGS: u32 = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
const RWF_NOWAIT: i32 = 8;

/// What splice(2) says before it looks at descriptors: 0 for nothing to move, EINVAL for unknown flags.
pub fn begins(length: usize, flags: u32) -> Option<Result<isize>> {
    match (length, flags & !KNOWN_FLAGS) {
        (0, _) => Some(Ok(0)),
        (_, 0) => None,
        _ => Some(Err(Errno(EINVAL))),
    }
}

/// The flags of `fd`, which is to have been opened for `mode` (O_RDONLY or O_WRONLY). Errors: EBADF.
fn opened_for(fd: i32, mode: i32) -> Result<i32> {
    let flags = calls::fcntl(fd, libc::F_GETFL, 0)?;
    if flags & O_PATH != 0 || (flags & O_ACCMODE != mode && flags & O_ACCMODE != libc::O_RDWR) {
        return Err(Errno(EBADF));
    }
    Ok(flags)
}

/// Whether `fd` is a pipe that is open for `mode`. Errors: EBADF, or EINVAL for what is no pipe.
pub fn check_pipe(fd: i32, mode: i32) -> Result<()> {
    if calls::fcntl(fd, libc::F_GETPIPE_SZ, 0).is_ok() {
        return Ok(());
    }
    opened_for(fd, mode)?;
    Err(Errno(EINVAL))
}

/// Two ends of a pipe of our own: nothing but a place for pages.
struct Private([i32; 2]);

impl Private {
    fn new() -> Result<Private> {
        let mut ends = [-1; 2];
        calls::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | O_NONBLOCK)?;
        Ok(Private(ends))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        for end in self.0 {
            let _ = calls::close(end);
        }
    }
}

/// splice(2) between two pipes, which never waits.
fn move_pages(from: i32, to: i32, length: usize) -> Result<usize> {
    // SAFETY: a plain system call.
    shunt_sys::check(unsafe { shunt_sys::syscall!(libc::SYS_splice, from, 0, to, 0, length, libc::SPLICE_F_NONBLOCK) })
}

/// Whether splice(2) takes bytes from the file `from`, by one of them. Errors: EINVAL.
pub fn check_source(from: i32, mut offset: i64) -> Result<()> {
    let Ok(private) = Private::new() else { return Ok(()) };
    // SAFETY: a plain system call; the kernel writes the offset.
    let moved =
        unsafe { shunt_sys::syscall!(libc::SYS_splice, from, &raw mut offset, private.0[1], 0, 1, libc::SPLICE_F_NONBLOCK) };
    match shunt_sys::check(moved) {
        Err(error @ Errno(EINVAL)) => Err(error),
        _ => Ok(()),
    }
}

/// preadv2(2) or pwritev2(2) with RWF_NOWAIT. Errors: EAGAIN; EOPNOTSUPP from kernels before 6.5, and from an end of a pipe
/// that the kernel has spliced from or to.
fn transfer_at_once(number: i64, pipe: i32, data: *mut u8, length: usize) -> Result<usize> {
    let piece = iovec { iov_base: data.cast(), iov_len: length };
    // SAFETY: a plain system call; the kernel checks addresses.
    shunt_sys::check(unsafe { shunt_sys::syscall!(number, pipe, &raw const piece, 1, -1i64, -1i64, RWF_NOWAIT) })
}

/// Writes what fits. Errors: EAGAIN for a full pipe; EPIPE, with the signal.
pub fn write_at_once(pipe: i32, data: *mut u8, length: usize) -> Result<usize> {
    match transfer_at_once(libc::SYS_pwritev2, pipe, data, length) {
        Err(Errno(EOPNOTSUPP)) => {}
        other => return other,
    }
    let Ok(private) = Private::new() else {
        // No descriptor is left: one page, if there is room for it.
        if calls::poll_one(pipe, libc::POLLOUT | libc::POLLERR, 0)? == 0 {
            return Err(Errno(EAGAIN));
        }
        return calls::write(pipe, data.cast(), length.min(libc::PIPE_BUF));
    };
    let there = calls::write(private.0[1], data.cast(), length)?;
    move_pages(private.0[0], pipe, there)
}

/// Sleeps until `pipe` has one of `events`. Errors: EINTR as a call that the kernel restarts gives it; ECANCELED.
fn await_pipe(pipe: i32, events: i16, began: u64) -> Result<()> {
    let looked = thread::handled();
    if thread::interrupted_since(began, true) {
        return Err(Errno(EINTR));
    }
    let mut set = pollfd { fd: pipe, events, revents: 0 };
    match sleeping::ppoll(&mut set, 1, core::ptr::null_mut(), core::ptr::null(), looked) {
        Err(Errno(EINTR)) if thread::handled() == looked && crate::waiting::signals::all_restart() => Ok(()),
        Err(Errno(EINTR)) => thread::resume(began, looked, true),
        other => other.map(|_| ()),
    }
}

/// Waits for room for at least one byte in the pipe (wait_for_space). Errors: EBADF where it is not open for writing; EPIPE,
/// with the signal; EAGAIN; EINTR.
pub fn await_room(pipe: i32, flags: u32, began: u64) -> Result<()> {
    let pipe_flags = opened_for(pipe, libc::O_WRONLY)?;
    loop {
        let events = calls::poll_one(pipe, libc::POLLOUT, 0)?;
        if events & libc::POLLERR != 0 {
            let _ = calls::tkill(thread::id() as i32, libc::SIGPIPE);
            return Err(Errno(EPIPE));
        }
        if events & libc::POLLOUT != 0 {
            return Ok(());
        }
        if flags & libc::SPLICE_F_NONBLOCK != 0 || pipe_flags & O_NONBLOCK != 0 {
            return Err(Errno(EAGAIN));
        }
        await_pipe(pipe, libc::POLLOUT, began)?;
    }
}

/// The kept pipe of which `pipe` is the end that `find` knows. Where a call on the stream may have to wait for relays, the pipe is the
/// kernel's.
fn keep(socket: &Socket, fd: i32, pipe: i32, find: impl FnOnce(i32) -> Option<Kept>) -> Option<Kept> {
    if socket.has(flag::UNACCEPTED) {
        readiness::while_unaccepted(socket, fd);
    }
    let is_relayed = socket.has(flag::SHARED) && socket.carriage().any();
    let kept = if is_relayed || socket.has(flag::MAY_LEAVE) || socket.hold.is_carried() { None } else { find(pipe) };
    if kept.is_none() {
        table::get(pipe).settle_pipe();
    }
    kept
}

/// [`await_room`] in a pipe that may be kept.
fn await_room_in(kept: Option<Kept>, pipe: i32, flags: u32, began: u64) -> Result<()> {
    if let Some(kept) = kept {
        let room = kept.with(|bytes| bytes.room());
        match room {
            Some(1..) => return Ok(()),
            Some(_) if flags & libc::SPLICE_F_NONBLOCK != 0 || kept.is_nonblocking() => return Err(Errno(EAGAIN)),
            _ => kept.settle(),
        }
    }
    await_room(pipe, flags, began)
}

/// As [`hand_out`], into a pipe that is kept. `None`: it is the kernel's.
fn hand_to_kept(socket: &Socket, fd: i32, kept: Kept, most: usize) -> Option<Result<usize>> {
    let put = |bytes: &mut Bytes| {
        let held = socket.lock_receive()?;
        urgent::pass_lost(socket);
        let most = urgent::before_any(socket).min(most);
        if most == 0 {
            return Ok(0);
        }
        if bytes.room() == 0 {
            return Err(Errno(EAGAIN));
        }
        let most = most.min(bytes.room());
        let data = bytes.back();
        if data.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: there is room for so many bytes, which wait; the lock is held.
        let taken = unsafe { stream::take_within(socket, data, most) };
        let taken = taken.unwrap_or(0);
        bytes.put(taken);
        if taken == 0 {
            thread::take_fault();
            drop(held);
            return Err(stream::distrust(socket));
        }
        Ok(taken)
    };
    let result = kept.with(put)?;
    if let Ok(1..) = result {
        stream::taken(socket, fd);
    }
    Some(result)
}

/// Moves what waits in the stream, before any urgent byte, and fits into the pipe: in one step against other readers.
/// EAGAIN: the pipe is full; 0: nothing is there.
fn hand_out(socket: &Socket, fd: i32, kept: Option<Kept>, pipe: i32, buffer: &mut Scratch, most: usize) -> Result<usize> {
    if let Some(moved) = kept.and_then(|kept| hand_to_kept(socket, fd, kept, most)) {
        return moved;
    }
    let data = buffer.get()?;
    let held = socket.lock_receive()?;
    urgent::pass_lost(socket);
    let most = urgent::before_any(socket).min(most).min(STEP);
    if most == 0 {
        return Ok(0);
    }
    // SAFETY: the buffer has room for STEP bytes; the lock is held.
    let seen = match unsafe { stream::peek_within(socket, 0, data, most) } {
        Ok(seen) if seen > 0 => seen,
        _ => {
            thread::take_fault();
            drop(held);
            return Err(stream::distrust(socket));
        }
    };
    let written = write_at_once(pipe, data, seen)?;
    socket.incoming().pass(written);
    drop(held);
    stream::taken(socket, fd);
    Ok(written)
}

/// splice(2) from a stream into a pipe (splice_file_to_pipe, tcp_splice_read): the first bytes are waited for, unless the
/// socket has O_NONBLOCK; SPLICE_F_NONBLOCK is about the pipe alone.
pub fn out(socket: &Socket, fd: i32, pipe: i32, length: usize, flags: u32) -> Result<isize> {
    let mut began = thread::handled();
    let kept = keep(socket, fd, pipe, kept_pipes::writing);
    if kept.is_none() {
        check_pipe(pipe, libc::O_WRONLY)?;
    }
    crate::options::owners::catch_up(socket);
    let mut buffer = Scratch::default();
    let timeout = socket.receive_timeout.load(Ordering::Relaxed);
    let mut deadline = if timeout == 0 { u64::MAX } else { 0 };
    let mut done = 0usize;
    let mut roomy = false;
    loop {
        let generation = socket.generation.load(Ordering::Acquire);
        let was_over = readiness::over(socket);
        match hand_out(socket, fd, kept, pipe, &mut buffer, length - done) {
            Ok(0) => {}
            Ok(moved) => {
                done += moved;
                // The first step is whole in most calls; what did not fit then has no room now.
                if done == length || moved < STEP {
                    return Ok(done as isize);
                }
                continue;
            }
            Err(_) if done > 0 => return Ok(done as isize),
            Err(Errno(EAGAIN)) => {
                await_room_in(kept, pipe, flags, began)?;
                began = thread::restarted(began);
                continue;
            }
            Err(error) => return Err(error),
        }
        if done > 0 {
            return Ok(done as isize);
        }
        if socket.has(flag::MAY_LEAVE) && crate::progress::leave(socket, fd) || socket.hold.is_carried() {
            kept.iter().for_each(Kept::settle);
            let end = holding::end(socket, fd);
            if timeout != 0 && !nonblocking(socket, fd, 0) {
                deadline = if deadline == 0 { limits::deadline(timeout) } else { deadline };
                carried::await_ready(end, libc::POLLIN, deadline, began)?;
            }
            // SAFETY: a plain system call. Nothing has been moved yet.
            let moved = unsafe { shunt_sys::syscall!(libc::SYS_splice, end, 0, pipe, 0, length, flags) };
            return shunt_sys::check(moved).map(|moved| moved as isize);
        }
        // The kernel looks for room before it looks at the socket.
        if !roomy {
            await_room_in(kept, pipe, flags, began)?;
            roomy = true;
        }
        let (peer, waiting) = socket.incoming().look();
        if waiting > 0 && urgent::before_any(socket) > 0 {
            continue;
        }
        observe(socket, peer);
        if readiness::over(socket) {
            if let Some(error) = take_reset(socket) {
                return Err(Errno(error));
            }
            if !was_over {
                continue; // the word may have been published after we looked for bytes
            }
            if bypass::look(socket, fd) {
                continue;
            }
            return Ok(0);
        }
        if nonblocking(socket, fd, if timeout == limits::AT_ONCE { libc::MSG_DONTWAIT } else { 0 }) {
            wake::check_peer(socket, fd);
            if socket.has(flag::MAY_LEAVE) {
                crate::progress::drive();
            }
            if urgent::before_any(socket) > 0 || (waiting == 0 && readiness::any(socket, arm::IN)) || socket.hold.is_carried() {
                continue;
            }
            return Err(Errno(EAGAIN));
        }
        if waiting > 0 {
            return Ok(0); // an urgent byte stands there, and stays
        }
        if deadline == 0 {
            deadline = limits::deadline(timeout);
        }
        sleep::wait(socket, fd, arm::IN, deadline, began)?;
        if timeout == 0 {
            began = thread::restarted(began);
        }
        if socket.generation.load(Ordering::Acquire) != generation {
            return Err(Errno(EBADF));
        }
    }
}

/// Bytes in the pipe, waited for where that is asked for; 0: it has no writers any more. Errors: EAGAIN, EINTR.
fn await_bytes(pipe: i32, flags: u32, done: usize, began: u64) -> Result<usize> {
    loop {
        let count = calls::bytes_waiting(pipe)?;
        if count > 0 {
            return Ok(count as usize);
        }
        let pipe_flags = opened_for(pipe, libc::O_RDONLY)?;
        let events = calls::poll_one(pipe, libc::POLLIN, 0)?;
        if events & libc::POLLIN != 0 {
            continue;
        }
        if events & libc::POLLHUP != 0 || done > 0 {
            return Ok(0);
        }
        if flags & libc::SPLICE_F_NONBLOCK != 0 || pipe_flags & O_NONBLOCK != 0 {
            return Err(Errno(EAGAIN));
        }
        await_pipe(pipe, libc::POLLIN, began)?;
    }
}

/// [`await_bytes`] in a pipe that may be kept.
fn await_bytes_in(kept: Option<Kept>, pipe: i32, flags: u32, done: usize, began: u64) -> Result<usize> {
    if let Some(kept) = kept {
        match kept.with(|bytes| bytes.length()) {
            Some(0) if done > 0 => return Ok(0),
            Some(0) if flags & libc::SPLICE_F_NONBLOCK == 0 && !kept.is_nonblocking() => kept.settle(),
            Some(0) => return Err(Errno(EAGAIN)),
            Some(there) => return Ok(there),
            None => {}
        }
    }
    await_bytes(pipe, flags, done, began)
}

/// One step from a pipe that is kept: sends what the stream takes now, up to `most` bytes, which lie in the pipe until then. Gives their
/// number, and whether that was all. `None`: the pipe is the kernel's.
fn send_kept(socket: &Socket, fd: i32, kept: Kept, most: usize, flags: i32) -> Option<Result<(usize, bool)>> {
    kept.with(|bytes| {
        let most = most.min(bytes.length());
        if most == 0 {
            return Err(Errno(EAGAIN)); // another thread was first
        }
        // SAFETY: so many bytes lie there, and no other thread changes them under the pipe's lock.
        let sent = unsafe { stream::send(socket, fd, bytes.front(), most, flags | libc::MSG_DONTWAIT) }? as usize;
        bytes.take(sent);
        Ok((sent, sent == most))
    })
}

/// Copies of up to `most` bytes of the pipe, which stay there.
fn look_into(pipe: i32, data: *mut u8, most: usize) -> Result<usize> {
    let private = Private::new()?;
    // SAFETY: a plain system call.
    shunt_sys::check(unsafe { shunt_sys::syscall!(libc::SYS_tee, pipe, private.0[1], most, libc::SPLICE_F_NONBLOCK) })?;
    calls::read(private.0[0], data.cast(), most)
}

/// Takes `length` bytes, at most STEP, out of the pipe; `data` is overwritten. Where another reader has them, nothing more.
fn drop_from(pipe: i32, data: *mut u8, length: usize) {
    let mut left = length;
    while left > 0 {
        let gone = match transfer_at_once(libc::SYS_preadv2, pipe, data, left) {
            Err(Errno(EOPNOTSUPP)) => match Private::new() {
                Ok(private) => move_pages(pipe, private.0[1], left),
                Err(_) => calls::read(pipe, data.cast(), left),
            },
            other => other,
        };
        match gone {
            Ok(0) | Err(_) => return,
            Ok(gone) => left -= gone,
        }
    }
}

/// One step by way of copies: sends what is in the pipe, and takes out what was sent. Gives what `put_from` gives.
///
/// # Safety
/// `data` has room for `most` bytes, at most STEP.
unsafe fn send_copies(socket: &Socket, fd: i32, pipe: i32, data: *mut u8, most: usize, flags: i32) -> Result<(usize, bool)> {
    // SAFETY: passed on.
    unsafe {
        let seen = match look_into(pipe, data, most) {
            Err(Errno(libc::EMFILE | libc::ENFILE)) => {
                // No descriptor is left: what there is room for, and what a shut stream says.
                let room = socket.outgoing().writable().0.min(most);
                let source = || match transfer_at_once(libc::SYS_preadv2, pipe, data, room) {
                    Err(Errno(EOPNOTSUPP)) => calls::read(pipe, data.cast(), room),
                    other => other,
                };
                if let (true, Some(step)) = (room > 0, stream::put_from(socket, fd, data, room, flags, source)) {
                    return step;
                }
                stream::send(socket, fd, data, 0, flags)?;
                return Err(Errno(libc::ENOMEM));
            }
            other => other?,
        };
        let sent = stream::send(socket, fd, data, seen, flags)? as usize;
        drop_from(pipe, data, sent);
        Ok((sent, sent == seen))
    }
}

/// splice(2) from a pipe into a stream (splice_to_socket): goes on until the pipe is empty, waits for room unless the
/// socket has O_NONBLOCK; SPLICE_F_NONBLOCK is about the pipe alone.
pub fn into(socket: &Socket, fd: i32, pipe: i32, length: usize, flags: u32) -> Result<isize> {
    let began = thread::handled();
    let kept = keep(socket, fd, pipe, kept_pipes::reading);
    if kept.is_none() {
        check_pipe(pipe, libc::O_RDONLY)?;
    }
    let mut buffer = Scratch::default();
    let mut patience = Patience::new(began);
    let mut done = 0usize;
    while done < length {
        if done > 0 && socket.hold.is_carried() {
            let further = [pipe as usize, 0, holding::end(socket, fd) as usize, 0, length - done, flags as usize];
            return carried::further(done, libc::SYS_splice, further);
        }
        let there = match await_bytes_in(kept, pipe, flags, done, patience.began) {
            Ok(0) => break,
            Ok(there) => there,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let most = there.min(length - done).min(STEP);
        let send_flags = if flags & libc::SPLICE_F_MORE != 0 { libc::MSG_MORE } else { 0 };
        let in_memory = kept.and_then(|kept| send_kept(socket, fd, kept, there.min(length - done), send_flags));
        let is_kept = in_memory.is_some();
        if let (true, Some(Err(Errno(EAGAIN)) | Ok((_, false)))) = (patience.may_wait(socket, fd), &in_memory) {
            let moved = in_memory.and_then(Result::ok).map_or(0, |(moved, _)| moved);
            done += moved;
            patience.moved(moved);
            let (waited, left) = match kept {
                Some(kept) => kept.beside_sender(|| patience.wait(socket, fd, done)),
                None => (patience.wait(socket, fd, done), None),
            };
            if let (Ok(()), Some(left)) = (&waited, &left) {
                // The pipe was closed under the call, which goes on with what it has.
                let left = &left.bytes()[..left.bytes().len().min(length - done)];
                // SAFETY: a buffer of that size.
                let sent = unsafe { stream::send(socket, fd, left.as_ptr(), left.len(), send_flags) };
                return match sent {
                    Err(_) if done > 0 => Ok(done as isize),
                    sent => sent.map(|sent| sent + done as isize),
                };
            }
            match waited {
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
                Ok(()) if socket.hold.is_carried() => kept.iter().for_each(Kept::settle),
                Ok(()) => {}
            }
            continue;
        }
        // SAFETY: the buffer has room for `most` bytes.
        let step = in_memory.unwrap_or_else(|| unsafe {
            let data = buffer.get()?;
            match stream::put_from(socket, fd, data, most, send_flags, || transfer_at_once(libc::SYS_preadv2, pipe, data, most)) {
                Some(step) => step,
                None => send_copies(socket, fd, pipe, data, most, send_flags),
            }
        });
        match step {
            Err(Errno(EAGAIN)) if done == 0 && !is_kept && calls::poll_one(pipe, libc::POLLIN, 0)? & libc::POLLIN == 0 => {
                continue; // another reader took what was there
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
            Ok((moved, whole)) => {
                done += moved;
                patience.moved(moved);
                if !whole || thread::interrupted_since(patience.began, false) {
                    break;
                }
                if moved == there {
                    break;
                }
            }
        }
    }
    Ok(done as isize)
}
