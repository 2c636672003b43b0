//! recv, recvmsg, read and their kin on an AF_UNIX socket.
//!
//! The ring first; when it is empty, and the gate shut so that it stays empty, the kernel's queue. A call that the ring
//! does not fill goes on there, as the kernel's own call would.

mod wait_all;

use super::{end_of_stream, owners, send};
use crate::datagram;
pub use crate::datagram::send::Answer;
use crate::datagram::{flag, inbox_table, receive as plain, Datagram};
use crate::local::receive::wait_all::Behind;
use core::sync::atomic::Ordering;
use shunt_ring::inbox::Inbox;
use shunt_stream::waiting::spin::{self, Spin};
use shunt_stream::waiting::until::{looks, Look};
use shunt_sys::libc::{self, msghdr, MSG_DONTWAIT, MSG_OOB, MSG_PEEK, MSG_WAITALL};
use shunt_sys::mapping::Room;
use shunt_sys::{calls, cancel, clock, thread, Errno, Result};
use shunt_table::memory::pieces::{Pieces, IOV_MAX};

/// Receives a rest by the kernel.
pub type More = unsafe fn(i32, *mut msghdr, i32) -> Result<isize>;

/// recvmsg(2); `kernel` is the call as the program made it, `more` one that fills a rest.
///
/// # Safety
/// As recvmsg(2); addresses may fault.
#[inline]
pub unsafe fn receive(
    fd: i32,
    socket: &'static Datagram,
    message: &mut msghdr,
    flags: i32,
    kernel: impl FnOnce() -> isize,
    more: More,
) -> Answer {
    let alone = owners::alone(fd, socket);
    let inbox = match socket.inbox() {
        Some(inbox) if flags & MSG_OOB == 0 && message.msg_iovlen <= IOV_MAX => inbox,
        Some(_) => return Answer::Raw(kernel()),
        None => match plain::first_inbox(fd, socket, flags).filter(|_| alone) {
            Some(inbox) => inbox,
            None if socket.nonblocking(fd, flags) => return Answer::Raw(plain::count(socket, kernel())),
            None => {
                let entered = datagram::before_sleep(socket);
                let got = cancel::guarded(kernel).unwrap_or(-1);
                datagram::after_sleep(socket, entered);
                return Answer::Raw(plain::count(socket, got));
            }
        },
    };
    let mut kernel = Some(kernel);
    let call = Call { fd, socket, inbox, flags, more };
    // SAFETY: passed on.
    let result = unsafe { Pieces::with(message.msg_iov, message.msg_iovlen, |pieces| call.run(message, pieces, &mut kernel)) };
    match result {
        Ok(answer) => answer,
        Err(error) => Answer::Done(Err(error)),
    }
}

struct Call {
    fd: i32,
    socket: &'static Datagram,
    inbox: Inbox,
    flags: i32,
    more: More,
}

/// What a look at the kernel's queue gave.
enum Asked {
    /// The ring is not empty after all.
    Ring,
    Nothing,
    Result(Result<isize>),
}

impl Call {
    unsafe fn run<K: FnOnce() -> isize>(&self, message: &mut msghdr, pieces: &Pieces, kernel: &mut Option<K>) -> Result<Answer> {
        let (fd, socket, flags) = (self.fd, self.socket, self.flags);
        let want = pieces.length();
        let began = thread::handled();
        let all = flags & MSG_WAITALL != 0 && flags & MSG_PEEK == 0 && !socket.local.packets();
        let (mut done, mut deadline) = (0, None);
        loop {
            // SAFETY: the program's buffers.
            match unsafe { self.take(pieces, done)? } {
                Some(Taken::Bytes(got)) => {
                    done += got;
                    if done == want || !all {
                        // SAFETY: passed on.
                        return Ok(unsafe { self.finish(message, pieces, done) });
                    }
                    continue;
                }
                Some(Taken::Packet(copied, whole)) => {
                    // SAFETY: passed on.
                    return Ok(unsafe { self.packet(message, copied, whole) });
                }
                None => {}
            }
            if socket.nonblocking(fd, flags) {
                inbox_table::visitors(socket, clock::ticks());
                if done > 0 {
                    // SAFETY: passed on.
                    return Ok(unsafe { self.finish(message, pieces, done) });
                }
                // SAFETY: the program's message.
                match unsafe { self.ask_kernel(message, flags) } {
                    Asked::Ring => continue,
                    Asked::Nothing => return Err(Errno(libc::EAGAIN)),
                    Asked::Result(result) => return Ok(self.judged(result)),
                }
            }
            if self.spin() {
                continue;
            }
            let entered = datagram::before_sleep(socket);
            if !self.inbox.is_empty() {
                datagram::after_sleep(socket, entered);
                continue;
            }
            let looked = thread::handled();
            if thread::interrupted_since(began, true) {
                datagram::after_sleep(socket, entered);
                if done > 0 {
                    // SAFETY: passed on.
                    return Ok(unsafe { self.finish(message, pieces, done) });
                }
                return Err(Errno(libc::EINTR));
            }
            if done > 0 {
                let deadline = *deadline.get_or_insert_with(|| self.deadline());
                // SAFETY: passed on.
                let more = unsafe { self.go_on(message, pieces, done, deadline, looked) };
                if datagram::after_sleep(socket, entered) {
                    self.open_again();
                }
                match more {
                    Behind::Took(got) => done += got,
                    // SAFETY: passed on.
                    Behind::Others => return Ok(unsafe { self.finish(message, pieces, done) }),
                    Behind::Last(got) => {
                        // SAFETY: the program's buffer.
                        unsafe { self.name(message)? };
                        return Ok(Answer::Done(Ok((done + got) as isize)));
                    }
                }
                if done == want {
                    // SAFETY: passed on.
                    return Ok(unsafe { self.finish(message, pieces, done) });
                }
                continue;
            }
            let kernel = kernel.take().ok_or(Errno(libc::EIO))?;
            let got = cancel::guarded(kernel).unwrap_or(-1);
            if datagram::after_sleep(socket, entered) {
                self.open_again();
            }
            plain::count(socket, got);
            if got == 0 && want > 0 && end_of_stream::reset(fd, socket, flags & MSG_PEEK == 0) {
                return Err(Errno(libc::ECONNRESET));
            }
            return Ok(Answer::Raw(got));
        }
    }

    /// Copies out of the ring, and takes it unless the call only peeks.
    #[inline(always)]
    unsafe fn take(&self, pieces: &Pieces, done: usize) -> Result<Option<Taken>> {
        let buffers = |from: usize, most: usize| pieces.from(done + from, most);
        loop {
            let want = pieces.length() - done;
            // SAFETY: the program's buffers, which may fault.
            let seen = unsafe {
                if self.socket.local.packets() {
                    self.inbox.see_packet(want, buffers)
                } else {
                    self.inbox.see_bytes(want, buffers)
                }
            };
            let Some(seen) = seen else { return Ok(None) };
            if seen.fault && seen.copied == 0 && !self.socket.local.packets() {
                return Err(Errno(libc::EFAULT));
            }
            let peek = self.flags & MSG_PEEK != 0;
            if if peek { self.inbox.is_still(&seen) } else { self.inbox.take_seen(&seen) } {
                if seen.fault && self.socket.local.packets() {
                    return Err(Errno(libc::EFAULT)); // the packet is lost, as in the kernel
                }
                self.socket.local.processor.store(seen.processor as u32, Ordering::Relaxed);
                return Ok(Some(if self.socket.local.packets() {
                    Taken::Packet(seen.copied, seen.whole)
                } else {
                    Taken::Bytes(seen.copied)
                }));
            }
        }
    }

    /// Bytes from the ring are the call's result, and what the kernel's queue holds behind them if there is room.
    unsafe fn finish(&self, message: &mut msghdr, pieces: &Pieces, done: usize) -> Answer {
        let mut total = done;
        let mut flags = self.flags & libc::MSG_CMSG_CLOEXEC;
        let may_hold = self.inbox.news().is_none_or(|news| news != self.socket.local.seen.load(Ordering::Relaxed));
        let control = message.msg_controllen;
        message.msg_controllen = 0;
        if self.socket.has(flag::CREDENTIALS) {
            message.msg_controllen = control;
            // SAFETY: the program's buffer.
            flags |= unsafe { nobodys_credentials(message) };
        } else if done < pieces.length() && may_hold {
            let waits = self.inbox.news();
            self.inbox.enter();
            // What came into the ring meanwhile is another call's.
            let all_seen = if self.flags & MSG_PEEK != 0 { self.inbox.waiting_bytes() == done } else { self.inbox.is_empty() };
            // In this order: what comes behind the first bytes that wait there is not at their place.
            if all_seen && calls::poll_one(self.fd, libc::POLLIN, 0) == Ok(0) {
                self.note_empty(waits);
            } else if all_seen && !self.at_mark() {
                message.msg_controllen = control;
                // SAFETY: the program's buffers.
                match unsafe { self.rest(message, pieces, done, self.flags & !MSG_WAITALL | MSG_DONTWAIT) } {
                    Ok(got) => {
                        total += got.max(0) as usize;
                        flags |= message.msg_flags;
                    }
                    Err(_) => {
                        message.msg_controllen = 0;
                        self.note_empty(waits);
                    }
                }
            }
            self.inbox.leave();
            self.open_again();
        }
        message.msg_flags = flags;
        // SAFETY: the program's buffer.
        Answer::Done(unsafe { self.name(message) }.map(|()| total as isize))
    }

    unsafe fn packet(&self, message: &mut msghdr, copied: usize, whole: usize) -> Answer {
        let mut flags = self.flags & libc::MSG_CMSG_CLOEXEC;
        if self.socket.has(flag::CREDENTIALS) {
            // SAFETY: the program's buffer.
            flags |= unsafe { nobodys_credentials(message) };
        } else {
            message.msg_controllen = 0;
        }
        message.msg_flags = flags | if copied < whole { libc::MSG_TRUNC } else { 0 };
        let told = if self.flags & libc::MSG_TRUNC != 0 { whole } else { copied };
        // SAFETY: the program's buffer.
        Answer::Done(unsafe { self.name(message) }.map(|()| told as isize))
    }

    /// The sender's address: none if it is not bound (`unix_copy_addr`). Errors: EFAULT.
    unsafe fn name(&self, message: &mut msghdr) -> Result<()> {
        if message.msg_name.is_null() {
            return Ok(());
        }
        let mut address = [0u64; 16];
        let mut length = 128;
        if calls::getpeername(self.fd, address.as_mut_ptr().cast(), &mut length).is_err() || length <= 2 {
            message.msg_namelen = 0;
            return Ok(());
        }
        let room = (message.msg_namelen as usize).min(length as usize);
        // SAFETY: `room` bytes of either; the program's may fault.
        unsafe { shunt_sys::user::copy_all(address.as_ptr().cast(), message.msg_name.cast(), room)? };
        message.msg_namelen = length;
        Ok(())
    }

    /// Whether the kernel's queue begins with an urgent byte: a read of the bytes before it ends there.
    fn at_mark(&self) -> bool {
        const SIOCATMARK: u64 = 0x8905;
        let mut mark: libc::c_int = 0;
        calls::ioctl(self.fd, SIOCATMARK, &raw mut mark as usize).is_ok() && mark != 0
    }

    /// The kernel's call for what is missing from byte `done` on.
    #[inline(never)]
    unsafe fn rest(&self, message: &mut msghdr, pieces: &Pieces, done: usize, flags: i32) -> Result<isize> {
        let mut buffers = Room::new(send::BUFFERS)?;
        let whole = *message;
        message.msg_iov = send::fill(&mut buffers, pieces, done, &mut message.msg_iovlen);
        // Its sender's name is told with the whole.
        (message.msg_name, message.msg_namelen) = (core::ptr::null_mut(), 0);
        // SAFETY: the program's buffers.
        let got = unsafe { self.receive_more(message, flags) };
        (message.msg_iov, message.msg_iovlen) = (whole.msg_iov, whole.msg_iovlen);
        (message.msg_name, message.msg_namelen) = (whole.msg_name, whole.msg_namelen);
        got
    }

    unsafe fn receive_more(&self, message: &mut msghdr, flags: i32) -> Result<isize> {
        if message.msg_controllen == 0 && flags & MSG_DONTWAIT != 0 {
            return calls::recvmsg(self.fd, message, flags).map(|got| got as isize);
        }
        // SAFETY: passed on.
        cancel::guarded(|| unsafe { (self.more)(self.fd, message, flags) }).unwrap_or(Err(Errno(libc::EINTR)))
    }

    /// Looks at the kernel's queue without waiting, while nothing can come into the ring.
    #[cold]
    unsafe fn ask_kernel(&self, message: &mut msghdr, flags: i32) -> Asked {
        let waits = self.inbox.news();
        self.inbox.enter();
        if !self.inbox.is_empty() {
            self.inbox.leave();
            self.open_again();
            return Asked::Ring;
        }
        // SAFETY: passed on.
        let got = unsafe { self.receive_more(message, flags | MSG_DONTWAIT) };
        self.inbox.leave();
        self.open_again();
        match got {
            Err(Errno(libc::EAGAIN)) => {
                self.note_empty(waits);
                Asked::Nothing
            }
            got => Asked::Result(got),
        }
    }

    /// The receiver is awake: senders may write.
    fn open_again(&self) {
        self.inbox.open();
    }

    fn note_empty(&self, news: Option<u64>) {
        if let Some(news) = news {
            self.socket.local.seen.store(news, Ordering::Relaxed);
        }
    }

    /// A result of the kernel's; the end of the stream may be a reset of which it does not know.
    fn judged(&self, result: Result<isize>) -> Answer {
        if result == Ok(0) && end_of_stream::reset(self.fd, self.socket, self.flags & MSG_PEEK == 0) {
            return Answer::Done(Err(Errno(libc::ECONNRESET)));
        }
        match result {
            Ok(got) => _ = plain::count(self.socket, got),
            Err(Errno(libc::ECONNRESET)) => end_of_stream::note_reset(self.socket),
            Err(_) => {}
        }
        Answer::Done(result)
    }

    /// Looks while that pays: true if the ring has something; false: it is time to sleep, or the kernel has something.
    fn spin(&self) -> bool {
        let mut spin = spin::begin(self.socket.local.processor.load(Ordering::Relaxed));
        if !spin.begins() || !self.inbox.open() {
            return false;
        }
        let mut seen = self.socket.local.seen.load(Ordering::Relaxed);
        let ring_has_some = |spin: &Spin| {
            if !self.inbox.is_empty() {
                return Look::Found(true);
            }
            let news = self.inbox.news();
            let fresh = news.is_some_and(|news| news != seen);
            // An end that is not attached says nothing.
            let every = if news.is_some() { 0x1ff } else { 0x3f };
            if fresh || spin.rounds() & every == every {
                inbox_table::visitors(self.socket, clock::ticks());
                match calls::poll_one(self.fd, libc::POLLIN, 0) {
                    // Remembered for later calls, too: senders say so behind what they do with the kernel, so the next of them is news.
                    Ok(0) => self.note_empty(news),
                    Ok(_) => return Look::Found(false),
                    Err(_) => {}
                }
                seen = news.unwrap_or(seen);
            }
            Look::Nothing
        };
        looks(&mut spin, ring_has_some).unwrap_or(false)
    }
}

/// Whether bytes of a stream lie in its ring, or come there within about as long as an answer takes that is on its way. `None`: looking is of
/// no use: the kernel may know more, the peer is on this processor, or waits are long.
#[inline]
pub fn bytes_come(socket: &Datagram) -> Option<bool> {
    let inbox = socket.inbox().filter(|_| !socket.local.packets() && super::is_settled(socket))?;
    if !inbox.is_empty() {
        return Some(true);
    }
    if !inbox.open() {
        return None; // a thread sleeps, or something needs the kernel
    }
    spin::comes_to(socket.local.processor.load(Ordering::Relaxed), || !inbox.is_empty())
}

/// What SO_PASSCRED tells of bytes that were sent before it was set: they came without credentials. Bytes that follow with
/// some are another call's.
unsafe fn nobodys_credentials(message: &mut msghdr) -> i32 {
    const LENGTH: usize = 28;
    const SPACE: usize = 32;
    let room = message.msg_controllen;
    if message.msg_control.is_null() || room < 16 {
        message.msg_controllen = 0;
        return libc::MSG_CTRUNC;
    }
    let told = LENGTH.min(room);
    let credentials = [
        told as u64,
        libc::SOL_SOCKET as u64 | (libc::SCM_CREDENTIALS as u64) << 32,
        65534 << 32, // no process, no user
        65534,
    ];
    // SAFETY: `told` bytes of either; the program's may fault.
    unsafe { shunt_sys::user::copy(credentials.as_ptr().cast(), message.msg_control.cast(), told) };
    message.msg_controllen = SPACE.min(room) as _;
    if told < LENGTH {
        libc::MSG_CTRUNC
    } else {
        0
    }
}

enum Taken {
    Bytes(usize),
    Packet(usize, usize),
}
