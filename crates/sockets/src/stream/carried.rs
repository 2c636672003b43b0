//! Calls that slept on a stream when it became the kernel's ([`crate::handover::carried`]): what is left of them, done there.

use crate::stream::pieces::Pieces;
use shunt_sys::libc::{self, iovec, msghdr};
use shunt_sys::{calls, check, syscall, thread, Errno, Result};

/// A call, as far as it has come.
pub struct Rest<'a> {
    /// The number, which the kernel's end has, with the time limits of the stream.
    pub fd: i32,
    /// The buffers.
    pub pieces: &'a Pieces<'a>,
    /// Bytes moved so far.
    pub done: usize,
    /// Bytes that end it.
    pub enough: usize,
    /// As send(2) and recv(2) have them.
    pub flags: i32,
    /// It has a limit of time.
    pub limited: bool,
    /// [`thread::handled`] when it began.
    pub began: u64,
}

/// Buffers that are given to the kernel at once.
const AT_ONCE: usize = 16;

impl Rest<'_> {
    /// The rest of a receive.
    pub fn receive(self) -> Result<isize> {
        self.go_on(libc::SYS_recvmsg)
    }

    /// The rest of a send.
    pub fn send(self) -> Result<isize> {
        self.go_on(libc::SYS_sendmsg)
    }

    fn go_on(mut self, call: i64) -> Result<isize> {
        let whole = self.enough == self.pieces.length();
        if call == libc::SYS_recvmsg && self.flags & libc::MSG_PEEK != 0 {
            self.done = 0; // the kernel's end has those bytes, too
        }
        loop {
            let looked = thread::handled();
            let restartable = !self.limited && self.done == 0;
            let moved = match thread::interrupted_since(self.began, restartable) {
                true => Err(Errno(libc::EINTR)),
                false => match self.attempt(call, looked) {
                    Err(Errno(libc::EINTR)) => thread::resume(self.began, looked, restartable).map(|()| None),
                    moved => moved.map(Some),
                },
            };
            match moved {
                Ok(None) => continue,
                Ok(Some(count)) => {
                    self.done += count;
                    if count == 0 || !whole || self.done >= self.enough || self.flags & libc::MSG_PEEK != 0 {
                        return Ok(self.done as isize);
                    }
                }
                Err(_) if self.done > 0 => return Ok(self.done as isize),
                Err(error) => return Err(error),
            }
        }
    }

    fn attempt(&self, call: i64, looked: u64) -> Result<usize> {
        let mut list = [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; AT_ONCE];
        let mut count = 0;
        for (place, (data, length)) in list.iter_mut().zip(self.pieces.from(self.done, usize::MAX)) {
            *place = iovec { iov_base: data.cast(), iov_len: length };
            count += 1;
        }
        // SAFETY: zeroes are a message of nothing.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (list.as_mut_ptr(), count);
        // A send of which something was taken tells of its peer's end by the count.
        let flags = self.flags | if self.done > 0 { libc::MSG_NOSIGNAL } else { 0 };
        calls::message_sleeping(call, self.fd, &mut message, flags, looked)
    }
}

/// What a call that makes several steps still has to do, `number` with these arguments, behind `done` of what it counts.
pub fn further(done: usize, number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the program's arguments, as the call was given them.
    let more = unsafe { check(syscall!(number, a, b, c, d, e, f)) };
    (done + more.unwrap_or(0)) as isize
}
