//! What is done to the socket of a connection that is the kernel's again, by its program's process.

use shunt_sys::{calls, libc};

/// Takes `count` bytes off a socket's queue.
pub fn discard(socket: i32, mut count: u32) {
    while count > 0 {
        let null = core::ptr::null_mut();
        // recv with MSG_TRUNC takes bytes off and copies none (tcp(7)).
        match calls::recvfrom(socket, null, count as usize, libc::MSG_TRUNC | libc::MSG_DONTWAIT, null.cast(), null.cast()) {
            Ok(taken) if taken > 0 => count -= (taken as u32).min(count),
            _ => return,
        }
    }
}

/// The socket's end is a reset.
pub fn linger_not(socket: i32) {
    linger(socket, true);
}

/// The same, or an end as ever.
pub fn linger(socket: i32, not: bool) {
    let at_once = libc::linger { l_onoff: i32::from(not), l_linger: 0 };
    let length = size_of_val(&at_once) as u32;
    let _ = calls::setsockopt(socket, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const at_once).cast(), length);
}

/// Makes room for `more` bytes in a socket's queue. False: it has had that already.
pub fn widen(socket: i32, more: usize) -> bool {
    let has = calls::getsockopt_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(i32::MAX);
    // The kernel doubles it, and allows a limit of its own.
    let _ = calls::setsockopt_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, has / 2 + more as i32);
    calls::getsockopt_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF).is_ok_and(|now| now > has)
}

/// Whether a socket of which poll(2) tells this was reset: an end in both directions is none, and a message in its queue of errors neither.
pub fn is_reset(events: i16) -> bool {
    events & (libc::POLLERR | libc::POLLHUP) == libc::POLLERR | libc::POLLHUP
}
