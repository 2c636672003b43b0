//! The rendezvous of a socket that is bound and does not listen yet, made when another process is about to have the socket.
//!
//! Servers bind before they start their workers, which are programs of their own and listen, each of them (uvicorn and hypercorn do). The name can
//! be bound once, so it is bound before the processes part, and goes with the socket by fork and over exec. As long as none of them
//! listens it refuses clients, as a name does that nobody has.

use core::sync::atomic::Ordering;
use shunt_segment::name;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::calls;
use shunt_sys::libc::{self, AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_table::{global, private, sockaddr};

/// Whether the next process may listen by `socket`, a TCP socket at `fd` that does not listen here.
pub fn may_listen(fd: i32, socket: &Socket) -> bool {
    socket.has(flag::BOUND)
        && !socket.has(flag::FILTERED)
        && calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(0)
        && !sockaddr::is_connected(fd)
}

/// A process is about to have the TCP socket at `fd`, too. Returns the rendezvous that goes along, if any.
pub fn make(fd: i32, socket: &Socket) -> Option<i32> {
    let made = socket.listening.promised_fd.load(Ordering::Acquire);
    if made >= 0 {
        return Some(made);
    }
    if !may_listen(fd, socket) || !global::options().accelerate || private::are_scarce() {
        return None;
    }
    let inode = calls::status_of(fd).ok()?.st_ino;
    let unix = private::keep(calls::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0).ok()?).ok()?;
    let (address, length) = sockaddr::abstract_name(name::listener(inode).as_slice());
    if calls::bind(unix, (&address as *const libc::sockaddr_un).cast(), length).is_err() {
        private::close(unix);
        // Another thread has made it meanwhile, or it is not to be had.
        return Some(socket.listening.promised_fd.load(Ordering::Acquire)).filter(|made| *made >= 0);
    }
    socket.listening.promised_fd.store(unix, Ordering::Release);
    Some(unix)
}

/// The same before an exec: the next program does not know what this one knows, and listens for both.
pub fn hand(fd: i32, socket: &Socket) -> Option<i32> {
    make(fd, socket).inspect(|_| socket.set(flag::LISTENER_HANDED))
}

/// In the next program: the socket at `fd`, an object of which is made, came with `rendezvous`. False: it listens already.
pub fn come(fd: i32, socket: &Socket, rendezvous: i32) -> bool {
    // Looked at first: a process that listens makes the socket non-blocking afterwards.
    let flags = calls::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
    if calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) != Ok(0) {
        return false;
    }
    socket.set(flag::BOUND | flag::PLAIN);
    socket.set(flag::LISTENER_HANDED);
    if flags & libc::O_NONBLOCK != 0 {
        socket.set(flag::NONBLOCK);
    }
    socket.listening.promised_fd.store(rendezvous, Ordering::Release);
    true
}

/// It listens now, by the rendezvous that is returned; -1: it has none yet.
pub(super) fn take(socket: &Socket) -> i32 {
    socket.listening.promised_fd.swap(-1, Ordering::AcqRel)
}
