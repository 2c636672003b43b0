//! Calls that move bytes inside the kernel, from or to sockets that have an inbox: what lies there comes first.

use crate::datagrams::{header, settle};
use crate::errno::answer;
use crate::locals::receive_more;
use crate::real;
use core::ffi::{c_int, c_uint, c_void};
use shunt_calls::libc::{self, iovec};
use shunt_inbox::datagram::Datagram;
use shunt_inbox::{datagram, local};
use shunt_stream::splice as splicing;
use shunt_sys::{calls, cancel, mapping, thread, Errno};

/// A call by which the kernel sends on `fd`, whatever that is.
pub fn through_kernel(fd: c_int, kernel: impl FnOnce() -> isize) -> isize {
    match shunt_table::table::find::<Datagram>(fd) {
        Some(socket) if socket.is_local() => local::send::through_kernel(socket, kernel),
        Some(socket) => datagram::send::through_kernel(socket, kernel),
        None => kernel(),
    }
}

/// Bytes of a stream's ring that one splice moves.
const STEP: usize = 16 << 10;

/// What the longest datagram needs, and the longest packet of a ring.
const LONGEST: usize = 64 << 10;

/// splice(2) between descriptors of which none is a stream of shunt's.
///
/// # Safety
/// As splice(2).
pub unsafe fn splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: usize, flags: c_uint) -> isize {
    // SAFETY: passed on.
    unsafe {
        let kernel = || through_kernel(to, || real::splice(from, from_offset, to, to_offset, length, flags));
        let Some(socket) = shunt_table::table::find::<Datagram>(from) else { return kernel() };
        let usual = from_offset.is_null() && to_offset.is_null() && splicing::begins(length, flags).is_none();
        if !usual || splicing::check_pipe(to, libc::O_WRONLY).is_err() {
            return kernel(); // which finds what is wrong before it looks at the socket
        }
        let began = thread::handled();
        loop {
            if socket.has_waiting() {
                if let Some(result) = out(socket, from, to, length, flags, began) {
                    return result;
                }
            }
            // Whatever comes while the kernel's call sleeps comes to the kernel.
            let sleeper = datagram::before_sleep(socket);
            let result = if socket.has_waiting() { None } else { Some(cancel::guarded(kernel).unwrap_or(-1)) };
            datagram::after_sleep(socket, sleeper);
            if let Some(result) = result {
                return result;
            }
        }
    }
}

/// Looks at what waits, writes it into the pipe, and takes it as far as the pipe took it; of a datagram the rest is lost, as in the
/// kernel. `None`: another thread was first.
unsafe fn out(socket: &'static Datagram, from: c_int, to: c_int, length: usize, flags: c_uint, began: u64) -> Option<isize> {
    let whole = !socket.is_local() || socket.has_packets();
    let room = if whole { LONGEST } else { STEP };
    let Ok(buffer) = mapping::reserve(LONGEST) else { return Some(answer(Err(Errno(libc::ENOMEM)))) };
    let result = (|| loop {
        if let Err(error) = splicing::await_room(to, flags, began) {
            return Some(answer(Err(error)));
        }
        // SAFETY: room for as many bytes.
        let seen = unsafe { piece(socket, from, buffer.cast(), length.min(room), libc::MSG_PEEK) };
        if seen == -1 {
            return None;
        }
        let written = if seen > 0 { splicing::write_at_once(to, buffer, seen as usize) } else { Ok(0) };
        return match written {
            // SAFETY: as above.
            Ok(written) => Some(unsafe { piece(socket, from, buffer.cast(), written, 0) }),
            Err(Errno(libc::EAGAIN)) => continue, // another writer has filled it
            Err(error) => Some(answer(Err(error))),
        };
    })();
    let _ = calls::munmap(buffer, LONGEST);
    result
}

unsafe fn piece(socket: &'static Datagram, fd: c_int, data: *mut c_void, length: usize, flags: c_int) -> isize {
    let mut piece = iovec { iov_base: data, iov_len: length };
    let mut message = header(&mut piece, 1, core::ptr::null_mut(), 0);
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the caller's buffer.
    settle(unsafe {
        if socket.is_local() {
            local::receive::receive(fd, socket, &mut message, flags, || -1, receive_more)
        } else {
            datagram::receive::receive(fd, socket, &mut message, flags, || -1)
        }
    })
}
