//! What pins a socket to the kernel: options that shared memory cannot serve, O_ASYNC, shutdown.

use super::{cmsg_recv, cmsg_send, flag, inbox_table, pin, Datagram};
use core::sync::atomic::Ordering;
use shunt_sys::calls;
use shunt_sys::libc::{self, c_int};

/// Options that change nothing of what an inbox does. All others pin, unless they are switched off.
const HARMLESS: &[(c_int, &[c_int])] = &[
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_SNDBUF,
            libc::SO_SNDBUFFORCE,
            libc::SO_BROADCAST,
            libc::SO_RCVTIMEO,
            libc::SO_SNDTIMEO,
            libc::SO_RCVLOWAT,
            libc::SO_KEEPALIVE,
            libc::SO_LINGER,
            libc::SO_PRIORITY,
            libc::SO_BUSY_POLL,
            libc::SO_DEBUG,
            libc::SO_OOBINLINE,
            66, // SO_RCVTIMEO_NEW
            67, // SO_SNDTIMEO_NEW
        ],
    ),
    (
        libc::IPPROTO_IP,
        &[
            libc::IP_RECVERR,
            libc::IP_MTU_DISCOVER,
            libc::IP_MULTICAST_TTL,
            libc::IP_MULTICAST_LOOP,
            libc::IP_MULTICAST_IF,
            libc::IP_ADD_MEMBERSHIP,
            libc::IP_DROP_MEMBERSHIP,
        ],
    ),
    (
        libc::IPPROTO_IPV6,
        &[
            libc::IPV6_V6ONLY,
            libc::IPV6_RECVERR,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_MULTICAST_HOPS,
            libc::IPV6_MULTICAST_LOOP,
            libc::IPV6_MULTICAST_IF,
            libc::IPV6_ADD_MEMBERSHIP,
            libc::IPV6_DROP_MEMBERSHIP,
        ],
    ),
];

/// Options that each datagram tells its receiver.
const OUTGOING: &[(c_int, c_int)] = &[
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
];

/// Options that change which other sockets may get the port's datagrams, or how many may wait.
const REFRESHING: &[c_int] = &[libc::SO_RCVBUF, libc::SO_RCVBUFFORCE, libc::SO_REUSEADDR, libc::SO_REUSEPORT];

/// The kernel has set an option.
///
/// # Safety
/// `data` points to `length` readable bytes.
pub unsafe fn set(fd: i32, socket: &'static Datagram, level: c_int, name: c_int, data: *const u8, length: u32) {
    if level == libc::SOL_SOCKET && REFRESHING.contains(&name) {
        inbox_table::refresh(fd, socket);
        socket.changed();
        return;
    }
    if cmsg_recv::asks(level, name) {
        inbox_table::refresh(fd, socket);
        return;
    }
    if OUTGOING.contains(&(level, name)) {
        socket.outgoing.forget();
        return;
    }
    if (level, name) == (libc::IPPROTO_UDP, cmsg_send::UDP_SEGMENT) {
        socket.segment.store(calls::getsockopt_int(fd, level, name).unwrap_or(0) as u32, Ordering::Relaxed);
        return;
    }
    if HARMLESS.iter().any(|(family, names)| *family == level && names.contains(&name)) {
        return;
    }
    // SAFETY: promised by the caller.
    let off = length as usize >= 4 && unsafe { data.cast::<c_int>().read_unaligned() } == 0;
    if !off {
        plain(socket, pin::OPTION);
    }
}

/// From now on the kernel carries what is sent, too.
pub fn plain(socket: &'static Datagram, why: u32) {
    socket.flags.fetch_or(flag::SEND_PLAIN, Ordering::Relaxed);
    if socket.is_local() {
        crate::local::apart(socket);
    }
    socket.pin(why);
}

/// A sender that writes to a ring at this moment has done so: those that come later see what [`plain`] said.
pub fn settle_sends(socket: &'static Datagram) {
    drop(socket.lock_send());
}

/// F_SETFL went through.
pub fn set_flags(socket: &'static Datagram, flags: c_int) {
    socket.set_nonblocking(flags & libc::O_NONBLOCK != 0);
    set_async(socket, flags & libc::O_ASYNC != 0);
}

/// O_ASYNC or FIOASYNC.
pub fn set_async(socket: &'static Datagram, on: bool) {
    if on {
        socket.pin(pin::ASYNC);
    } else if socket.pins.load(Ordering::Relaxed) & pin::ASYNC != 0 {
        socket.unpin(pin::ASYNC);
    }
}
