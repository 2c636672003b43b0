//! The socket by which an owner of a queue lets the kernel cut its runs ([`shunt_xdp::runs`]).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use shunt_sys::{calls, libc, Errno};
use shunt_xdp::address::encode;

/// include/uapi/linux/in6.h.
const IPV6_AUTOFLOWLABEL: i32 = 70;

/// A UDP socket that sends from `address`, by the interface alone, and never receives: it is connected to an address where no
/// host can be, and a filter that stays drops whatever comes.
///
/// It is for root. A process that has it can disconnect it (connect(2) with AF_UNSPEC), which the kernel takes for leave to send by any
/// interface, and which makes it the one that datagrams to this address are for: those that reach the agent's own socket would be
/// lost.
///
/// # Errors
/// What the kernel refused.
pub fn make(interface: (&str, u32), address: &SocketAddr) -> io::Result<OwnedFd> {
    let nobody: SocketAddr = match address {
        // Reserved (RFC 1112, section 4), and link-local: routed by the interface itself.
        SocketAddr::V4(_) => (Ipv4Addr::new(240, 0, 0, 1), 9).into(),
        SocketAddr::V6(_) => (Ipv6Addr::new(0xfe80, 0, 0, 0, 0xffff, 0xffff, 0xffff, 0xfffe), 9).into(),
    };
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let made = (|| -> Result<OwnedFd, Errno> {
        let fd = calls::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
        // SAFETY: made above, ours.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let (name, index) = interface;
        calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_ptr().cast(), name.len() as u32)?;
        calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        let _ = calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 4 << 20);
        if address.is_ipv6() {
            // Headers as those of frames that are sent by the ring, by which a path may be chosen.
            let _ = calls::setsockopt_int(fd, libc::IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0);
        }
        let mut drop_all = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &mut drop_all };
        let size = size_of_val(&program) as u32;
        calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), size)?;
        calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)?;
        for (address, act) in [(address, calls::bind as fn(_, _, _) -> _), (&nobody, calls::connect)] {
            let address = encode(address, index);
            act(socket.as_raw_fd(), address.bytes().as_ptr().cast(), address.bytes().len() as u32)?;
        }
        Ok(socket)
    })();
    made.map_err(|errno| io::Error::from_raw_os_error(errno.0))
}
