//! The next bytes of a plain socket as a region: the sender's, where they lie, or one of this process's that they are copied into.
//!
//! ```no_run
//! # use shunt_buffers::{region::{Audience, Pages, Pool, Shape}, sockets::{receive, Received}};
//! # fn consume(_: *const u8, _: usize) {}
//! # fn main() -> Result<(), shunt_buffers::port::Error> {
//! # let socket = 0;
//! let pool = Pool::create(Shape { unit: 64 << 10, units: 64 }, Pages::Small, Audience::Anyone)?;
//! while let Some(received) = receive(socket, &pool, 1 << 20, 0)? {
//!     consume(received.start(), received.length());
//! } // dropped: a view is given back, and the sender's bytes are complete
//! # Ok(()) }
//! ```
//!
//! The library that is preloaded is asked by `getsockopt` (`SHUNT_SO_VIEW` of `shunt_socket.h`), which never waits; waiting, and copying, are
//! plain `recv`. So a socket that no such library carries is served by the same function.

use super::{error, getsockopt, setsockopt, LEVEL};
use crate::port::Error;
use core::ffi::{c_int, c_void};
use shunt_region::{Pool, Region};
use shunt_sys::{libc, Errno};
use std::os::fd::RawFd;

/// `SHUNT_SO_VIEW`.
const VIEW: c_int = 5;
/// `SHUNT_SO_GIVE_BACK`.
const GIVE_BACK: c_int = 6;

/// `struct shunt_so_view`.
#[repr(C)]
#[derive(Default)]
struct Asked {
    address: u64,
    length: u64,
    number: u64,
}

extern "C" {
    fn recv(fd: c_int, data: *mut c_void, length: usize, flags: c_int) -> isize;
    fn ioctl(fd: c_int, request: core::ffi::c_ulong, ...) -> c_int;
}

/// Bytes in the sender's region, to be read there. They are this process's until it is dropped, which gives them back: from then on the sender,
/// whose send is complete, may write there. One that is not honest may at any time.
///
/// Closing the socket gives all views of it back, as far as the sender sees; their memory stays readable. A child of fork has a copy that can be
/// read as long as its parent has the view.
#[derive(Debug)]
pub struct View {
    socket: RawFd,
    start: *const u8,
    length: usize,
    number: u64,
}

// SAFETY: where bytes of a mapping are that any thread may read.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: a word and its size. It fails in a handler alone, which must not free memory anyway.
        unsafe { setsockopt(self.socket, LEVEL, GIVE_BACK, (&raw const self.number).cast(), 8) };
    }
}

/// The next bytes of a stream.
#[derive(Debug)]
#[must_use = "a view is given back when it is dropped"]
pub enum Received {
    /// Where they lie.
    InPlace(View),
    /// Copied: the first so many bytes of a region.
    Copied(Region, usize),
}

impl Received {
    /// The first of them. They can be read as long as this exists; a view's may change, if its sender is not honest, so there is no slice of them.
    pub fn start(&self) -> *const u8 {
        match self {
            Received::InPlace(view) => view.start,
            Received::Copied(region, _) => region.pointer(),
        }
    }

    /// How many.
    pub fn length(&self) -> usize {
        match self {
            Received::InPlace(view) => view.length,
            Received::Copied(_, length) => *length,
        }
    }

    /// Whether no copy was made.
    pub fn is_in_place(&self) -> bool {
        matches!(self, Received::InPlace(_))
    }

    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.length());
        // SAFETY: so many bytes can be read there, and there is room for them.
        unsafe {
            core::ptr::copy_nonoverlapping(self.start(), bytes.as_mut_ptr(), self.length());
            bytes.set_len(self.length());
        }
        bytes
    }
}

/// What the preloaded library says of the next bytes.
enum Next {
    InPlace(View),
    /// So many are to be copied; 0: none wait.
    Copied(usize),
    /// Nothing: there is none, or it does not carry the socket in memory.
    Unknown,
}

fn ask(socket: RawFd, most: usize) -> Result<Next, Error> {
    let (mut asked, mut room) = (Asked { length: most as u64, ..Asked::default() }, size_of::<Asked>() as u32);
    // SAFETY: the structure and its size.
    let done = unsafe { getsockopt(socket, LEVEL, VIEW, (&raw mut asked).cast(), &mut room) };
    let Asked { address, length, number } = asked;
    match (done, error()) {
        (0, _) if number != 0 => Ok(Next::InPlace(View { socket, start: address as *const u8, length: length as usize, number })),
        (0, _) => Ok(Next::Copied(length as usize)),
        (_, Errno(libc::ENOPROTOOPT | libc::EOPNOTSUPP)) => Ok(Next::Unknown),
        (_, error) => Err(error.into()),
    }
}

/// Bytes that wait, as the socket says.
fn waiting(socket: RawFd) -> Result<usize, Error> {
    let mut count: c_int = 0;
    // SAFETY: writes an int.
    match unsafe { ioctl(socket, libc::FIONREAD as _, &raw mut count) } {
        0 => Ok(count.max(0) as usize),
        _ => Err(error().into()),
    }
}

/// recv(2).
fn plain(socket: RawFd, data: *mut u8, length: usize, flags: c_int) -> Result<usize, Error> {
    // SAFETY: the callers' memory.
    usize::try_from(unsafe { recv(socket, data.cast(), length, flags) }).map_err(|_| error().into())
}

/// The next bytes of a connected stream socket, `most` or fewer, at least one: waits as `recv` does. Where they were sent by reference they are
/// given where they lie; else, and of any other socket, they are copied into a region of `pool`, up to the next that were. `None`: the stream has
/// ended. `flags`: MSG_DONTWAIT, or 0. At most 64 pieces of a stream, and 512 of a process, are in place at a time.
///
/// What was received in place counts as received. A program that sets SO_PEEK_OFF calls this where bytes wait: the wait looks at one.
///
/// # Errors
/// [`Error::System`]: those of recv(2); EINVAL: another flag, or none asked for. [`Error::Limit`]: `PoolFull` and others of [`Pool::allocate`]: no region
/// for a copy, and the bytes wait.
pub fn receive(socket: RawFd, pool: &Pool, most: usize, flags: c_int) -> Result<Option<Received>, Error> {
    if most == 0 || flags & !libc::MSG_DONTWAIT != 0 {
        return Err(Errno(libc::EINVAL).into());
    }
    let mut seen = false;
    loop {
        let mut count = match ask(socket, most)? {
            Next::InPlace(view) => return Ok(Some(Received::InPlace(view))),
            Next::Copied(count) => count,
            Next::Unknown => waiting(socket)?,
        };
        if count == 0 && seen {
            count = most; // at an urgent byte none are counted, and recv goes past it
        }
        if count == 0 {
            let mut byte = 0;
            if plain(socket, &mut byte, 1, flags | libc::MSG_PEEK)? == 0 {
                return Ok(None);
            }
            seen = true;
            continue;
        }
        seen = false;
        let length = count.min(most).min(pool.shape().bytes());
        let region = pool.allocate(length)?;
        // Another thread may have received them meanwhile.
        match plain(socket, region.pointer(), length, libc::MSG_DONTWAIT) {
            Ok(0) => return Ok(None),
            Ok(got) => return Ok(Some(Received::Copied(region, got))),
            Err(Error::System(Errno(libc::EAGAIN))) if flags == 0 => {}
            Err(error) => return Err(error),
        }
    }
}
