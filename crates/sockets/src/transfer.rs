//! Vectors and files: readv, writev, sendmsg, recvmsg, their `mmsg` forms, and sendfile, in terms of `stream`.

use crate::control::{self, Writer};
use crate::pieces::{Pieces, IOV_MAX};
use crate::socket::Socket;
use crate::stream;
use core::sync::atomic::Ordering;
use shunt_sys::libc::{self, iovec, mmsghdr, msghdr, timespec, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_PEEK, MSG_WAITALL};
use shunt_sys::{calls, clock, Errno, Result};

/// Receives into a vector, as one step with what is there: waits for the first bytes only, unless the flags ask for more.
///
/// # Safety
/// `vector` holds `count` valid entries.
pub unsafe fn receive(socket: &Socket, fd: i32, vector: *const iovec, count: usize, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        let pieces = Pieces::new(vector, count)?;
        match pieces.single() {
            Some((data, length)) => stream::receive(socket, fd, data, length, flags),
            None => stream::receive_pieces(socket, fd, &pieces, flags),
        }
    }
}

/// readv(2): a vector without bytes asks for nothing, and does not wait.
///
/// # Safety
/// `vector` holds `count` valid entries.
pub unsafe fn read(socket: &Socket, fd: i32, vector: *const iovec, count: usize, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        if Pieces::new(vector, count)?.length() == 0 {
            return Ok(0);
        }
        receive(socket, fd, vector, count, flags)
    }
}

/// Small vectors are gathered first: one message, one announcement.
const GATHER: usize = 4096;

/// Sends a vector.
///
/// # Safety
/// `vector` holds `count` valid entries.
pub unsafe fn send(socket: &Socket, fd: i32, vector: *const iovec, count: usize, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    let pieces = unsafe { Pieces::new(vector, count)? };
    if let Some((data, length)) = pieces.single() {
        // SAFETY: the entry is the caller's buffer.
        return unsafe { stream::send(socket, fd, data, length, flags) };
    }
    if pieces.length() <= GATHER {
        let mut together = core::mem::MaybeUninit::<[u8; GATHER]>::uninit();
        let start = together.as_mut_ptr().cast::<u8>();
        let mut at = 0;
        for (data, length) in pieces.from(0, GATHER) {
            // SAFETY: the lengths add up to at most GATHER.
            unsafe { core::ptr::copy_nonoverlapping(data, start.add(at), length) };
            at += length;
        }
        // SAFETY: `at` bytes were written.
        return unsafe { stream::send(socket, fd, start, at, flags) };
    }
    // SAFETY: passed on.
    unsafe { stream::send_vector(socket, fd, &pieces, flags) }
}

/// What TCP says to a message header: too many pieces, or a control message of the socket level that it does not know
/// (sock_cmsg_send; SCM_RIGHTS and SCM_CREDENTIALS are skipped there, other levels are not looked at).
unsafe fn check_control(message: *const msghdr) -> Result<()> {
    const SCM_CREDENTIALS: i32 = 2;
    // SAFETY: the caller's header and control buffer.
    unsafe {
        if (*message).msg_iovlen > IOV_MAX {
            return Err(Errno(libc::EMSGSIZE));
        }
        let mut at = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            let header = at.read_unaligned();
            if header.cmsg_len < core::mem::size_of::<libc::cmsghdr>() {
                return Err(Errno(libc::EINVAL));
            }
            let known =
                [libc::SCM_RIGHTS, SCM_CREDENTIALS, libc::SO_MARK, libc::SO_TIMESTAMPING, libc::SO_TXTIME, libc::SO_PRIORITY];
            if header.cmsg_level == libc::SOL_SOCKET && !known.contains(&header.cmsg_type) {
                return Err(Errno(libc::EINVAL));
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
    Ok(())
}

/// sendmsg(2). A destination is ignored, as TCP does; control messages that TCP knows nothing of give EINVAL.
///
/// # Safety
/// `message` is valid as the manual page asks.
pub unsafe fn send_message(socket: &Socket, fd: i32, message: *const msghdr, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        check_control(message)?;
    }
    // SAFETY: passed on.
    unsafe { send(socket, fd, (*message).msg_iov, (*message).msg_iovlen, flags) }
}

/// recvmsg(2). TCP gives no source address, and control messages only where they were asked for.
///
/// # Safety
/// `message` is valid as the manual page asks.
pub unsafe fn receive_message(socket: &Socket, fd: i32, message: *mut msghdr, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        if (*message).msg_iovlen > IOV_MAX {
            return Err(Errno(libc::EMSGSIZE));
        }
        if flags & libc::MSG_ERRQUEUE != 0 {
            return control::from_error_queue(socket, &mut *message);
        }
        let got = receive(socket, fd, (*message).msg_iov, (*message).msg_iovlen, flags)?;
        let message = &mut *message;
        message.msg_namelen = 0;
        message.msg_flags = flags & libc::MSG_OOB;
        let mut writer = Writer::new(message);
        if socket.control.load(Ordering::Relaxed) != 0 && flags & libc::MSG_OOB == 0 {
            control::with_bytes(socket, got as usize, &mut writer);
        }
        writer.finish();
        Ok(got)
    }
}

/// sendmmsg(2): the number of messages sent, an error only for the first.
///
/// # Safety
/// `messages` holds `count` valid headers.
pub unsafe fn send_messages(socket: &Socket, fd: i32, messages: *mut mmsghdr, count: u32, flags: i32) -> Result<isize> {
    let count = (count as usize).min(IOV_MAX);
    for i in 0..count {
        // SAFETY: i < count.
        match unsafe { send_message(socket, fd, &(*messages.add(i)).msg_hdr, flags) } {
            // SAFETY: as above.
            Ok(n) => unsafe { (*messages.add(i)).msg_len = n as u32 },
            Err(error) if i == 0 => return Err(error),
            Err(_) => return Ok(i as isize),
        }
    }
    Ok(count as isize)
}

const MSG_WAITFORONE: i32 = 0x10000;

/// recvmmsg(2). The timeout is looked at after each message, as the kernel does (see BUGS in the manual page).
///
/// # Safety
/// `messages` holds `count` valid headers; `timeout` is null or valid.
pub unsafe fn receive_messages(
    socket: &Socket,
    fd: i32,
    messages: *mut mmsghdr,
    count: u32,
    mut flags: i32,
    timeout: *mut timespec,
) -> Result<isize> {
    let start = clock::monotonic_ns();
    // SAFETY: null or valid.
    let limit = unsafe { timeout.as_ref() }.map(|t| (t.tv_sec as u64).saturating_mul(1_000_000_000) + t.tv_nsec as u64);
    let for_one = flags & MSG_WAITFORONE != 0;
    flags &= !MSG_WAITFORONE;
    for i in 0..count as usize {
        // SAFETY: i < count.
        match unsafe { receive_message(socket, fd, &mut (*messages.add(i)).msg_hdr, flags) } {
            // SAFETY: as above.
            Ok(n) => unsafe { (*messages.add(i)).msg_len = n as u32 },
            Err(error) if i == 0 => return Err(error),
            Err(_) => return Ok(i as isize),
        }
        if for_one {
            flags |= MSG_DONTWAIT;
        }
        if limit.is_some_and(|limit| clock::monotonic_ns() - start >= limit) {
            return Ok(i as isize + 1);
        }
    }
    Ok(count as isize)
}

/// recvfrom(2): a connected TCP socket gives no address, its length becomes 0.
///
/// # Safety
/// As recvfrom(2).
pub unsafe fn receive_from(
    socket: &Socket,
    fd: i32,
    data: *mut u8,
    length: usize,
    flags: i32,
    address_length: *mut libc::socklen_t,
) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        let got = stream::receive(socket, fd, data, length, flags)?;
        if !address_length.is_null() {
            *address_length = 0;
        }
        Ok(got)
    }
}

/// Bytes moved per step by [`send_file`].
const STEP: usize = 64 << 10;

/// sendfile(2) to a stream: the file's pages are read straight into memory that is sent at once.
///
/// # Safety
/// `offset` is null or valid.
pub unsafe fn send_file(socket: &Socket, fd: i32, from: i32, offset: *mut i64, count: usize) -> Result<isize> {
    let mut buffer = core::mem::MaybeUninit::<[u8; STEP]>::uninit();
    let data = buffer.as_mut_ptr().cast::<u8>();
    let mut done = 0usize;
    // With no offset the file's own position moves, and only by what was really sent.
    // SAFETY: null or valid.
    let start = match unsafe { offset.as_ref() } {
        Some(at) if *at < 0 => return Err(Errno(libc::EINVAL)),
        Some(at) => *at,
        // SAFETY: a plain system call.
        None => match shunt_sys::check(unsafe { shunt_sys::syscall!(libc::SYS_lseek, from, 0, libc::SEEK_CUR) }) {
            Err(Errno(libc::ESPIPE)) => return Err(Errno(libc::EINVAL)),
            other => other? as i64,
        },
    };
    let mut failure = None;
    // A source that cannot be read at an offset (a socket, a pipe) is none for sendfile.
    if let Err(Errno(libc::ESPIPE)) = calls::pread(from, data.cast(), 0, 0) {
        return Err(Errno(libc::EINVAL));
    }
    while done < count {
        let part = (count - done).min(STEP);
        let got = match calls::pread(from, data.cast(), part, start + done as i64) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        // SAFETY: `got` bytes were read.
        match unsafe { stream::send(socket, fd, data, got, if done > 0 { MSG_NOSIGNAL } else { 0 }) } {
            Ok(sent) => {
                done += sent as usize;
                if (sent as usize) < got {
                    break;
                }
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if done == 0 {
        if let Some(error) = failure {
            return Err(error);
        }
    }
    // SAFETY: null or valid; a plain system call.
    unsafe {
        if let Some(at) = offset.as_mut() {
            *at = start + done as i64;
        } else {
            let _ = shunt_sys::syscall!(libc::SYS_lseek, from, start + done as i64, libc::SEEK_SET);
        }
    }
    Ok(done as isize)
}

/// splice(2) from a stream into a pipe: bytes are looked at, written, and taken only as far as the pipe took them.
///
/// # Safety
/// A plain call; kept unsafe with its family.
pub unsafe fn splice_out(socket: &Socket, fd: i32, pipe: i32, length: usize, flags: u32) -> Result<isize> {
    let mut buffer = core::mem::MaybeUninit::<[u8; STEP]>::uninit();
    let data = buffer.as_mut_ptr().cast::<u8>();
    let quiet = if flags & libc::SPLICE_F_NONBLOCK != 0 { MSG_DONTWAIT } else { 0 };
    // SAFETY: the buffer has room for STEP bytes.
    unsafe {
        let seen = stream::receive(socket, fd, data, length.min(STEP), MSG_PEEK | quiet)?;
        if seen <= 0 {
            return Ok(seen);
        }
        if quiet != 0 && calls::poll_one(pipe, libc::POLLOUT, 0)? & libc::POLLOUT == 0 {
            return Err(Errno(libc::EAGAIN));
        }
        let room = if quiet != 0 { (seen as usize).min(libc::PIPE_BUF) } else { seen as usize };
        let written = calls::write(pipe, data.cast(), room)?;
        stream::receive(socket, fd, data, written, MSG_WAITALL)
    }
}

/// splice(2) from a pipe into a stream: no more is taken out of the pipe than the stream has space for.
///
/// # Safety
/// As [`splice_out`].
pub unsafe fn splice_in(socket: &Socket, fd: i32, pipe: i32, length: usize, flags: u32) -> Result<isize> {
    let mut buffer = core::mem::MaybeUninit::<[u8; STEP]>::uninit();
    let data = buffer.as_mut_ptr().cast::<u8>();
    let nonblocking = crate::wait::nonblocking(socket, fd, 0) || flags & libc::SPLICE_F_NONBLOCK != 0;
    let mut most = length.min(STEP);
    if nonblocking {
        most = most.min(socket.outgoing().writable().0);
        if most == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    if flags & libc::SPLICE_F_NONBLOCK != 0 && calls::poll_one(pipe, libc::POLLIN, 0)? == 0 {
        return Err(Errno(libc::EAGAIN));
    }
    let got = calls::read(pipe, data.cast(), most)?;
    if got == 0 {
        return Ok(0);
    }
    // SAFETY: `got` bytes were read.
    unsafe { stream::send(socket, fd, data, got, 0) }
}
