//! getsockopt and setsockopt of accelerated sockets.
//!
//! The companion is an AF_UNIX socket and knows no TCP options, so they are kept here. The kernel stays the judge of
//! what is valid: a new value is first given to a fresh TCP socket and read back, so errors, clamping and doubling
//! (SO_SNDBUF) are its own.

use crate::socket::{flag, Socket};
use crate::{control, readiness};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{state, word};
use shunt_sys::libc::{self, c_int, socklen_t, IPPROTO_TCP, SOL_SOCKET};
use shunt_sys::{calls, user, Errno, Result};

const MOST: usize = 24;
const LONGEST: usize = 16;

#[derive(Clone, Copy)]
struct Entry {
    level: c_int,
    name: c_int,
    length: u8,
    data: [u8; LONGEST],
}

/// Options that a program set on a socket, in the order of setting.
#[derive(Clone, Copy)]
pub struct Stored {
    count: usize,
    entries: [Entry; MOST],
}

impl Stored {
    /// None set.
    pub const fn new() -> Stored {
        Stored { count: 0, entries: [Entry { level: 0, name: 0, length: 0, data: [0; LONGEST] }; MOST] }
    }

    fn find(&self, level: c_int, name: c_int) -> Option<&Entry> {
        self.entries[..self.count].iter().find(|e| e.level == level && e.name == name)
    }

    fn store(&mut self, level: c_int, name: c_int, bytes: &[u8]) {
        let length = bytes.len().min(LONGEST);
        let index = match self.entries[..self.count].iter().position(|e| e.level == level && e.name == name) {
            Some(index) => index,
            None if self.count < MOST => {
                self.count += 1;
                self.count - 1
            }
            None => return, // more different options than any program sets
        };
        let entry = &mut self.entries[index];
        (entry.level, entry.name, entry.length) = (level, name, length as u8);
        entry.data[..length].copy_from_slice(&bytes[..length]);
    }
}

impl Default for Stored {
    fn default() -> Self {
        Stored::new()
    }
}

#[allow(clippy::mut_from_ref)]
fn stored(socket: &Socket) -> &mut Stored {
    // SAFETY: plain bytes of this process; threads that set options of one socket at the same time can only mix up
    // their own values.
    unsafe { &mut *socket.stored.get() }
}

fn judge(socket: &Socket) -> Result<Judge> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    Ok(Judge(calls::socket(socket.family.load(Ordering::Relaxed), kind, 0)?))
}

/// A TCP socket that answers what the kernel thinks of an option.
struct Judge(i32);

impl Drop for Judge {
    fn drop(&mut self) {
        let _ = calls::close(self.0);
    }
}

impl Judge {
    fn read(&self, level: c_int, name: c_int) -> Result<([u8; LONGEST], usize)> {
        let mut data = [0u8; LONGEST];
        let mut length = LONGEST as socklen_t;
        calls::getsockopt(self.0, level, name, data.as_mut_ptr().cast(), &mut length)?;
        Ok((data, (length as usize).min(LONGEST)))
    }
}

/// A program set an option of a TCP socket that is not connected yet, and the kernel agreed: remembers what came of it.
pub fn note_set(fd: i32, socket: &Socket, level: c_int, name: c_int) {
    let mut data = [0u8; LONGEST];
    let mut length = LONGEST as socklen_t;
    if calls::getsockopt(fd, level, name, data.as_mut_ptr().cast(), &mut length).is_ok() {
        let bytes = &data[..(length as usize).min(LONGEST)];
        stored(socket).store(level, name, bytes);
        apply(socket, level, name, bytes);
    }
}

/// The TCP socket `fd` is about to be replaced: reads back what its options really are.
pub fn carry_over(fd: i32, socket: &Socket) {
    let list = stored(socket);
    for entry in &mut list.entries[..list.count] {
        let mut length = LONGEST as socklen_t;
        let mut data = [0u8; LONGEST];
        if calls::getsockopt(fd, entry.level, entry.name, data.as_mut_ptr().cast(), &mut length).is_ok() {
            entry.length = (length as usize).min(LONGEST) as u8;
            entry.data = data;
        }
    }
}

/// The way back: a fresh TCP socket gets what the program had set on the stream.
pub fn give_back(fd: i32, socket: &Socket, next: &Socket) {
    let list = stored(socket);
    *stored(next) = *list;
    for entry in &list.entries[..list.count] {
        let mut data = entry.data;
        if entry.level == SOL_SOCKET && matches!(entry.name, libc::SO_SNDBUF | libc::SO_RCVBUF) {
            let half = integer(&data) / 2; // the kernel doubles what it is given
            data[..4].copy_from_slice(&half.to_ne_bytes());
        }
        let _ = calls::setsockopt(fd, entry.level, entry.name, data.as_ptr().cast(), entry.length as socklen_t);
    }
}

/// An accepted socket begins with the listener's options.
pub fn inherit(listener: &Socket, accepted: &Socket) {
    let list = stored(listener);
    if list.count == 0 {
        return;
    }
    *stored(accepted) = *list;
    for entry in list.entries[..list.count].iter() {
        // Timeouts are inherited with the rest (sk_clone_lock copies the socket).
        apply(accepted, entry.level, entry.name, &entry.data[..entry.length as usize]);
    }
}

fn integer(bytes: &[u8]) -> c_int {
    match bytes.first_chunk::<4>() {
        Some(four) => c_int::from_ne_bytes(*four),
        None => bytes.first().copied().unwrap_or(0) as c_int,
    }
}

fn timeval_ns(bytes: &[u8]) -> u64 {
    let (Some(seconds), Some(micros)) = (bytes.first_chunk::<8>(), bytes.get(8..16)) else { return 0 };
    let seconds = i64::from_ne_bytes(*seconds);
    let micros = i64::from_ne_bytes(micros.try_into().unwrap_or([0; 8]));
    if seconds < 0 {
        return 0;
    }
    (seconds as u64).saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000)
}

/// Options that change what we do.
fn apply(socket: &Socket, level: c_int, name: c_int, bytes: &[u8]) {
    control::note(socket, level, name, integer(bytes));
    if level != SOL_SOCKET {
        return;
    }
    match name {
        libc::SO_PEEK_OFF => {
            socket.peek_offset.store(integer(bytes), Ordering::Relaxed);
            careful(socket);
        }
        libc::SO_ZEROCOPY => {
            if integer(bytes) != 0 {
                socket.set(flag::ZERO_COPY);
            } else {
                socket.clear(flag::ZERO_COPY);
            }
        }
        libc::SO_RCVTIMEO => socket.receive_timeout.store(timeval_ns(bytes), Ordering::Relaxed),
        libc::SO_SNDTIMEO => socket.send_timeout.store(timeval_ns(bytes), Ordering::Relaxed),
        libc::SO_OOBINLINE => {
            if integer(bytes) != 0 {
                socket.set(flag::OOB_INLINE);
            } else {
                socket.clear(flag::OOB_INLINE);
            }
        }
        libc::SO_RCVLOWAT => {
            socket.low_water.store(integer(bytes).max(1) as u32, Ordering::Relaxed);
            careful(socket);
        }
        libc::SO_LINGER if bytes.len() >= 8 => {
            if integer(bytes) != 0 && integer(&bytes[4..]) == 0 {
                socket.set(flag::LINGER_RESET);
            } else {
                socket.clear(flag::LINGER_RESET);
            }
        }
        _ => {}
    }
}

fn careful(socket: &Socket) {
    if socket.low_water.load(Ordering::Relaxed) > 1 || socket.peek_offset.load(Ordering::Relaxed) >= 0 {
        socket.set(flag::CAREFUL);
    } else {
        socket.clear(flag::CAREFUL);
    }
}

/// Options that its peer or the ring has to know are told: the socket has become a stream at `fd` (`fresh`), or one has
/// changed.
pub fn connected(socket: &Socket, fd: i32, fresh: bool) {
    if socket.control.load(Ordering::Relaxed) != 0 {
        control::announce(socket, fd);
    }
    if let Some(entry) = stored(socket).find(SOL_SOCKET, libc::SO_RCVBUF) {
        let set = integer(&entry.data) as u32;
        // A window that was offered is not taken back.
        if fresh || set > socket.own().receive_buffer.load(Ordering::Relaxed).max(131_072) {
            socket.own().receive_buffer.store(set, Ordering::Relaxed);
        }
    }
    if let Some(entry) = stored(socket).find(SOL_SOCKET, libc::SO_SNDBUF) {
        socket.own().transmit.send_buffer.store(integer(&entry.data) as u32, Ordering::Relaxed);
    }
}

/// setsockopt(2) on the stream `fd`.
///
/// # Safety
/// `data` holds `length` readable bytes.
pub unsafe fn set(socket: &Socket, fd: i32, level: c_int, name: c_int, data: *const u8, length: socklen_t) -> Result<isize> {
    let switch = matches!((level, name), (IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) | (SOL_SOCKET, libc::SO_KEEPALIVE));
    if switch && length >= 4 {
        // Set on each connection, or around each response, and nothing to judge: any integer is on or off.
        // SAFETY: passed on.
        let on = unsafe { user::read(data.cast::<c_int>())? } != 0;
        stored(socket).store(level, name, &(on as c_int).to_ne_bytes());
        if (level, name) == (IPPROTO_TCP, libc::TCP_CORK) {
            if on {
                socket.set(flag::CORKED);
            } else {
                socket.clear(flag::CORKED);
                crate::wait::uncork();
            }
        }
        return Ok(0);
    }
    if (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) && socket.family.load(Ordering::Relaxed) == libc::AF_INET6 {
        return Err(Errno(libc::EINVAL)); // a judge is not bound, and would allow it
    }
    let judge = judge(socket)?;
    calls::setsockopt(judge.0, level, name, data.cast(), length)?;
    if let Ok((bytes, length)) = judge.read(level, name) {
        stored(socket).store(level, name, &bytes[..length]);
        apply(socket, level, name, &bytes[..length]);
        connected(socket, fd, false);
    }
    Ok(0)
}

/// getsockopt(2) on a stream.
///
/// # Safety
/// Pointers as the manual page asks.
pub unsafe fn get(socket: &Socket, level: c_int, name: c_int, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: any address may be the program's.
    unsafe { user::read(length)? };
    // SAFETY: passed on.
    unsafe {
        let family = socket.family.load(Ordering::Relaxed);
        match (level, name) {
            (SOL_SOCKET, libc::SO_TYPE) => give(libc::SOCK_STREAM, data, length),
            (SOL_SOCKET, libc::SO_DOMAIN) => give(family, data, length),
            (SOL_SOCKET, libc::SO_PROTOCOL) => give(IPPROTO_TCP, data, length),
            (SOL_SOCKET, libc::SO_ACCEPTCONN) => give(0, data, length),
            (SOL_SOCKET, libc::SO_ERROR) => give(pending_error(socket), data, length),
            (SOL_SOCKET, libc::SO_PEEK_OFF) => give(socket.peek_offset.load(Ordering::Relaxed), data, length),
            (SOL_SOCKET, libc::SO_PEERCRED) => give_bytes(&ucred_unknown(), data, length),
            (IPPROTO_TCP, libc::TCP_INFO) => info(socket, data, length),
            _ => {
                if let Some(entry) = stored(socket).find(level, name) {
                    return give_bytes(&entry.data[..entry.length as usize], data, length);
                }
                let judge = judge(socket)?;
                calls::getsockopt(judge.0, level, name, data.cast(), length)?;
                Ok(0)
            }
        }
    }
}

/// SO_PEERCRED of a TCP socket: nobody.
fn ucred_unknown() -> [u8; 12] {
    let mut bytes = [0xffu8; 12];
    bytes[..4].copy_from_slice(&[0; 4]);
    bytes
}

fn pending_error(socket: &Socket) -> c_int {
    let (peer, _) = socket.incoming().look();
    readiness::observe(socket, peer);
    readiness::take_error(socket).unwrap_or(0)
}

unsafe fn give(value: c_int, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { give_bytes(&value.to_ne_bytes(), data, length) }
}

unsafe fn give_bytes(bytes: &[u8], data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    // SAFETY: promised by the caller of `get`.
    unsafe {
        let room = user::read(length)?;
        if (room as i32) < 0 {
            return Err(Errno(libc::EINVAL));
        }
        let room = (room as usize).min(bytes.len());
        user::copy_all(bytes.as_ptr(), data, room)?;
        user::write(length, room as socklen_t)?;
    }
    Ok(0)
}

const TCP_ESTABLISHED: u8 = 1;
const TCP_FIN_WAIT2: u8 = 5;
const TCP_CLOSE: u8 = 7;
const TCP_CLOSE_WAIT: u8 = 8;

/// TCP_INFO: the state and what is in flight are true; times and windows are those of a kernel's fresh connection.
unsafe fn info(socket: &Socket, data: *mut u8, length: *mut socklen_t) -> Result<isize> {
    let (peer, _) = socket.incoming().look();
    let own_state = readiness::observe(socket, peer);
    let sent_fin = socket.outgoing().announced() & word::FIN != 0;
    let got_fin = peer & (word::FIN | word::CLOSED) != 0 || own_state & state::PEER_GONE != 0;
    let judge = judge(socket)?;
    // SAFETY: the kernel writes at most `*length` bytes; the first byte is the state.
    unsafe {
        calls::getsockopt(judge.0, IPPROTO_TCP, libc::TCP_INFO, data.cast(), length)?;
        if user::read(length)? > 0 {
            let told = if own_state & state::DONE != 0 || (sent_fin && got_fin) {
                TCP_CLOSE
            } else if sent_fin {
                TCP_FIN_WAIT2
            } else if got_fin {
                TCP_CLOSE_WAIT
            } else {
                TCP_ESTABLISHED
            };
            user::write(data, told)?;
        }
        Ok(0)
    }
}
