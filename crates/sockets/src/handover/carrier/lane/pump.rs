//! Bytes from the ring to the program's connection, and from there to the ring.

use super::{to, Lane, Others, PIECE};
use crate::stream;
use crate::stream::urgent;
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{calls, Errno};

/// Bytes on their way.
pub(super) struct Buffer {
    pub(super) data: *mut u8,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Buffer {
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn left(&self) -> (*const u8, usize) {
        // SAFETY: start <= PIECE.
        (unsafe { self.data.add(self.start) }, self.end - self.start)
    }

    fn filled(&mut self, count: usize) {
        (self.start, self.end) = (0, count);
    }
}

impl Lane {
    pub(super) fn pump_inbound(&mut self) {
        while !self.over {
            if self.inbound.is_empty() {
                if self.inbound_ended {
                    return;
                }
                if urgent::pending(self.socket) && urgent::at_mark(self.socket) {
                    self.urgent_inbound();
                    continue;
                }
                // SAFETY: a piece fits the buffer.
                match unsafe { stream::receive(self.socket, self.stream, self.inbound.data, PIECE, MSG_DONTWAIT) } {
                    Ok(0) => {
                        self.inbound_ended = true;
                        let _ = calls::shutdown(self.program, libc::SHUT_WR);
                        return;
                    }
                    Ok(got) => self.inbound.filled(got as usize),
                    Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
                    Err(_) => return self.reset_program(),
                }
            }
            let (data, length) = self.inbound.left();
            match to(self.program, data, length, 0) {
                Ok(sent) => self.inbound.start += sent,
                Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
                Err(_) => return self.reset_peer(),
            }
        }
    }

    /// The peer's urgent byte stands here: it goes on as one.
    fn urgent_inbound(&mut self) {
        let mut byte = 0u8;
        // SAFETY: room for one byte.
        let got = unsafe { stream::receive(self.socket, self.stream, &raw mut byte, 1, libc::MSG_OOB | MSG_DONTWAIT) };
        if got == Ok(1) {
            let _ = to(self.program, &raw const byte, 1, libc::MSG_OOB);
        }
    }

    pub(super) fn pump_outbound(&mut self) {
        while !self.over {
            if self.outbound.is_empty() {
                if self.outbound_ended {
                    return;
                }
                let urgent = at_mark(self.program);
                let room = if urgent { 1 } else { PIECE };
                let got = calls::recvfrom(
                    self.program,
                    self.outbound.data.cast(),
                    room,
                    MSG_DONTWAIT,
                    core::ptr::null_mut(),
                    core::ptr::null_mut(),
                );
                match got {
                    Ok(0) => return self.program_ended(),
                    Ok(1) if urgent => {
                        let flags = libc::MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL;
                        // SAFETY: one byte.
                        let _ = unsafe { stream::send(self.socket, self.stream, self.outbound.data, 1, flags) };
                        continue;
                    }
                    Ok(got) => self.outbound.filled(got),
                    Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
                    Err(_) => return self.reset_peer(),
                }
            }
            let (data, length) = self.outbound.left();
            // SAFETY: the bytes that are left.
            match unsafe { stream::send(self.socket, self.stream, data, length, MSG_DONTWAIT | MSG_NOSIGNAL) } {
                Ok(sent) => self.outbound.start += sent as usize,
                Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
                Err(_) => return self.reset_program(),
            }
        }
    }

    /// The program has shut its sending half, or nobody has its end any more.
    fn program_ended(&mut self) {
        self.outbound_ended = true;
        if self.twin < 0 && self.others() != Others::None {
            // Its end is closed, not shut: the connection is that of the others alone.
            self.over = true;
            return;
        }
        // Whether it was shut or closed shows with bytes that it has not got yet: a closed end answers them with a reset,
        // as Linux answers for what a program leaves unread.
        if self.socket.incoming().look().1 > 0 || !self.inbound.is_empty() {
            self.pump_inbound();
            if !self.over && calls::poll_one(self.program, 0, 0).is_ok_and(|events| events & libc::POLLERR != 0) {
                self.reset_peer();
            }
            if self.over {
                return;
            }
        }
        let _ = stream::shutdown(self.socket, self.stream, libc::SHUT_WR);
    }
}

fn at_mark(fd: i32) -> bool {
    const SIOCATMARK: u64 = 0x8905;
    calls::asked(fd, SIOCATMARK).is_ok_and(|at| at != 0)
}
