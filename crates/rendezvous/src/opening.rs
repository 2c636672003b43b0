//! socket(2): which sockets are ours to look after, and where they come from.

use crate::options::multipath;
use crate::socket_cache;
use core::sync::atomic::Ordering;
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{self, flag, Socket};
use shunt_sys::calls;
use shunt_sys::libc::{self, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};
use shunt_table::process::{kernel_only, split_fd_tables, status_page};
use shunt_table::table::Kind;
use shunt_table::{global, table};

fn internet_stream(domain: i32, kind: i32, protocol: i32) -> bool {
    matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC) == SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP | libc::IPPROTO_MPTCP)
}

fn ours(domain: i32, kind: i32, protocol: i32) -> bool {
    global::ready()
        && global::options().accelerate
        && internet_stream(domain, kind, protocol)
        && !kernel_only::confined()
        && !split_fd_tables::are_split()
}

/// A descriptor for socket(2) without asking the kernel for a socket; `None`: it must be asked.
pub fn from_spare(domain: i32, kind: i32, protocol: i32) -> Option<i32> {
    if protocol == libc::IPPROTO_MPTCP || !ours(domain, kind, protocol) {
        return None;
    }
    let (fd, number) = socket_cache::open(domain, kind)?;
    if !enter(fd, domain, kind, 0, number) {
        socket_cache::forsake(number);
        let _ = calls::close(fd);
        return None;
    }
    Some(fd)
}

/// The kernel made a socket.
pub fn opened(fd: i32, domain: i32, kind: i32, protocol: i32) {
    if global::ready() {
        // A library behind this one made it of MPTCP, by a call that came here, too.
        let known = table::get(fd).object::<Socket>().is_some_and(multipath::is);
        if known && protocol == 0 && calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_MPTCP) {
            return;
        }
        table::take(fd);
        if ours(domain, kind, protocol) {
            enter(fd, domain, kind, if protocol == libc::IPPROTO_MPTCP { protocol } else { 0 }, 0);
        }
    }
}

fn enter(fd: i32, domain: i32, flags: i32, protocol: i32, spare: u32) -> bool {
    if !table::fits(fd) {
        return false;
    }
    let Some(socket) = socket::allocate(domain) else { return false };
    socket.spare.store(spare, Ordering::Relaxed);
    socket.protocol.store(protocol, Ordering::Relaxed);
    socket.set(flag::CLOSE_ON_EXEC_KNOWN);
    // The open file of an MPTCP socket serves no TCP socket afterwards.
    if protocol == 0 {
        socket.set(flag::UNTOUCHED);
    }
    if flags & SOCK_CLOEXEC != 0 {
        socket.set(flag::CLOSE_ON_EXEC);
    }
    if flags & SOCK_NONBLOCK != 0 {
        socket.set(flag::NONBLOCK);
    }
    shunt_table::table::enter(fd, Kind::Tcp, socket);
    if split_fd_tables::withdraw(fd) {
        return false;
    }
    status_page::note(fd, kind::TCP, Reason::Unconnected, None);
    true
}
