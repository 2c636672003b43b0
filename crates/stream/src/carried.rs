//! Calls that slept on a stream when it became the kernel's (`shunt_handover::carried`): what is left of them, done there.

use crate::socket::Socket;
use crate::waiting::holding;
use shunt_sys::libc::{self, iovec, msghdr, pollfd, EAGAIN, EINTR, MSG_DONTWAIT, MSG_PEEK};
use shunt_sys::{calls, check, clock, sleeping, stops, syscall, thread, Errno, Result};
use shunt_table::memory::pieces::Pieces;
use shunt_table::table;
use shunt_table::table::Kind;

/// A call, as far as it has come.
pub struct Rest<'a> {
    /// What the stream was.
    pub socket: &'a Socket,
    /// The program's number.
    pub fd: i32,
    /// The buffers.
    pub pieces: &'a Pieces<'a>,
    /// Bytes moved so far.
    pub done: usize,
    /// Bytes that end it.
    pub enough: usize,
    /// As send(2) and recv(2) have them.
    pub flags: i32,
    /// When its limit of time ends, in CLOCK_MONOTONIC ns; 0: it has one, and has not begun to wait; `u64::MAX`: it has none.
    pub deadline: u64,
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
        let peeking = call == libc::SYS_recvmsg && self.flags & MSG_PEEK != 0;
        if peeking {
            self.done = 0; // the kernel's end has those bytes, too
        }
        let timed = self.is_timed(call, holding::end(self.socket, self.fd), whole);
        let mut anew = false;
        loop {
            // In each round: another thread may want that number for a file of its own.
            let end = if anew { self.fd } else { holding::end(self.socket, self.fd) };
            let looked = thread::handled();
            let restartable = self.deadline == u64::MAX && self.done == 0;
            let moved = match thread::interrupted_since(self.began, restartable) {
                true => Err(Errno(EINTR)),
                false => match self.attempt(call, end, timed, looked) {
                    Err(Errno(EINTR)) => thread::resume(self.began, looked, restartable).map(|()| {
                        anew |= self.is_made_anew();
                        None
                    }),
                    // Another thread was faster.
                    Err(Errno(EAGAIN)) if timed && clock::monotonic_ns() < self.deadline => Ok(None),
                    moved => moved.map(Some),
                },
            };
            match moved {
                Ok(None) => continue,
                Ok(Some(count)) => {
                    self.done += count;
                    if count == 0 || !whole || self.done >= self.enough || peeking {
                        return Ok(self.done as isize);
                    }
                }
                Err(_) if self.done > 0 => return Ok(self.done as isize),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the call sleeps in poll, for the time that is left: the limit that the kernel's end has would begin anew. It does all the
    /// same where the call waits for more than poll tells of.
    fn is_timed(&self, call: i64, end: i32, whole: bool) -> bool {
        if self.deadline == 0 || self.deadline == u64::MAX {
            return false;
        }
        let one = || calls::getsockopt_int(end, libc::SOL_SOCKET, libc::SO_RCVLOWAT) == Ok(1);
        call == libc::SYS_sendmsg || (one() && !(whole && self.enough > 1 && self.flags & MSG_PEEK != 0))
    }

    /// Behind a handler the kernel makes the call anew, by the program's number.
    fn is_made_anew(&self) -> bool {
        matches!(table::get(self.fd).kind(), Kind::Foreign | Kind::Tcp)
    }

    fn attempt(&self, call: i64, end: i32, timed: bool, looked: u64) -> Result<usize> {
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
        let mut flags = self.flags | if self.done > 0 { libc::MSG_NOSIGNAL } else { 0 };
        if timed {
            await_ready(end, if call == libc::SYS_sendmsg { libc::POLLOUT } else { libc::POLLIN }, self.deadline, looked)?;
            flags |= MSG_DONTWAIT;
        }
        sleeping::message(call, end, &mut message, flags, looked)
    }
}

/// Sleeps until the kernel's end has one of `events`. Errors: EAGAIN at the deadline; EINTR as a call with a limit of time gives it.
pub fn await_ready(end: i32, events: i16, deadline: u64, looked: u64) -> Result<()> {
    match stops::ppoll_until(&mut [pollfd { fd: end, events, revents: 0 }], deadline, core::ptr::null(), looked)? {
        0 => Err(Errno(EAGAIN)),
        _ => Ok(()),
    }
}

/// What a call that makes several steps still has to do, `number` with these arguments, behind `done` of what it counts. Errors: the call's, where that is 0.
pub fn further(done: usize, number: i64, [a, b, c, d, e, f]: [usize; 6]) -> Result<isize> {
    // SAFETY: the program's arguments, as the call was given them.
    match unsafe { check(syscall!(number, a, b, c, d, e, f)) } {
        Err(error) if done == 0 => Err(error),
        more => Ok((done + more.unwrap_or(0)) as isize),
    }
}
