//! A connection that carries a port's records and bytes: every message is copied.
//!
//! By the calls of the C library, which a preloaded library may have replaced.

use super::Error;
use core::mem::size_of;
use shunt_sys::{libc, Errno};

/// A connected stream, closed when it is dropped.
pub(super) struct Stream {
    fd: i32,
}

fn errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

impl Stream {
    /// The descriptor's connection; closed also if it is none.
    pub(super) fn of(fd: i32) -> Result<Stream, Error> {
        let stream = Stream { fd };
        // SAFETY: a plain call. The port's from now on, and not that of a program that this process becomes.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        let (mut kind, mut size) = (0i32, size_of::<i32>() as u32);
        // SAFETY: room for an int, and for no bytes of an address.
        unsafe {
            if libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &mut size) != 0 {
                let error = errno();
                if error.0 == libc::EBADF {
                    core::mem::forget(stream);
                }
                return Err(error.into());
            }
            if kind != libc::SOCK_STREAM {
                return Err(Errno(libc::EPROTOTYPE).into());
            }
            let mut address: libc::sockaddr_storage = core::mem::zeroed();
            let mut length = size_of::<libc::sockaddr_storage>() as u32;
            if libc::getpeername(fd, (&raw mut address).cast(), &mut length) != 0 {
                return Err(errno().into());
            }
        }
        Ok(stream)
    }

    pub(super) fn fd(&self) -> i32 {
        self.fd
    }

    /// After a call that failed: waits where that helps.
    fn again(&self, events: i16) -> Result<(), Error> {
        match errno().0 {
            libc::EINTR => Ok(()),
            libc::EAGAIN => {
                let mut set = libc::pollfd { fd: self.fd, events, revents: 0 };
                // SAFETY: one element.
                unsafe { libc::poll(&mut set, 1, -1) };
                Ok(())
            }
            libc::EPIPE | libc::ECONNRESET => Err(Error::Gone),
            other => Err(Errno(other).into()),
        }
    }

    /// Sends all of the parts, at most two, at once as far as there is room: a record goes with its bytes.
    pub(super) fn put(&mut self, parts: &[&[u8]]) -> Result<(), Error> {
        let mut sent = 0;
        loop {
            let mut skip = sent;
            let mut vectors = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; 2];
            let mut count = 0;
            for part in parts {
                let rest = &part[skip.min(part.len())..];
                skip -= part.len() - rest.len();
                if !rest.is_empty() {
                    vectors[count] = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
                    count += 1;
                }
            }
            if count == 0 {
                return Ok(());
            }
            // SAFETY: all-zero is a valid msghdr; the parts are borrowed.
            let moved = unsafe {
                let mut message: libc::msghdr = core::mem::zeroed();
                (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), count as _);
                libc::sendmsg(self.fd, &message, libc::MSG_NOSIGNAL)
            };
            match usize::try_from(moved) {
                Ok(moved) => sent += moved,
                Err(_) => self.again(libc::POLLOUT)?,
            }
        }
    }

    /// Fills `target`, waiting for bytes.
    pub(super) fn take(&mut self, target: &mut [u8]) -> Result<(), Error> {
        let mut taken = 0;
        while taken < target.len() {
            let rest = &mut target[taken..];
            // SAFETY: as much room.
            let count = unsafe { libc::recv(self.fd, rest.as_mut_ptr().cast(), rest.len(), 0) };
            match usize::try_from(count) {
                Ok(0) => return Err(Error::Gone),
                Ok(count) => taken += count,
                Err(_) => self.again(libc::POLLIN)?,
            }
        }
        Ok(())
    }

    /// Whether the other end has closed it, or ended. Of a connection by which nothing is sent.
    pub(super) fn is_over(&self) -> bool {
        let mut byte = 0u8;
        // SAFETY: room for one byte.
        let count = unsafe { libc::recv(self.fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
        count == 0 || (count < 0 && !matches!(errno().0, libc::EAGAIN | libc::EINTR))
    }

    /// Whether bytes wait.
    pub(super) fn waits(&self) -> bool {
        let mut byte = 0u8;
        // SAFETY: room for one byte.
        unsafe { libc::recv(self.fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) == 1 }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: its own descriptor, once.
        unsafe { libc::close(self.fd) };
    }
}
