//! A conversation that a process and its children hold by turns, on one connection that all of them have.

use super::Bytes;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::TcpStream;

const LONGEST: usize = 20_000;

/// One round: bytes there, and the same ones back.
fn round(stream: &mut TcpStream, number: u64, bytes: [Bytes; 2], buffer: &mut [u8]) -> io::Result<[Bytes; 2]> {
    let length = 1 + (number as usize * 7919) % LONGEST;
    let [mut sent, mut expected] = bytes;
    sent.fill(&mut buffer[..length]);
    stream.write_all(&buffer[..length])?;
    stream.read_exact(&mut buffer[..length])?;
    expected.check(&buffer[..length])?;
    Ok([sent, expected])
}

/// Rounds with an echo until `ended`: odd ones are a child's, which is forked for it. Gives how many.
///
/// # Errors
/// What the calls answer; InvalidData: a byte is wrong, or a child's round failed.
pub fn converse(stream: &mut TcpStream, seed: u64, ended: impl Fn() -> bool) -> io::Result<u64> {
    let (mut buffer, mut rounds, mut at) = (vec![0; LONGEST], 0u64, 0u64);
    while !ended() {
        let bytes = [0, 1].map(|_| Bytes::new(seed).from_offset(at));
        if rounds % 2 == 0 {
            round(stream, rounds, bytes, &mut buffer)?;
        } else {
            // SAFETY: the child makes system calls on memory that is there, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let fine = round(stream, rounds, bytes, &mut buffer).is_ok();
                // SAFETY: runs nothing of the parent's.
                unsafe { libc::_exit(i32::from(!fine)) };
            }
            let mut status = 0;
            // SAFETY: an integer that outlives the call.
            if child < 0 || unsafe { libc::waitpid(child, &mut status, 0) } != child || status != 0 {
                return Err(Error::new(ErrorKind::InvalidData, format!("round {rounds}: child {child} ended with {status}")));
            }
        }
        at += 1 + (rounds * 7919) % LONGEST as u64;
        rounds += 1;
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(rounds)
}
