//! Ears: where a gate asks the station that serves a listener.

use core::sync::atomic::Ordering::Relaxed;
use shunt_am::Nanoseconds;
use shunt_endpoint::{Channel, Endpoint, OpenError, Tag, Tags};
use shunt_segment::address::Address;

use crate::discovery::{pass, passed, PASSED};
use crate::discovery_packet::{Datagram, Kind, FRESH, KNOWN};
use crate::memory::{load2, peer_state, store2, Count};
use crate::{device, sockaddr, Driver, Peer, Pump, Refusal, PEERS};

/// Questions answered in one call.
const BATCH: usize = 16;
/// Peers of one host at most: others find room too.
const OF_ONE_HOST: usize = PEERS as usize / 4;
/// One that was made so lately is not taken away for another.
const YOUNG: Nanoseconds = 1_000_000_000;

impl Driver<'_> {
    /// Answers what waits at a query socket.
    pub fn hear(&mut self, now: Nanoseconds, query: i32, pump: &mut dyn Pump) {
        let now = self.time(now);
        let mut bytes = [0; PASSED + 1];
        for _ in 0..BATCH {
            let Ok((length, from)) = sockaddr::receive_unix(query, &mut bytes) else { break };
            let question = bytes.get(..length).and_then(passed).filter(|(question, _)| question.kind == Kind::Ask);
            let Some((question, asker)) = question else {
                self.shared.count(Count::Dropped);
                continue;
            };
            self.shared.count(Count::Heard);
            let answer = self.answer(now, &question, &asker, pump);
            sockaddr::send_unix(query, &pass(&answer, &asker), &from);
        }
    }

    /// The answer to a question whose asker can be reached at its address.
    pub fn answer(&mut self, now: Nanoseconds, question: &Datagram, asker: &Address, pump: &mut dyn Pump) -> Datagram {
        let answered = self.meet(now, question, asker, pump);
        let (tag, flags, refusal) = match answered {
            Ok((tag, flags)) => (tag, flags, None),
            Err(refusal) => (0, 0, Some(refusal)),
        };
        Datagram { kind: Kind::Answer, identity: self.identity(), tag, flags, port: self.port(), refusal, ..*question }
    }

    fn meet(
        &mut self,
        now: Nanoseconds,
        question: &Datagram,
        asker: &Address,
        pump: &mut dyn Pump,
    ) -> Result<(u64, u32), Refusal> {
        let shared = self.shared;
        if !shared.serves(&question.four.server) {
            return Err(Refusal::Elsewhere);
        }
        // Frames to us must come from where they are said to come from, and the other way round.
        let here = device::of(&self.inner.device.address()).ok_or(Refusal::Device)?;
        if !here.is_unspecified() && here.ip != question.four.server.ip {
            return Err(Refusal::Device);
        }
        if question.tag == 0 || question.port == 0 || question.identity == self.identity() {
            return Err(Refusal::Device);
        }
        if let Some(number) = self.acquainted(question.identity, asker) {
            let known = shared.peer(number).ok_or(Refusal::Device)?;
            if question.flags & FRESH == 0 && self.engine.is_up(number) {
                return Ok((known.receive.load(Relaxed), KNOWN));
            }
            if known.send.load(Relaxed) == question.tag {
                // The same question, again: our answer was lost.
                return Ok((known.receive.load(Relaxed), 0));
            }
        }
        let number = self.place(now, asker, true, pump).ok_or(Refusal::Full)?;
        let tag = self.inner.device.new_tag().map_err(|_| Refusal::Device)?;
        self.admit(now, number, tag, Tag(question.tag), question.identity, &Address { port: question.port, ..*asker })?;
        Ok((tag.0, 0))
    }

    /// The UDP port of our endpoint.
    pub(crate) fn port(&self) -> u16 {
        device::of(&self.inner.device.address()).map_or(0, |address| address.port)
    }

    /// The newest peer of that name at that host.
    pub(crate) fn acquainted(&self, identity: [u64; 2], host: &Address) -> Option<Peer> {
        let known = |number: &u32| {
            self.shared.peer(*number).is_some_and(|peer| {
                peer.state.load(Relaxed) == peer_state::OPEN
                    && load2(&peer.identity) == identity
                    && load2(&peer.host) == host.words()
            })
        };
        let newest = |number: &u32| self.shared.peer(*number).map_or(0, |peer| peer.since.load(Relaxed));
        (0..PEERS).filter(known).max_by_key(newest)
    }

    /// A place for a peer at `host`: a free one, or that of one that has no streams and was not used for longest. For one that `asks`: not
    /// if that host has its share of them.
    pub(crate) fn place(&mut self, now: Nanoseconds, host: &Address, asks: bool, pump: &mut dyn Pump) -> Option<Peer> {
        let shared = self.shared;
        let state = |number: &u32| shared.peer(*number).map_or(peer_state::FREE, |peer| peer.state.load(Relaxed));
        let idle = |number: &u32| {
            shared.peer(*number).is_some_and(|peer| {
                peer.state.load(Relaxed) == peer_state::OPEN
                    && peer.streams.load(Relaxed) == 0
                    && now.saturating_sub(peer.since.load(Relaxed)) > YOUNG
            })
        };
        let used = |number: &u32| shared.peer(*number).map_or(0, |peer| peer.used.load(Relaxed));
        let theirs = |number: &u32| shared.peer(*number).is_some_and(|peer| load2(&peer.host) == host.words());
        let crowded =
            asks && (0..PEERS).filter(|number| state(number) == peer_state::OPEN && theirs(number)).count() >= OF_ONE_HOST;
        if !crowded {
            let free = |number: &u32| state(number) == peer_state::FREE;
            let unused = |number: &u32| shared.peer(*number).is_some_and(|peer| load2(&peer.host) == [0; 2]);
            // What is known of the path to a host, as that it is narrow, stays with its number.
            let same = (0..PEERS).find(|number| free(number) && theirs(number));
            let other = || (0..PEERS).find(|number| free(number) && unused(number)).or_else(|| (0..PEERS).find(free));
            if let Some(number) = same.or_else(other) {
                return Some(number);
            }
        }
        let old = (0..PEERS).filter(|number| idle(number) && (!crowded || theirs(number))).min_by_key(used)?;
        self.disconnect(now, old, pump);
        Some(old)
    }

    /// Opens the endpoint's channel to a peer.
    pub(crate) fn admit(
        &mut self,
        now: Nanoseconds,
        number: Peer,
        receive: Tag,
        send: Tag,
        identity: [u64; 2],
        at: &Address,
    ) -> Result<(), Refusal> {
        let peer = self.shared.peer(number).ok_or(Refusal::Device)?;
        let opened = self.inner.device.open(&device::at(at), Tags { receive, send });
        let channel: Channel = opened.map_err(|error| match error {
            OpenError::Full => Refusal::Full,
            _ => Refusal::Device,
        })?;
        let Some(place) = self.shared.by_registry.get(channel.index()) else {
            self.inner.device.close(channel);
            return Err(Refusal::Full);
        };
        peer.channel.store(channel.0, Relaxed);
        peer.streams.store(0, Relaxed);
        peer.low.store((receive.0 < send.0).into(), Relaxed);
        peer.receive.store(receive.0, Relaxed);
        peer.send.store(send.0, Relaxed);
        store2(&peer.identity, identity);
        store2(&peer.host, at.words());
        peer.since.store(now, Relaxed);
        peer.used.store(now, Relaxed);
        peer.was_up.store(0, Relaxed);
        peer.by_channel.iter().for_each(|place| place.store(0, Relaxed));
        place.store(number + 1, Relaxed);
        peer.state.store(peer_state::OPEN, Relaxed);
        self.shared.has_chores.store(1, Relaxed);
        Ok(())
    }
}
