//! send, sendmsg, write and their kin on an AF_UNIX socket.
//!
//! Pieces go into the peer's ring while that takes them; the rest of a call, and whatever needs the kernel, goes through
//! the kernel, behind them.

use super::owners;
use super::peer_inbox::{self, PeerInbox};
pub use crate::datagram::send::Answer;
use crate::datagram::send::Patience;
use crate::datagram::{flag, Datagram};
use core::sync::atomic::Ordering;
use shunt_ring::inbox::Inbox;
use shunt_ring::local::Put;
use shunt_stream::waiting::spin::{self, Spin};
use shunt_stream::waiting::until::{looks, Look};
use shunt_sys::libc::{self, iovec, msghdr};
use shunt_sys::mapping::Room;
use shunt_sys::{cancel, thread, Errno, Result};
use shunt_table::memory::pieces::{Pieces, IOV_MAX};

/// Flags with which shared memory does what the kernel would do.
const KNOWN_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;

/// Bytes for the buffers of a rest, which are not the stack's.
pub(super) const BUFFERS: usize = IOV_MAX * core::mem::size_of::<iovec>();

/// sendmsg(2); `kernel` is the call as the program made it, `more` sends a rest.
///
/// # Safety
/// As sendmsg(2); addresses may fault.
#[inline]
pub unsafe fn send(
    fd: i32,
    socket: &'static Datagram,
    message: &msghdr,
    flags: i32,
    kernel: impl FnOnce() -> isize,
    more: unsafe fn(i32, *const msghdr, i32) -> Result<isize>,
) -> Answer {
    let plain = flags & !KNOWN_FLAGS != 0
        || message.msg_controllen != 0
        || message.msg_namelen != 0
        || socket.has(flag::SEND_PLAIN)
        || !owners::alone(fd, socket);
    if plain {
        return Answer::Raw(through_kernel(socket, kernel));
    }
    // Packets are told of a reset before anything else (`unix_seqpacket_sendmsg`).
    if socket.local.packets() && super::end_of_stream::reset(fd, socket, true) {
        return Answer::Done(Err(Errno(libc::ECONNRESET)));
    }
    let mut kernel = Some(kernel);
    // SAFETY: passed on.
    let sent = unsafe {
        Pieces::with(message.msg_iov, message.msg_iovlen, |pieces| {
            let done = post(fd, socket, pieces, flags)?;
            if done == pieces.length() && done > 0 {
                return Ok(done as isize);
            }
            if done == 0 {
                return Err(Errno(libc::EAGAIN)); // the whole call is the kernel's
            }
            if would_block(fd, socket, flags) {
                return Ok(done as isize);
            }
            // What was sent already is the call's result, whatever becomes of the rest.
            let sent = through_kernel(socket, || rest(fd, message, pieces, done, flags | libc::MSG_NOSIGNAL, more));
            Ok(done as isize + sent.max(0))
        })
    };
    match sent {
        Ok(sent) => Answer::Done(Ok(sent)),
        Err(_) if would_block(fd, socket, flags) => Answer::Done(Err(Errno(libc::EAGAIN))),
        Err(_) => match kernel.take() {
            Some(kernel) => Answer::Raw(through_kernel(socket, kernel)),
            None => Answer::Done(Err(Errno(libc::EIO))),
        },
    }
}

/// The buffers from byte `from` on, in room of [`BUFFERS`] bytes, and their number.
pub(super) fn fill(buffers: &mut Room, pieces: &Pieces, from: usize, count: &mut usize) -> *mut iovec {
    let first = buffers.start().cast::<iovec>();
    *count = 0;
    for (data, length) in pieces.from(from, usize::MAX).take(IOV_MAX) {
        // SAFETY: room for as many.
        unsafe { first.add(*count).write(iovec { iov_base: data.cast(), iov_len: length }) };
        *count += 1;
    }
    first
}

/// Sends what is missing from byte `done` on by the kernel: its result, or 0. Not part of its caller, whose stack would be as large.
#[inline(never)]
unsafe fn rest(
    fd: i32,
    message: &msghdr,
    pieces: &Pieces,
    done: usize,
    flags: i32,
    more: unsafe fn(i32, *const msghdr, i32) -> Result<isize>,
) -> isize {
    let Ok(mut buffers) = Room::new(BUFFERS) else { return 0 };
    let mut rest = *message;
    rest.msg_iov = fill(&mut buffers, pieces, done, &mut rest.msg_iovlen);
    // SAFETY: passed on.
    unsafe { more(fd, &rest, flags) }.unwrap_or_default()
}

/// Calls the kernel, which from now on holds what comes behind everything in the ring.
pub fn through_kernel(socket: &'static Datagram, kernel: impl FnOnce() -> isize) -> isize {
    aside(socket, || cancel::guarded(kernel).unwrap_or(-1))
}

/// The same, of a call that sends nothing and does not wait.
pub(super) fn aside<T>(socket: &'static Datagram, kernel: impl FnOnce() -> T) -> T {
    let known = say(socket);
    let result = kernel();
    socket.local.use_kernel();
    if let Some(inbox) = known {
        inbox.note_news();
    }
    result
}

fn say(socket: &'static Datagram) -> Option<Inbox> {
    socket.local.use_kernel();
    let _held = socket.lock_send()?;
    // SAFETY: the lock is held.
    let inbox = unsafe { (*socket.local.peer_inbox.get()).inbox() };
    if let Some(inbox) = inbox {
        inbox.note_news();
    }
    inbox
}

/// Whether the kernel alone would find no room, with what lies in the ring: it counts only its own.
#[cold]
fn would_block(fd: i32, socket: &'static Datagram, flags: i32) -> bool {
    if !socket.nonblocking(fd, flags) {
        return false;
    }
    let ring = super::end_of_stream::outgoing_charge(socket);
    if ring == 0 {
        return false;
    }
    let limit = shunt_sys::calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(0) as u64;
    peer_inbox::unread(fd).is_some_and(|unread| ring + unread >= limit)
}

/// Puts as much into the ring as it takes: the number of bytes. Errors: EAGAIN for a packet that is the kernel's.
unsafe fn post(fd: i32, socket: &'static Datagram, pieces: &Pieces, flags: i32) -> Result<usize> {
    let total = pieces.length();
    let mut done = 0;
    loop {
        // SAFETY: passed on.
        let (put, full) = unsafe { post_once(fd, socket, pieces, done) };
        done += put;
        if done == total || !full || socket.nonblocking(fd, flags) {
            return Ok(done);
        }
        // A reader that is awake makes room soon.
        let mut spin = spin::begin(socket.local.processor.load(Ordering::Relaxed));
        let before = super::end_of_stream::outgoing_charge(socket);
        let makes_room = |_: &Spin| match super::end_of_stream::outgoing_charge(socket) * 2 <= before {
            true => Look::Found(()),
            false => Look::Nothing,
        };
        if looks(&mut spin, makes_room).is_none() {
            return Ok(done);
        }
    }
}

/// Bytes that went into the ring, and whether it is full.
#[inline]
unsafe fn post_once(fd: i32, socket: &'static Datagram, pieces: &Pieces, skip: usize) -> (usize, bool) {
    let total = pieces.length();
    let packets = socket.local.packets();
    let Some(_held) = socket.lock_send() else { return (0, false) };
    if socket.has(flag::SEND_PLAIN) {
        return (0, false); // since this call began
    }
    // SAFETY: the lock is held.
    let peer: &mut PeerInbox = unsafe { &mut *socket.local.peer_inbox.get() };
    let Some(inbox) = peer.ready(fd, socket) else { return (0, false) };
    let (limit, most) = peer.limits(fd);
    if packets && (total > most || total == 0) {
        return (0, false);
    }
    // SAFETY: the calling thread's own block.
    let processor = unsafe { (*thread::block()).processor } as u16;
    let mut patience = Patience::of(inbox);
    let mut done = skip;
    while done < total {
        let length = (total - done).min(most);
        let buffers = pieces.from(done, length);
        // SAFETY: the program's buffers, which may fault.
        let put = unsafe { inbox.put(thread::id(), packets, processor, buffers, length, limit, |owner| patience.wait(owner)) };
        match put {
            Put::Done => done += length,
            Put::Full => return (done - skip, true),
            Put::Fault | Put::Kernel | Put::Retired => break,
        }
    }
    (done - skip, false)
}
