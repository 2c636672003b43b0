//! Words, numbers, memory and addresses, as the crates above use them.

mod addresses;
mod kernel;
mod memory;
mod numbers;
mod words;

use shunt_sys::{calls, libc, Errno};

/// A xorshift generator: the same numbers in each run.
fn random_numbers(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// A fresh pair of connected AF_UNIX streams.
fn pair() -> [i32; 2] {
    let mut pair = [-1; 2];
    calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()).expect("a pair");
    pair
}

/// Whether nobody has the other end of `fd` any more.
fn is_hung_up(fd: i32) -> bool {
    calls::poll_one(fd, 0, 0).is_ok_and(|events| events & libc::POLLHUP != 0)
}

/// The same, within some seconds: a child that another test starts has copies of all descriptors until its exec.
fn hangs_up(fd: i32) -> bool {
    calls::poll_one(fd, 0, 5_000_000_000).is_ok_and(|events| events & libc::POLLHUP != 0)
}
