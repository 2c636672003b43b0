//! What sock_diag(7) tells of a TCP socket, and no option does.

use std::net::IpAddr;
use std::os::fd::RawFd;

use shunt_sys::{calls, Errno};
use shunt_xdp::tcp::Tuple;

use super::netlink::{Message, Sockets};

/// What was found.
pub struct Found {
    /// It has keys of TCP_MD5SIG.
    pub signed: bool,
    /// It has an upper protocol.
    pub layered: bool,
    /// shutdown(2), or the peer's end.
    pub ended: bool,
    /// The control group that it was made in, or given to.
    pub group: Option<u64>,
}

/// Which socket: one that is made later, also with the same ends, is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    family: i32,
    /// SO_COOKIE.
    cookie: u64,
}

impl Identity {
    /// Of a socket of this family.
    ///
    /// # Errors
    /// What getsockopt(2) answers.
    pub fn of(fd: RawFd, family: i32) -> Result<Identity, Errno> {
        let (mut cookie, mut length) = (0u64, 8);
        calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, (&raw mut cookie).cast(), &mut length)?;
        Ok(Identity { family, cookie })
    }

    /// Asks about it, where it has these ends. Only a process with CAP_NET_ADMIN is told all.
    ///
    /// # Errors
    /// What the kernel answered: ENOENT, ESTALE, where the socket with these ends is another, or there is none.
    pub fn look(&self, sockets: &mut Sockets, tuple: &Tuple, interface: u32) -> Result<Found, Errno> {
        const SOCK_DIAG_BY_FAMILY: u16 = 20;
        const INET_DIAG_SHUTDOWN: u16 = 8;
        const INET_DIAG_MD5SIG: u16 = 18;
        const INET_DIAG_ULP_INFO: u16 = 19;
        const INET_DIAG_CGROUP_ID: u16 = 21;
        /// `struct inet_diag_msg`.
        const ANSWER: usize = 72;
        // `struct inet_diag_req_v2`.
        let mut request = [0u8; 56];
        (request[0], request[1], request[2]) = (self.family as u8, libc::IPPROTO_TCP as u8, 0xff);
        request[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
        request[8..10].copy_from_slice(&tuple.ours.port().to_be_bytes());
        request[10..12].copy_from_slice(&tuple.theirs.port().to_be_bytes());
        for (at, end) in [(12, tuple.ours.ip()), (28, tuple.theirs.ip())] {
            match end {
                IpAddr::V4(ip) if self.family == libc::AF_INET => request[at..at + 4].copy_from_slice(&ip.octets()),
                IpAddr::V4(ip) => request[at..at + 16].copy_from_slice(&ip.to_ipv6_mapped().octets()),
                IpAddr::V6(ip) => request[at..at + 16].copy_from_slice(&ip.octets()),
            }
        }
        request[44..48].copy_from_slice(&interface.to_ne_bytes());
        request[48..56].copy_from_slice(&self.cookie.to_ne_bytes());
        Message::new(SOCK_DIAG_BY_FAMILY, 0, &request).ask_by(sockets, libc::NETLINK_SOCK_DIAG, |answer| {
            let find = |kind| shunt_xdp::netlink::attribute(answer.get(ANSWER..).unwrap_or_default(), kind);
            Found {
                signed: find(INET_DIAG_MD5SIG).is_some(),
                layered: find(INET_DIAG_ULP_INFO).is_some(),
                ended: find(INET_DIAG_SHUTDOWN).is_some_and(|bits| bits.first() != Some(&0)),
                group: find(INET_DIAG_CGROUP_ID).and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?))),
            }
        })
    }
}
