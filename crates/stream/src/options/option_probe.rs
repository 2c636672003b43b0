//! Judges: TCP sockets that answer what the kernel thinks of an option.
//!
//! A probe is connected to itself over the loopback address (RFC 793's simultaneous open), so it is in the state of the
//! stream that it speaks for, and has what only a connected socket has: segment sizes, windows, a route. Where that is
//! not possible it is a fresh socket. It ends with a reset, which leaves nothing behind.

use crate::socket::stored::LONGEST;
use crate::socket::Socket;
use core::sync::atomic::Ordering;
use shunt_segment::address::Address;
use shunt_sys::libc::{self, c_int, linger, sockaddr_in, sockaddr_in6, socklen_t, SOL_SOCKET};
use shunt_sys::{calls, Errno, Result};

/// How long a probe of MPTCP may take to connect to itself, which it does at once.
const MOST_NS: i64 = 100_000_000;

/// ::1.
const LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// Whether an IPv6 socket's connection is one of IPv4: its route is, and so is what is known of segments.
pub fn is_mapped(socket: &Socket) -> bool {
    socket.family.load(Ordering::Relaxed) == libc::AF_INET6 && socket.addresses().1.as_v4().is_some()
}

/// A TCP socket that answers what the kernel thinks of an option.
pub struct OptionProbe(c_int);

impl Drop for OptionProbe {
    fn drop(&mut self) {
        let reset = linger { l_onoff: 1, l_linger: 0 };
        let length = size_of::<linger>() as socklen_t;
        let _ = calls::setsockopt(self.0, SOL_SOCKET, libc::SO_LINGER, (&raw const reset).cast(), length);
        let _ = calls::close(self.0);
    }
}

impl OptionProbe {
    /// A socket that is not connected, for what binding or connecting changes.
    pub fn fresh(socket: &Socket) -> Result<OptionProbe> {
        let (family, protocol) = (socket.family.load(Ordering::Relaxed), socket.protocol.load(Ordering::Relaxed));
        Ok(OptionProbe(calls::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, protocol)?))
    }

    /// A probe for `socket`; `prepare` is called with its descriptor before it connects, to give it options.
    pub fn new(socket: &Socket, prepare: impl FnOnce(c_int)) -> Result<OptionProbe> {
        let (family, protocol) = (socket.family.load(Ordering::Relaxed), socket.protocol.load(Ordering::Relaxed));
        let probe = OptionProbe(calls::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol)?);
        prepare(probe.0);
        // SAFETY: plain integers.
        let (mut v4, mut v6): (sockaddr_in, sockaddr_in6) = unsafe { core::mem::zeroed() };
        let (address, mut length) = if family == libc::AF_INET6 {
            v6.sin6_family = family as u16;
            v6.sin6_addr.s6_addr = if is_mapped(socket) { Address::v4([127, 0, 0, 1], 0).ip } else { LOOPBACK };
            ((&raw mut v6).cast::<libc::sockaddr>(), size_of::<sockaddr_in6>() as socklen_t)
        } else {
            v4.sin_family = family as u16;
            v4.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
            ((&raw mut v4).cast::<libc::sockaddr>(), size_of::<sockaddr_in>() as socklen_t)
        };
        // What fails here leaves a probe that is not connected.
        if calls::bind(probe.0, address, length).is_ok() && calls::getsockname(probe.0, address, &mut length).is_ok() {
            let _ = calls::connect(probe.0, address, length);
            if protocol != 0 {
                let _ = calls::poll_one(probe.0, libc::POLLOUT, MOST_NS); // MPTCP hears of it a moment later
            }
        }
        Ok(probe)
    }

    /// bind(2).
    pub fn bind(&self, address: *const libc::sockaddr, length: socklen_t) -> Result<()> {
        calls::bind(self.0, address, length).map(|_| ())
    }

    /// ioctl(2).
    pub fn ioctl(&self, request: u64, argument: usize) -> Result<isize> {
        calls::ioctl(self.0, request, argument).map(|value| value as isize)
    }

    /// sendmsg(2) of no bytes, with the control messages of `message`.
    pub fn send_nothing(&self, message: &libc::msghdr) -> Result<()> {
        // SAFETY: plain integers and null pointers.
        let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
        (header.msg_control, header.msg_controllen) = (message.msg_control, message.msg_controllen);
        calls::sendmsg(self.0, &header, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).map(|_| ())
    }

    /// setsockopt(2).
    pub fn set(&self, level: c_int, name: c_int, data: *const u8, length: socklen_t) -> Result<()> {
        calls::setsockopt(self.0, level, name, data.cast(), length).map(|_| ())
    }

    /// getsockopt(2).
    pub fn get(&self, level: c_int, name: c_int, data: *mut u8, length: *mut socklen_t) -> Result<()> {
        calls::getsockopt(self.0, level, name, data.cast(), length).map(|_| ())
    }

    /// The value of an option, as far as it is short enough to be kept.
    pub fn read(&self, level: c_int, name: c_int) -> Result<([u8; LONGEST], usize)> {
        let mut data = [0u8; LONGEST];
        let mut length = LONGEST as socklen_t;
        self.get(level, name, data.as_mut_ptr(), &mut length)?;
        match length as usize {
            length if length <= LONGEST => Ok((data, length)),
            _ => Err(Errno(libc::EINVAL)),
        }
    }
}
