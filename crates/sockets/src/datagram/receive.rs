//! recv, recvfrom, recvmsg, read on a datagram socket.
//!
//! The inbox comes first, because a sender leaves it for the kernel only when it is empty; the kernel's queue is looked at
//! every 20 us of receiving, when the gate opens after a sleep, and before sleeping. The sleep itself is the program's own
//! call.

pub use super::send::Answer;
use super::{boxes, send, Datagram};
use crate::sockaddr::Encoded;
use crate::spin;
use core::sync::atomic::Ordering;
use shunt_ring::inbox::{Front, Inbox};
use shunt_segment::address::Address;
use shunt_sys::libc::{self, iovec, msghdr, MSG_DONTWAIT};
use shunt_sys::{calls, cancel, clock, thread, Errno, Result};

/// Ticks between two looks at the kernel's queue while datagrams come through the inbox (about 20 us).
const ASK_EVERY: u64 = 50_000;

/// recvmsg(2); `kernel` is the call as the program made it.
///
/// # Safety
/// As recvmsg(2).
#[inline]
pub unsafe fn receive(
    fd: i32,
    socket: &'static Datagram,
    message: &mut msghdr,
    flags: i32,
    kernel: impl FnOnce() -> isize,
) -> Answer {
    let inbox = match socket.inbox() {
        Some(inbox) if flags & libc::MSG_ERRQUEUE == 0 && sound(message) => inbox,
        Some(_) => return Answer::Raw(kernel()),
        None => match first_inbox(fd, socket, flags) {
            Some(inbox) => inbox,
            None if socket.nonblocking(fd, flags) => return Answer::Raw(count(socket, kernel())),
            None => {
                let entered = super::before_sleep(socket);
                let got = cancel::guarded(kernel).unwrap_or(-1);
                super::after_sleep(socket, entered);
                return Answer::Raw(count(socket, got));
            }
        },
    };
    let began = thread::handled();
    // The datagram before which the kernel's queue was seen empty.
    let mut asked_before = u64::MAX;
    loop {
        if let Some(front) = inbox.front() {
            let now = clock::ticks();
            let due = now.wrapping_sub(socket.asked.load(Ordering::Relaxed)) > ASK_EVERY && inbox.may_yield(&front);
            // An error comes before everything that waits (`__skb_try_recv_datagram` after `sock_error`).
            let due = due || send::has_error(fd, socket);
            if due && asked_before != front.position() {
                asked_before = front.position();
                boxes::visitors(socket, now);
                // SAFETY: the program's message.
                if let Some(result) = unsafe { ask_kernel(fd, socket, &inbox, message, flags, now) } {
                    return Answer::Done(result);
                }
            }
            // SAFETY: the program's message.
            if let Some(got) = unsafe { deliver(socket, &inbox, &front, message, flags) } {
                return Answer::Done(Ok(got as isize));
            }
            continue;
        }
        if socket.nonblocking(fd, flags) {
            let now = clock::ticks();
            boxes::visitors(socket, now);
            inbox.open();
            // SAFETY: the program's message.
            return match unsafe { ask_kernel(fd, socket, &inbox, message, flags, now) } {
                Some(result) => Answer::Done(result),
                None => Answer::Done(Err(Errno(libc::EAGAIN))),
            };
        }
        let mut spin = spin::begin(socket.peer_processor.load(Ordering::Relaxed));
        if spin.more() && inbox.open() {
            // Senders that used the kernel wait for this: its queue is empty.
            if inbox.is_behind() {
                // SAFETY: the program's message.
                if let Some(result) = unsafe { ask_kernel(fd, socket, &inbox, message, flags, clock::ticks()) } {
                    return Answer::Done(result);
                }
            }
            let mut found = false;
            while spin.more() {
                if inbox.front().is_some() {
                    found = true;
                    break;
                }
                if spin.rounds() & 0x1ff == 0x1ff {
                    let now = clock::ticks();
                    boxes::visitors(socket, now);
                    // SAFETY: the program's message.
                    if let Some(result) = unsafe { ask_kernel(fd, socket, &inbox, message, flags, now) } {
                        spin.end();
                        return Answer::Done(result);
                    }
                }
            }
            if found {
                spin.end();
                continue;
            }
        }
        let entered = super::before_sleep(socket);
        if inbox.front().is_some() {
            super::after_sleep(socket, entered);
            continue;
        }
        if thread::interrupted_since(began, true) {
            super::after_sleep(socket, entered);
            return Answer::Done(Err(Errno(libc::EINTR)));
        }
        let got = cancel::guarded(kernel).unwrap_or(-1);
        super::after_sleep(socket, entered);
        spin.end();
        return Answer::Raw(count(socket, got));
    }
}

/// A message header that the kernel would not refuse.
#[inline]
fn sound(message: &msghdr) -> bool {
    message.msg_iovlen <= 1024 && (message.msg_iovlen == 0 || message.msg_iov as usize >= 4096)
}

/// Whether this call makes the inbox: datagrams come, and the thread would spin for the next one.
#[inline]
fn first_inbox(fd: i32, socket: &'static Datagram, flags: i32) -> Option<Inbox> {
    if !socket.worthwhile() || flags & libc::MSG_ERRQUEUE != 0 {
        return None;
    }
    // Who asks without waiting, and sits in no set, asks again and again.
    if !super::eager() && !socket.nonblocking(fd, flags) && !spin::begin(0).more() {
        return None;
    }
    boxes::make(fd, socket);
    socket.inbox()
}

/// Counts what came through the kernel.
#[inline]
fn count(socket: &Datagram, got: isize) -> isize {
    let received = socket.received.load(Ordering::Relaxed);
    if got >= 0 && received < super::ENOUGH {
        socket.received.store(received + 1, Ordering::Relaxed);
    }
    got
}

/// Looks at the kernel's queue and errors without waiting: the call's result, or `None` if there is nothing.
unsafe fn ask_kernel(
    fd: i32,
    socket: &Datagram,
    inbox: &Inbox,
    message: &mut msghdr,
    flags: i32,
    now: u64,
) -> Option<Result<isize>> {
    socket.asked.store(now, Ordering::Relaxed);
    let look = inbox.begin_look();
    match calls::recvmsg(fd, message, flags | MSG_DONTWAIT) {
        Err(Errno(libc::EAGAIN)) => {
            inbox.note_drained(look);
            None
        }
        other => Some(other.map(|got| got as isize)),
    }
}

/// Gives the datagram to the program; `None`: somebody else took it.
#[inline(always)]
unsafe fn deliver(socket: &Datagram, inbox: &Inbox, front: &Front, message: &mut msghdr, flags: i32) -> Option<usize> {
    let pieces: &[iovec] = if message.msg_iovlen == 0 {
        &[]
    } else {
        // SAFETY: the program's vector, see `sound`.
        unsafe { core::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) }
    };
    // SAFETY: the program's buffers.
    let copied = unsafe { inbox.copy(front, pieces.iter().map(|piece| (piece.iov_base.cast::<u8>(), piece.iov_len))) };
    let ours = if flags & libc::MSG_PEEK != 0 { inbox.still(front) } else { inbox.take(front) };
    if !ours {
        return None;
    }
    socket.peer_processor.store(front.source.processor as u32, Ordering::Relaxed);
    let truncated = copied < front.length;
    if !message.msg_name.is_null() {
        let source = &front.source;
        let mut address = Address { ip: source.ip, port: source.port, scope: source.scope };
        if !source.v6 {
            address = Address::v4([source.ip[12], source.ip[13], source.ip[14], source.ip[15]], source.port);
        }
        let encoded = Encoded::new(socket.family.load(Ordering::Relaxed), &address);
        // SAFETY: the program's buffer of msg_namelen bytes.
        let _ = unsafe { encoded.write(message.msg_name.cast(), &mut message.msg_namelen) };
    }
    message.msg_controllen = 0;
    message.msg_flags = (flags & libc::MSG_CMSG_CLOEXEC) | if truncated { libc::MSG_TRUNC } else { 0 };
    Some(if flags & libc::MSG_TRUNC != 0 { front.length } else { copied })
}
