//! A connection goes back to the kernel, and its channel becomes a view of the kernel's socket.

use core::sync::atomic::Ordering;

use shunt_rendezvous::options;
use shunt_ring::bell;
use shunt_segment::channel::{arm, taken, urgent, word};
use shunt_segment::reason::Reason;
use shunt_stream::waiting::wake;
use shunt_sys::{calls, clock, libc, Errno};
use shunt_table::process::status_page;
use shunt_table::table;
use shunt_xdp::learned::PAID;
use shunt_xdp::restored::{discard, is_reset, linger_not, widen};

use crate::line::{returned, state};
use crate::local::{driven, Driver, PIECE, STREAMS};

/// Between two looks whether a connection is in its socket again (ns): as long as it has taken until now, within these.
const LOOKS: [u64; 2] = [2_000_000, 1_000_000_000];
/// When the agent is gone its guard gives back. One that has not begun after the first of these, or not ended after the second, is gone as well (ns): it tries a
/// peer that cannot be reached for a minute.
const GONE: [u64; 2] = [5_000_000_000, 75_000_000_000];
/// How long a process that ends waits for room in sockets of the kernel (ns).
const LAST: u64 = 1_000_000_000;

impl Driver {
    /// Gives a connection back, for a reason, if no other does already. Frames of it are the kernel's from now on.
    pub fn give(&mut self, index: usize, reason: Reason, now: u64) {
        if self.lines[index].state != state::TAKEN {
            return;
        }
        self.flush(); // as what is under way
        self.sync(index); // what the program has done until now counts, unless another was first
        let (servers, parts) = (&self.local.servers, &mut **self);
        let line = &mut parts.lines[index];
        let closed_by = line.taken.as_ref().and_then(|taken| taken.closed_by());
        (line.state, line.since, line.reason) = (state::GIVING, now, closed_by.map_or(reason, returned));
        if line.course.turns < PAID && line.reason.is_of_its_server() {
            servers[line.server].learn(false);
        }
        if let (Some(taken), None) = (line.taken.as_deref_mut(), closed_by) {
            let _ = taken.keep(now);
            // Where the agent does not answer its guard gives back, or it does later: the escrow is closed.
            let _ = taken.give(&parts.hands);
        }
        if !self.settle(index, now) {
            // A thread that sleeps is to know of the deadline: the agent, whose end has woken it perhaps, is heard of once.
            self.tell(index, arm::IN);
            self.tell(index, arm::OUT);
        }
    }

    /// Whether the socket is of use again.
    fn settle(&mut self, index: usize, now: u64) -> bool {
        let (local, far) = (self.local, self.far(index));
        let line = &mut self.lines[index];
        let Some(taken) = line.taken.as_deref_mut() else { return line.state == state::KERNEL };
        if !taken.is_given() {
            let past = now.saturating_sub(line.since);
            if local.over.load(Ordering::Relaxed) && past >= GONE[usize::from(taken.is_begun())] {
                self.cut(index);
                return false;
            }
            line.due = now + past.clamp(LOOKS[0], LOOKS[1]);
            return false;
        }
        let (read, wrote) = taken.uncounted();
        let socket = line.socket.load(Ordering::Relaxed);
        if let Some(near) = local.places.near(index) {
            // What was set since the take is the kernel's to do from now on, before the program has its socket: keepalive finds peers that are gone.
            let _ = calls::setsockopt_int(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 0);
            options::give_to(socket, near);
        }
        discard(socket, read);
        far.incoming().pass(line.copied.saturating_sub(wrote) as usize);
        (line.copied, line.state, line.due) = (0, state::KERNEL, u64::MAX);
        self.unchain(index);
        self.local.returned.fetch_add(1, Ordering::Relaxed);
        self.local.places.show(index, taken::NOT);
        self.note_returned(index);
        self.tell(index, arm::OUT);
        true
    }

    /// As [`Driver::pump`], of one that is the kernel's again, or on its way.
    pub fn pump_returned(&mut self, index: usize, now: u64) {
        if self.lines[index].state == state::GIVING && !self.settle(index, now) {
            return;
        }
        if self.lines[index].state == state::KERNEL {
            self.pump_kernel(index);
        }
    }

    fn pump_kernel(&mut self, index: usize) {
        let far = self.far(index);
        let socket = self.lines[index].socket.load(Ordering::Relaxed);
        let line = &mut self.lines[index];
        let unread = (far.outgoing().unacknowledged() as u32).min(line.shown);
        discard(socket, line.shown - unread);
        line.shown = unread;
        let mut broken = !self.send(index, socket);
        let (near_word, waiting) = far.incoming().look();
        if waiting == 0 || broken {
            if near_word & (word::CLOSED | word::RST) != 0 {
                return self.close(index, near_word & word::RST != 0);
            }
            let line = &mut self.lines[index];
            if near_word & word::FIN != 0 && !line.end_told {
                line.end_told = true;
                let _ = calls::shutdown(socket, libc::SHUT_WR);
            }
        }
        if near_word & word::CLOSED == 0 {
            broken |= match self.lines[index].end_shown {
                true => is_reset(calls::poll_one(socket, 0, 0).unwrap_or(0)),
                false => !self.look(index, socket, broken),
            };
        }
        // What a call takes that does not leave the stream makes room for what is behind it, of which no event tells any more.
        let shown = self.lines[index].shown;
        if shown > 0 && bell::arm(&far.own().wait, arm::OUT) {
            wake::barrier();
        }
        if (far.outgoing().unacknowledged() as u32) < shown {
            self.local.mark(index); // taken meanwhile, without a bell
        }
        if broken && !self.lines[index].broken {
            let line = &mut self.lines[index];
            (line.broken, line.end_shown) = (true, true);
            self.tell_reset(index);
        }
    }

    fn tell_reset(&self, index: usize) {
        let out = self.far(index).outgoing();
        let late = if out.announced() & word::FIN != 0 { word::LATE } else { 0 };
        out.end(word::RST | word::FIN | word::CLOSED | late);
        self.tell(index, arm::IN);
        self.tell(index, arm::OUT);
    }

    /// Nobody gives the connection back any more: its program is told of a reset, and the kernel answers the peer's next segment with one.
    fn cut(&mut self, index: usize) {
        self.tell_reset(index);
        self.unchain(index);
        self.local.places.show(index, taken::NOT);
        linger_not(self.lines[index].socket.load(Ordering::Relaxed));
        status_page::count(self.lines[index].reason);
        self.let_go(index);
    }

    /// Sends what stands in the near ring; false: the connection is broken.
    fn send(&mut self, index: usize, socket: i32) -> bool {
        let far = self.far(index);
        let mut any = false;
        let whole = loop {
            let (near_word, waiting) = far.incoming().look();
            if waiting == 0 {
                break true;
            }
            let (mut length, mut flags) = (waiting.min(PIECE), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
            let marked = far.peer().urgent.load(Ordering::Acquire);
            if marked & urgent::VALID != 0 {
                let position = far.own().receive.position.load(Ordering::Relaxed);
                let ahead = (marked & word::POSITION).wrapping_sub(position) & word::POSITION;
                (length, flags) = match ahead {
                    0 => (1, flags | libc::MSG_OOB),
                    ahead => (length.min(ahead as usize), flags),
                };
            }
            let piece = &mut self.piece;
            // SAFETY: room of ours; the driver's lock is this side's receiving lock.
            let got = match unsafe { far.incoming().peek(0, piece.as_mut_ptr(), length) } {
                Ok(got) if got > 0 => got,
                _ => break true,
            };
            match calls::sendto(socket, piece.as_ptr().cast(), got, flags, core::ptr::null(), 0) {
                Ok(put) => {
                    far.incoming().pass(put);
                    any = true;
                }
                // Its program may be gone soon: the kernel is to have all of it.
                Err(Errno(libc::EAGAIN)) if near_word & word::CLOSED != 0 && widen(socket, waiting) => {}
                Err(Errno(libc::EAGAIN | libc::EINTR)) => break true,
                Err(_) => break false,
            }
        };
        if any {
            self.tell(index, arm::OUT);
        }
        whole
    }

    /// Shows what has come; false: the connection is broken. `broken`: it is, and what was told of that is not told again.
    fn look(&mut self, index: usize, socket: i32, broken: bool) -> bool {
        // Before the bytes, which are all there when the end is, or the reset, which the program hears of though it has not read them.
        let events = calls::poll_one(socket, libc::POLLRDHUP | libc::POLLPRI, 0).unwrap_or(0);
        // Urgent bytes cannot be shown, as no look takes them in their place; nor the end behind them, which would keep the stream from being left.
        let is_urgent = events & libc::POLLPRI != 0;
        if is_urgent {
            self.local.leaving[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
        }
        let (null, flags) = (core::ptr::null_mut(), libc::MSG_PEEK | libc::MSG_DONTWAIT);
        match calls::recvfrom(socket, self.piece.as_mut_ptr().cast(), PIECE, flags, null, null.cast()) {
            Ok(0) if broken => return false,
            Ok(0) if is_urgent => {}
            Ok(0) => {
                self.show_end(index);
                return !is_reset(events);
            }
            Ok(got) => {
                let shown = self.lines[index].shown as usize;
                if got > shown {
                    let put = self.show(index, shown, got);
                    self.lines[index].shown += put as u32;
                    self.tell(index, arm::IN);
                }
                if got < PIECE && self.lines[index].shown as usize == got {
                    match events & (libc::POLLRDHUP | libc::POLLERR) == libc::POLLRDHUP {
                        true if !broken && !is_urgent => self.show_end(index),
                        _ => return !is_reset(events),
                    }
                }
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
            Err(_) => return false,
        }
        true
    }

    fn show_end(&mut self, index: usize) {
        self.lines[index].end_shown = true;
        self.far(index).outgoing().end(word::FIN);
        self.tell(index, arm::IN);
    }

    /// The program has let go of the stream, and so does this process of the socket.
    fn close(&mut self, index: usize, reset: bool) {
        let socket = self.lines[index].socket.load(Ordering::Relaxed);
        if reset {
            linger_not(socket);
        }
        self.local.returned.fetch_sub(1, Ordering::Relaxed);
        status_page::count(self.lines[index].reason); // of one that its program takes it is counted there
        self.let_go(index);
    }

    /// The program has the socket of a line; gives its number, which is no private one any more. The line is free, and its channel stands.
    pub fn hand_out(&mut self, index: usize) -> i32 {
        let line = &self.lines[index];
        let (socket, far) = (line.socket.swap(-1, Ordering::Relaxed), line.far.swap(-1, Ordering::Relaxed));
        let _ = calls::epoll_ctl(self.local.rest.load(Ordering::Relaxed), libc::EPOLL_CTL_DEL, socket, core::ptr::null_mut());
        table::take(socket);
        self.local.returned.fetch_sub(1, Ordering::Relaxed);
        self.let_free(index, far);
        socket
    }
}

/// The process ends in good order: what is in the escrows the agent gives back, and what is in sockets is the kernel's.
pub fn ending() {
    let Some(mut driver) = driven().and_then(|local| local.lock()) else { return };
    let now = clock::monotonic_ns();
    for index in 0..STREAMS {
        driver.pump(index, now);
        while driver.lines[index].state == state::KERNEL
            && driver.far(index).incoming().look().1 > 0
            && clock::monotonic_ns() < now + LAST
        {
            let socket = driver.lines[index].socket.load(Ordering::Relaxed);
            let _ = calls::poll_one(socket, libc::POLLOUT, 10_000_000);
            driver.pump(index, now);
        }
    }
}
