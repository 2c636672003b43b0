//! Bytes from the ring to the program's connection, and from there to the ring.

use super::{to, Others, RelayedConnection, PIECE};
use core::sync::atomic::Ordering;
use shunt_stream as stream;
use shunt_stream::socket::flag;
use shunt_stream::urgent;
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_NOSIGNAL};
use shunt_sys::{calls, Errno};
use shunt_table::tcp_oob;

/// Bytes on their way.
pub(super) struct Buffer {
    pub(super) data: *mut u8,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The first byte is an urgent one.
    pub(super) urgent: bool,
}

impl Buffer {
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// What is to be sent on, and how.
    fn left(&self) -> (*const u8, usize, i32) {
        let (length, flags) = if self.urgent { (1, libc::MSG_OOB) } else { (self.end - self.start, 0) };
        // SAFETY: start <= PIECE.
        (unsafe { self.data.add(self.start) }, length, flags)
    }

    fn filled(&mut self, count: usize, urgent: bool) {
        (self.start, self.end, self.urgent) = (0, count, urgent && count > 0);
    }

    /// The first byte goes no further.
    fn leave_out_first(&mut self) {
        (self.start, self.urgent) = (self.end.min(1), false);
    }

    fn passed(&mut self, count: usize) {
        self.start += count;
        self.urgent &= count == 0;
    }
}

impl RelayedConnection {
    /// Changes when an urgent byte of the peer's is received in line.
    fn marks_passed(&self) -> u64 {
        self.socket.own().urgent_taken.load(Ordering::Relaxed)
    }

    pub(super) fn pump_inbound(&mut self) {
        // In its place, as the other way; the program's own wish is its connection's business.
        if !self.socket.has(flag::OOB_INLINE) {
            self.socket.set(flag::OOB_INLINE);
        }
        while !self.over {
            if self.inbound.is_empty() {
                if self.inbound_ended {
                    return;
                }
                // A receive ends before the urgent byte, or begins with it, and notes that.
                let before = self.marks_passed();
                // SAFETY: a piece fits the buffer.
                match unsafe { stream::receive(self.socket, self.stream, self.inbound.data, PIECE, MSG_DONTWAIT) } {
                    Ok(0) => {
                        self.inbound_ended = true;
                        let _ = calls::shutdown(self.program, libc::SHUT_WR);
                        return;
                    }
                    Ok(got) => {
                        let passed = self.marks_passed();
                        self.inbound.filled(got as usize, passed != before);
                        if passed != before && urgent::was_read(before, passed) {
                            self.inbound.leave_out_first();
                            continue;
                        }
                    }
                    Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
                    Err(_) => return self.reset_program(),
                }
            }
            let (data, length, flags) = self.inbound.left();
            match to(self.program, data, length, flags) {
                Ok(sent) => self.inbound.passed(sent),
                Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
                Err(_) => return self.reset_peer(),
            }
        }
    }

    pub(super) fn pump_outbound(&mut self) {
        while !self.over {
            if self.outbound.is_empty() {
                if self.outbound_ended {
                    return;
                }
                // SAFETY: a piece fits the buffer.
                match unsafe { tcp_oob::take(self.program, self.outbound.data, PIECE) } {
                    Ok((0, _)) => return self.program_ended(),
                    Ok((got, urgent)) => self.outbound.filled(got, urgent),
                    Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
                    Err(_) => return self.reset_peer(),
                }
            }
            let (data, length, flags) = self.outbound.left();
            let flags = MSG_DONTWAIT | MSG_NOSIGNAL | flags;
            // SAFETY: the bytes that are left.
            match unsafe { stream::send(self.socket, self.stream, data, length, flags) } {
                Ok(sent) => self.outbound.passed(sent as usize),
                Err(Errno(libc::EAGAIN | libc::EINTR)) => return,
                Err(_) => return self.reset_program(),
            }
        }
    }

    /// The program has shut its sending half, or no process has its end any more.
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
