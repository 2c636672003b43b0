//! Calls that end when their work is done, polling meanwhile.

use super::device_adapter::DeviceAdapter;
use super::{Name, Port, Shows, LOOKS};
use crate::config::Nanoseconds;
use crate::outgoing::{Get, Store};
use crate::{Dispatch, Engine, Refused};
use shunt_endpoint::{Endpoint, OpenError};
use shunt_region::Limit;
use std::time::Duration;

/// Why a blocking call ended without having done its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The time that the caller gave is over.
    TimedOut,
    /// The connection is not up, or ended: [`Dispatch::event`] said why.
    Lost,
    /// The call can never succeed.
    Refused(Refused),
    /// No channel to the peer was opened.
    Channel(OpenError),
    /// A region is not what its name says.
    Region(Limit),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TimedOut => to.write_str("timed out"),
            Self::Lost => to.write_str("the connection is lost"),
            Self::Refused(why) => why.fmt(to),
            Self::Channel(why) => why.fmt(to),
            Self::Region(why) => why.fmt(to),
        }
    }
}

impl std::error::Error for Trouble {}

/// A peer that is asked for signs of life, until this is dropped.
struct Watched<'p, 'm, E: Endpoint> {
    port: &'p mut Port<'m, E>,
    peer: u32,
}

impl<E: Endpoint> Drop for Watched<'_, '_, E> {
    fn drop(&mut self) {
        let _ = self.port.engine.watch(self.port.now, self.peer, false);
    }
}

impl<'m, E: Endpoint> Port<'m, E> {
    /// Polls until the condition holds. The peer is watched meanwhile, so that its death ends the wait.
    ///
    /// # Errors
    /// `TimedOut`, or `Lost` if the connection to `peer` ended.
    pub fn wait_until<P: Dispatch>(
        &mut self,
        peer: u32,
        program: &mut P,
        limit: Duration,
        mut condition: impl FnMut(&mut P) -> bool,
    ) -> Result<(), Trouble> {
        // Awake on both sides, the answer is there before a clock would be worth reading.
        for _ in 0..LOOKS {
            if condition(program) {
                return Ok(());
            }
            self.poll(program);
        }
        let end = self.now() + limit.as_nanos() as u64;
        let _ = self.engine.watch(self.now, peer, true);
        let watched = Watched { port: self, peer };
        let port = &mut *watched.port;
        loop {
            if condition(program) {
                return Ok(());
            }
            if !port.engine.is_up(peer) {
                return Err(Trouble::Lost);
            }
            let now = port.now;
            if now >= end {
                return Err(Trouble::TimedOut);
            }
            port.wait_while(program, Duration::from_nanos(end - now), |port| port.engine.is_up(peer));
        }
    }

    /// Sets up the connection to a peer.
    ///
    /// # Errors
    /// `Lost` after the declared time; `Refused(Argument)`: no such peer.
    pub fn connect(&mut self, peer: u32, program: &mut dyn Dispatch) -> Result<(), Trouble> {
        self.now();
        self.engine.connect(self.now, peer, &mut self.adapter).map_err(Trouble::Refused)?;
        self.adapter.flush();
        while !self.engine.is_up(peer) {
            if !self.engine.status(peer).is_some_and(|status| status.connecting) {
                return Err(Trouble::Lost);
            }
            self.wait(program, Duration::from_millis(100));
        }
        Ok(())
    }

    /// Waits until the peer has set up the connection.
    ///
    /// # Errors
    /// `TimedOut`.
    pub fn accept(&mut self, peer: u32, program: &mut dyn Dispatch, limit: Duration) -> Result<(), Trouble> {
        let end = self.now() + limit.as_nanos() as u64;
        while !self.engine.is_up(peer) {
            let now = self.now();
            if now >= end {
                return Err(Trouble::TimedOut);
            }
            self.wait(program, Duration::from_nanos(end - now));
        }
        Ok(())
    }

    /// Repeats a call until it is not refused for want of credit or room. A peer that lives but takes nothing for the declared time
    /// counts as stalled, whatever it or others send meanwhile: `act` says what the call itself brought on (`Ok(None)`), `taken`
    /// what else did, by a number that changes.
    fn insist<T>(
        &mut self,
        peer: u32,
        program: &mut dyn Dispatch,
        taken: impl Fn(&mut Engine<'m>) -> u64,
        mut act: impl FnMut(&mut Engine<'m>, Nanoseconds, &mut DeviceAdapter<E>) -> Result<Option<T>, Refused>,
    ) -> Result<T, Trouble> {
        let (mut end, mut before) = (None, 0);
        // The first poll in vain looks at the clock, or one of the first that are not in vain.
        let mut crowd = 0;
        loop {
            match act(&mut self.engine, self.now, &mut self.adapter) {
                Ok(Some(value)) => {
                    self.adapter.flush();
                    return Ok(value);
                }
                Ok(None) => end = None,
                Err(Refused::NoCredit | Refused::NoRoom) => {}
                Err(Refused::NotConnected) => return Err(Trouble::Lost),
                Err(refused) => return Err(Trouble::Refused(refused)),
            }
            if self.poll(program) > 0 {
                crowd += 1;
                if crowd < LOOKS {
                    continue;
                }
                crowd = 0;
                self.now();
            }
            let so_far = taken(&mut self.engine);
            if so_far != before {
                (before, end) = (so_far, None);
            }
            let limit = self.engine.config().lost_after();
            let end = *end.get_or_insert_with(|| self.now() + limit);
            if self.now >= end {
                return Err(Trouble::TimedOut);
            }
            if self.looks + 1 == LOOKS && !self.engine.is_up(peer) {
                return Err(Trouble::Lost);
            }
        }
    }

    /// Sends a request; polls while there is no credit or room.
    ///
    /// # Errors
    /// `Lost`; `TimedOut` after the declared time without credit; `Refused`: too long, no such peer.
    #[inline]
    pub fn request(
        &mut self,
        peer: u32,
        handler: u8,
        words: &[u64],
        data: &[u8],
        program: &mut dyn Dispatch,
    ) -> Result<(), Trouble> {
        self.request_on(peer, 0, handler, words, data, program)
    }

    /// Sends a request on an ordered channel.
    ///
    /// # Errors
    /// As [`Port::request`].
    #[inline]
    pub fn request_on(
        &mut self,
        peer: u32,
        channel: u16,
        handler: u8,
        words: &[u64],
        data: &[u8],
        program: &mut dyn Dispatch,
    ) -> Result<(), Trouble> {
        if self.engine.config().reliable == 0 {
            self.now();
        }
        match self.engine.request(self.now, peer, channel, handler, words, data, &mut self.adapter) {
            Ok(()) => {
                self.adapter.flush();
                Ok(())
            }
            Err(_) => self.request_again(peer, channel, handler, words, data, program),
        }
    }

    /// Sends a request, without polling.
    ///
    /// # Errors
    /// [`Refused`]: nothing was sent.
    #[inline(always)]
    pub fn try_request(&mut self, peer: u32, handler: u8, words: &[u64], data: &[u8]) -> Result<(), Refused> {
        if self.engine.config().reliable == 0 {
            self.now();
        }
        self.engine.request(self.now, peer, 0, handler, words, data, &mut self.adapter)?;
        if !self.held {
            self.adapter.flush();
        }
        Ok(())
    }

    /// The same of a request that was refused, perhaps for want of credit or room.
    #[inline(never)]
    fn request_again(
        &mut self,
        peer: u32,
        channel: u16,
        handler: u8,
        words: &[u64],
        data: &[u8],
        program: &mut dyn Dispatch,
    ) -> Result<(), Trouble> {
        self.insist(
            peer,
            program,
            |_| 0,
            |engine, now, adapter| engine.request(now, peer, channel, handler, words, data, adapter).map(Some),
        )
    }

    /// Stores bytes in the peer's segment; returns when they may be reused. The handler runs there when all have arrived.
    ///
    /// # Errors
    /// As [`Port::request`].
    pub fn store(&mut self, peer: u32, store: &Store<'_>, bytes: &[u8], program: &mut dyn Dispatch) -> Result<(), Trouble> {
        let mut done = 0;
        let mut before = 0;
        self.insist(
            peer,
            program,
            |_| 0,
            |engine, now, adapter| {
                let complete = engine.store(now, peer, store, bytes, &mut done, adapter)?;
                let progress = std::mem::replace(&mut before, done) != done;
                match (complete, progress) {
                    (true, _) => Ok(Some(())),
                    (false, true) => Ok(None),
                    (false, false) => Err(Refused::NoRoom),
                }
            },
        )
    }

    /// Asks for bytes of the peer's segment; the handler runs here, as a reply's, when they have arrived.
    ///
    /// # Errors
    /// As [`Port::request`].
    pub fn get(&mut self, peer: u32, get: &Get<'_>, program: &mut dyn Dispatch) -> Result<(), Trouble> {
        self.insist(
            peer,
            program,
            |engine| engine.taken(peer),
            |engine, now, adapter| engine.get(now, peer, get, adapter).map(Some),
        )
    }

    /// Stores bytes, of a region say, at `offset` of a region that a peer shows ([`crate::Access::Store`]); returns when they may be
    /// written again. The handler runs there when all have arrived, with their address and number in [`crate::Message::bulk`]. If the
    /// region was taken back meanwhile, the words come back ([`Dispatch::returned`]).
    ///
    /// # Errors
    /// As [`Port::request`]; [`Trouble::Region`] with [`Limit::Outside`].
    pub fn store_region(
        &mut self,
        (theirs, offset): (Name, u64),
        bytes: &[u8],
        (handler, words): (u8, &[u64]),
        program: &mut dyn Dispatch,
    ) -> Result<(), Trouble> {
        let offset = theirs.part(offset, bytes.len() as u64).map_err(Trouble::Region)?;
        self.store(theirs.peer(), &Store { offset, handler, words }, bytes, program)
    }

    /// Gets the first `length` bytes from `offset` on of a region that a peer shows ([`crate::Access::Get`]) into the first of one that
    /// is shown to that peer for [`crate::Access::Fetch`], and waits until they are there. The peer may reuse its region when it is
    /// told so.
    ///
    /// # Errors
    /// As [`Port::wait_until`] and [`Port::request`]. [`Trouble::Region`]: [`Limit::Outside`]; [`Limit::OtherPeer`], if the two are of
    /// different peers; [`Limit::State`], if ours is for another use; [`Limit::Stale`], if either was taken back. What has come till
    /// then is in ours.
    pub fn get_region<P: Shows>(
        &mut self,
        (theirs, offset): (Name, u64),
        mine: Name,
        length: u64,
        limit: Duration,
        program: &mut P,
    ) -> Result<(), Trouble> {
        if theirs.peer() != mine.peer() {
            return Err(Trouble::Region(Limit::OtherPeer));
        }
        let from = theirs.part(offset, length).map_err(Trouble::Region)?;
        let to = mine.part(0, length).map_err(Trouble::Region)?;
        program.regions().begin(mine).map_err(Trouble::Region)?;
        let peer = theirs.peer();
        let asked = self.get(peer, &Get { from, to, length, handler: 0, words: &[] }, program);
        let came =
            asked.and_then(|()| self.wait_until(peer, program, limit, |program| program.regions().outcome(mine).is_some()));
        let outcome = program.regions().outcome(mine);
        if outcome.is_some() {
            // One that still comes keeps the region from another.
            program.regions().end(mine);
        }
        match (came, outcome) {
            (Err(trouble), _) => Err(trouble),
            (Ok(()), Some(true)) => Ok(()),
            (Ok(()), _) => Err(Trouble::Region(Limit::Stale)),
        }
    }

    /// Sends all bytes on an ordered channel.
    ///
    /// # Errors
    /// As [`Port::request`]; `TimedOut` also when the peer grants no room for the declared time.
    pub fn send(&mut self, peer: u32, channel: u16, bytes: &[u8], program: &mut dyn Dispatch) -> Result<(), Trouble> {
        let mut done = 0;
        self.insist(
            peer,
            program,
            |_| 0,
            |engine, now, adapter| {
                match engine.send(now, peer, channel, &bytes[done..], adapter)? {
                    0 if done < bytes.len() => return Err(Refused::NoCredit),
                    sent => done += sent,
                }
                Ok((done == bytes.len()).then_some(()))
            },
        )
    }

    /// Polls until everything sent to the peer is acknowledged, with what handlers send meanwhile.
    ///
    /// # Errors
    /// `Lost`; `TimedOut` after the declared time in which the peer took nothing.
    pub fn drain(&mut self, peer: u32, program: &mut dyn Dispatch) -> Result<(), Trouble> {
        self.insist(
            peer,
            program,
            |engine| engine.taken(peer),
            |engine, _, _| {
                if !engine.is_up(peer) {
                    return Err(Refused::NotConnected);
                }
                if engine.is_idle(peer) {
                    Ok(Some(()))
                } else {
                    Err(Refused::NoRoom)
                }
            },
        )
    }
}
