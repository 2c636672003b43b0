//! Questions to the kernel by netlink(7) beside those for routes: of any family, with attributes in attributes.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use shunt_sys::{calls, Errno};
use shunt_xdp::netlink::{half, word};

/// `struct nlmsghdr`.
const HEADER: usize = 16;
/// A nested attribute's type has this bit.
const NESTED: u16 = 1 << 15;

/// Sockets that stay open, one of a family, for questions of one answer that are asked again and again. They are of the network namespace in which each was asked first.
#[derive(Default)]
pub struct Sockets {
    open: HashMap<i32, OwnedFd>,
    /// Of the last question: an answer with another number is none to it.
    last: u32,
}

/// A message under construction.
pub struct Message(Vec<u8>);

impl Message {
    /// Of type `kind`, with flags beside NLM_F_REQUEST, that begins with `fixed`.
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Message {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16 | flags).to_ne_bytes());
        bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Message(bytes)
    }

    /// Adds an attribute that holds others.
    #[must_use]
    pub fn nested(mut self, kind: u16, attributes: &[u8]) -> Message {
        append(&mut self.0, kind | NESTED, attributes);
        self
    }

    /// Sends the message to a family of netlink, and gives the answer, without its header, to `read`; of an acknowledgement, nothing.
    ///
    /// # Errors
    /// What the kernel answered; EPROTO for an answer that is none.
    pub fn ask<T>(self, family: i32, read: impl FnOnce(&[u8]) -> T) -> Result<T, Errno> {
        self.ask_by(&mut Sockets::default(), family, read)
    }

    /// The same by a socket that stays open.
    ///
    /// # Errors
    /// As there.
    pub fn ask_by<T>(mut self, sockets: &mut Sockets, family: i32, read: impl FnOnce(&[u8]) -> T) -> Result<T, Errno> {
        sockets.last = sockets.last.wrapping_add(1);
        self.0[8..12].copy_from_slice(&sockets.last.to_ne_bytes());
        let socket = match sockets.open.remove(&family) {
            Some(socket) => socket,
            None => open(family)?,
        };
        self.send(&socket)?;
        let mut buffer = [0u8; 8192];
        let bytes = loop {
            let bytes = receive(&socket, &mut buffer)?;
            if word(bytes, 8) == sockets.last {
                break bytes.len();
            }
        };
        let bytes = &buffer[..bytes];
        // One that has answered; of another nothing is known.
        sockets.open.insert(family, socket);
        let length = word(bytes, 0) as usize;
        let body = bytes.get(HEADER..length).ok_or(Errno(libc::EPROTO))?;
        if i32::from(half(bytes, 4)) == libc::NLMSG_ERROR {
            return refusal(body).map(|()| read(&[]));
        }
        Ok(read(body))
    }

    /// Sends the message, which asks for a whole table, and gives each entry to `read`.
    ///
    /// # Errors
    /// As there.
    pub fn dump(mut self, family: i32, mut read: impl FnMut(&[u8])) -> Result<(), Errno> {
        let socket = open(family)?;
        self.send(&socket)?;
        let mut buffer = vec![0u8; 32 << 10];
        loop {
            let mut rest = receive(&socket, &mut buffer)?;
            while !rest.is_empty() {
                let length = word(rest, 0) as usize;
                let body = rest.get(HEADER..length).ok_or(Errno(libc::EPROTO))?;
                match i32::from(half(rest, 4)) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return refusal(body),
                    _ => read(body),
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }

    fn send(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        calls::sendto(socket.as_raw_fd(), self.0.as_ptr().cast(), self.0.len(), 0, std::ptr::null(), 0).map(|_| ())
    }
}

fn open(family: i32) -> Result<OwnedFd, Errno> {
    let fd = calls::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, family)?;
    // SAFETY: made above, ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kernel answers before sendto returns, and goes on with a table before recvfrom does.
fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let no = std::ptr::null_mut();
    let (data, length) = (buffer.as_mut_ptr().cast(), buffer.len());
    let count = calls::recvfrom(socket.as_raw_fd(), data, length, libc::MSG_DONTWAIT, no, std::ptr::null_mut())?;
    Ok(&buffer[..count.min(length)])
}

fn refusal(body: &[u8]) -> Result<(), Errno> {
    match (word(body, 0) as i32).wrapping_neg() {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

/// A run of attributes under construction.
pub fn append(run: &mut Vec<u8>, kind: u16, value: &[u8]) {
    run.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    run.extend_from_slice(&kind.to_ne_bytes());
    run.extend_from_slice(value);
    run.resize(run.len().next_multiple_of(4), 0);
}

/// One of others.
pub fn nest(run: &mut Vec<u8>, kind: u16, attributes: &[u8]) {
    append(run, kind | NESTED, attributes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET_LINK: u16 = 18;

    /// Asks for the interface with this index, and tells the one of the answer.
    fn interface(index: u32) -> Message {
        // `struct ifinfomsg`, with the index at 4.
        let mut fixed = [0; 16];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        Message::new(GET_LINK, 0, &fixed)
    }

    #[test]
    fn a_socket_that_stays_open_tells_answers_to_other_questions_from_its_own() {
        let mut sockets = Sockets::default();
        let route = libc::NETLINK_ROUTE;
        assert_eq!(interface(1).ask_by(&mut sockets, route, |answer| word(answer, 4)), Ok(1));
        let number = sockets.open[&route].as_raw_fd();
        // The answer to this one is left.
        interface(1).send(&sockets.open[&route]).unwrap();
        sockets.last += 7;
        assert_eq!(interface(u32::MAX >> 1).ask_by(&mut sockets, route, |answer| word(answer, 4)), Err(Errno(libc::ENODEV)));
        assert_eq!(interface(1).ask_by(&mut sockets, route, |answer| word(answer, 4)), Ok(1));
        assert_eq!((sockets.open.len(), sockets.open[&route].as_raw_fd()), (1, number));
    }
}
