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

    /// Sends the request by a socket that may be kept for the next one, and gives the answer to `read`.
    ///
    /// Errors: what the kernel answered; EPROTO for an answer that is none.
    pub fn ask<T>(mut self, kept: &mut Kept, read: impl FnOnce(&Answer<'_>) -> T) -> Result<T> {
        kept.last = kept.last.wrapping_add(1);
        self.bytes[..4].copy_from_slice(&(self.length as u32).to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&kept.last.to_ne_bytes());
        let mut socket = match kept.open.take() {
            Some(socket) => socket,
            None => Socket(calls::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)?),
        };
        let mut buffer = [0; BUFFER];
        let count = socket.answer(&self.bytes[..self.length], kept.last, &mut buffer)?;
        // One that has answered; of another nothing is known.
        kept.open = Some(socket);
        let bytes = &buffer[..count];
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

/// A socket for questions that are asked one after the other, of the network namespace in which the first was asked; none before that.
#[derive(Default)]
pub struct Kept {
    open: Option<Socket>,
    /// Of the last question: an answer with another number is none to it.
    last: u32,
}

struct Socket(i32);

impl Socket {
    /// Sends a request; gives the bytes of its answer.
    fn answer(&mut self, request: &[u8], number: u32, buffer: &mut [u8]) -> Result<usize> {
        calls::sendto(self.0, request.as_ptr().cast(), request.len(), 0, core::ptr::null(), 0)?;
        loop {
            let (data, length) = (buffer.as_mut_ptr().cast(), buffer.len());
            let (address, size) = (core::ptr::null_mut(), core::ptr::null_mut());
            // The kernel answers before sendto returns.
            let count = calls::recvfrom(self.0, data, length, libc::MSG_DONTWAIT, address, size)?.min(length);
            if word(&buffer[..count], 8) == number {
                return Ok(count);
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = calls::close(self.0);
    }
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
    fn a_socket_is_kept_and_tells_answers_to_other_questions_from_its_own() {
        const GET_LINK: u16 = 18;
        /// Asks for the interface with this index, by `struct ifinfomsg`.
        fn interface(index: u32) -> Request {
            let mut fixed = [0; 16];
            fixed[4..8].copy_from_slice(&index.to_ne_bytes());
            Request::new(GET_LINK, &fixed)
        }
        let mut kept = Kept::default();
        let index = |answer: &Answer<'_>| word(answer.fixed(), 4);
        assert_eq!(interface(1).ask(&mut kept, index), Ok(1));
        let fd = kept.open.as_ref().expect("a socket").0;
        // The answer to this one is left.
        let mut left = interface(1);
        left.bytes[..4].copy_from_slice(&(left.length as u32).to_ne_bytes());
        calls::sendto(fd, left.bytes.as_ptr().cast(), left.length, 0, core::ptr::null(), 0).expect("sent");
        kept.last += 7;
        assert_eq!(interface(u32::MAX >> 1).ask(&mut kept, index), Err(Errno(libc::ENODEV)));
        assert_eq!(interface(1).ask(&mut kept, index), Ok(1));
        assert_eq!(kept.open.as_ref().map(|socket| socket.0), Some(fd));
    }

    #[test]
    fn attributes_that_lie_about_their_length_are_none() {
        assert_eq!(attribute(&[8, 0, 1, 0, 1, 2, 3, 4, 5, 0, 2, 0, 9], 2), Some(&[9][..]));
        for run in [&[][..], &[0, 0, 1, 0], &[3, 0, 1, 0], &[9, 0, 1, 0, 1, 2, 3, 4], &[0xff, 0xff, 1, 0], &[4, 0, 1]] {
            assert_eq!(attribute(run, 1), None, "{run:?}");
        }
    }
}
