//! getsockname and getpeername of accelerated sockets: the addresses that kernel TCP would tell.

use core::sync::atomic::Ordering;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, sockaddr, socklen_t};
use shunt_sys::{Errno, Result};
use shunt_table::sockaddr::Encoded;

/// getsockname(2).
///
/// # Safety
/// Addresses that are not ours; bad ones give EFAULT.
pub unsafe fn local(socket: &Socket, address: *mut sockaddr, length: *mut socklen_t) -> Result<isize> {
    let (client, server) = socket.addresses();
    let mine = if socket.side() == 0 { client } else { server };
    // SAFETY: passed on.
    unsafe { give(socket, &mine, address, length) }
}

/// getsockname(2) of a socket that is not connected. `None`: the kernel's answer is right.
///
/// A dissolved connection lets go of its port, and still tells it until it is bound or connected anew (tcp_disconnect
/// leaves inet_sport as it was).
///
/// # Safety
/// As for [`local`].
pub unsafe fn unconnected(socket: &Socket, fd: i32, address: *mut sockaddr, length: *mut socklen_t) -> Option<Result<isize>> {
    let ports = socket.left_port.load(Ordering::Relaxed);
    if ports == 0 {
        return None;
    }
    let mut own = shunt_table::sockaddr::bound_address(fd);
    // Bound to an address it may be because it was accepted.
    let bound = !own.is_unspecified();
    if own.port != ports as u16 || bound && (socket.has(flag::BOUND) || shunt_table::sockaddr::is_connected(fd)) {
        return None;
    }
    own.port = (ports >> 16) as u16;
    // SAFETY: passed on.
    Some(unsafe { give(socket, &own, address, length) })
}

/// getpeername(2).
///
/// # Safety
/// As for [`local`].
pub unsafe fn remote(socket: &Socket, fd: i32, address: *mut sockaddr, length: *mut socklen_t) -> Result<isize> {
    shunt_stream::waiting::readiness::ask_if_refused(socket, fd);
    if shunt_stream::waiting::readiness::closed(socket) {
        return Err(Errno(libc::ENOTCONN));
    }
    let (client, server) = socket.addresses();
    let theirs = if socket.side() == 0 { server } else { client };
    // SAFETY: passed on.
    unsafe { give(socket, &theirs, address, length) }
}

unsafe fn give(
    socket: &Socket,
    which: &shunt_segment::address::Address,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<isize> {
    // SAFETY: passed on.
    unsafe { Encoded::new(socket.family.load(Ordering::Relaxed), which).write(address, length) }.map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::describe;
    use shunt_segment::address::Address;
    use shunt_segment::area::{CHANNEL_PAGES, PAGE};

    #[test]
    fn a_peer_cannot_change_addresses_afterwards() {
        let base = shunt_sys::mapping::reserve(CHANNEL_PAGES + 2 * PAGE).unwrap();
        let (client, server) = (Address::v4([127, 0, 0, 1], 1234), Address::v4([127, 0, 0, 1], 80));
        let page = shunt_link::page(base, 1);
        describe(page, &client, &server);
        let socket = shunt_stream::socket::allocate(libc::AF_INET).unwrap();
        socket.attach(base, 1, 1);
        describe(page, &Address::v4([8, 8, 8, 8], 53), &server);
        assert_eq!(socket.addresses(), (client, server));
        let told = (Address::v4([127, 0, 0, 2], 5678), server);
        socket.set_addresses(&told.0, &told.1);
        assert_eq!(socket.addresses(), told);
    }
}
