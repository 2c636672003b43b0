//! Windows of a stream: a ring that has grown lies in a part of the link's file that is mapped when it is first needed.

use crate::references::borrow;
use crate::socket::Socket;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_ring::{Pipe, Trouble, Window};
use shunt_segment::CHANNELS;
use shunt_sys::{calls, libc, thread, Errno, Result};
use shunt_table::global::SETUP;

/// Maps the window of the direction in which `socket` sends (0) or receives (1).
///
/// Errors: EINTR when a signal handler interrupted this thread in the middle of setting a connection up; otherwise as
/// mmap(2), and the window counts as refused.
#[cold]
fn provide(socket: &Socket, direction: usize) -> Result<()> {
    let window: &Window = if direction == 0 { socket.outgoing().window } else { socket.incoming().window };
    let Some(setup) = SETUP.lock() else {
        // In a signal handler, under which a connection is being set up: what is refused to a sender stays so, a
        // receiver asks again next time.
        if direction == 0 {
            window.refuse();
        }
        return Err(Errno(libc::EINTR));
    };
    let link = socket.connected.link_index.load(Ordering::Relaxed) as usize;
    let result = link::window::map(link, socket.channel() & (CHANNELS - 1), socket.side() ^ direction);
    drop(setup);
    match result {
        Ok(base) => window.set(base),
        Err(_) => window.refuse(),
    }
    result.map(|_| ())
}

/// After a send that took less than it was given: whether a window was asked for and now is there, or is known not to
/// come, so that sending is worth another try.
///
/// Errors: ENOMEM when what this side sends lies in a window (another owner has grown the ring) that cannot be mapped.
#[inline]
pub fn provided_for_sending(socket: &Socket) -> Result<bool> {
    let pipe = socket.outgoing();
    if pipe.window.is_wanted() {
        let _ = provide(socket, 0);
        return Ok(true);
    }
    if pipe.window.is_refused() && pipe.is_in_window() {
        return Err(Errno(libc::ENOMEM));
    }
    Ok(false)
}

/// Bytes wait that lie in no ring, and are copied from where they are; or in a window that is not mapped: maps it, or where that is refused copies up to `length` of them through the
/// file. Gives the number of bytes copied (0: try again); trouble may be a fault of the program's ([`thread::take_fault`]).
/// `taking`: they are taken, else only looked at, behind `skip`.
///
/// # Safety
/// `target` has room for `length` bytes; where bytes are taken the caller holds the receiving lock.
#[cold]
pub unsafe fn receive_unmapped(
    socket: &Socket,
    skip: usize,
    target: *mut u8,
    length: usize,
    taking: bool,
) -> core::result::Result<usize, Trouble> {
    // SAFETY: passed on.
    if let Some(copied) = unsafe { borrow::copy(socket, skip, target, length, taking)? } {
        return Ok(copied);
    }
    let pipe: Pipe = socket.incoming();
    if !pipe.window.is_refused() && provide(socket, 1).is_ok() {
        return Ok(0);
    }
    let (offset, available) = pipe.next_in_file(skip)?;
    if length == 0 {
        return Ok(0);
    }
    let file = link::descriptor_unlocked(socket.connected.link_index.load(Ordering::Relaxed) as usize);
    let got = match calls::pread(file, target.cast(), available.min(length), offset as i64) {
        Err(Errno(libc::EFAULT)) => {
            thread::note_fault();
            return Err(Trouble::Unmapped);
        }
        got => got.unwrap_or(0),
    };
    if got == 0 {
        return Err(Trouble::Violation); // no honest peer's bytes are missing from the file
    }
    if taking {
        pipe.pass(got);
    }
    Ok(got)
}
