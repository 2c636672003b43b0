//! A conversation with an urgent byte in each round (tcp(7), MSG_OOB), which has its place among the others: the reader, which
//! takes it in line (socket(7), SO_OOBINLINE), must be at the mark there, and nowhere else.

use super::Bytes;
use crate::namespace::check;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;

const LONGEST: usize = 30_000;
/// sockatmark(3); tcp(7).
const SIOCATMARK: libc::c_ulong = 0x8905;

/// Bytes of a round, and which of them is urgent.
fn round_of(round: u64) -> (usize, usize) {
    let length = 1 + (round as usize * 7919) % LONGEST;
    (length, length / 2)
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

/// Sends rounds until `ended`, and the end; each is answered by one byte. Gives how many.
///
/// # Errors
/// What the calls answer.
pub fn send(stream: &mut TcpStream, seed: u64, ended: impl Fn() -> bool) -> io::Result<u64> {
    stream.write_all(&seed.to_le_bytes())?;
    let (mut bytes, mut buffer, mut rounds) = (Bytes::new(seed), vec![0; LONGEST], 0);
    while !ended() {
        let (length, urgent) = round_of(rounds);
        bytes.fill(&mut buffer[..length]);
        stream.write_all(&buffer[..urgent])?;
        // SAFETY: one byte of the buffer.
        let sent = unsafe { libc::send(stream.as_raw_fd(), buffer[urgent..].as_ptr().cast(), 1, libc::MSG_OOB) };
        check(sent as i32)?;
        stream.write_all(&buffer[urgent + 1..length])?;
        stream.read_exact(&mut buffer[..1])?;
        rounds += 1;
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    stream.shutdown(Shutdown::Write)?;
    match stream.read(&mut buffer)? {
        0 => Ok(rounds),
        _ => Err(wrong("more than was answered".to_string())),
    }
}

/// Receives and checks rounds until the end. Gives how many.
///
/// # Errors
/// What the calls answer; InvalidData: a byte, the mark or the end is not where it belongs.
pub fn receive(stream: &mut TcpStream) -> io::Result<u64> {
    let on: libc::c_int = 1;
    let fd = stream.as_raw_fd();
    // SAFETY: an integer that outlives the call.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, (&raw const on).cast(), 4) })?;
    let mut seed = [0; 8];
    stream.read_exact(&mut seed)?;
    let (mut bytes, mut buffer, mut rounds) = (Bytes::new(u64::from_le_bytes(seed)), vec![0; LONGEST], 0);
    loop {
        let ((length, urgent), mut at) = (round_of(rounds), 0);
        while at < length {
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut marked: libc::c_int = 0;
            // SAFETY: one entry, and an integer, which outlive the calls.
            unsafe {
                check(libc::poll(&mut poll, 1, -1))?;
                check(libc::ioctl(fd, SIOCATMARK, &mut marked))?;
            }
            let marked = marked != 0;
            let got = stream.read(&mut buffer[at..length])?;
            if got == 0 && at == 0 {
                return Ok(rounds);
            }
            if got == 0 || marked != (at == urgent) || (at < urgent && at + got > urgent) {
                return Err(wrong(format!("round {rounds}: {got} at {at}, mark {marked}, urgent {urgent} of {length}")));
            }
            bytes.check(&buffer[at..at + got])?;
            at += got;
        }
        stream.write_all(&[1])?;
        rounds += 1;
    }
}
