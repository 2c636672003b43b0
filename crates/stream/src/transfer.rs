//! Vectors: readv, writev, sendmsg, recvmsg and their `mmsg` forms, in terms of `stream`.

use crate as stream;
use crate::control::Writer;
use crate::options::limits;
use crate::options::option_probe::OptionProbe;
use crate::socket::Socket;
use crate::waiting::wake::nonblocking;
use crate::waiting::{holding, readiness};
use crate::{carried, control};
use core::sync::atomic::Ordering;
use shunt_sys::libc::{self, iovec, mmsghdr, msghdr, timespec, MSG_DONTWAIT};
use shunt_sys::{calls, clock, thread, user, Errno, Result};
use shunt_table::memory::pieces::{Pieces, IOV_MAX};
use shunt_table::sockaddr;

/// Receives into a vector, as one step with what is there: waits for the first bytes only, unless the flags ask for more.
///
/// # Safety
/// `vector` may be any address that is not ours.
pub unsafe fn receive(socket: &Socket, fd: i32, vector: *const iovec, count: usize, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { Pieces::with(vector, count, |pieces| receive_pieces(socket, fd, pieces, flags)) }
}

unsafe fn receive_pieces(socket: &Socket, fd: i32, pieces: &Pieces, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        match pieces.single() {
            Some((data, length)) => stream::receive(socket, fd, data, length, flags),
            None => stream::receive_pieces(socket, fd, pieces, flags),
        }
    }
}

/// readv(2): a vector without bytes asks for nothing, and does not wait.
///
/// # Safety
/// `vector` may be any address that is not ours.
pub unsafe fn read(socket: &Socket, fd: i32, vector: *const iovec, count: usize, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        Pieces::with(vector, count, |pieces| {
            if pieces.length() == 0 {
                return Ok(0);
            }
            receive_pieces(socket, fd, pieces, flags)
        })
    }
}

/// Small vectors are gathered first: one message, one announcement.
const GATHER: usize = 4096;

/// Sends a vector.
///
/// # Safety
/// `vector` may be any address that is not ours.
pub unsafe fn send(socket: &Socket, fd: i32, vector: *const iovec, count: usize, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { Pieces::with(vector, count, |pieces| send_pieces(socket, fd, pieces, flags)) }
}

unsafe fn send_pieces(socket: &Socket, fd: i32, pieces: &Pieces, flags: i32) -> Result<isize> {
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
            unsafe { user::copy_all(data, start.add(at), length)? };
            at += length;
        }
        // SAFETY: `at` bytes were written.
        return unsafe { stream::send(socket, fd, start, at, flags) };
    }
    // SAFETY: passed on.
    unsafe { stream::send_vector(socket, fd, pieces, flags) }
}

/// What TCP says to the control messages of a header (sock_cmsg_send): rights and credentials are skipped there, other levels not
/// looked at, and about the others the kernel is asked, whose number and rules change from version to version.
unsafe fn check_control(socket: &Socket, message: &msghdr) -> Result<()> {
    const SCM_CREDENTIALS: i32 = 2;
    let length = message.msg_controllen;
    if length == 0 {
        return Ok(());
    }
    let control = message.msg_control as usize;
    let mut asks = false;
    // SAFETY: each header is copied before it is looked at; the buffer may be anything.
    unsafe {
        user::read((control.wrapping_add(length - 1)) as *const u8)?;
        let mut at = 0;
        while length - at >= core::mem::size_of::<libc::cmsghdr>() {
            let header = user::read(control.wrapping_add(at) as *const libc::cmsghdr)?;
            let size = header.cmsg_len as usize;
            if size < core::mem::size_of::<libc::cmsghdr>() || size > length - at {
                return Err(Errno(libc::EINVAL));
            }
            asks |= header.cmsg_level == libc::SOL_SOCKET && ![libc::SCM_RIGHTS, SCM_CREDENTIALS].contains(&header.cmsg_type);
            at = length.min(at + size.next_multiple_of(8));
        }
    }
    if !asks {
        return Ok(());
    }
    // Where no descriptor is left, all is well.
    OptionProbe::new(socket, |_| {}).map_or(Ok(()), |probe| probe.send_nothing(message))
}

/// A message header of the program's. Errors: EFAULT; EMSGSIZE for too many pieces.
unsafe fn header(message: *const msghdr) -> Result<msghdr> {
    // SAFETY: any bytes are a header; the address may be anything.
    let copy = unsafe { user::read(message)? };
    if !copy.msg_name.is_null() && (copy.msg_namelen as i32) < 0 {
        return Err(Errno(libc::EINVAL));
    }
    if copy.msg_iovlen > IOV_MAX {
        return Err(Errno(libc::EMSGSIZE));
    }
    Ok(copy)
}

/// sendmsg(2). A destination is read and ignored, as TCP does; control messages that TCP knows nothing of give EINVAL.
///
/// # Safety
/// `message` may be any address that is not ours.
pub unsafe fn send_message(socket: &Socket, fd: i32, message: *const msghdr, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { send_some(socket, fd, message, flags).map(|(sent, _)| sent) }
}

/// As [`send_message`]; tells, too, whether that was all of the message.
unsafe fn send_some(socket: &Socket, fd: i32, message: *const msghdr, flags: i32) -> Result<(isize, bool)> {
    // SAFETY: passed on.
    unsafe {
        let message = header(message)?;
        if !message.msg_name.is_null() {
            sockaddr::check(message.msg_name.cast(), message.msg_namelen.min(128))?;
            // longer ones are cut
        }
        Pieces::with(message.msg_iov, message.msg_iovlen, |pieces| {
            check_control(socket, &message)?;
            send_pieces(socket, fd, pieces, flags).map(|sent| (sent, sent as usize == pieces.length()))
        })
    }
}

/// recvmsg(2). TCP gives no source address, and control messages only where they were asked for.
///
/// # Safety
/// `message` may be any address that is not ours.
pub unsafe fn receive_message(socket: &Socket, fd: i32, message: *mut msghdr, flags: i32) -> Result<isize> {
    // SAFETY: passed on; fields of a header that was just read.
    unsafe {
        let mut copy = header(message)?;
        let got = if flags & libc::MSG_ERRQUEUE != 0 {
            control::from_error_queue(socket, &mut copy)?
        } else {
            let got = receive(socket, fd, copy.msg_iov, copy.msg_iovlen, flags)?;
            copy.msg_namelen = 0;
            copy.msg_flags = flags & libc::MSG_OOB;
            let mut writer = Writer::new(&mut copy);
            if socket.control.load(Ordering::Relaxed) != 0 && flags & libc::MSG_OOB == 0 {
                control::with_bytes(socket, got as usize, &mut writer);
            }
            writer.finish();
            got
        };
        // ____sys_recvmsg: of a name that was not asked for there is no length, and one flag of the call is told back.
        if !copy.msg_name.is_null() {
            user::write(&raw mut (*message).msg_namelen, copy.msg_namelen)?;
        }
        user::write(&raw mut (*message).msg_flags, copy.msg_flags | flags & libc::MSG_CMSG_CLOEXEC)?;
        user::write(&raw mut (*message).msg_controllen, copy.msg_controllen)?;
        Ok(got)
    }
}

/// MSG_CMSG_COMPAT: a flag that only the kernel itself may give.
fn forbid_compat(flags: i32) -> Result<()> {
    if flags < 0 {
        return Err(Errno(libc::EINVAL));
    }
    Ok(())
}

/// sendmmsg(2): the number of messages sent, an error only for the first.
///
/// # Safety
/// `messages` may be any address that is not ours.
pub unsafe fn send_messages(socket: &Socket, fd: i32, messages: *mut mmsghdr, count: u32, mut flags: i32) -> Result<isize> {
    forbid_compat(flags)?;
    let count = (count as usize).min(IOV_MAX);
    for i in 0..count {
        // SAFETY: passed on; addresses of fields.
        let sent = unsafe {
            let message = messages.wrapping_add(i);
            send_some(socket, fd, &raw const (*message).msg_hdr, flags)
                .and_then(|(n, whole)| user::write(&raw mut (*message).msg_len, n as u32).map(|()| whole))
        };
        flags |= stream::UNDER_WAY;
        match sent {
            Ok(true) => {}
            // What comes next would follow behind a gap (__sys_sendmmsg).
            Ok(false) => return Ok(i as isize + 1),
            Err(error) if i == 0 => return Err(error),
            Err(_) => return Ok(i as isize),
        }
        if socket.hold.is_carried() && i + 1 < count {
            let (next, left) = (messages.wrapping_add(i + 1) as usize, count - i - 1);
            let flags = (flags & !stream::UNDER_WAY) as usize;
            return carried::further(i + 1, libc::SYS_sendmmsg, [holding::end(socket, fd) as usize, next, left, flags, 0, 0]);
        }
    }
    Ok(count as isize)
}

const MSG_WAITFORONE: i32 = 0x10000;

/// recvmmsg(2). The time-out is looked at after each message, as the kernel does (see BUGS in the manual page), and what
/// is left of it is written back.
///
/// # Safety
/// As for [`send_messages`].
pub unsafe fn receive_messages(
    socket: &Socket,
    fd: i32,
    messages: *mut mmsghdr,
    count: u32,
    mut flags: i32,
    timeout: *mut timespec,
) -> Result<isize> {
    forbid_compat(flags)?;
    // SAFETY: null, or the program's.
    let time = if timeout.is_null() { None } else { Some(unsafe { user::read(timeout)? }) };
    let end = match time {
        Some(time) if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) => return Err(Errno(libc::EINVAL)),
        Some(time) => {
            let limit = (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64);
            clock::monotonic_ns().saturating_add(limit)
        }
        None => u64::MAX,
    };
    let for_one = flags & MSG_WAITFORONE != 0;
    flags &= !MSG_WAITFORONE;
    // sock_error comes first, before bytes that wait.
    if flags & libc::MSG_ERRQUEUE == 0 {
        readiness::observe(socket, socket.peer().post.word.load(Ordering::Acquire));
        if let Some(error) = readiness::take_error(socket) {
            return Err(Errno(error));
        }
    }
    for i in 0..count as usize {
        // SAFETY: passed on; addresses of fields.
        let received = unsafe {
            let message = messages.wrapping_add(i);
            receive_message(socket, fd, &raw mut (*message).msg_hdr, flags)
                .and_then(|n| user::write(&raw mut (*message).msg_len, n as u32))
        };
        flags |= stream::UNDER_WAY;
        match received {
            Ok(()) => {}
            Err(error) if i == 0 => return Err(error),
            Err(error) => {
                // do_recvmmsg: for the next call. Of others than a reset a stream has no memory.
                if matches!(error, Errno(libc::ECONNRESET | libc::ETIMEDOUT)) {
                    readiness::put_back_reset(socket);
                }
                return Ok(i as isize);
            }
        }
        if for_one {
            flags |= MSG_DONTWAIT;
        }
        if time.is_some() {
            let left = end.saturating_sub(clock::monotonic_ns());
            let left_time = timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
            // SAFETY: the program's.
            unsafe { user::write(timeout, left_time)? };
            if left == 0 {
                return Ok(i as isize + 1);
            }
        }
        if socket.hold.is_carried() && i + 1 < count as usize {
            let (next, left) = (messages.wrapping_add(i + 1) as usize, count as usize - i - 1);
            let (flags, end) = ((flags & !stream::UNDER_WAY) as usize, holding::end(socket, fd));
            // An error is for the next call, which the kernel keeps behind a message alone.
            let limit = limits::deadline(socket.receive_timeout.load(Ordering::Relaxed));
            let may_wait = flags as i32 & MSG_DONTWAIT == 0 && !nonblocking(socket, fd, 0);
            if may_wait && carried::await_ready(end, libc::POLLIN, limit, thread::handled()).is_err()
                || calls::poll_one(end, 0, 0).map_or(true, |events| events & libc::POLLERR != 0)
            {
                return Ok(i as isize + 1);
            }
            return carried::further(i + 1, libc::SYS_recvmmsg, [end as usize, next, left, flags, timeout as usize, 0]);
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
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
) -> Result<isize> {
    // SAFETY: passed on.
    unsafe {
        let got = stream::receive(socket, fd, data, length, flags)?;
        if !address.is_null() {
            // move_addr_to_user
            if (user::read(address_length)? as i32) < 0 {
                return Err(Errno(libc::EINVAL));
            }
            user::write(address_length, 0)?;
        }
        Ok(got)
    }
}

/// Flags of preadv2(2) that sockets take: RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_NOWAIT, RWF_APPEND, RWF_NOAPPEND. The kernel
/// looks at them when there is something to move.
fn flags_of(flags: i32) -> Result<i32> {
    const NOWAIT: i32 = 8;
    match flags & !0x3f {
        0 => Ok(if flags & NOWAIT != 0 { MSG_DONTWAIT } else { 0 }),
        _ => Err(Errno(libc::EOPNOTSUPP)),
    }
}

/// preadv2(2) at the offset -1, which means the file's own position: a stream has none.
///
/// # Safety
/// As [`read`].
pub unsafe fn read_flagged(socket: &Socket, fd: i32, vector: *const iovec, count: usize, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { read(socket, fd, vector, count, flags_of(flags)?) }
}

/// pwritev2(2) at the offset -1.
///
/// # Safety
/// As [`send`].
pub unsafe fn write_flagged(socket: &Socket, fd: i32, vector: *const iovec, count: usize, flags: i32) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { send(socket, fd, vector, count, flags_of(flags)?) }
}
