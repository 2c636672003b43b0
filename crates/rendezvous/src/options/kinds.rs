//! What is known of options by their names: facts of the kernel, in tables.

use shunt_stream::socket::stored::Entry;
use shunt_sys::libc::{self, c_int, IPPROTO_TCP, SOL_SOCKET};

/// Options of which the kernel thinks the same whatever the state of the socket, and which servers set on each connection:
/// they need no probe that is connected.
pub(crate) fn is_simple(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => matches!(
            name,
            libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | libc::SO_SNDBUF | libc::SO_RCVBUF | libc::SO_LINGER | libc::SO_OOBINLINE
        ),
        IPPROTO_TCP => matches!(
            name,
            libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT | libc::TCP_USER_TIMEOUT | libc::TCP_NOTSENT_LOWAT
        ),
        libc::IPPROTO_IP => name == libc::IP_TOS,
        _ => false,
    }
}

/// Options that change nothing of what TCP_INFO tells of a fresh connection.
pub(crate) fn leaves_information(entry: &Entry) -> bool {
    match entry.level {
        SOL_SOCKET => matches!(
            entry.name,
            libc::SO_RCVTIMEO
                | libc::SO_SNDTIMEO
                | libc::SO_LINGER
                | libc::SO_OOBINLINE
                | libc::SO_KEEPALIVE
                | libc::SO_REUSEADDR
                | libc::SO_REUSEPORT
                | libc::SO_PRIORITY
        ),
        IPPROTO_TCP => matches!(
            entry.name,
            libc::TCP_NODELAY
                | libc::TCP_CORK
                | libc::TCP_QUICKACK
                | libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT
                | libc::TCP_USER_TIMEOUT
                | libc::TCP_NOTSENT_LOWAT
        ),
        libc::IPPROTO_IP => matches!(entry.name, libc::IP_TOS | libc::IP_TTL | libc::IP_RECVTTL | libc::IP_RECVTOS),
        libc::IPPROTO_IPV6 => entry.name == libc::IPV6_V6ONLY,
        _ => false,
    }
}

/// Options that would keep a probe from connecting to itself at once: it would have no port, another interface, or drop its segments.
pub(crate) fn defers(entry: &Entry) -> bool {
    match entry.level {
        SOL_SOCKET => matches!(entry.name, libc::SO_BINDTODEVICE | SO_BINDTOIFINDEX),
        IPPROTO_TCP => entry.name == libc::TCP_FASTOPEN_CONNECT,
        libc::IPPROTO_IP => matches!(entry.name, libc::IP_BIND_ADDRESS_NO_PORT | libc::IP_MINTTL),
        libc::IPPROTO_IPV6 => entry.name == libc::IPV6_MINHOPCOUNT,
        _ => false,
    }
}

/// The name by which the value of an option is read: that of the privileged forms of SO_SNDBUF and SO_RCVBUF is theirs.
pub(crate) fn read_as(level: c_int, name: c_int) -> c_int {
    match (level, name) {
        (SOL_SOCKET, libc::SO_SNDBUFFORCE) => libc::SO_SNDBUF,
        (SOL_SOCKET, libc::SO_RCVBUFFORCE) => libc::SO_RCVBUF,
        _ => name,
    }
}

/// Options that the kernel sets to something else when this one is set: IP_TOS says what SO_PRIORITY is, and of the kinds of
/// time stamps there is one.
pub(crate) fn changed_with(level: c_int, name: c_int) -> &'static [(c_int, c_int)] {
    const STAMPS: [(c_int, c_int); 4] =
        [(SOL_SOCKET, libc::SO_TIMESTAMP), (SOL_SOCKET, libc::SO_TIMESTAMPNS), (SOL_SOCKET, 63), (SOL_SOCKET, 64)];
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_TOS) => &[(SOL_SOCKET, libc::SO_PRIORITY)],
        option if STAMPS.contains(&option) => &STAMPS,
        _ => &[],
    }
}

/// Options that accepted sockets have from their listener, beside those of time stamps.
pub(crate) const INHERITED: [(c_int, c_int); 26] = [
    (SOL_SOCKET, libc::SO_KEEPALIVE),
    (SOL_SOCKET, libc::SO_LINGER),
    (SOL_SOCKET, libc::SO_RCVTIMEO),
    (SOL_SOCKET, libc::SO_SNDTIMEO),
    (SOL_SOCKET, libc::SO_RCVLOWAT),
    (SOL_SOCKET, libc::SO_OOBINLINE),
    (SOL_SOCKET, libc::SO_SNDBUF),
    (SOL_SOCKET, libc::SO_RCVBUF),
    (SOL_SOCKET, libc::SO_PRIORITY),
    (SOL_SOCKET, libc::SO_MARK),
    (SOL_SOCKET, libc::SO_BUSY_POLL),
    (SOL_SOCKET, libc::SO_TIMESTAMP),
    (SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (SOL_SOCKET, libc::SO_ZEROCOPY),
    (IPPROTO_TCP, libc::TCP_NODELAY),
    (IPPROTO_TCP, libc::TCP_CORK),
    (IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (IPPROTO_TCP, libc::TCP_KEEPCNT),
    (IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
];

/// Options of a TCP socket by which the kernel decides what comes through, or which tell of segments.
pub fn only_the_kernel_can(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => matches!(name, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF | libc::SO_BINDTODEVICE | SO_BINDTOIFINDEX),
        IPPROTO_TCP => matches!(name, libc::TCP_ULP | libc::TCP_REPAIR | libc::TCP_MD5SIG | libc::TCP_SAVE_SYN | TCP_AO_ADD_KEY),
        _ => false,
    }
}

const SO_BINDTOIFINDEX: c_int = 62;
const TCP_AO_ADD_KEY: c_int = 38;
