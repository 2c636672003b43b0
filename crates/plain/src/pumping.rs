//! The rings of a connection's channel are a view of the escrow's while it is taken, and of the kernel's queues when it is given back.
//!
//! ```text
//! near ring, what the program sent     │ copied (in the escrow, not acknowledged) │ new          its head moves as the peer acknowledges
//! near ring, what the program receives │ shown (in the escrow's ring as well)     │ room         the escrow's moves as the program receives
//! ```

use core::sync::atomic::{AtomicI32, Ordering};

use shunt_epoll as epoll;
use shunt_ring::bell;
use shunt_segment::channel::{arm, state as told, word};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::Socket;
use shunt_stream::waiting::wake;
use shunt_sys::{libc, thread};
use shunt_table::global;
use shunt_table::private;
use shunt_table::process::status_page;
use shunt_xdp::course::{drawn, Course};
use shunt_xdp::learned::PAID;
use shunt_xdp::restored;
use shunt_xdp::taken::Taken;
use shunt_xdp::tcp::{Envelope, Tuple};
use shunt_xdp::Xdp;

use crate::line::{returned, state, Line};
use crate::local::{Driver, Parts, PIECE, ROWS, STREAMS};

impl Parts {
    /// The line of a connection that is taken.
    pub fn find(&self, tuple: &Tuple) -> Option<usize> {
        let is_its = |index: &usize| self.lines[*index].taken.as_ref().is_some_and(|taken| taken.tuple() == tuple);
        self.chains.of(tuple.spread()).find(is_its)
    }

    /// A line begins with `taken`.
    pub fn begin(&mut self, index: usize, taken: Taken, [socket, far]: [i32; 2], now: u64) {
        self.chains.put(taken.tuple().spread(), index);
        let at = self.taken_at(index);
        // SAFETY: inside the slab; no line has it now.
        let taken = unsafe {
            at.write(taken);
            &mut *at
        };
        self.lines[index] = Line {
            state: state::TAKEN,
            socket: AtomicI32::new(socket),
            far: AtomicI32::new(far),
            due: now,
            since: now,
            course: Course::new(now).at_most(drawn(global::options().inet_seed, index as u32)),
            server: self.lines[index].server,
            taken: Some(taken),
            ..Line::default()
        };
    }

    /// The engine of a line is of no use any more.
    pub fn unchain(&mut self, index: usize) {
        let Some(taken) = self.lines[index].taken.take() else { return };
        self.chains.remove(taken.tuple().spread(), index);
        // SAFETY: written by `begin`, and nothing refers to it any more.
        unsafe { core::ptr::drop_in_place(taken) };
    }
}

impl Driver {
    /// What was put on the transmit ring leaves.
    pub fn flush(&mut self) {
        self.answers.left();
        if let Some(mut frames) = self.device.as_mut().and_then(Xdp::frames) {
            frames.flush();
        }
    }

    /// Wakes the sleepers of the near side for `conditions`.
    pub fn tell(&self, index: usize, conditions: u32) {
        let far = self.far(index);
        match self.local.places.near(index) {
            Some(near) if epoll::hears_by_itself(near, far, conditions) => {}
            _ => wake::notify(far, self.lines[index].far.load(Ordering::Relaxed), conditions),
        }
    }

    /// Takes what has come from the queue; false: nothing. Frames of connections that are not taken are the kernel's.
    pub fn frames(&mut self, now: u64) -> bool {
        let some = self.device.as_mut().and_then(Xdp::frames).is_some_and(|mut frames| frames.have_come());
        some && self.take_frames(now)
    }

    fn take_frames(&mut self, now: u64) -> bool {
        let mut touched = [0u64; ROWS];
        let mut any = false;
        for _ in 0..FRAMES {
            let parts = &mut **self;
            let Parts { device, frame, .. } = parts;
            let Some(mut frames) = device.as_mut().and_then(Xdp::frames) else { break };
            let Some(bytes) = frames.next(frame) else { break };
            let whole = bytes.len();
            if !core::mem::replace(&mut any, true) {
                parts.answers.look(thread::id());
            }
            let Some(envelope) = Envelope::parse(bytes) else { continue };
            let length = envelope.at + envelope.length;
            let Some(index) = parts.find(&envelope.tuple) else {
                let _ = parts.hands.pass(&parts.frame[..length]);
                continue;
            };
            let Parts { frame, lines, .. } = parts;
            let Some(taken) = lines[index].taken.as_deref_mut() else { continue };
            match taken.frame(&envelope, &frame[..whole], now) {
                Ok(()) => touched[index / 64] |= 1 << (index % 64),
                Err(ended) => {
                    touched[index / 64] &= !(1 << (index % 64));
                    self.give(index, returned(ended), now);
                    let parts = &mut **self;
                    let _ = parts.hands.pass(&parts.frame[..length]);
                    self.pump(index, now);
                }
            }
        }
        if any {
            for (row, mut bits) in touched.into_iter().enumerate() {
                while bits != 0 {
                    self.pump(row * 64 + bits.trailing_zeros() as usize, now);
                    bits &= bits - 1;
                }
            }
        }
        any
    }

    /// Does for a line what is to be done.
    pub fn pump(&mut self, index: usize, now: u64) {
        self.linger(index);
        if self.lines[index].state == state::TAKEN {
            self.pump_taken(index, now).unwrap_or_else(|reason| self.give(index, reason, now));
        }
        if matches!(self.lines[index].state, state::GIVING | state::KERNEL) {
            self.pump_returned(index, now);
        }
        if self.lines[index].has_numbers() {
            self.due = self.due.min(self.lines[index].due);
        }
    }

    /// A process that is killed closes no channel: the kernel is to know beforehand how it ends.
    fn linger(&mut self, index: usize) {
        let line = &self.lines[index];
        if matches!(line.state, state::TAKEN..=state::KERNEL) {
            let not = self.far(index).peer().receive.state.load(Ordering::Acquire) & told::LINGER_RESET != 0;
            let line = &mut self.lines[index];
            if core::mem::replace(&mut line.lingers_not, not) != not {
                restored::linger(line.socket.load(Ordering::Relaxed), not);
            }
        }
    }

    /// What the program has received and sent since then counts with the engine's next step; gives how many bytes.
    pub fn sync(&mut self, index: usize) -> u32 {
        let far = self.far(index);
        let local = self.local;
        let Parts { lines, piece, .. } = &mut **self;
        let line = &mut lines[index];
        let Some(taken) = line.taken.as_deref_mut() else { return 0 };
        let mut moved = 0;
        let unread = (far.outgoing().unacknowledged() as u32).min(line.shown);
        if unread < line.shown {
            let count = line.shown - unread;
            line.shown = unread;
            moved += count;
            taken.consume(count);
        }
        // An urgent byte is the kernel's to send, and all that stands with it.
        let waiting = match (far.incoming().look().1, far.peer().urgent.load(Ordering::Acquire)) {
            (waiting, 0) => waiting as u32,
            _ => line.copied,
        };
        if line.copied < waiting {
            taken.set_nagle(local.places.near(index).is_some_and(has_nagle));
        }
        while line.copied < waiting {
            let most = ((waiting - line.copied) as usize).min(PIECE);
            // SAFETY: room of ours; the driver's lock is this side's receiving lock.
            let got = match unsafe { far.incoming().peek(line.copied as usize, piece.as_mut_ptr(), most) } {
                Ok(got) if got > 0 => got,
                _ => break,
            };
            // All of them: the ring of the escrow is larger than the near one.
            line.copied += taken.offer(&piece[..got]) as u32;
            moved += got as u32;
        }
        moved
    }

    /// Errors: why it is to be given back.
    fn pump_taken(&mut self, index: usize, now: u64) -> Result<(), Reason> {
        let (local, far) = (self.local, self.far(index));
        // Before the bytes are looked at, which are there when an end is.
        let near_word = far.incoming().look().0;
        let moved = self.sync(index);
        let Parts { lines, device, piece, .. } = &mut **self;
        let line = &mut lines[index];
        let Some(taken) = line.taken.as_deref_mut() else { return Ok(()) };
        let due = match device.as_mut().and_then(Xdp::frames) {
            Some(mut frames) => taken.put(&mut frames, now).map_err(returned)?,
            None => taken.keep(now).map(|()| None).map_err(returned)?,
        };
        let held = taken.held();
        let mut told = 0;
        if line.copied > held {
            far.incoming().pass((line.copied - held) as usize);
            line.copied = held;
            told |= arm::OUT;
        }
        let ready = taken.ready().0;
        while line.shown < ready {
            let length = taken.look(line.shown, piece);
            if length == 0 {
                break;
            }
            // SAFETY: memory of ours; the driver's lock is this side's sending lock.
            let put = unsafe { far.outgoing().send(piece.as_ptr(), length) } as u32;
            line.shown += put;
            told |= if put > 0 { arm::IN } else { 0 };
            if (put as usize) < length {
                break;
            }
        }
        if line.shown > 0 {
            // What the program takes is to count at once: a peer hears by it how a process ends.
            bell::arm(&far.own().wait, arm::OUT);
        }
        line.course.turn(moved, held.max(ready), told != 0, taken.round_trip(), now);
        if line.course.turns == PAID {
            local.servers[line.server].learn(true);
        }
        line.due = due.unwrap_or(u64::MAX).min(line.course.idle());
        let over = line.course.over(now).map(returned);
        let ends = word::FIN | word::CLOSED | word::RST;
        for condition in [arm::IN, arm::OUT].into_iter().filter(|condition| told & condition != 0) {
            self.tell(index, condition);
        }
        if told & arm::IN != 0 {
            self.answers.ask(index);
        }
        let is_ending = near_word & ends != 0 || far.peer().urgent.load(Ordering::Acquire) != 0;
        is_ending.then_some(Reason::GivenBackEnded).or(over).map_or(Ok(()), Err)
    }

    /// The near side has closed its channel: what is left of the line goes. Its channel is free when that side has let go of it.
    pub fn let_go(&mut self, index: usize) {
        let line = &mut self.lines[index];
        line.state = state::OVER;
        line.due = u64::MAX;
        private::close_at(&line.socket);
        private::close_at(&line.far);
    }

    /// Frees the lines whose channels nobody has any more.
    pub fn sweep(&mut self) {
        for index in 0..STREAMS {
            if self.lines[index].state != state::OVER {
                continue;
            }
            if self.local.places.is_over(index) {
                self.let_free(index, -1);
            }
        }
    }

    /// Tells tools that the stream is the kernel's again.
    pub fn note_returned(&self, index: usize) {
        let Some(near) = self.local.places.near(index) else { return };
        for number in shunt_stream::socket::numbers_of(near) {
            status_page::show(number, kind::STREAM, self.lines[index].reason);
        }
    }

    /// Puts bytes of `piece` that come behind those shown into the near ring; gives how many.
    pub fn show(&mut self, index: usize, from: usize, to: usize) -> usize {
        let far = self.far(index);
        let piece = &self.piece[from..to];
        // SAFETY: memory of ours; the driver's lock is this side's sending lock.
        unsafe { far.outgoing().send(piece.as_ptr(), piece.len()) }
    }
}

/// So many frames are taken in one turn at most.
const FRAMES: usize = 256;

fn has_nagle(near: &Socket) -> bool {
    let on = near.stored.find(libc::IPPROTO_TCP, libc::TCP_NODELAY);
    on.is_none_or(|entry| entry.bytes().first_chunk::<4>().is_none_or(|value| i32::from_ne_bytes(*value) == 0))
}
