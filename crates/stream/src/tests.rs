//! Streams between two threads: what send, recv, shutdown and close do, without another process.

mod completions;
mod control;
mod corks;
mod ends;
mod files;
mod flags;
mod held;
mod lent;
mod life;
mod mapped;
mod moving;
mod options;
mod readiness;
mod referring;
mod splices;
mod times;
mod urgent;
mod waits;

use crate::pair::{self, End, Pair};
use shunt_sys::{libc, Errno};

/// The error of a call that failed.
fn error<T: core::fmt::Debug>(result: shunt_sys::Result<T>) -> i32 {
    result.expect_err("a failure").0
}

/// Bytes that tell where they stand.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Receives until `length` bytes are there or the stream ends.
fn receive_whole(end: &End, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut got = 0;
    while got < length {
        match end.receive(&mut bytes[got..], 0).expect("bytes or an end") {
            0 => break,
            more => got += more,
        }
    }
    bytes.truncate(got);
    bytes
}

const NOW: i32 = libc::MSG_DONTWAIT;
const EAGAIN: Errno = Errno(libc::EAGAIN);
