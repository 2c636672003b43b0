//! Sockets of IPPROTO_MPTCP: Go's listeners since 1.24, and those of programs under mptcpize(8).
//!
//! Multipath TCP is TCP whose segments carry options; where one end, or something between them, does not know these, both go on with plain
//! TCP ("fall back", RFC 8684 section 3.7). A stream through shared memory is such a connection:
//!
//! ```text
//! listener of MPTCP    what it accepts is a TCP socket, as Linux gives for a client without the options
//! client of MPTCP      stays one (SO_PROTOCOL), says 0 for TCP_IS_MPTCP, and EOPNOTSUPP for MPTCP_INFO and its like
//! ```
//!
//! The probe of such a client is an MPTCP socket that is connected to itself: no end of it has answered the other's options, so it has
//! fallen back, and knows of each option what Linux thinks of it then.

use core::sync::atomic::Ordering;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, c_int};

/// Whether the program asked for MPTCP.
pub fn is(socket: &Socket) -> bool {
    socket.protocol.load(Ordering::Relaxed) != 0
}

/// SO_PROTOCOL of a stream.
pub(crate) fn protocol(socket: &Socket) -> c_int {
    match socket.protocol.load(Ordering::Relaxed) {
        0 => libc::IPPROTO_TCP,
        other => other,
    }
}

/// Whether a connection that an MPTCP listener accepts has an option from it. It is one of the subflow socket behind the listener, to which
/// Linux passes some on (`sync_socket_options` of net/mptcp/sockopt.c, and what setsockopt sets on each subflow); a limit of time is not
/// among them, so `accept` has none either.
pub(crate) fn is_inherited(level: c_int, name: c_int) -> bool {
    !matches!(
        (level, name),
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | libc::SO_OOBINLINE | libc::SO_RCVLOWAT)
            | (libc::IPPROTO_IP, libc::IP_TTL | libc::IP_RECVTOS)
            | (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)
    )
}

/// Family and protocol as the side of a channel keeps them for its next owners.
pub fn shape(socket: &Socket) -> u32 {
    socket.family.load(Ordering::Relaxed) as u16 as u32 | (socket.protocol.load(Ordering::Relaxed) as u16 as u32) << 16
}

/// The reverse of [`shape`]; what another process wrote is one of what there is.
pub fn of_shape(shape: u32) -> (c_int, c_int) {
    let family = if shape as u16 as c_int == libc::AF_INET6 { libc::AF_INET6 } else { libc::AF_INET };
    let protocol = if (shape >> 16) as c_int == libc::IPPROTO_MPTCP { libc::IPPROTO_MPTCP } else { 0 };
    (family, protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_one_of_what_there_is() {
        assert_eq!(of_shape(libc::AF_INET6 as u32), (libc::AF_INET6, 0));
        assert_eq!(of_shape(libc::AF_INET as u32 | 262 << 16), (libc::AF_INET, libc::IPPROTO_MPTCP));
        assert_eq!(of_shape(u32::MAX), (libc::AF_INET, 0));
    }
}
