//! Setting up a connection, noticing that the peer restarted, and the end.
//!
//! Each side has a *name* for its next connection: a random number that it has not used, and tells each peer that asks. A
//! connection is a pair of names, and a name is used for one connection at most.
//!
//! ```text
//!  A: next name a                                  B: next name b
//!  connect
//!  ASK a                         ─────────────►    nothing is changed
//!                                ◄─────────────    ANSWER b, to a
//!  up, as (a, b): B saw a
//!  PROVE a, to b; or data        ─────────────►    up, as (b, a): A saw b. An older connection is lost: restarted
//!  (again, until something of    ◄─────────────    CONFIRM b, to a; or data
//!   this connection comes)
//! ```
//!
//! What arrives, and in which state. "Reset" is the answer that its sender's connection does not exist here:
//!
//! | | idle | connecting | up, as (own, other) |
//! |---|---|---|---|
//! | ASK x | ANSWER with the next name | the same | x = other: nothing. Else ANSWER with the next name |
//! | ANSWER x, to y | nothing | y is the next name: up as (y, x), PROVE | nothing |
//! | PROVE x, to y | y is the next name: up as (y, x), CONFIRM. Else reset | the same | (y, x) is this one: CONFIRM. y is the next name: this one is lost, up as (y, x), CONFIRM. Else reset |
//! | CONFIRM x, to y | reset | reset | (y, x) is this one: it is confirmed. Else reset |
//! | data of (y, x) | y is the next name and x asked last: up as (y, x). Else reset, unless *tentative* | the same | this one's: confirmed. Else as when idle |
//! | reset, bye of (y, x) | nothing | nothing | (y, x) is this one: lost |
//!
//! Frames of a connection are *tentative* while their sender does not know that the receiver is up: they may overtake PROVE,
//! whose answer decides. `docs/ARCHITECTURE.md` says why old frames do no harm, and `explore` tries all of them.
//!
//! Where names travel by a way that both sides trust already, `offer` and `adopt` set up the connection without these frames.

use crate::check::Sum;
use crate::config::{Nanoseconds, MILLISECOND};
use crate::connection::Side;
use crate::dispatch::{Dispatch, Event, Link, Reason, Refused};
use crate::frame::{Hello, Kind, Short, SHORT, TENTATIVE};
use crate::state::{life, sign, Parameters};
use shunt_secret::siphash;

#[cfg(test)]
mod explore;

/// First pause before a hello is sent again; it doubles up to a second.
const AGAIN: Nanoseconds = 20 * MILLISECOND;
/// Resets that may be sent: one in so long, to all peers together.
const RESET_PAUSE: Nanoseconds = MILLISECOND;

/// The integrity word of frames that belong to no connection yet, and of resets and byes: any host can make it.
#[must_use]
pub fn greeting_check(head: &[u8; SHORT], body: &[u8]) -> u32 {
    let mut head = *head;
    head[4..8].fill(0);
    Sum::new(0).add(&head).add(body).finish()
}

/// The token in frames to `receiver` from `sender`: names of a connection's sides. It fits no other pair, so that frames of a
/// connection that the receiver does not know, of a peer that set up two with one name of ours, are never taken for this one's.
pub(crate) fn pair_token(receiver: u64, sender: u64) -> u64 {
    siphash([receiver, sender], &[]).max(1)
}

impl From<Hello> for Parameters {
    fn from(hello: Hello) -> Self {
        Self {
            epoch: hello.epoch,
            name: hello.name,
            window: hello.window,
            channels: hello.channels,
            frame: hello.frame,
            limit: hello.limit,
        }
    }
}

impl Side<'_> {
    /// The name that was used for no connection yet.
    fn next_name(&mut self) -> u64 {
        if self.peer.next_name == 0 {
            self.peer.next_name = self.draw();
        }
        self.peer.next_name
    }

    fn hello(&self, name: u64) -> Hello {
        let config = &self.shared.config;
        Hello {
            epoch: self.shared.epoch,
            name,
            window: config.window,
            channels: config.channels,
            frame: self.wanted_frame(),
            limit: config.replies,
            reliable: config.reliable,
        }
    }

    /// Sends a frame of 16 bytes and a body, outside any sequence.
    fn send_short(&mut self, kind: Kind, token: u64, body: &[u8], link: &mut dyn Link) {
        let mut head = [0; SHORT];
        let short = Short { kind, flags: 0, channel: 0, check: 0, token };
        short.emit(&mut head);
        let check = greeting_check(&head, body);
        Short { check, ..short }.emit(&mut head);
        let mut frame = [0; SHORT + Hello::SIZE];
        frame[..SHORT].copy_from_slice(&head);
        frame[SHORT..SHORT + body.len()].copy_from_slice(body);
        // A peer that needs it asks again.
        let _ = link.send(self.index, &frame[..SHORT + body.len()], &[]);
    }

    /// Tells the peer `name`, and that its name `to` is known.
    fn greet(&mut self, kind: Kind, name: u64, to: u64, link: &mut dyn Link) {
        let body = self.hello(name).emit();
        self.send_short(kind, to, &body, link);
    }

    /// Begins to set up a connection, unless one is up or on its way.
    pub(crate) fn connect(&mut self, now: Nanoseconds, link: &mut dyn Link) {
        if self.peer.life != life::IDLE {
            return;
        }
        self.clear();
        self.peer.life = life::CONNECTING;
        self.peer.lost_at = now + self.shared.config.lost_after();
        self.insist(now, link);
        self.schedule(now);
    }

    /// Asks, or proves, again.
    pub(crate) fn insist(&mut self, now: Nanoseconds, link: &mut dyn Link) {
        if self.is_up() {
            self.greet(Kind::Prove, self.peer.own_name, self.peer.remote.name, link);
        } else {
            let name = self.next_name();
            self.greet(Kind::Ask, name, 0, link);
        }
        self.peer.connect_at = now + (AGAIN << self.peer.tries.min(6)).min(1000 * MILLISECOND);
        self.peer.tries = self.peer.tries.saturating_add(1);
    }

    /// A hello arrived, which knows our name `to` (0 in questions).
    pub(crate) fn greeted(
        &mut self,
        now: Nanoseconds,
        kind: Kind,
        to: u64,
        hello: Hello,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) {
        if hello.reliable != self.shared.config.reliable {
            self.peer.counters.violations += 1;
            return;
        }
        // Our own frame, reflected: we would be connected with ourselves.
        let reflected = [self.peer.own_name, self.peer.next_name].contains(&hello.name);
        let current = self.is_up() && hello.name == self.peer.remote.name;
        let this = current && to == self.peer.own_name;
        let next = to != 0 && to == self.peer.next_name;
        let connecting = self.peer.life == life::CONNECTING;
        let accepts = connecting || self.shared.config.accept != 0;
        match kind {
            _ if reflected => self.peer.counters.stale += 1,
            Kind::Ask if accepts && !current => {
                self.peer.asker = hello.into();
                let name = self.next_name();
                self.greet(Kind::Answer, name, hello.name, link);
            }
            Kind::Answer if connecting && next => {
                self.establish(now, hello.into(), sign::PROVING, dispatch);
                self.insist(now, link);
                self.schedule(now);
            }
            Kind::Prove if this || next && accepts => {
                if !this {
                    self.establish(now, hello.into(), sign::CONFIRMED, dispatch);
                }
                self.peer.sign = sign::CONFIRMED;
                self.greet(Kind::Confirm, self.peer.own_name, hello.name, link);
            }
            Kind::Confirm if this => self.peer.sign = sign::CONFIRMED,
            // We never will be in that connection: it ended here, or was another life's.
            Kind::Prove | Kind::Confirm if to != 0 && !next => self.reset(now, pair_token(to, hello.name), link),
            _ => self.peer.counters.stale += 1,
        }
    }

    /// The peer proved that it knows our next name, and we know its.
    fn establish(&mut self, now: Nanoseconds, remote: Parameters, sign: u32, dispatch: &mut dyn Dispatch) {
        if self.is_up() {
            self.lose(now, Reason::Restarted, dispatch);
        }
        let own = self.next_name();
        self.install(now, own, remote);
        self.peer.next_name = 0;
        self.peer.sign = sign;
        self.schedule(now);
        dispatch.event(self.index, Event::Up);
    }

    /// What to tell the peer so that it can adopt our next connection.
    pub(crate) fn offer(&mut self) -> Hello {
        let name = self.next_name();
        self.peer.offered = name;
        self.hello(name)
    }

    /// Sets up a connection from offers. Over a device that loses frames the first ones are tentative: the peer may adopt later.
    pub(crate) fn adopt(&mut self, now: Nanoseconds, hello: Hello, dispatch: &mut dyn Dispatch) -> Result<(), Refused> {
        let offered = self.peer.offered != 0 && self.peer.offered == self.peer.next_name;
        if !offered || hello.reliable != self.shared.config.reliable || hello.name == self.peer.next_name {
            return Err(Refused::Argument);
        }
        self.establish(now, hello.into(), sign::ADOPTED, dispatch);
        Ok(())
    }

    /// Whether a frame with a token is for the connection that is up, or sets up the one that was asked for last: its sender saw
    /// our answer.
    #[inline]
    pub(crate) fn addressed(
        &mut self,
        now: Nanoseconds,
        short: &Short,
        link: &mut dyn Link,
        dispatch: &mut dyn Dispatch,
    ) -> bool {
        // The token is 0 when nothing is up.
        if short.token == self.peer.token && short.token != 0 {
            self.peer.sign = sign::CONFIRMED;
            return true;
        }
        self.addressed_elsewhere(now, short, link, dispatch)
    }

    #[cold]
    fn addressed_elsewhere(&mut self, now: Nanoseconds, short: &Short, link: &mut dyn Link, dispatch: &mut dyn Dispatch) -> bool {
        let asker = self.peer.asker;
        if self.peer.next_name != 0 && asker.name != 0 && short.token == pair_token(self.peer.next_name, asker.name) {
            self.establish(now, asker, sign::CONFIRMED, dispatch);
            return true;
        }
        // Over a device that loses nothing no frame overtakes another, and what is dropped never comes again.
        if short.flags & TENTATIVE != 0 && !self.reliable() {
            self.peer.counters.stale += 1;
        } else {
            self.reset(now, short.token, link);
        }
        false
    }

    /// Ends the connection here; the program hears why.
    pub(crate) fn lose(&mut self, now: Nanoseconds, reason: Reason, dispatch: &mut dyn Dispatch) {
        match self.peer.life {
            life::IDLE => return,
            // The next attempt is another one: what still answers this one comes too late.
            life::CONNECTING => self.peer.next_name = 0,
            _ => match reason {
                Reason::Stuck => self.peer.short = self.shorter(),
                // The next one tries long frames again.
                Reason::Closed => self.peer.short = 0,
                // Nothing was carried: it says nothing of the path.
                Reason::Silent | Reason::Unreachable | Reason::Restarted | Reason::Reset => {}
            },
        }
        self.clear();
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
            self.send_short(Kind::Bye, self.peer.remote_token, &[], link);
        }
        self.lose(now, Reason::Closed, dispatch);
    }

    /// The path lets no more of our frames through: the peer, which hears short ones, is told once, too.
    pub(crate) fn abandon(&mut self, now: Nanoseconds, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        self.send_short(Kind::Bye, self.peer.remote_token, &[], link);
        self.lose(now, Reason::Stuck, dispatch);
    }

    /// Tells the sender of a frame that there is no such connection, and never will be.
    fn reset(&mut self, now: Nanoseconds, token: u64, link: &mut dyn Link) {
        self.peer.counters.stale += 1;
        if now >= self.shared.reset_at {
            self.shared.reset_at = now + RESET_PAUSE;
            self.send_short(Kind::Reset, token, &[], link);
        }
    }
}
