//! The shadow connection as the way of a stream's bytes: before the acceptor is there, and when the fast path is lost.
//!
//! The kernel's TCP connection of a stream carries, in either direction:
//!
//! ```text
//! client to server   bytes, until the token has come                     [record, bytes]
//! server to client   token (16)                                          [record, bytes]
//! record             token's complement (16), a position (8), what it is (8); little-endian
//!                    1: bytes received, some by the engine    2: bytes received, all by TCP
//!                    3: bytes sent; all of them, and all of the other side's, have arrived, with both ends
//! ```
//!
//! **Beginning.** A client that does not find the token at once begins by TCP. When the token comes it stops, says by the engine
//! after how many bytes (BEGIN), and goes on there when the server has as many (BEGUN). No room is granted to the server
//! before BEGUN, so one that never heard of BEGIN has sent nothing by the engine, and all that it got is TCP's.
//!
//! **Resuming.** The end that learns that the path is lost takes nothing more from the engine, and writes a record; the other end, which
//! may not know yet, does the same when it reads that. Bytes stay in the sender's ring until the engine says that the receiver's
//! ring has them, so both ends can go on behind the byte that the other's record names. A client without BEGUN waits for the
//! server's record, which says whether BEGIN had come; if not there is no record of the client's, and its bytes continue
//! as if nothing had been. A server to which BEGIN does not come in time does as if the path were lost.
//!
//! **Ending.** The end that lets go of a stream says so in a record, too: its end, said by the engine, may have been lost with the path.
//!
//! Positions are the rings' own, so that a driver that was killed between a ring and a word has lost nothing.

use super::local_station::LocalStation;
use super::message::token_bytes;
use super::pump::{Rings, WINDOW};
use super::stream_life::{self, Event};
use super::stream_words::{self, flag, mode};
use super::switch_to_tcp;
use core::sync::atomic::{fence, Ordering};
use shunt_pipes::kept_pipes::Scratch;
use shunt_segment::channel::{arm, state, urgent as mark, word};
use shunt_station::{Driver, Opening, Stream};
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK};
use shunt_sys::{calls, Errno, Result};
use shunt_table::tcp_oob;

/// Bytes that a server takes by TCP before BEGIN and that its program has not read: beside [`super::pump::FIRST`] they fit the rings.
pub const BEFORE: u64 = 64 << 10;
/// How long a server waits for BEGIN (ns): a client's keeper says it as soon as it sees the token.
const BEGIN_WITHIN: u64 = 2_000_000_000;
/// When a token of which a part came, or an OPENED that is late, is looked at again (ns).
const AGAIN: u64 = 20_000_000;
/// A reset of the shadow may have overtaken what the client sent by the engine before it (ns): agents of both hosts may have to pass that
/// on, and get the processor late. A client that sent nothing there says CLOSE, which ends the waiting.
const OVERTAKEN: u64 = 500_000_000;
/// While the program is to leave the stream, whether it has emptied its ring is looked at so often (ns).
const SHORTLY: u64 = 200_000;
/// And when it has emptied it nothing is brought there for so long (ns): it asks for the shadow when it looks for more.
const BROUGHT: u64 = 2_000_000;
/// Bytes that are moved at once.
const PIECE: usize = 16 << 10;
const _: () = assert!(PIECE <= Scratch::SIZE);
/// Pieces in one look: other streams wait.
const PIECES: usize = 16;

const RECORD: usize = 32;
const BY_ENGINE: u64 = 1;
const NEVER_FAST: u64 = 2;
const ENDED: u64 = 3;

/// What of a stream's shadow is the keeper's own.
pub struct Shadow {
    /// It; -1: none.
    pub fd: i32,
    /// It may be readable.
    pub ready: bool,
    /// It was full; an event tells when it no longer is.
    blocked: bool,
    /// When the keeper got it (ns).
    since: u64,
    /// When to look again without an event (ns).
    pub look_at: u64,
    /// When its reset was seen by a server that waits for BEGIN (ns); 0: it was not.
    reset_at: u64,
    /// When the rings of a stream that its program is to leave, and has not, are kept short once more (ns).
    short_at: u64,
    /// How long not, behind the next time in vain (ns).
    between: u64,
    /// Bytes that had gone in either direction at that time.
    tried: u64,
    /// When something is brought into its ring next, while that is so (ns).
    bring_at: u64,
}

/// What stands next in the shadow.
enum Next {
    Record(u64, u64),
    Nothing,
    /// The other end has let go.
    End,
    Nonsense,
}

impl Shadow {
    pub const NONE: Shadow = Shadow {
        fd: -1,
        ready: false,
        blocked: false,
        since: 0,
        look_at: u64::MAX,
        reset_at: 0,
        short_at: u64::MAX,
        between: switch_to_tcp::BETWEEN,
        tried: u64::MAX,
        bring_at: 0,
    };

    /// The keeper's, from now on.
    pub fn new(fd: i32, now: u64) -> Shadow {
        if fd >= 0 {
            // Urgent bytes stand in their place; what is carried is not held back.
            let _ = calls::setsockopt_int(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1);
            let _ = calls::setsockopt_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        }
        Shadow { fd, ready: true, since: now, ..Shadow::NONE }
    }

    /// The record of this kind; false: it cannot be written.
    fn write(&self, local: &LocalStation, stream: Stream, position: u64, kind: u64) -> bool {
        let mut record = [0u8; RECORD];
        record[..16].copy_from_slice(&token_bytes(&local.station.token(stream)).map(|byte| !byte));
        record[16..24].copy_from_slice(&position.to_le_bytes());
        record[24..].copy_from_slice(&kind.to_le_bytes());
        let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
        calls::sendto(self.fd, record.as_ptr().cast(), RECORD, flags, core::ptr::null(), 0) == Ok(RECORD)
    }

    /// The stream is over, and its shadow is to be closed.
    pub fn say_ended(&self, local: &LocalStation, stream: Stream) {
        let flags = stream_words::flags(&local.station, stream);
        let (both, reset) = (flag::FIN_OUT | flag::FIN_IN, flag::RESET_OUT | flag::RESET_IN);
        if stream_words::way(&local.station, stream) == mode::FAST && flags & (both | reset) == both {
            self.write(local, stream, stream_words::get(&local.station, stream, stream_words::SENT), ENDED);
        }
    }

    /// The program may take it over: all that was sent and has come is on the other side of it. To be asked under the station's lock.
    pub fn may_be_left(&self, local: &LocalStation, stream: Stream) -> bool {
        let far = local.far(stream);
        let (near_word, waiting) = far.incoming().look();
        let open = switch_to_tcp::is_open(local, stream)
            && near_word & (word::FIN | word::CLOSED | word::RST) == 0
            && self.reset_at == 0;
        let empty = waiting == 0 && far.outgoing().unacknowledged() == 0;
        self.fd >= 0 && open && empty
    }

    /// Something happened there.
    pub fn happened(&mut self) {
        (self.ready, self.blocked) = (true, false);
    }

    /// Does what is to be done. True: the other end has let go of a stream whose bytes go by the engine.
    pub fn tend(&mut self, local: &LocalStation, driver: &mut Driver<'_>, stream: Stream, now: u64) -> bool {
        let station = &local.station;
        let flags = stream_words::flags(station, stream);
        if self.fd < 0 || flags & (flag::ACTIVE | flag::OVER) != flag::ACTIVE {
            return false;
        }
        self.look_at = u64::MAX;
        let mut tending = Tending { shadow: self, pump: Rings::of(local), driver, local, stream, now };
        let mut let_go = false;
        // Each step that changes the way is followed by one on the new way.
        for _ in 0..4 {
            if stream_words::flags(station, stream) & (flag::RESET_IN | flag::RESET_OUT) != 0 {
                break;
            }
            let way = stream_words::way(station, stream);
            match way {
                mode::PROVISIONAL => tending.look_for_token(),
                mode::BEGINNING | mode::FAST => let_go = tending.listen(way == mode::BEGINNING),
                mode::CLAIMED => tending.await_begin(),
                mode::RESUMING => tending.resume(),
                _ => tending.carry(),
            }
            if stream_words::way(station, stream) == way {
                break;
            }
        }
        tending.pump.conclude(stream);
        let_go
    }
}

struct Tending<'a, 's> {
    shadow: &'a mut Shadow,
    pump: Rings<'a>,
    driver: &'a mut Driver<'s>,
    local: &'a LocalStation,
    stream: Stream,
    now: u64,
}

impl Tending<'_, '_> {
    fn set(&self, which: usize, value: u64) {
        stream_words::set(&self.local.station, self.stream, which, value);
    }

    fn get(&self, which: usize) -> u64 {
        stream_words::get(&self.local.station, self.stream, which)
    }

    fn happens(&self, event: Event) {
        stream_life::happens(&self.local.station, self.stream, event);
    }

    fn has(&self, flags: u64) -> bool {
        stream_words::flags(&self.local.station, self.stream) & flags != 0
    }

    fn receive(&self, into: &mut [u8], flags: i32) -> Result<usize> {
        let (room, length) = (into.as_mut_ptr().cast(), into.len());
        calls::recvfrom(self.shadow.fd, room, length, flags | MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut())
    }

    fn send(&self, bytes: &[u8], flags: i32) -> Result<usize> {
        let flags = flags | MSG_DONTWAIT | MSG_NOSIGNAL;
        calls::sendto(self.shadow.fd, bytes.as_ptr().cast(), bytes.len(), flags, core::ptr::null(), 0)
    }

    // ---- beginning -----------------------------------------------------------------------------------------------

    /// A client before the token: its bytes go by TCP.
    fn look_for_token(&mut self) {
        let token = token_bytes(&self.local.station.token(self.stream));
        let mut bytes = [0u8; 16];
        let got = if self.shadow.ready { self.receive(&mut bytes, MSG_PEEK) } else { Err(Errno(libc::EAGAIN)) };
        match got {
            Ok(16) if bytes == token => {
                let _ = self.receive(&mut bytes, 0);
                self.set(stream_words::OUT_BASE, self.get(stream_words::SENT));
                self.happens(Event::TokenCame);
                if !self.has(flag::BEGIN_DUE) {
                    self.driver.abandon(self.now, self.stream);
                }
                return;
            }
            // It may be a token's beginning; whether one is to come is the server's to say.
            Ok(got) if got > 0 && got < 16 && bytes[..got] == token[..got] => {
                self.shadow.look_at = self.now + AGAIN;
                match self.local.station.opening(self.stream) {
                    Opening::Refused(_) => return self.by_tcp_for_good(Event::NoToken),
                    _ if self.now > self.shadow.since + AGAIN => self.driver.cancel(self.now, self.stream),
                    _ => {}
                }
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => self.shadow.ready = false,
            Err(_) => return self.pump.broken(self.stream),
            Ok(_) => return self.by_tcp_for_good(Event::NoToken),
        }
        self.carry_out();
    }

    fn by_tcp_for_good(&mut self, why: Event) {
        self.driver.abandon(self.now, self.stream);
        self.happens(why);
    }

    /// A server before BEGIN: what comes by TCP are the stream's bytes.
    fn await_begin(&mut self) {
        if self.shadow.ready || self.shadow.reset_at != 0 {
            // What the client sent by the engine, it sent before it reset the shadow: that comes first.
            self.driver.drive(self.now, &mut self.pump);
        }
        self.pump.begin_if_there(self.stream);
        let limit = self.get(stream_words::BEGIN_AT).checked_sub(1).unwrap_or(u64::MAX);
        if stream_words::way(&self.local.station, self.stream) == mode::CLAIMED && self.shadow.reset_at == 0 {
            self.carry_in(BEFORE, limit);
            self.pump.begin_if_there(self.stream);
        }
        match stream_words::way(&self.local.station, self.stream) {
            mode::CLAIMED => {}
            mode::FAST => return self.pump.service(self.driver, self.stream),
            _ => return,
        }
        let far = self.local.far(self.stream);
        let (near_word, waiting) = far.incoming().look();
        // What was sent before arrives before it, by the way that the client chooses.
        if waiting == 0 && self.pump.is_to_be_reset(self.stream, near_word) {
            if near_word & word::LATE != 0 && self.shadow.reset_at == 0 {
                // The end that was said before is said by TCP, where the reset follows it.
                return self.pump.to_tcp(self.stream, Event::NotBegun);
            }
            return self.reset();
        }
        if self.shadow.reset_at != 0 {
            if self.now >= self.shadow.reset_at + OVERTAKEN {
                return self.pump.broken(self.stream);
            }
            self.shadow.look_at = self.now + AGAIN;
            return;
        }
        let until = self.shadow.since + BEGIN_WITHIN;
        if self.now >= until && limit == u64::MAX {
            self.pump.to_tcp(self.stream, Event::NotBegun);
        }
        self.shadow.look_at = if self.now < until { until } else { self.now + AGAIN };
    }

    // ---- resuming ------------------------------------------------------------------------------------------------

    fn next(&mut self) -> Next {
        if !self.shadow.ready {
            return Next::Nothing;
        }
        let mut bytes = [0u8; RECORD];
        let got = self.receive(&mut bytes, MSG_PEEK);
        let token = token_bytes(&self.local.station.token(self.stream)).map(|byte| !byte);
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        match got {
            Ok(RECORD) if bytes[..16] == token => Next::Record(number(16), number(24)),
            Ok(0) => {
                self.shadow.ready = false;
                Next::End
            }
            Ok(got) if got < RECORD && bytes[..got.min(16)] == token[..got.min(16)] => {
                self.shadow.ready = false; // the rest is an event
                Next::Nothing
            }
            Ok(_) => Next::Nonsense,
            Err(Errno(libc::EAGAIN | libc::EINTR)) => {
                self.shadow.ready = false;
                Next::Nothing
            }
            Err(_) => {
                self.shadow.ready = false;
                Next::End
            }
        }
    }

    fn consume_record(&mut self) {
        let _ = self.receive(&mut [0u8; RECORD], 0);
    }

    /// Bytes go by the engine: only a record may come here. True: the other end has let go.
    fn listen(&mut self, beginning: bool) -> bool {
        if self.has(flag::BIND_DUE) {
            self.shadow.look_at = self.now + AGAIN;
        }
        self.pump.service(self.driver, self.stream);
        match self.next() {
            Next::Record(_, NEVER_FAST)
                if beginning && self.get(stream_words::ACKNOWLEDGED) == self.get(stream_words::OUT_BASE) =>
            {
                self.consume_record();
                self.go_on_from(self.get(stream_words::OUT_BASE));
            }
            Next::Record(_, BY_ENGINE) => self.pump.to_tcp(self.stream, Event::RecordCame),
            Next::Record(position, ENDED) if !beginning => self.conclude_by(position),
            Next::Record(..) | Next::Nonsense => self.pump.broken(self.stream),
            Next::End => return true,
            Next::Nothing => {}
        }
        false
    }

    /// The path is lost.
    fn resume(&mut self) {
        // By a path that is there the other end would hear of it before it has read the record, and take it for a reset.
        if !self.has(flag::BULK) || self.has(flag::NEVER_FAST) {
            self.driver.abandon(self.now, self.stream);
        }
        let far = self.local.far(self.stream);
        if !self.has(flag::RECORD_OUT) {
            let never = self.has(flag::NEVER_FAST);
            if never {
                // All that came by TCP are the stream's bytes: they are taken before a client that has reset it is noticed by writing.
                self.shadow.ready = true;
                self.carry_in(WINDOW, u64::MAX);
                if self.has(flag::RESET_IN) {
                    return;
                }
            }
            let known = self.get(stream_words::RECEIVED);
            let received = known + (far.outgoing().announced().wrapping_sub(known) & word::POSITION);
            self.set(stream_words::RECEIVED, received);
            // Nothing but a token was written before, or everything was read: there is room.
            let kind = if never { NEVER_FAST } else { BY_ENGINE };
            if !self.shadow.write(self.local, self.stream, received, kind) {
                return self.pump.broken(self.stream);
            }
            self.happens(Event::RecordWritten);
            if never {
                return self.go_on_from(0);
            }
        }
        match self.next() {
            Next::Record(position, BY_ENGINE) => {
                self.consume_record();
                self.go_on_from(position);
            }
            Next::Record(position, ENDED) => self.conclude_by(position),
            Next::Nothing => {}
            _ => self.pump.broken(self.stream),
        }
    }

    /// The other side has everything of ours, and its end is behind `position` bytes.
    fn conclude_by(&mut self, position: u64) {
        self.consume_record();
        let far = self.local.far(self.stream);
        if position != self.get(stream_words::RECEIVED) || !self.has(flag::FIN_OUT) {
            return self.pump.broken(self.stream);
        }
        let (_, waiting) = far.incoming().look();
        far.incoming().pass(waiting);
        self.set(stream_words::ACKNOWLEDGED, self.get(stream_words::SENT));
        self.pump.tell(self.stream, arm::OUT);
        self.pump.ended(self.stream);
    }

    /// The other end has all bytes before `position`, and gets those behind it by TCP.
    fn go_on_from(&mut self, position: u64) {
        let far = self.local.far(self.stream);
        let passed = far.own().receive.position.load(Ordering::Relaxed);
        let (_, waiting) = far.incoming().look();
        // What it says is bounded by what the program has sent, and what it has confirmed before.
        let Some(more) = position.checked_sub(passed).filter(|more| *more <= waiting as u64) else {
            return self.pump.broken(self.stream);
        };
        if more > 0 {
            far.incoming().pass(more as usize);
            self.pump.tell(self.stream, arm::OUT);
        }
        self.set(stream_words::SENT, position);
        self.set(stream_words::ACKNOWLEDGED, position);
        let behind = (self.get(stream_words::MARK) & word::POSITION).wrapping_sub(position) & word::POSITION;
        if behind < 1 << 47 {
            self.set(stream_words::MARK, 0);
        }
        self.by_tcp_for_good(Event::Agreed);
        if self.has(flag::BULK) {
            self.shadow.short_at = 0;
            switch_to_tcp::mark(self.local, self.stream, true);
        }
    }

    // ---- carrying ------------------------------------------------------------------------------------------------

    fn carry(&mut self) {
        self.carry_in(WINDOW, u64::MAX);
        self.carry_out();
        match self.get(stream_words::SHORT_UNTIL) {
            0 if self.now >= self.shadow.short_at => self.begin_short(),
            0 => {}
            until => self.keep_short(until),
        }
    }

    /// Unless others have the stream, too, or an end was said: then its program does not ask.
    fn begin_short(&mut self) {
        let far = self.local.far(self.stream);
        let shared = far.peer().receive.state.load(Ordering::Acquire) & (state::SHARED | state::OWNED) != 0;
        if shared || self.has(flag::FIN_IN | flag::FIN_OUT) {
            self.shadow.short_at = self.now + switch_to_tcp::BETWEEN;
            return;
        }
        let empty = far.incoming().look().1 == 0 && far.outgoing().unacknowledged() == 0;
        let moved = self.get(stream_words::RECEIVED).wrapping_add(self.get(stream_words::SENT));
        if empty && moved == self.shadow.tried {
            return; // its next call finds them empty in any case
        }
        self.shadow.tried = moved;
        self.set(stream_words::SHORT_UNTIL, self.now + switch_to_tcp::PATIENCE);
        self.shadow.look_at = self.shadow.look_at.min(self.now + SHORTLY);
    }

    /// A stream that its program is to leave, until then: the rings empty, or have their room again.
    fn keep_short(&mut self, until: u64) {
        if self.now < until {
            self.shadow.look_at = self.shadow.look_at.min(self.now + SHORTLY);
            return;
        }
        self.set(stream_words::SHORT_UNTIL, 0);
        self.shadow.short_at = self.now + self.shadow.between;
        self.shadow.between = (2 * self.shadow.between).min(switch_to_tcp::AT_MOST);
        self.shadow.tried = self.get(stream_words::RECEIVED).wrapping_add(self.get(stream_words::SENT));
        fence(Ordering::SeqCst); // a thread that shortens it in this moment sees that, or its store is seen here
        let far = self.local.far(self.stream);
        switch_to_tcp::lengthen(self.local, self.stream, far.peer(), far.own());
        self.pump.tell(self.stream, arm::OUT);
        self.shadow.look_at = self.now;
    }

    fn reset(&mut self) {
        self.happens(Event::ResetSaid);
        // At once: a program whose bytes are refused may keep its descriptor for long.
        let nobody = [0u8; 16]; // AF_UNSPEC: tcp_disconnect sends the reset
        let _ = calls::connect(self.shadow.fd, nobody.as_ptr().cast(), 16);
        self.pump.close_near(self.stream, word::RST | word::FIN | word::CLOSED);
    }

    /// The end of what this side sends, by TCP.
    fn say_end(&self) {
        if !self.has(flag::FIN_OUT) {
            let _ = calls::shutdown(self.shadow.fd, libc::SHUT_WR);
            self.happens(Event::EndSaid);
        }
    }

    /// From the near ring into the shadow.
    fn carry_out(&mut self) {
        let far = self.local.far(self.stream);
        let mut room = Scratch::default();
        let Ok(bytes) = room.get() else { return };
        // SAFETY: as many bytes of memory, at least, which are this call's.
        let bytes = unsafe { &mut *bytes.cast::<[u8; PIECE]>() };
        for _ in 0..PIECES {
            let (near_word, waiting) = far.incoming().look();
            // What was sent before arrives before it, as far as there is room.
            let held = waiting == 0 || self.shadow.blocked || self.has(flag::FIN_OUT);
            if held && self.pump.is_to_be_reset(self.stream, near_word) {
                if waiting == 0 && near_word & word::LATE != 0 {
                    self.say_end();
                }
                return self.reset();
            }
            if waiting == 0 {
                if near_word & (word::FIN | word::CLOSED) != 0 || self.has(flag::NEAR_GONE) {
                    self.say_end();
                }
                return;
            }
            if self.shadow.blocked {
                return;
            }
            let (mut most, mut out_of_band) = (waiting.min(PIECE), 0);
            let marked = far.peer().urgent.load(Ordering::Acquire);
            if marked & mark::VALID != 0 && marked != self.get(stream_words::MARK) {
                match (marked & word::POSITION).wrapping_sub(self.get(stream_words::SENT)) & word::POSITION {
                    0 => (most, out_of_band) = (1, MSG_OOB),
                    ahead if ahead < most as u64 => most = ahead as usize,
                    _ => {}
                }
            }
            // SAFETY: room of ours; the station's lock is this side's receiving lock.
            let Ok(got @ 1..) = (unsafe { far.incoming().peek(0, bytes.as_mut_ptr(), most) }) else {
                return self.pump.refuse(self.stream);
            };
            match self.send(&bytes[..got], out_of_band) {
                Ok(sent) => {
                    if out_of_band != 0 && sent == 1 {
                        self.set(stream_words::MARK, marked);
                    }
                    far.incoming().pass(sent);
                    let position = self.get(stream_words::SENT) + sent as u64;
                    self.set(stream_words::SENT, position);
                    self.set(stream_words::ACKNOWLEDGED, position);
                    self.pump.tell(self.stream, arm::OUT);
                }
                Err(Errno(libc::EAGAIN)) => self.shadow.blocked = true,
                Err(Errno(libc::EINTR)) => {}
                Err(_) if self.has(flag::FIN_IN) => return self.pump.broken(self.stream),
                // The reason is read behind the bytes that came before it.
                Err(_) => {
                    // Before the token that may be one: a look for it reads it first.
                    (self.shadow.blocked, self.shadow.ready) = (true, true);
                    self.shadow.look_at = self.now + AGAIN;
                    return;
                }
            }
        }
        self.shadow.look_at = self.now; // there is more
    }

    /// Behind its end the other side may still reset the connection, which nothing that is read tells.
    fn look_for_reset(&mut self) {
        if core::mem::take(&mut self.shadow.ready) && !self.has(flag::FIN_OUT) {
            let events = calls::poll_one(self.shadow.fd, 0, 0).unwrap_or(0);
            if events & libc::POLLERR != 0 {
                self.pump.broken(self.stream);
            }
        }
    }

    /// From the shadow into the near ring: as long as the program has at most `most` unread bytes, and up to the position `limit`.
    fn carry_in(&mut self, most: u64, limit: u64) {
        let far = self.local.far(self.stream);
        let mut room = Scratch::default();
        let Ok(bytes) = room.get() else { return };
        // SAFETY: as many bytes of memory, at least, which are this call's.
        let bytes = unsafe { &mut *bytes.cast::<[u8; PIECE]>() };
        for _ in 0..PIECES {
            let (received, unread) = (self.get(stream_words::RECEIVED), far.outgoing().unacknowledged());
            // The look whether the program has read ([`super::keeper`]) asks for this.
            self.set(stream_words::GRANTED, received.saturating_sub(unread) + WINDOW);
            let short = self.get(stream_words::SHORT_UNTIL) != 0;
            if short && (unread > 0 || self.now < self.shadow.bring_at) {
                return;
            }
            let room = most.saturating_sub(unread).min(limit.saturating_sub(received)).min(PIECE as u64) as usize;
            if self.has(flag::FIN_IN) {
                return self.look_for_reset();
            }
            if !self.shadow.ready || room == 0 {
                return;
            }
            // SAFETY: room of ours.
            match unsafe { tcp_oob::take(self.shadow.fd, bytes.as_mut_ptr(), room) } {
                // The kernel tells a reset once.
                Ok((0, _)) if self.shadow.reset_at != 0 => return self.pump.broken(self.stream),
                Ok((0, _)) => self.pump.ended(self.stream),
                Ok((got, urgent)) => {
                    if !self.pump.takes(self.stream) {
                        return;
                    }
                    // Its mark may have come by the engine, and its byte not.
                    let place = mark::VALID | far.outgoing().announced() & word::POSITION;
                    if urgent && far.own().urgent.load(Ordering::Relaxed) & (mark::VALID | word::POSITION) != place {
                        shunt_stream::urgent::mark(far);
                        shunt_stream::waiting::wake::ring_urgent(far, self.local.far_fd(self.stream));
                    }
                    // SAFETY: plain memory of ours; the station's lock is this side's sending lock.
                    let put = unsafe { far.outgoing().send(bytes.as_ptr(), got) };
                    self.pump.add(self.stream, stream_words::RECEIVED, put as u64);
                    self.pump.tell(self.stream, arm::IN);
                    if short {
                        self.shadow.bring_at = self.now + BROUGHT;
                    }
                    if put < got {
                        return self.pump.refuse(self.stream); // a program that wrote over its own ring
                    }
                }
                Err(Errno(libc::EAGAIN)) => return self.shadow.ready = false,
                Err(Errno(libc::EINTR)) => {}
                Err(_) if stream_words::way(&self.local.station, self.stream) == mode::CLAIMED => {
                    (self.shadow.ready, self.shadow.reset_at) = (false, self.now);
                    return;
                }
                Err(_) => return self.pump.broken(self.stream),
            }
        }
        self.shadow.look_at = self.now; // there may be more
    }
}
