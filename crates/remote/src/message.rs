//! What the keeper is told: one message of five words, and up to two descriptors.

use shunt_segment::address::Address;
use shunt_station::{Stream, Token};
use shunt_sys::libc::{MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{Errno, Result};
use shunt_table::fd_passing;

const SIZE: usize = 40;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Wake up and look.
    Wake,
    /// The far companion of a stream, and its shadow.
    Stream(Stream),
    /// A query socket of the listener with this inode, and where it listens.
    Listening(u64, Address),
    /// That listener is closed.
    NoQuerySocket(u64),
    /// The bound socket of a gate: 1 for IPv6.
    Discovery(u64),
    /// The station is this user's and group's from now on.
    User(u32, u32),
    /// The program would take over the shadow of a stream, and waits for it at the other end of what comes along.
    Leave(Stream),
}

impl Message {
    /// Sends it. Errors: as sendmsg(2); EPIPE and ECONNREFUSED when there is no keeper.
    pub fn send(self, over: i32, descriptors: &[i32]) -> Result<()> {
        let (kind, value) = match self {
            Message::Wake => (1u64, 0),
            Message::Stream(stream) => (2, u64::from(stream)),
            Message::Listening(inode, _) => (3, inode),
            Message::NoQuerySocket(inode) => (4, inode),
            Message::Discovery(family) => (5, family),
            Message::User(user, group) => (6, u64::from(group) << 32 | u64::from(user)),
            Message::Leave(stream) => (7, u64::from(stream)),
        };
        let address = if let Message::Listening(_, address) = self { address } else { Address::default() };
        let ([high, low], port) = (address.words(), u64::from(address.scope) << 32 | u64::from(address.port));
        let mut bytes = [0u8; SIZE];
        for (place, word) in bytes.chunks_exact_mut(8).zip([kind, value, high, low, port]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        // A full queue holds a wake-up already, and a stream that can be left can be carried; what else carries descriptors waits for its turn.
        let waits = !matches!(self, Message::Wake | Message::Leave(_));
        let flags = if waits { MSG_NOSIGNAL } else { MSG_DONTWAIT | MSG_NOSIGNAL };
        loop {
            match fd_passing::send_with(over, &bytes, descriptors, flags) {
                Err(Errno(shunt_sys::libc::EINTR)) => {}
                other => return other,
            }
        }
    }

    /// The next one. Errors: EAGAIN; ECONNRESET: no process can send any more; EPROTO: none of these.
    pub fn receive(over: i32) -> Result<(Message, [i32; fd_passing::MOST])> {
        let mut bytes = [0u8; SIZE];
        let (got, descriptors) = fd_passing::receive_with(over, &mut bytes, MSG_DONTWAIT)?;
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let address = || Address::from_words([word(16), word(24)], word(32) as u16, (word(32) >> 32) as u32);
        let message = match (got, word(0)) {
            (SIZE, 1) => Message::Wake,
            (SIZE, 2) => Message::Stream(word(8) as Stream),
            (SIZE, 3) => Message::Listening(word(8), address()),
            (SIZE, 4) => Message::NoQuerySocket(word(8)),
            (SIZE, 5) => Message::Discovery(word(8)),
            (SIZE, 6) => Message::User(word(8) as u32, (word(8) >> 32) as u32),
            (SIZE, 7) => Message::Leave(word(8) as Stream),
            _ => return Err(Errno(shunt_sys::libc::EPROTO)),
        };
        Ok((message, descriptors))
    }
}

/// A token as it travels.
pub fn token_bytes(token: &Token) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes[..8].copy_from_slice(&token[0].to_le_bytes());
    bytes[8..].copy_from_slice(&token[1].to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::{calls, libc};

    #[test]
    fn messages_arrive_with_their_descriptors() {
        let mut pair = [-1; 2];
        calls::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()).unwrap();
        let address = Address { scope: 9, ..Address::v6([0xfe; 16], 5432) };
        for message in [
            Message::Wake,
            Message::Stream(7),
            Message::Listening(1 << 40, address),
            Message::NoQuerySocket(3),
            Message::Discovery(1),
            Message::User(33, 7),
            Message::Leave(255),
        ] {
            message.send(pair[0], &[]).unwrap();
            assert_eq!(Message::receive(pair[1]), Ok((message, [-1; 2])));
        }
        Message::Stream(9).send(pair[0], &pair).unwrap();
        let (message, passed) = Message::receive(pair[1]).unwrap();
        assert_eq!(message, Message::Stream(9));
        for fd in passed {
            calls::close(fd).unwrap();
        }
        assert_eq!(Message::receive(pair[1]), Err(Errno(libc::EAGAIN)));
        calls::sendto(pair[0], b"x".as_ptr().cast(), 1, 0, core::ptr::null(), 0).unwrap();
        assert_eq!(Message::receive(pair[1]), Err(Errno(libc::EPROTO)));
        // A program that would leave a stream does not wait for a stopped keeper.
        while Message::Wake.send(pair[0], &[]).is_ok() {}
        assert_eq!(Message::Leave(1).send(pair[0], &pair[1..]), Err(Errno(libc::EAGAIN)));
        while Message::receive(pair[1]).is_ok() {}
        calls::close(pair[0]).unwrap();
        // A child that another test has just made may have it until it is executed.
        calls::poll_one(pair[1], libc::POLLIN, 10_000_000_000).unwrap();
        assert_eq!(Message::receive(pair[1]), Err(Errno(libc::ECONNRESET)));
        calls::close(pair[1]).unwrap();
    }
}
