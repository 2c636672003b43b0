//! io_uring: the kernel works for the program on descriptors without a call that we could see.
//!
//! `io_uring_setup` by syscall(2) is refused (option `io-uring`). Rings of liburing are left alone: what they are given
//! passes functions of that library, before which [`settle`] makes the kernel's what of ours a request names. From the
//! first such request on the process keeps to the kernel; one that has its ring for files only never does. A ring of
//! another origin is noticed by its descriptor at the first connections and at each `listen`; what is accelerated by then
//! stays so.

use crate::convert_to_kernel;
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_stream::socket::Socket;
use shunt_sys::{libc, Errno, Result};
pub use shunt_table::process::uring::{gone, seen};
use shunt_table::process::uring::{has_set, note_set, note_used};
use shunt_table::table;
use shunt_table::table::Kind;

/// The kernel is about to work on `fd` for a ring: it is the kernel's from now on, under all its numbers.
///
/// # Errors
/// EAGAIN: it cannot be made so, and is what it was.
pub fn settle(fd: i32) -> Result<()> {
    let word = table::get(fd);
    if let Some(socket) = word.object::<Datagram>() {
        datagram::options::plain(socket, datagram::pin::ELSEWHERE);
    }
    if word.kind() == Kind::Epoll {
        // A ring that polls a set asks the kernel for all that is in it.
        note_set();
        return everything();
    }
    if word.object::<Socket>().is_some() {
        note_used();
    }
    convert_to_kernel::to_kernel(fd)
}

/// As [`settle`], of all that the process has: what a ring is given cannot be told.
///
/// # Errors
/// EAGAIN, as [`settle`]; some may be the kernel's by then.
#[cold]
pub fn everything() -> Result<()> {
    note_used();
    for fd in table::numbers() {
        if table::get(fd).kind() != Kind::Epoll {
            settle(fd)?;
        }
    }
    Ok(())
}

/// `fd` came in a message: where a ring watches a set, it may join that. Where the process keeps to the kernel, it does so for this.
pub fn received(fd: i32) {
    if has_set() || shunt_table::process::kernel_only::keeps() {
        let _ = settle(fd);
    }
}

/// As [`settle`], before the ring closes `fd`: the number is free from now on.
///
/// # Errors
/// As [`settle`]; EBADF: the program has no such descriptor.
pub fn closing(fd: i32) -> Result<()> {
    if table::get(fd).kind() == Kind::Private {
        return Err(Errno(libc::EBADF));
    }
    settle(fd)?;
    shunt_table::upcalls::operations::closing(fd);
    Ok(())
}
