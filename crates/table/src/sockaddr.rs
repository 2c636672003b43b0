//! Between the C library's socket addresses and ours.

use shunt_segment::address::Address;
use shunt_sys::libc::{self, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_un, socklen_t};
use shunt_sys::{calls, user, Errno, Result};

/// Reads an internet address that a program passed; `None` if it is not one, or faults.
///
/// # Safety
/// `address` may be any address that is not ours.
pub unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<(i32, Address)> {
    // Longer than any address (sockaddr_storage) is the kernel's to refuse.
    if address.is_null() || (length as usize) < core::mem::size_of::<libc::sa_family_t>() || length > 128 {
        return None;
    }
    let length = (length as usize).min(core::mem::size_of::<sockaddr_in6>());
    let mut storage = [0u64; 4];
    let copy = storage.as_mut_ptr().cast::<u8>();
    // SAFETY: the copy has room for the largest; lengths are checked before each read.
    unsafe {
        if !user::copy(address.cast(), copy, length) {
            return None;
        }
        let address = copy.cast_const();
        match address.cast::<libc::sa_family_t>().read() as i32 {
            libc::AF_INET if length >= core::mem::size_of::<sockaddr_in>() => {
                let a = address.cast::<sockaddr_in>().read();
                Some((libc::AF_INET, Address::v4(a.sin_addr.s_addr.to_ne_bytes(), u16::from_be(a.sin_port))))
            }
            libc::AF_INET6 if length >= 24 => {
                let a = address.cast::<sockaddr_in6>();
                let port = (&raw const (*a).sin6_port).read_unaligned();
                let ip = (&raw const (*a).sin6_addr.s6_addr).read_unaligned();
                let scope = if length >= core::mem::size_of::<sockaddr_in6>() {
                    (&raw const (*a).sin6_scope_id).read_unaligned()
                } else {
                    0
                };
                Some((libc::AF_INET6, Address { ip, port: u16::from_be(port), scope }))
            }
            _ => None,
        }
    }
}

/// What the kernel does with the address of any call before it looks at the socket (move_addr_to_kernel).
///
/// Errors: EINVAL for a length that no address has, EFAULT.
///
/// # Safety
/// `address` may be any address that is not ours.
pub unsafe fn check(address: *const sockaddr, length: socklen_t) -> Result<()> {
    const LONGEST: usize = 128;
    if length as usize > LONGEST {
        return Err(Errno(libc::EINVAL));
    }
    let mut storage = [0u8; LONGEST];
    // SAFETY: room for any length.
    unsafe { user::copy_all(address.cast(), storage.as_mut_ptr(), length as usize) }
}

/// An internet address in the C library's form: bytes and length.
pub struct Encoded {
    bytes: [u8; 28],
    /// Bytes that count.
    pub length: socklen_t,
}

impl Encoded {
    /// Encodes for a socket of `family`; IPv4 addresses on an IPv6 socket come out mapped.
    pub fn new(family: i32, address: &Address) -> Encoded {
        let mut bytes = [0u8; 28];
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&address.port.to_be_bytes());
        if family == libc::AF_INET {
            bytes[4..8].copy_from_slice(&address.ip[12..]);
            Encoded { bytes, length: core::mem::size_of::<sockaddr_in>() as socklen_t }
        } else {
            bytes[8..24].copy_from_slice(&address.ip);
            let linklocal = address.ip[0] == 0xfe && address.ip[1] & 0xc0 == 0x80;
            bytes[24..28].copy_from_slice(&(if linklocal { address.scope } else { 0 }).to_ne_bytes());
            Encoded { bytes, length: core::mem::size_of::<sockaddr_in6>() as socklen_t }
        }
    }

    /// As bytes for a control message.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }

    /// As a pointer for system calls.
    pub fn pointer(&self) -> *const sockaddr {
        self.bytes.as_ptr().cast()
    }

    /// Gives the address to a program as getsockname(2) does: truncated to its room, with the true length.
    ///
    /// Errors, as move_addr_to_user of the kernel gives them: EFAULT; EINVAL for a negative length.
    ///
    /// # Safety
    /// `target` and `length` may be any addresses that are not ours.
    pub unsafe fn write(&self, target: *mut sockaddr, length: *mut socklen_t) -> Result<()> {
        // SAFETY: as promised by the caller.
        unsafe {
            let room = user::read(length)?;
            if (room as i32) < 0 {
                return Err(Errno(libc::EINVAL));
            }
            user::copy_all(self.bytes.as_ptr(), target.cast(), room.min(self.length) as usize)?;
            user::write(length, self.length)
        }
    }
}

/// An abstract AF_UNIX address.
pub fn abstract_name(name: &[u8]) -> (sockaddr_un, socklen_t) {
    let mut address = sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    (address, (2 + 1 + name.len()) as socklen_t)
}

/// The local address of a TCP socket, unspecified when unbound.
pub fn bound_address(fd: i32) -> Address {
    let mut bytes = [0u64; 4];
    let mut length = 28;
    if calls::getsockname(fd, bytes.as_mut_ptr().cast(), &mut length).is_err() {
        return Address::default();
    }
    // SAFETY: the kernel filled `length` bytes.
    unsafe { read(bytes.as_ptr().cast(), length) }.map_or(Address::default(), |(_, a)| a)
}

/// The peer's address that the kernel has for the TCP socket `fd`; `None`: it is not connected.
pub fn peer_address(fd: i32) -> Option<Address> {
    let mut name = [0u64; 4];
    let mut length = core::mem::size_of_val(&name) as libc::socklen_t;
    calls::getpeername(fd, name.as_mut_ptr().cast(), &mut length).ok()?;
    // SAFETY: the kernel filled `length` bytes.
    unsafe { read(name.as_ptr().cast(), length) }.map(|(_, address)| address)
}

/// Whether the kernel has a peer for the TCP socket `fd`.
pub fn is_connected(fd: i32) -> bool {
    peer_address(fd).is_some()
}
