//! Setting up a connection, noticing that the peer restarted, and the end.
//!
//! ```text
//!  A                                             B
//!  connect: token a
//!  CONNECT(token a, echo 0)  ─────────────────►  nothing is changed: b is drawn and kept aside
//!              ◄─────────────────  CONNECT(token b, echo a)
//!  up: somebody saw a
//!  CONNECT(token a, echo b), or data to b  ────►  up: somebody saw b. An older connection is lost: restarted
//!  (again, until something comes)   ◄───────────  CONNECT(token b, echo a, confirm), or data to a
//! ```
//!
//! Tokens are random, 64 bits, and new for each connection: they are the epoch by which frames of an older one are known.
//! A forged or replayed hello costs one answer; it changes nothing, because only an echo of a fresh token does. Where the
//! tokens travel by a way that both sides trust already (the sockets' shadow connection), `offer` and `adopt` set up the
//! connection without these frames.

use crate::check::Sum;
use crate::config::{Nanoseconds, MILLISECOND};
use crate::connection::Side;
use crate::dispatch::{Dispatch, Event, Link, Reason};
use crate::frame::{Hello, Kind, Short, CONFIRM, SHORT};
use crate::state::{life, Parameters};

/// First pause before a hello is sent again; it doubles up to a second.
const AGAIN: Nanoseconds = 20 * MILLISECOND;
/// Resets that may be sent: one in so long, to all peers together.
const RESET_PAUSE: Nanoseconds = MILLISECOND;

/// The integrity word of frames that belong to no connection yet.
pub(crate) fn greeting_check(head: &[u8; SHORT], body: &[u8]) -> u32 {
    let mut head = *head;
    head[4..8].fill(0);
    Sum::new(0).add(&head).add(body).finish()
}

impl From<Hello> for Parameters {
    fn from(hello: Hello) -> Self {
        Self {
            epoch: hello.epoch,
            token: hello.token,
            window: hello.window,
            channels: hello.channels,
            frame: hello.frame,
            limit: hello.limit,
        }
    }
}

impl Side<'_> {
    pub(crate) fn hello(&self, token: u64) -> Hello {
        let config = &self.shared.config;
        Hello {
            epoch: self.shared.epoch,
            token,
            window: config.window,
            channels: config.channels,
            frame: config.frame,
            limit: config.replies,
            reliable: config.reliable,
        }
    }

    /// Sends a frame of 16 bytes and a body, outside any sequence.
    fn send_short(&mut self, kind: Kind, flags: u8, token: u64, body: &[u8], link: &mut dyn Link) -> bool {
        let mut head = [0; SHORT];
        let short = Short { kind, flags, channel: 0, check: 0, token };
        short.emit(&mut head);
        let check = greeting_check(&head, body);
        Short { check, ..short }.emit(&mut head);
        let mut frame = [0; SHORT + Hello::SIZE];
        frame[..SHORT].copy_from_slice(&head);
        frame[SHORT..SHORT + body.len()].copy_from_slice(body);
        link.send(self.index, &frame[..SHORT + body.len()], &[])
    }

    /// Begins to set up a connection; one that is up ends first.
    pub(crate) fn connect(&mut self, now: Nanoseconds, link: &mut dyn Link) {
        if self.peer.life != life::IDLE {
            return;
        }
        let (pending, pending_token) = (self.peer.pending, self.peer.pending_token);
        self.clear();
        self.peer.life = life::CONNECTING;
        // A peer that already asked is answered rather than asked.
        self.peer.pending = pending;
        self.peer.token = if pending_token != 0 { pending_token } else { self.draw() };
        self.peer.lost_at = now + self.shared.config.lost_after();
        self.send_hello(now, link);
        self.schedule(now);
    }

    pub(crate) fn send_hello(&mut self, now: Nanoseconds, link: &mut dyn Link) {
        let body = self.hello(self.peer.token).emit();
        let echo = if self.is_up() { self.peer.remote_token } else { self.peer.pending.token };
        self.send_short(Kind::Connect, 0, echo, &body, link);
        self.peer.connect_at = now + (AGAIN << self.peer.tries.min(6)).min(1000 * MILLISECOND);
        self.peer.tries += 1;
    }

    /// A hello arrived: whose echo of our token is `echo`.
    pub(crate) fn greeted(
        &mut self,
        now: Nanoseconds,
        flags: u8,
        echo: u64,
        hello: Hello,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) {
        if hello.reliable != self.shared.config.reliable {
            self.peer.counters.violations += 1;
            return;
        }
        if self.is_up() && hello.token == self.peer.remote_token && echo == self.peer.token {
            self.peer.unconfirmed = 0;
            // It wants to know that we know.
            if flags & CONFIRM == 0 {
                self.confirm(link);
            }
            return;
        }
        let ours = match self.peer.life {
            life::CONNECTING => self.peer.token,
            _ => self.peer.pending_token,
        };
        if echo != 0 && echo == ours && (self.peer.life == life::CONNECTING || hello.token == self.peer.pending.token) {
            let asked = self.peer.life == life::CONNECTING;
            self.establish(now, ours, hello.into(), dispatch);
            if asked {
                // It is up when this arrives; said again until there is a sign that it has.
                self.peer.unconfirmed = 1;
                self.send_hello(now, link);
                self.schedule(now);
            } else if flags & CONFIRM == 0 {
                self.confirm(link);
            }
            return;
        }
        if flags & CONFIRM != 0 || self.shared.config.accept == 0 && self.peer.life != life::CONNECTING {
            self.peer.counters.stale += 1;
            return;
        }
        // A question: answered with what we would be called, and kept aside until that comes back.
        if self.peer.pending.token != hello.token {
            self.peer.pending = hello.into();
            self.peer.pending_token = if self.peer.life == life::CONNECTING { self.peer.token } else { self.draw() };
        } else if self.peer.pending_token == 0 {
            self.peer.pending_token = if self.peer.life == life::CONNECTING { self.peer.token } else { self.draw() };
        }
        let body = self.hello(self.peer.pending_token).emit();
        self.send_short(Kind::Connect, 0, hello.token, &body, link);
    }

    fn confirm(&mut self, link: &mut dyn Link) {
        let body = self.hello(self.peer.token).emit();
        self.send_short(Kind::Connect, CONFIRM, self.peer.remote_token, &body, link);
    }

    /// Both tokens are proven.
    pub(crate) fn establish(&mut self, now: Nanoseconds, token: u64, remote: Parameters, dispatch: &mut dyn Dispatch) {
        if self.is_up() {
            self.lose(now, Reason::Restarted, dispatch);
        }
        self.install(now, token, remote);
        self.schedule(now);
        dispatch.event(self.index, Event::Up);
    }

    /// Data came to the token that we offered: its sender saw our answer.
    pub(crate) fn accept_pending(&mut self, now: Nanoseconds, token: u64, dispatch: &mut dyn Dispatch) -> bool {
        if token == 0 || token != self.peer.pending_token || self.peer.pending.token == 0 {
            return false;
        }
        let pending = self.peer.pending;
        self.establish(now, token, pending, dispatch);
        true
    }

    /// Ends the connection here; the program hears why.
    pub(crate) fn lose(&mut self, now: Nanoseconds, reason: Reason, dispatch: &mut dyn Dispatch) {
        if self.peer.life == life::IDLE {
            return;
        }
        let (pending, pending_token) = (self.peer.pending, self.peer.pending_token);
        self.clear();
        self.peer.pending = pending;
        self.peer.pending_token = pending_token;
        self.peer.watched = 0;
        self.schedule(now);
        dispatch.event(self.index, Event::Lost(reason));
    }

    /// Ends the connection, and tells the peer, once.
    pub(crate) fn disconnect(&mut self, now: Nanoseconds, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        if self.is_up() {
            // What arrived is said to have arrived, so that the peer does not count it as lost.
            if self.peer.unacknowledged > 0 && !self.reliable() {
                self.send_acknowledgement(now, link);
            }
            self.send_short(Kind::Bye, 0, self.peer.remote_token, &[], link);
        }
        self.lose(now, Reason::Closed, dispatch);
    }

    /// Tells the sender of a frame that there is no such connection.
    pub(crate) fn reset(&mut self, now: Nanoseconds, token: u64, link: &mut dyn Link) {
        self.peer.counters.stale += 1;
        if now >= self.shared.reset_at {
            self.shared.reset_at = now + RESET_PAUSE;
            self.send_short(Kind::Reset, 0, token, &[], link);
        }
    }
}
