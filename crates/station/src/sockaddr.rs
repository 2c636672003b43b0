//! Sockets of UDP and of AF_UNIX, as the gate, query sockets and inquiries use them.

use shunt_endpoint::device::udp::from_sockaddr;
use shunt_segment::address::Address;
use shunt_segment::name::Name;
use shunt_sys::{calls, libc, Errno, Result};

use crate::device;

/// A descriptor that is closed with its owner.
pub(crate) struct Socket(pub i32);

impl Drop for Socket {
    fn drop(&mut self) {
        if self.0 >= 0 {
            let _ = calls::close(self.0);
        }
    }
}

const KIND: i32 = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;

/// A UDP socket for the family of `address`.
pub(crate) fn udp(address: &Address) -> Result<Socket> {
    let family = if address.as_v4().is_some() { libc::AF_INET } else { libc::AF_INET6 };
    calls::socket(family, KIND, 0).map(Socket)
}

/// Binds or connects.
pub(crate) fn with(address: &Address, act: impl FnOnce(*const libc::sockaddr, u32) -> Result<()>) -> Result<()> {
    let at = device::at(address);
    act(at.bytes().as_ptr().cast(), at.bytes().len() as u32)
}

/// Whether this host has that address no more.
pub(crate) fn is_gone(address: &Address) -> bool {
    let bound = udp(address)
        .and_then(|socket| with(&Address { port: 0, ..*address }, |name, length| calls::bind(socket.0, name, length)));
    bound == Err(Errno(libc::EADDRNOTAVAIL))
}

/// A datagram and its sender. `None`: none waits, or an error of the socket that means the same.
pub(crate) fn receive(fd: i32, bytes: &mut [u8]) -> Result<(usize, Option<Address>)> {
    let mut name = [0u8; 28];
    let mut length = name.len() as u32;
    let got = calls::recvfrom(
        fd,
        bytes.as_mut_ptr().cast(),
        bytes.len(),
        libc::MSG_DONTWAIT | libc::MSG_TRUNC,
        name.as_mut_ptr().cast(),
        &mut length,
    )?;
    let from = from_sockaddr(&name[..(length as usize).min(28)]).and_then(|at| device::of(&at));
    Ok((got, from))
}

/// Sends a datagram; a network may lose it.
pub(crate) fn send(fd: i32, bytes: &[u8], to: Option<&Address>) {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let _ = match to {
        None => calls::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, core::ptr::null(), 0),
        Some(to) => {
            let at = device::at(to);
            let name = at.bytes();
            calls::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, name.as_ptr().cast(), name.len() as u32)
        }
    };
}

/// A name of AF_UNIX, as bind(2) and sendto(2) take it.
pub(crate) struct UnixName {
    address: libc::sockaddr_un,
    length: u32,
}

impl UnixName {
    pub(crate) fn empty() -> UnixName {
        // SAFETY: integers.
        UnixName { address: unsafe { core::mem::zeroed() }, length: size_of::<libc::sockaddr_un>() as u32 }
    }

    pub(crate) fn of(name: &Name) -> UnixName {
        let mut made = UnixName::empty();
        made.address.sun_family = libc::AF_UNIX as u16;
        for (place, byte) in made.address.sun_path[1..].iter_mut().zip(name.as_slice()) {
            *place = *byte as libc::c_char;
        }
        made.length = (3 + name.as_slice().len()) as u32;
        made
    }

    /// A name that the kernel chooses: unix(7), autobind.
    fn any() -> UnixName {
        let mut made = UnixName::empty();
        made.address.sun_family = libc::AF_UNIX as u16;
        made.length = 2;
        made
    }
}

/// A datagram socket of AF_UNIX at that name, or at one that the kernel chooses.
pub(crate) fn unix(name: Option<&Name>) -> Result<Socket> {
    let socket = Socket(calls::socket(libc::AF_UNIX, KIND, 0)?);
    let name = name.map_or_else(UnixName::any, UnixName::of);
    calls::bind(socket.0, (&raw const name.address).cast(), name.length)?;
    Ok(socket)
}

/// A datagram and the asker that is to be answered.
pub(crate) fn receive_unix(fd: i32, bytes: &mut [u8]) -> Result<(usize, UnixName)> {
    let mut name = UnixName::empty();
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let got =
        calls::recvfrom(fd, bytes.as_mut_ptr().cast(), bytes.len(), flags, (&raw mut name.address).cast(), &mut name.length)?;
    Ok((got, name))
}

/// Sends a datagram to a name; false: no socket is there, or its queue is full.
pub(crate) fn send_unix(fd: i32, bytes: &[u8], to: &UnixName) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let length = to.length.min(size_of::<libc::sockaddr_un>() as u32);
    length > 2 && calls::sendto(fd, bytes.as_ptr().cast(), bytes.len(), flags, (&raw const to.address).cast(), length).is_ok()
}
