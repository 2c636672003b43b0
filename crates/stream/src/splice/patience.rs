//! Waiting for room in a stream whose bytes lie in a kept pipe.

use super::STEP;
use crate::options::limits;
use crate::sleep;
use crate::socket::Socket;
use crate::waiting::wake::nonblocking;
use core::sync::atomic::Ordering;
use shunt_segment::channel::arm;
use shunt_sys::libc;
use shunt_sys::{thread, Result};

/// How a call waits for room in a stream, while what it sends stays in a kept pipe: others that look at the pipe find it there.
pub struct Patience {
    /// [`thread::handled`] when the call began.
    pub began: u64,
    /// Until when; 0: not asked yet.
    deadline: u64,
    /// Bytes moved since: the kernel sends a pipe of the usual size at a time, and each send has its own limit of time.
    moved: usize,
    may_wait: Option<bool>,
}

impl Patience {
    /// Of a call that begins.
    pub fn new(began: u64) -> Patience {
        Patience { began, deadline: 0, moved: 0, may_wait: None }
    }

    /// Whether the call may wait. Asked once: it goes on when O_NONBLOCK is set meanwhile.
    pub fn may_wait(&mut self, socket: &Socket, fd: i32) -> bool {
        let flags = || match socket.send_timeout.load(Ordering::Relaxed) {
            limits::AT_ONCE => libc::MSG_DONTWAIT,
            _ => 0,
        };
        *self.may_wait.get_or_insert_with(|| !nonblocking(socket, fd, flags()))
    }

    /// The call has moved `count` bytes more.
    pub fn moved(&mut self, count: usize) {
        self.moved += count;
        if self.moved >= STEP {
            (self.moved, self.deadline) = (0, 0);
        }
    }

    /// Waits, in a call that has moved `done` bytes. Errors: those of [`sleep::wait`].
    pub fn wait(&mut self, socket: &Socket, fd: i32, done: usize) -> Result<()> {
        let timeout = socket.send_timeout.load(Ordering::Relaxed);
        if self.deadline == 0 {
            self.deadline = if timeout == 0 { u64::MAX } else { limits::deadline(timeout) };
        }
        sleep::wait(socket, fd, arm::OUT, crate::ends_for_signals(self.deadline, 0, done), self.began)?;
        let restarted = thread::restarted(self.began);
        if done == 0 && timeout == 0 && restarted != self.began {
            (self.began, self.may_wait) = (restarted, None); // the kernel begins the call anew after the handler
        }
        Ok(())
    }
}
