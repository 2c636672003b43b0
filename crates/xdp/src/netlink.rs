//! Questions to the kernel's tables (rtnetlink(7)): one request, one answer, in a buffer on the stack.

use shunt_sys::{calls, libc, Errno, Result};

/// Bytes of an answer that are read: a route or a neighbour fits many times.
const BUFFER: usize = 2048;
/// `struct nlmsghdr`.
const HEADER: usize = 16;

/// A request under construction: the header, a fixed structure, attributes.
pub struct Request {
    bytes: [u8; 128],
    length: usize,
}

impl Request {
    /// A request of type `kind` (RTM_*) that begins with `fixed`.
    pub fn new(kind: u16, fixed: &[u8]) -> Request {
        let mut request = Request { bytes: [0; 128], length: HEADER };
        request.bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        request.bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request.bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
        request.append(fixed);
        request
    }

    /// Adds an attribute.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Request {
        let mut head = [0; 4];
        head[..2].copy_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        head[2..].copy_from_slice(&kind.to_ne_bytes());
        self.append(&head);
        self.append(value);
        self
    }

    fn append(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len().next_multiple_of(4);
    }

    /// Sends the request, and gives the answer to `read`.
    ///
    /// Errors: what the kernel answered; EPROTO for an answer that is none.
    pub fn ask<T>(mut self, read: impl FnOnce(&Answer<'_>) -> T) -> Result<T> {
        self.bytes[..4].copy_from_slice(&(self.length as u32).to_ne_bytes());
        let fd = calls::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)?;
        let mut buffer = [0; BUFFER];
        let answered = calls::sendto(fd, self.bytes.as_ptr().cast(), self.length, 0, core::ptr::null(), 0)
            .and_then(|_| receive(fd, &mut buffer));
        let _ = calls::close(fd);
        let bytes = &buffer[..answered?.min(BUFFER)];
        let kind = half(bytes, 4);
        let length = word(bytes, 0) as usize;
        if bytes.len() < HEADER || length < HEADER || length > bytes.len() {
            return Err(Errno(libc::EPROTO));
        }
        let body = &bytes[HEADER..length];
        if i32::from(kind) == libc::NLMSG_ERROR {
            let errno = (word(body, 0) as i32).wrapping_neg();
            return Err(Errno(if errno > 0 { errno } else { libc::EPROTO }));
        }
        Ok(read(&Answer { body }))
    }
}

fn receive(fd: i32, buffer: &mut [u8]) -> Result<usize> {
    let (address, length) = (core::ptr::null_mut(), core::ptr::null_mut());
    // The kernel answers before sendto returns.
    calls::recvfrom(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT, address, length)
}

/// What follows the header of an answer.
pub struct Answer<'a> {
    body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// The fixed structure, and whatever follows.
    pub fn fixed(&self) -> &'a [u8] {
        self.body
    }

    /// The value of the first attribute of type `kind` behind a fixed structure of `fixed` bytes.
    pub fn attribute(&self, fixed: usize, kind: u16) -> Option<&'a [u8]> {
        attribute(self.body.get(fixed..)?, kind)
    }
}

/// The value of the first attribute of type `kind` in a run of attributes.
pub fn attribute(mut run: &[u8], kind: u16) -> Option<&[u8]> {
    /// The two highest bits of a type are flags.
    const TYPE: u16 = 0x3fff;
    while run.len() >= 4 {
        let length = usize::from(half(run, 0));
        let value = run.get(4..length)?;
        if half(run, 2) & TYPE == kind {
            return Some(value);
        }
        run = run.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// Two bytes at `at` as a number; 0 where there are none.
pub fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))
}

/// Four bytes at `at` as a number; 0 where there are none.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_lie_about_their_length_are_none() {
        assert_eq!(attribute(&[8, 0, 1, 0, 1, 2, 3, 4, 5, 0, 2, 0, 9], 2), Some(&[9][..]));
        for run in [&[][..], &[0, 0, 1, 0], &[3, 0, 1, 0], &[9, 0, 1, 0, 1, 2, 3, 4], &[0xff, 0xff, 1, 0], &[4, 0, 1]] {
            assert_eq!(attribute(run, 1), None, "{run:?}");
        }
    }
}
