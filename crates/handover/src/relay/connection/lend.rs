//! Lending: where owners under shunt have the stream, too, the program is given a copy of what waits in the ring, and the ring
//! keeps it until the program has read it; an owner that wants to receive meanwhile has it taken back.

use super::{to, RelayedConnection, FIRST_LOOK, LAST_LOOK, LONGEST_DELAY, PIECE};
use core::sync::atomic::Ordering;
use shunt_segment::channel::{arm, word};
use shunt_stream as stream;
use shunt_stream::flush_relays;
use shunt_stream::waiting::bypass;
use shunt_sys::libc::{self, MSG_DONTWAIT};
use shunt_sys::{calls, Errno};

impl RelayedConnection {
    /// Beside other relays: makes this one the only one that takes from the ring. False: another has lent its program what waits
    /// there, and is asked to take it back.
    pub(super) fn claim(&self, id: u64) -> bool {
        let lender = &self.socket.carriage().lender;
        let claimed = lender.compare_exchange(0, id, Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_ok() || claimed == Err(id) {
            return true;
        }
        flush_relays::ask_lender(self.socket);
        false
    }

    pub(super) fn disclaim(&self, id: u64) {
        let _ = self.socket.carriage().lender.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Lends the program what waits in the ring, and gives back to the ring's sender what it has read. When to look again.
    pub(super) fn lend(&mut self, id: u64, now: u64) -> u64 {
        let socket = self.socket;
        if self.lent > 0 {
            self.note_reading();
        }
        let (peer, waiting) = socket.incoming().look();
        if waiting > self.lent && !self.deaf {
            let lender = socket.carriage().lender.load(Ordering::Acquire);
            if self.waiting_since == 0 {
                self.waiting_since = now;
            }
            let due = self.waiting_since + if lender == 0 || lender == id { self.delay } else { LONGEST_DELAY };
            if now < due {
                return due;
            }
            if lender != 0 && lender != id {
                flush_relays::ask_lender(socket);
                return now + LAST_LOOK;
            }
            self.lend_more(id);
        }
        if waiting == self.lent {
            let ends = waiting == 0 && peer & (word::FIN | word::CLOSED) != 0 && !self.inbound_ended;
            if peer & word::RST != 0 || (ends && bypass::look(socket, self.stream)) {
                self.reset_program();
                return u64::MAX;
            }
            // Told with bytes still lent, the end would stay when these are taken back.
            if waiting == 0 && (peer & (word::FIN | word::CLOSED) != 0 || self.peer_gone()) && !self.inbound_ended {
                self.inbound_ended = true;
                let _ = calls::shutdown(self.program, libc::SHUT_WR);
            }
            self.waiting_since = 0;
        }
        if self.lent == 0 {
            self.disclaim(id);
            return match waiting {
                0 => u64::MAX,
                _ if self.deaf => now + LAST_LOOK,
                _ => now + FIRST_LOOK,
            };
        }
        u64::MAX
    }

    fn lend_more(&mut self, id: u64) {
        let socket = self.socket;
        let Ok(_held) = socket.lock_receive_settled() else { return };
        let lender = &socket.carriage().lender;
        if lender.load(Ordering::Acquire) != id && lender.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        // What is lent lies in the program's queue as a whole, so that it can be taken back in one step.
        let room = self.lendable();
        if self.lent >= room || outgoing(self.program) > 0 {
            return;
        }
        let most = stream::urgent::before_read(socket, self.lent).min(room - self.lent);
        if most == 0 {
            return;
        }
        // SAFETY: at most a piece; the lock is held.
        let Ok(seen) = (unsafe { stream::peek(socket, self.lent, self.inbound.data, most) }) else { return };
        match to(self.program, self.inbound.data, seen, 0) {
            Ok(sent) => {
                self.lent += sent;
                self.look = FIRST_LOOK;
            }
            Err(Errno(libc::EPIPE | libc::ECONNRESET)) => self.deaf = true,
            Err(_) => {}
        }
    }

    /// Bytes that the program has read leave the ring.
    fn note_reading(&mut self) {
        // In this order: what moves from the one to the other meanwhile is counted twice, never not at all.
        let under_way = outgoing(self.program);
        let unread = (under_way + incoming(self.twin)).min(self.lent);
        self.consume(self.lent - unread);
    }

    fn consume(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let Ok(_held) = self.socket.lock_receive_settled() else { return };
        let mut left = count;
        while left > 0 {
            // SAFETY: a piece fits the buffer, which holds nothing while bytes are lent; the lock is held.
            match unsafe { stream::take_within(self.socket, self.inbound.data, left.min(PIECE)) } {
                Ok(got) if got > 0 => left -= got,
                _ => break,
            }
        }
        self.lent -= count;
        self.delay = 0;
        self.look = FIRST_LOOK;
        drop(_held);
        // The sender may sleep for the space.
        shunt_stream::waiting::wake::notify(self.socket, self.stream, arm::OUT);
    }

    /// How much the program's queue holds for sure, however its bytes came.
    fn lendable(&self) -> usize {
        let held = calls::getsockopt_int(self.twin, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0);
        (held as usize / 4).clamp(1, PIECE)
    }

    /// Another owner wants to receive: what the program has not read is the ring's again.
    ///
    /// In one call, under one lock of the kernel's: between two of them the program could read what lies behind the bytes of the
    /// first, and those that it had read would be given out again in their place.
    pub(super) fn take_back(&mut self, id: u64) {
        let mut back = 0;
        while back < self.lent && self.twin >= 0 {
            let under_way = outgoing(self.program);
            let room = self.lent - back;
            let flags = MSG_DONTWAIT | libc::MSG_TRUNC;
            let nowhere = core::ptr::null_mut();
            match calls::recvfrom(self.twin, nowhere, room, flags, core::ptr::null_mut(), core::ptr::null_mut()) {
                Ok(got) if got > 0 => back += got,
                Err(Errno(libc::EAGAIN)) if under_way > 0 => {
                    calls::sched_yield();
                    continue;
                }
                _ => break,
            }
            if under_way == 0 {
                break;
            }
        }
        let read = self.lent - back;
        self.lent = back;
        if read > 0 {
            self.lent += read;
            self.consume(read);
        }
        self.lent = 0;
        self.disclaim(id);
    }

    /// The relay is the only owner, or the program's process is gone: its end tells from now on when no process has it any
    /// more.
    pub(super) fn stop_lending(&mut self, alone: bool, id: u64) {
        if self.twin < 0 {
            return;
        }
        if alone {
            // What was lent is the program's for good.
            self.note_reading();
            let rest = self.lent;
            self.consume(rest);
        } else {
            self.take_back(id);
        }
        self.disclaim(id);
        self.waiting_since = 0;
        self.parting = core::mem::replace(&mut self.twin, -1);
        if self.life >= 0 {
            let _ = calls::close(core::mem::replace(&mut self.life, -1));
        }
        self.process = 0;
    }
}

/// Bytes that wait to be read.
fn incoming(fd: i32) -> usize {
    calls::bytes_waiting(fd).unwrap_or(0) as usize
}

/// Bytes that the other end has not taken into its queue for sure.
fn outgoing(fd: i32) -> usize {
    calls::bytes_unread(fd).unwrap_or(0) as usize
}
