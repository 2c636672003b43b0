//! IPV6_ADDRFORM (RFC 3493, `do_ipv6_setsockopt`): an IPv6 socket that is connected to an IPv4 address becomes an IPv4 socket.

use super::multipath;
use core::sync::atomic::Ordering;
use shunt_stream::life::Phase;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::readiness;
use shunt_sys::libc::{self, c_int, socklen_t};
use shunt_sys::{user, Errno, Result};

pub(super) const IPV6_ADDRFORM: c_int = 1;

/// setsockopt(2) of it on an IPv6 stream. Other processes that own the stream go on with the family that they know.
///
/// # Safety
/// `data` may be any address that is not ours.
pub(super) unsafe fn change(socket: &Socket, data: *const u8, length: socklen_t, six_only: bool) -> Result<isize> {
    if (length as i32) < size_of::<c_int>() as i32 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: as above.
    if unsafe { user::read(data.cast::<c_int>())? } != libc::AF_INET {
        return Err(Errno(libc::EINVAL));
    }
    if readiness::phase(socket) != Phase::Established {
        return Err(Errno(libc::ENOTCONN));
    }
    let (client, server) = socket.addresses();
    let peer = if socket.side() == 0 { server } else { client };
    if six_only || peer.as_v4().is_none() {
        return Err(Errno(libc::EADDRNOTAVAIL));
    }
    socket.family.store(libc::AF_INET, Ordering::Relaxed);
    socket.own().address_family.store(multipath::shape(socket), Ordering::Relaxed);
    Ok(0)
}
