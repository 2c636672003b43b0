//! What two ends of one connection do to each other in the crash tests, and how each tells what it saw.
//!
//! One end is the *victim*, which the test kills; the other is the *survivor*, which must see what the kernel
//! would have shown it. Either may be the client. The client opens every conversation with a header, so one
//! server serves all patterns; every byte after it follows from the conversation's seed, so a byte of another
//! connection, a lost one or one that was never sent cannot pass for the right one.

mod bytes;
mod end;
pub mod forks;
pub mod urgent;

pub use bytes::Bytes;
pub use end::End;

use crate::namespace::check;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Which side sends what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The victim sends without end, the survivor reads: it must see a true prefix, then the end of the stream.
    VictimSends,
    /// The survivor sends without end, the victim reads: the survivor's send must fail.
    SurvivorSends,
    /// The survivor sends blocks and the victim returns them.
    Echo,
    /// Both are silent and nothing is unread: the survivor must see the end of the stream.
    Quiet,
    /// The survivor has sent bytes that the victim never reads: the survivor must see ECONNRESET.
    Unread,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Pattern; 5] = [Pattern::VictimSends, Pattern::SurvivorSends, Pattern::Echo, Pattern::Quiet, Pattern::Unread];

    /// The pattern's letter on command lines and in the header.
    pub fn letter(self) -> char {
        match self {
            Pattern::VictimSends => 'v',
            Pattern::SurvivorSends => 's',
            Pattern::Echo => 'e',
            Pattern::Quiet => 'q',
            Pattern::Unread => 'u',
        }
    }

    /// The pattern with this letter.
    pub fn from_letter(letter: char) -> Option<Pattern> {
        Pattern::ALL.into_iter().find(|pattern| pattern.letter() == letter)
    }

    /// Whether the kernel may show a survivor this `end` after it has received or sent `bytes`.
    ///
    /// The kernel closes a dead process's sockets: FIN if nothing was left unread, RST otherwise (RFC 2525, 2.17).
    /// A victim that died before it read the header leaves that unread, hence the leniency at zero bytes.
    pub fn allows(self, end: End, bytes: u64) -> bool {
        let torn = matches!(end, End::Reset | End::BrokenPipe);
        match self {
            Pattern::VictimSends => end == End::EndOfStream || (bytes == 0 && torn),
            Pattern::SurvivorSends => torn,
            Pattern::Echo => end == End::EndOfStream || torn,
            Pattern::Quiet => end == End::EndOfStream || torn,
            Pattern::Unread => end == End::Reset || end == End::BrokenPipe || end == End::EndOfStream,
        }
    }

    /// The one end the kernel shows a survivor of a victim that was killed when the conversation was at rest, for the
    /// patterns that come to rest.
    pub fn end_at_rest(self) -> Option<End> {
        match self {
            Pattern::Quiet => Some(End::EndOfStream),
            Pattern::Unread => Some(End::Reset),
            _ => None,
        }
    }
}

/// Bytes at a time. Not a divisor of any ring, so that blocks wrap around at every place.
const BLOCK: usize = 5000;

/// Plays the survivor until the connection ends; returns the bytes received or sent, and the end.
///
/// `at_rest` is called when the conversation will not move any more unless the victim dies.
pub fn survive(stream: &mut TcpStream, pattern: Pattern, seed: u64, at_rest: impl FnOnce()) -> (u64, End) {
    let mut count = 0;
    let end = match survivor(stream, pattern, seed, &mut count, at_rest) {
        Ok(()) => End::EndOfStream,
        Err(error) => End::of(&error),
    };
    (count, end)
}

fn survivor(stream: &mut TcpStream, pattern: Pattern, seed: u64, count: &mut u64, at_rest: impl FnOnce()) -> io::Result<()> {
    let mut buffer = [0; BLOCK];
    let mut bytes = Bytes::new(seed);
    match pattern {
        Pattern::VictimSends => loop {
            let length = stream.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            bytes.check(&buffer[..length])?;
            *count += length as u64;
        },
        Pattern::SurvivorSends => loop {
            bytes.fill(&mut buffer);
            stream.write_all(&buffer)?;
            *count += BLOCK as u64;
        },
        Pattern::Echo => loop {
            let length = 1 + (*count as usize * 7) % BLOCK;
            bytes.fill(&mut buffer[..length]);
            stream.write_all(&buffer[..length])?;
            let mut expected = Bytes::new(seed).from_offset(*count);
            let mut received = 0;
            while received < length {
                let part = stream.read(&mut buffer[received..length])?;
                if part == 0 {
                    return Ok(());
                }
                expected.check(&buffer[received..received + part])?;
                received += part;
            }
            *count += length as u64;
        },
        Pattern::Quiet | Pattern::Unread => {
            if pattern == Pattern::Unread {
                bytes.fill(&mut buffer[..64]);
                stream.write_all(&buffer[..64])?;
            }
            at_rest();
            match stream.read(&mut buffer)? {
                0 => Ok(()),
                _ => Err(io::Error::new(ErrorKind::InvalidData, "nobody sent this")),
            }
        }
    }
}

/// Plays the victim until it is killed, or until the survivor is gone.
pub fn suffer(stream: &mut TcpStream, pattern: Pattern, seed: u64) -> io::Result<()> {
    let mut buffer = [0; BLOCK];
    let mut bytes = Bytes::new(seed);
    match pattern {
        Pattern::VictimSends => loop {
            bytes.fill(&mut buffer);
            stream.write_all(&buffer)?;
        },
        Pattern::SurvivorSends => loop {
            let length = stream.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            bytes.check(&buffer[..length])?;
        },
        Pattern::Echo => loop {
            let length = stream.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            stream.write_all(&buffer[..length])?;
        },
        Pattern::Quiet => stream.read(&mut buffer).map(|_| ()),
        Pattern::Unread => wait_for_end(stream),
    }
}

/// Waits until the survivor is gone, without reading a byte.
fn wait_for_end(stream: &TcpStream) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one valid entry, which outlives the call.
    check(unsafe { libc::poll(&mut poll, 1, -1) })
}

/// Writes the header that opens a conversation: which side is the victim, the pattern, the seed.
pub fn write_header(stream: &mut TcpStream, client_is_victim: bool, pattern: Pattern, seed: u64) -> io::Result<()> {
    let mut header = [0; HEADER];
    header[0] = client_is_victim as u8;
    header[1] = pattern.letter() as u8;
    header[2..].copy_from_slice(&seed.to_le_bytes());
    stream.write_all(&header)
}

/// Reads the header: whether the client is the victim, the pattern, the seed.
pub fn read_header(stream: &mut TcpStream) -> io::Result<(bool, Pattern, u64)> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let pattern = Pattern::from_letter(header[1] as char)
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "the header names no pattern"))?;
    let seed = u64::from_le_bytes(header[2..].try_into().expect("eight bytes"));
    Ok((header[0] == 1, pattern, seed))
}

const HEADER: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_survive_the_way_through_text() {
        for pattern in Pattern::ALL {
            assert_eq!(Pattern::from_letter(pattern.letter()), Some(pattern));
        }
    }

    #[test]
    fn no_pattern_allows_a_wrong_byte() {
        for pattern in Pattern::ALL {
            assert!(!pattern.allows(End::Corrupt, 0) && !pattern.allows(End::Errno(libc::ETIMEDOUT), 0));
            assert!(pattern.end_at_rest().is_none_or(|end| pattern.allows(end, 0)));
        }
    }
}
