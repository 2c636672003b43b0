//! What a handshake waits for, and what stays beside a stream when it is over.

use crate::claim::Token;
use core::sync::atomic::Ordering;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, pollfd, MSG_DONTWAIT, MSG_PEEK, POLLIN};
use shunt_sys::{calls, clock, Errno};
use shunt_table::{global, private};

/// How long a thread looks before it sleeps (ns).
const LOOKS: u64 = 60_000;

/// The TCP connection stays open beside the stream, and ends when that does, without a time of waiting: nothing is in it.
pub fn keep_beside(fd: i32, socket: &Socket) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = core::mem::size_of::<libc::linger>() as libc::socklen_t;
    let _ = calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const at_once).cast(), length);
    let kept = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).and_then(private::keep).unwrap_or(-1);
    socket.private_fd.store(kept, Ordering::Relaxed);
}

/// What came by the TCP connection.
pub enum Looked {
    /// The token.
    Token,
    /// Nothing yet.
    Nothing,
    /// Other bytes, or the connection's end.
    Other,
}

/// Looks, and takes nothing.
pub fn look_for_token(fd: i32, token: &Token) -> Looked {
    let mut bytes = [0u8; 16];
    let none = core::ptr::null_mut();
    match calls::recvfrom(fd, bytes.as_mut_ptr().cast(), 16, MSG_PEEK | MSG_DONTWAIT, none, core::ptr::null_mut()) {
        Ok(16) if bytes == *token => Looked::Token,
        Ok(got) if got > 0 && got < 16 && bytes[..got] == token[..got] => Looked::Nothing,
        Err(Errno(libc::EAGAIN | libc::EINTR)) => Looked::Nothing,
        _ => Looked::Other,
    }
}

/// Waits until one of two descriptors has something to tell, awake first; -1: none. Gives what each tells.
pub fn await_any(descriptors: [i32; 2], deadline: u64) -> [i16; 2] {
    let mut set = descriptors.map(|fd| pollfd { fd, events: POLLIN, revents: 0 });
    let began = clock::monotonic_ns();
    loop {
        let now = clock::monotonic_ns();
        let awake = now.saturating_sub(began) < LOOKS.min(global::options().spin_ns);
        let left = if awake { 0 } else { deadline.saturating_sub(now) };
        let mut time = libc::timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let found = calls::ppoll(set.as_mut_ptr(), set.len(), &mut time, core::ptr::null(), calls::KERNEL_SIGSET);
        if found.is_ok_and(|found| found > 0) {
            return set.map(|one| one.revents);
        }
        if now >= deadline {
            return [0; 2];
        }
        if awake {
            calls::sched_yield();
        }
    }
}

/// What comes from an AF_UNIX stream in one piece; `None`: nothing by then, or its end.
pub fn receive(from: i32, room: &mut [u8], deadline: u64) -> Option<usize> {
    loop {
        let none = core::ptr::null_mut();
        match calls::recvfrom(from, room.as_mut_ptr().cast(), room.len(), MSG_DONTWAIT, none, core::ptr::null_mut()) {
            Ok(got @ 1..) => return Some(got),
            Err(Errno(libc::EAGAIN | libc::EINTR)) if clock::monotonic_ns() < deadline => {
                let _ = await_any([from, -1], deadline);
            }
            _ => return None,
        }
    }
}
