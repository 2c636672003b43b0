//! What other programs get, without another program: text, messages and counts of owners, with connections of this process to itself.

mod connection;
mod handing;
mod messages;
mod texts;

use connection::Connection;
use shunt_sys::{calls, libc};
use shunt_table::table::{self, Kind};

/// A xorshift generator: the same numbers in each run.
fn random_numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// A fresh pair of connected AF_UNIX sockets.
fn pair(kind: i32) -> [i32; 2] {
    let mut pair = [-1; 2];
    calls::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()).expect("a pair");
    pair
}

/// Whether a number is open.
fn is_open(fd: i32) -> bool {
    calls::fcntl(fd, libc::F_GETFD, 0).is_ok()
}
