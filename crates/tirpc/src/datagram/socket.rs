//! A datagram socket as a client's call needs it: sent again until it is answered, and told what came back of it.

use core::mem::{size_of, zeroed};
use std::time::{Duration, Instant};

use libc::{c_int, c_void};

use crate::accelerated::{accelerated, Accelerated, Signals};

extern "C-unwind" {
    // Not those of the libc crate: a thread that is cancelled in one of these unwinds.
    fn poll(set: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    fn recv(fd: c_int, data: *mut c_void, length: usize, flags: c_int) -> isize;
    fn sendto(fd: c_int, data: *const c_void, length: usize, flags: c_int, to: *const c_void, size: libc::socklen_t) -> isize;
}

/// Why a call was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing came in time.
    Time,
    /// Receiving failed, or the datagram came back, with this error.
    Receive(i32),
    /// Sending failed, with this error.
    Send(i32),
}

/// Looks for an answer before a call sleeps: each is as long as an answer takes that is on its way, and a server has work beside.
const LOOKS: u32 = 4;

/// Where calls go.
#[derive(Debug)]
pub struct Peer {
    /// The socket.
    pub fd: c_int,
    /// The server's address, which is libtirpc's.
    pub address: *const c_void,
    /// Its length.
    pub size: libc::socklen_t,
}

/// How long a call waits in all, and before it is sent again.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// In all.
    pub all: Duration,
    /// Before it is sent again.
    pub each: Duration,
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Peer {
    /// Sends a call, and again each time so long passes without an answer, until one comes: the bytes of it.
    ///
    /// # Errors
    /// [`Failure`].
    ///
    /// # Safety
    /// The address is there.
    pub unsafe fn exchange(&self, call: &[u8], into: &mut [u8], waits: Waits, signals: &mut Signals) -> Result<usize, Failure> {
        let library = accelerated();
        // When the call ends: known once it does not end at once.
        let mut end = None;
        loop {
            // SAFETY: the caller's address.
            let sent = unsafe { sendto(self.fd, call.as_ptr().cast(), call.len(), 0, self.address, self.size) };
            if sent != call.len() as isize {
                return Err(Failure::Send(errno()));
            }
            let mut looks = true;
            let mut again = None;
            loop {
                if !(looks && self.comes(library)) {
                    let now = Instant::now();
                    let end = *end.get_or_insert(now + waits.all);
                    let again = *again.get_or_insert(now + waits.each);
                    if now >= end {
                        return Err(Failure::Time);
                    }
                    if now >= again {
                        break;
                    }
                    signals.before_sleep();
                    self.sleep(call, end.min(again) - now)?;
                }
                // SAFETY: the slice is writable.
                match unsafe { recv(self.fd, into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) } {
                    n if n < 0 => match errno() {
                        libc::EINTR | libc::EAGAIN => {}
                        error => return Err(Failure::Receive(error)),
                    },
                    n if n >= 4 && into[..4] == call[..4] => return Ok(n as usize),
                    // Of another call. However many come, the clock is looked at.
                    _ => {}
                }
                looks = false;
            }
        }
    }

    /// Looks for an answer for as long as servers take that are awake.
    #[inline]
    fn comes(&self, library: Option<&Accelerated>) -> bool {
        let Some(library) = library else { return false };
        for _ in 0..LOOKS {
            match library.bytes_come(self.fd) {
                Some(false) => {}
                found => return found == Some(true),
            }
        }
        false
    }

    /// Sleeps until something is there, or for so long.
    fn sleep(&self, call: &[u8], limit: Duration) -> Result<(), Failure> {
        let milliseconds = limit.as_nanos().div_ceil(1_000_000).min(c_int::MAX as u128) as c_int;
        let mut entry = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        let ready = unsafe { poll(&mut entry, 1, milliseconds) };
        if ready < 0 && errno() != libc::EINTR {
            return Err(Failure::Receive(errno()));
        }
        if ready > 0 && entry.revents & libc::POLLERR != 0 {
            if let Some(error) = self.bounced(call) {
                return Err(Failure::Receive(error));
            }
        }
        Ok(())
    }

    /// The error that this call came back with, as libtirpc asks for it (IP_RECVERR).
    #[cold]
    fn bounced(&self, call: &[u8]) -> Option<i32> {
        let mut back = vec![0u8; call.len()];
        let mut control = [0u64; 32];
        let mut part = libc::iovec { iov_base: back.as_mut_ptr().cast(), iov_len: back.len() };
        // SAFETY: all zero is an address, and a header.
        let (mut from, mut message): (libc::sockaddr_in, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<[u64; 32]>();
        // SAFETY: everything lives until the call returns.
        let length = unsafe { libc::recvmsg(self.fd, &mut message, libc::MSG_ERRQUEUE) };
        let length = usize::try_from(length).ok()?;
        let queued = message.msg_flags & libc::MSG_ERRQUEUE != 0 && back[..length] == call[..length];
        let known = match message.msg_namelen {
            0 => length >= 12,
            // SAFETY: the handle's own address, of IPv4 if it has this length and family.
            _ => unsafe {
                let to = self.address.cast::<libc::sockaddr_in>();
                self.size as usize >= size_of::<libc::sockaddr_in>()
                    && i32::from(from.sin_family) == libc::AF_INET
                    && ((*to).sin_family, (*to).sin_port, (*to).sin_addr.s_addr)
                        == (from.sin_family, from.sin_port, from.sin_addr.s_addr)
            },
        };
        if !queued || !known {
            return None;
        }
        // SAFETY: headers that the kernel wrote.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&message);
            while !header.is_null() {
                if (*header).cmsg_level == libc::SOL_IP && (*header).cmsg_type == libc::IP_RECVERR {
                    return Some(libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned().ee_errno as i32);
                }
                header = libc::CMSG_NXTHDR(&message, header);
            }
        }
        None
    }
}
