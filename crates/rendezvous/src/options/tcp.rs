//! Between a TCP socket of the kernel and what is kept of its options: before it becomes a stream, and on the way back.

use super::{defer, kinds};
use core::sync::atomic::Ordering;
use shunt_stream::options::effects::{apply, integer};
use shunt_stream::options::limits::{self, NO_TIME};
use shunt_stream::options::owners::catch_up;
use shunt_stream::socket::stored::{Entry, LONGEST};
use shunt_stream::socket::Socket;
use shunt_sys::calls;
use shunt_sys::libc::{self, c_int, socklen_t, SOL_SOCKET};

/// Sets an option of a TCP socket to what is kept of it.
pub(super) fn give(fd: i32, entry: &Entry) {
    let mut data = entry.data;
    if entry.level == SOL_SOCKET && matches!(entry.name, libc::SO_SNDBUF | libc::SO_RCVBUF) {
        let half = integer(&data) / 2; // the kernel doubles what it is given
        data[..4].copy_from_slice(&half.to_ne_bytes());
        // More than the host allows to everybody was set by force.
        let force = if entry.name == libc::SO_SNDBUF { libc::SO_SNDBUFFORCE } else { libc::SO_RCVBUFFORCE };
        if calls::setsockopt(fd, SOL_SOCKET, force, data.as_ptr().cast(), entry.length as socklen_t).is_ok() {
            return;
        }
    }
    let _ = calls::setsockopt(fd, entry.level, entry.name, data.as_ptr().cast(), entry.length as socklen_t);
}

/// A program set an option of a TCP socket that is not connected yet to the `length` bytes at `data`, and the kernel agreed: remembers
/// what came of it.
///
/// # Safety
/// `data` may be any address that is not ours.
pub unsafe fn note_given(fd: i32, socket: &Socket, level: c_int, name: c_int, data: *const u8, length: socklen_t) {
    // SAFETY: passed on.
    if unsafe { limits::is_no_time(level, name, data, length) } {
        let name = limits::name(level, name);
        socket.stored.store(level, name, &NO_TIME);
        apply(socket, level, name, &NO_TIME);
    } else {
        note_set(fd, socket, level, name);
    }
}

/// An option of a TCP socket that is not connected yet was set: remembers what the kernel says of it.
pub(crate) fn note_set(fd: i32, socket: &Socket, level: c_int, name: c_int) {
    let name = limits::name(level, kinds::read_as(level, name));
    let mut data = [0u8; LONGEST];
    let mut length = LONGEST as socklen_t;
    if calls::getsockopt(fd, level, name, data.as_mut_ptr().cast(), &mut length).is_ok() {
        let bytes = &data[..(length as usize).min(LONGEST)];
        socket.stored.store(level, name, bytes);
        apply(socket, level, name, bytes);
        defer(socket, level, name, bytes);
        note_lock(socket, level, name);
    }
    for &(level, name) in kinds::changed_with(level, name) {
        let list = &socket.stored;
        if list.find(level, name).is_some() {
            if let Ok(value) = calls::getsockopt_int(fd, level, name) {
                list.store(level, name, &value.to_ne_bytes());
            }
        }
    }
}

/// A buffer that was set is locked, whatever SO_BUF_LOCK was set to before. Where it never was, probes know.
pub(super) fn note_lock(socket: &Socket, level: c_int, name: c_int) {
    let lock = match (level, name) {
        (SOL_SOCKET, libc::SO_SNDBUF) => 1,
        (SOL_SOCKET, libc::SO_RCVBUF) => 2,
        _ => return,
    };
    if let Some(entry) = socket.stored.find(SOL_SOCKET, SO_BUF_LOCK) {
        socket.stored.store(SOL_SOCKET, SO_BUF_LOCK, &(integer(&entry.data) | lock).to_ne_bytes());
    }
}

const SO_BUF_LOCK: c_int = 72;

/// The TCP socket `fd` is about to be replaced: reads back what its options really are.
pub fn carry_over(fd: i32, socket: &Socket) {
    // The kernel does not tell no time at all from no limit.
    for Entry { level, name, .. } in socket.stored.all().filter(|entry| !limits::is_kept_no_time(entry)) {
        let mut length = LONGEST as socklen_t;
        let mut data = [0u8; LONGEST];
        if calls::getsockopt(fd, level, name, data.as_mut_ptr().cast(), &mut length).is_ok() {
            socket.stored.store(level, name, &data[..(length as usize).min(LONGEST)]);
        }
    }
}

/// The way back: a fresh TCP socket gets what the program had set on the stream.
pub fn give_back(fd: i32, socket: &Socket, next: &Socket) {
    give_to(fd, socket);
    next.stored.follow(&socket.stored);
}

/// A TCP socket of the kernel gets what the program had set on the stream.
pub fn give_to(fd: i32, socket: &Socket) {
    catch_up(socket);
    // A type of service sets the priority, whichever came first (IP_TOS, ip(7)); the list has what it is now.
    let is_priority = |entry: &Entry| (entry.level, entry.name) == (SOL_SOCKET, libc::SO_PRIORITY);
    let list = &socket.stored;
    for entry in list.all().filter(|entry| !is_priority(entry)).chain(list.all().filter(is_priority)) {
        give(fd, &entry);
    }
    let moved = || socket.peek_offset.load(Ordering::Relaxed); // by looks, since it was set
    list.find(SOL_SOCKET, libc::SO_PEEK_OFF).map(|_| calls::setsockopt_int(fd, SOL_SOCKET, libc::SO_PEEK_OFF, moved()));
}

/// The program asked a TCP socket for an option that must not change when it becomes a stream.
pub fn note_get(fd: i32, socket: &Socket, level: c_int, name: c_int) {
    if (level, name) == (SOL_SOCKET, libc::SO_COOKIE) {
        note_set(fd, socket, level, name);
    }
}

/// A TCP socket that is bound to an IPv6 address of its own is for IPv6 only (inet6_bind), and so is what becomes of it.
pub fn note_six_only(fd: i32, socket: &Socket) {
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
    if socket.family.load(Ordering::Relaxed) == libc::AF_INET6 && calls::getsockopt_int(fd, level, name) == Ok(1) {
        note_set(fd, socket, level, name);
    }
}
