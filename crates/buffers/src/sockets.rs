//! Regions over plain sockets: a pool is shown to the peer of a connected stream, and `send` with MSG_ZEROCOPY leaves bytes that lie in its
//! regions where they are.
//!
//! The library that is preloaded does that, where it carries the connection in memory; the peer is a program under it, and calls plain
//! `recv`. It is asked by `setsockopt` (`SHUNT_SO_POOL` of `shunt_socket.h`), the C library's, which it sees. Everywhere else the same calls
//! copy, and nothing else changes. A region must not be written from a send on until the error queue of the socket says that it is
//! complete, as Linux documents MSG_ZEROCOPY.
//!
//! Memory that is a file already, as NumPy, PyTorch and Arrow share theirs, is shown without a pool ([`show_memory`]).
//!
//! A receiver that only reads asks for the next bytes where they lie ([`receive()`]), and gives them back. A sender that writes its memory behind each
//! plain `send` may have one copy of two saved all the same ([`set_output`]).

mod memory;
mod receive;

pub use memory::{show_memory, ShownMemory};
pub use receive::{receive, Received, View};

use crate::port::Error;
use crate::Semantics;
use core::ffi::{c_int, c_void};
use shunt_region::{Limit, Pool};
use shunt_sys::{libc, Errno};
use std::os::fd::RawFd;

/// `SOL_SHUNT`.
const LEVEL: c_int = 0x5348_4e54;
/// `SHUNT_SO_POOL`.
const POOL: c_int = 3;
/// `SHUNT_SO_REFERRED`.
const REFERRED: c_int = 4;
/// `SHUNT_SO_OUTPUT`.
const OUTPUT: c_int = 9;

/// `struct shunt_so_pool`.
#[repr(C)]
struct Shown {
    address: u64,
    descriptor: c_int,
    reserved: c_int,
}

extern "C" {
    fn setsockopt(fd: c_int, level: c_int, name: c_int, data: *const c_void, length: u32) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, data: *mut c_void, length: *mut u32) -> c_int;
}

fn error() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Lets the peer of `socket` see the pool, all of it, for as long as the connection lasts. All of its units become memory.
///
/// # Errors
/// [`Limit::Apart`]: no library carries this program's sockets, and the kernel copies. [`Error::System`]: ENOTCONN; EBUSY, it sees two
/// pools already; EINVAL, a pool that others could write (`Audience::Trusted`), or a parent process's; ENOMEM.
pub fn show(pool: &Pool, socket: RawFd) -> Result<(), Error> {
    let shown = Shown { address: pool.address() as u64, descriptor: pool.descriptor(), reserved: 0 };
    // SAFETY: the structure and its size.
    let done = unsafe { setsockopt(socket, LEVEL, POOL, (&raw const shown).cast(), size_of::<Shown>() as u32) };
    match (done, error()) {
        (0, _) => Ok(()),
        (_, Errno(libc::ENOPROTOOPT | libc::EOPNOTSUPP)) => Err(Limit::Apart.into()),
        (_, error) => Err(error.into()),
    }
}

/// What plain sends on `socket` do with bytes of pools and memory that the peer sees: [`Semantics::COPY`], as at first, or [`Semantics::EMULATED_COPY`],
/// which lends them to a peer that waits for them, until the call returns: one copy, where that is likely to pay (`SHUNT_SO_OUTPUT` of `shunt_socket.h`).
///
/// # Errors
/// [`Limit::Apart`]: no library carries this program's sockets. [`Error::System`]: ENOTCONN; EINVAL, other semantics.
pub fn set_output(socket: RawFd, semantics: Semantics) -> Result<(), Error> {
    let number = semantics.index() as c_int;
    // SAFETY: a number and its size.
    match (unsafe { setsockopt(socket, LEVEL, OUTPUT, (&raw const number).cast(), size_of::<c_int>() as u32) }, error()) {
        (0, _) => Ok(()),
        (_, Errno(libc::ENOPROTOOPT | libc::EOPNOTSUPP)) => Err(Limit::Apart.into()),
        (_, error) => Err(error.into()),
    }
}

/// Bytes that this process has sent by reference on `socket`.
pub fn referred(socket: RawFd) -> u64 {
    let (mut bytes, mut length) = (0u64, 8);
    // SAFETY: a word and its size.
    match unsafe { getsockopt(socket, LEVEL, REFERRED, (&raw mut bytes).cast(), &mut length) } {
        0 => bytes,
        _ => 0,
    }
}
