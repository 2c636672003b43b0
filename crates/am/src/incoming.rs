//! Frames from the device: which peer sent them, and whether they are new.
//!
//! A frame is judged as a whole before anything of it is done: one that is not all in order has no effect but a count.

use crate::config::{Nanoseconds, MAXIMUM_WINDOW, MICROSECOND};
use crate::connection::{expand, Side};
use crate::dispatch::{Body, Data, Dispatch, Link, Reason};
use crate::frame::{Hello, Kind, Numbers, Rejection, Short, FULL, PROMPT, SHORT};
use crate::handshake::greeting_check;
use crate::state::life;
use crate::transmit::integrity;

impl Side<'_> {
    /// One frame, `bytes` and then `rest`.
    pub(crate) fn receive(
        &mut self,
        now: Nanoseconds,
        bytes: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) {
        let outcome = match Short::parse(bytes) {
            Ok(short) if short.kind == Kind::Plain && self.reliable() => {
                self.receive_plain(now, &short, bytes, rest, link, dispatch)
            }
            Ok(short) => self.receive_other(now, &short, bytes, rest, link, dispatch),
            Err(rejection) => Err(rejection),
        };
        if outcome.is_err() {
            self.peer.counters.rejected += 1;
        }
    }

    /// A frame over a device that loses nothing.
    fn receive_plain(
        &mut self,
        now: Nanoseconds,
        short: &Short,
        bytes: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<(), Rejection> {
        if !self.addressed(now, short, link, dispatch) {
            return Ok(());
        }
        self.peer.heard = 1;
        self.peer.counters.frames_received += 1;
        let ahead = short.check.wrapping_sub(self.peer.requests_sent) as i32;
        if ahead > MAXIMUM_WINDOW as i32 {
            return self.violation();
        }
        if self.peer.limit.wrapping_sub(short.check) as i32 <= 0 {
            self.peer.limit = short.check;
            if ahead > 0 {
                self.peer.starved = 0;
            }
        }
        let messages = &bytes[SHORT..];
        if messages.is_empty() {
            if short.flags & PROMPT != 0 {
                self.peer.acknowledge_now = 1;
                self.mark_busy();
            }
            return Ok(());
        }
        let taken = self.peer.requests_taken;
        let single = if short.channel == 0 && rest.is_none() { self.single(messages)? } else { None };
        match single {
            Some(single) => self.run_single(now, &single, link, dispatch),
            None => {
                let need = self.judge(short.channel, messages, rest)?;
                if !self.affords(short.channel, &need) {
                    return self.violation();
                }
                self.account(short.channel, &need);
                self.deliver(now, short.channel, messages, rest, link, dispatch);
            }
        }
        if self.peer.requests_taken != taken {
            let news = self.request_limit().wrapping_sub(self.peer.limit_said) as i32;
            if news >= (self.shared.config.replies / 2).max(1) as i32 {
                self.mark_busy();
            }
        }
        Ok(())
    }

    fn violation(&mut self) -> Result<(), Rejection> {
        self.peer.counters.violations += 1;
        Ok(())
    }

    fn receive_other(
        &mut self,
        now: Nanoseconds,
        short: &Short,
        bytes: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<(), Rejection> {
        if short.kind == Kind::Data {
            return self.receive_numbered(now, short, bytes, rest, link, dispatch);
        }
        if rest.is_some() {
            return Err(Rejection::Message);
        }
        let body = &bytes[SHORT..];
        let hello = matches!(short.kind, Kind::Ask | Kind::Answer | Kind::Prove | Kind::Confirm);
        if hello || matches!(short.kind, Kind::Reset | Kind::Bye) {
            let head = bytes.first_chunk::<SHORT>().ok_or(Rejection::Short)?;
            if greeting_check(head, body) != short.check {
                return Err(Rejection::Check);
            }
        }
        match short.kind {
            Kind::Ask | Kind::Answer | Kind::Prove | Kind::Confirm => {
                self.greeted(now, short.kind, short.token, Hello::parse(body)?, link, dispatch);
            }
            Kind::Reset if self.is_up() && short.token == self.peer.remote_token => self.lose(now, Reason::Reset, dispatch),
            Kind::Bye if self.is_up() && short.token == self.peer.token => self.lose(now, Reason::Closed, dispatch),
            Kind::Reset | Kind::Bye => self.peer.counters.stale += 1,
            Kind::Plain => return Err(Rejection::Kind),
            Kind::Data | Kind::Acknowledge | Kind::Probe => {
                return self.receive_numbered(now, short, bytes, None, link, dispatch)
            }
        }
        Ok(())
    }

    fn receive_numbered(
        &mut self,
        now: Nanoseconds,
        short: &Short,
        bytes: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<(), Rejection> {
        let numbers = Numbers::parse(bytes)?;
        let body = &bytes[FULL..];
        if self.reliable() {
            return self.violation();
        }
        if self.shared.config.checked == 0 {
            if rest.is_some() {
                // What is not in private memory cannot be judged.
                return Err(Rejection::Check);
            }
            let mut head = *bytes.first_chunk::<FULL>().ok_or(Rejection::Short)?;
            head[4..8].fill(0);
            if integrity(short.token, &head, body) != short.check {
                return Err(Rejection::Check);
            }
        }
        if !self.addressed(now, short, link, dispatch) {
            return Ok(());
        }
        self.peer.last_heard = now;
        self.peer.counters.frames_received += 1;
        let map = (short.kind == Kind::Acknowledge).then_some(body);
        let sane = self.acknowledge(now, &numbers, map);
        self.tell_acknowledged(dispatch);
        if !sane {
            return self.violation();
        }
        match short.kind {
            Kind::Data => self.receive_packet(now, short, &numbers, body, rest, link, dispatch),
            Kind::Probe => {
                self.note_time(now, &numbers);
                self.peer.acknowledge_now = 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[inline(always)]
    pub(crate) fn note_time(&mut self, now: Nanoseconds, numbers: &Numbers) {
        self.peer.echo = numbers.time;
        self.peer.echo_at = now;
    }

    fn receive_packet(
        &mut self,
        now: Nanoseconds,
        short: &Short,
        numbers: &Numbers,
        body: &[u8],
        rest: Option<&dyn Body>,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> Result<(), Rejection> {
        let sequence = expand(self.peer.received, numbers.sequence);
        let (word, bit) = (sequence as usize / 64 % self.peer.map.len(), 1u64 << (sequence % 64));
        if sequence < self.peer.received || self.peer.map[word] & bit != 0 {
            // Our acknowledgement was lost, or the network doubles frames.
            self.peer.counters.duplicates += 1;
            self.note_time(now, numbers);
            self.peer.acknowledge_now = 1;
            return Ok(());
        }
        let window = u64::from(self.shared.config.window);
        let in_order = self.shared.config.selective != 0 || sequence == self.peer.received;
        if sequence >= self.peer.received + window || !in_order {
            self.peer.counters.overruns += 1;
            self.peer.acknowledge_now = 1;
            return Ok(());
        }
        if short.channel == 0 && rest.is_none() && !body.is_empty() {
            if let Some(single) = self.single(body)? {
                self.note_time(now, numbers);
                self.mark_received(now, sequence, short.flags);
                self.run_single(now, &single, link, dispatch);
                return Ok(());
            }
        }
        let need = self.judge(short.channel, body, rest)?;
        if !self.affords(short.channel, &need) {
            return self.violation();
        }
        let lane = usize::from(short.channel);
        let early = match self.channels.get(lane) {
            _ if short.channel == 0 => 0,
            Some(channel) => numbers.in_channel.wrapping_sub(channel.next_delivered) as i32,
            None => return self.violation(),
        };
        if early < 0 || early > window as i32 {
            return self.violation();
        }
        if early > 0 && !self.hold(short.channel, numbers.in_channel, Data { bytes: body, rest }) {
            self.peer.counters.overruns += 1;
            return Ok(());
        }
        self.note_time(now, numbers);
        self.mark_received(now, sequence, short.flags);
        self.account(short.channel, &need);
        if early == 0 {
            self.deliver(now, short.channel, body, rest, link, dispatch);
            if short.channel != 0 && self.is_up() {
                self.channels[lane].next_delivered = self.channels[lane].next_delivered.wrapping_add(1);
                self.deliver_held(now, short.channel, link, dispatch);
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn mark_received(&mut self, now: Nanoseconds, sequence: u64, flags: u8) {
        let peer = &mut *self.peer;
        let at = |sequence: u64| (sequence as usize / 64 % (MAXIMUM_WINDOW as usize / 64), 1u64 << (sequence % 64));
        let gap = peer.ahead > 0;
        if sequence == peer.received {
            peer.received += 1;
            loop {
                let (word, bit) = at(peer.received);
                if peer.map[word] & bit == 0 {
                    break;
                }
                peer.map[word] &= !bit;
                peer.ahead -= 1;
                peer.received += 1;
            }
        } else {
            let (word, bit) = at(sequence);
            peer.map[word] |= bit;
            peer.ahead += 1;
        }
        peer.unacknowledged += 1;
        let at_once = gap || peer.ahead > 0 || flags & PROMPT != 0;
        if at_once || peer.unacknowledged >= self.shared.config.acknowledge_every {
            peer.acknowledge_now = 1;
        } else if peer.acknowledge_at == 0 {
            peer.acknowledge_at = now + u64::from(self.shared.config.acknowledge_after) * MICROSECOND;
        }
        self.mark_busy();
    }

    pub(crate) fn is_connecting(&self) -> bool {
        self.peer.life == life::CONNECTING
    }
}
