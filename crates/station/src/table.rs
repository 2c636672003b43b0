//! The table of streams: lending, giving back, and what becomes of a peer's streams when its path is lost.

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use shunt_am::Nanoseconds;

use crate::memory::{flag, peer_state, same, state, Contact, Count, Entry, PeerEntry, Shared, CHANNELS};
use crate::{expired, FourTuple, Mark, Pump, Refusal, Token, PEERS};

/// What a stream is lent for.
pub(crate) struct Loan<'a> {
    pub peer: u32,
    pub channel: u16,
    pub generation: u32,
    pub four: &'a FourTuple,
    pub token: Token,
    pub mark: Mark,
    pub state: u32,
    pub flags: u32,
}

impl Shared {
    /// The number that is lent next.
    pub(crate) fn next(&self) -> Option<u32> {
        self.used.lowest_outside(&self.retired)
    }

    /// Lends the lowest free number. The state is written last.
    pub(crate) fn lend(&self, now: Nanoseconds, loan: &Loan<'_>) -> Option<(u32, &Entry)> {
        let peer = self.peer(loan.peer)?;
        let stream = self.next()?;
        let entry = self.entry(stream)?;
        entry.flags.store(loan.flags, Relaxed);
        entry.peer.store(loan.peer, Relaxed);
        entry.channel.store(loan.channel.into(), Relaxed);
        entry.generation.store(loan.generation, Relaxed);
        entry.refusal.store(0, Relaxed);
        entry.owner.store(shunt_sys::thread::process(), Relaxed);
        entry.set_four(loan.four);
        crate::memory::store2(&entry.token, loan.token);
        entry.mark.store(loan.mark.0.into(), Relaxed);
        entry.since.store(now, Relaxed);
        entry.begins.store(0, Relaxed);
        entry.words.iter().for_each(|word| word.store(0, Relaxed));
        self.used.insert(stream);
        peer.by_channel[usize::from(loan.channel) % peer.by_channel.len()].store(stream + 1, Relaxed);
        peer.streams.store(peer.streams.load(Relaxed) + 1, Relaxed);
        peer.used.store(now, Relaxed);
        entry.state.store(loan.state, Relaxed);
        self.has_chores.store(1, Relaxed);
        Some((stream, entry))
    }

    /// The channel is no longer the stream's.
    pub(crate) fn detach(&self, stream: u32, entry: &Entry) {
        let channel = entry.channel.swap(0, Relaxed) as usize;
        if let Some(peer) = self.peer(entry.peer.load(Relaxed)).filter(|_| channel != 0) {
            let place = &peer.by_channel[channel % peer.by_channel.len()];
            if place.load(Relaxed) == stream + 1 {
                place.store(0, Relaxed);
                peer.streams.store(peer.streams.load(Relaxed).saturating_sub(1), Relaxed);
            }
        }
    }

    /// Gives a stream's number back.
    pub(crate) fn free(&self, stream: u32, entry: &Entry) {
        let kept = entry.has(flag::KEPT);
        entry.state.store(if kept { state::LOST } else { state::FREE }, Relaxed);
        self.detach(stream, entry);
        for set in [&self.waiting, &self.wants, &self.blocked, &self.untold] {
            set.remove(stream);
        }
        if !kept {
            self.used.remove(stream);
        }
    }

    /// A message of the stream is to be sent.
    pub(crate) fn want(&self, stream: u32, entry: &Entry, what: u32) {
        entry.put(what);
        self.wants.insert(stream);
    }

    /// The opening failed, and the peer has nothing of it.
    pub(crate) fn refuse(&self, stream: u32, entry: &Entry, refusal: Refusal) {
        self.detach(stream, entry);
        self.wants.remove(stream);
        if entry.state() == state::CLOSING {
            self.free(stream, entry);
            return;
        }
        entry.refusal.store(refusal as u32, Relaxed);
        entry.state.store(state::REFUSED, Relaxed);
    }

    /// Nothing more is wanted of the stream here.
    pub(crate) fn release(&self, stream: u32, entry: &Entry) {
        match entry.state() {
            state::FREE | state::CLOSING => {}
            state::REFUSED | state::LOST => self.free(stream, entry),
            state::OPENING if !entry.has(flag::OPEN_SENT) => self.free(stream, entry),
            was => {
                self.waiting.remove(stream);
                self.blocked.remove(stream);
                self.untold.remove(stream);
                entry.state.store(state::CLOSING, Relaxed);
                let opening = was == state::OPENING;
                self.want(stream, entry, if opening { flag::WANT_CANCEL } else { flag::WANT_CLOSE });
            }
        }
    }

    /// The connection to a peer ended: so did all its streams' fast paths.
    pub(crate) fn lose(&self, number: u32, pump: Option<&mut dyn Pump>) {
        let mut pump = pump;
        for stream in self.used.iter() {
            let Some(entry) = self.entry(stream).filter(|entry| entry.peer.load(Relaxed) == number) else { continue };
            let was = entry.state();
            match was {
                state::RESERVED => {
                    self.spend(entry, expired::NOT_MADE);
                    self.free(stream, entry);
                }
                state::CLOSING | state::FREE => self.free(stream, entry),
                state::OPENING => self.refuse(stream, entry, Refusal::Lost),
                state::OPENED | state::CLAIMED | state::LIVE => {
                    self.count(Count::Lost);
                    self.detach(stream, entry);
                    self.wants.remove(stream);
                    self.blocked.remove(stream);
                    entry.state.store(state::LOST, Relaxed);
                    match &mut pump {
                        Some(pump) if was == state::LIVE => pump.lost(stream),
                        None if was == state::LIVE => self.untold.insert(stream),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        self.has_chores.store(1, Relaxed);
    }

    /// A channel of the peer's that no stream has. Both sides begin at different ends.
    pub(crate) fn free_channel(&self, peer: &PeerEntry) -> Option<u16> {
        let is_free = |channel: &u32| peer.by_channel.get(*channel as usize).is_some_and(|place| place.load(Relaxed) == 0);
        let found = match peer.low.load(Relaxed) {
            1 => (1..=CHANNELS).find(is_free),
            _ => (1..=CHANNELS).rev().find(is_free),
        };
        found.map(|channel| channel as u16)
    }

    /// The reservation for a connection.
    pub(crate) fn reservation(&self, four: &FourTuple) -> Option<(u32, &Entry)> {
        self.waiting
            .iter()
            .filter_map(|stream| Some((stream, self.entry(stream)?)))
            .find(|(_, entry)| entry.state() == state::RESERVED && same(&entry.four(), four))
    }

    /// Whether a listener of this station's would get a connection to that address.
    pub(crate) fn serves(&self, server: &shunt_segment::address::Address) -> bool {
        self.listeners.iter().any(|listener| {
            let is_any = listener.inode.load(Acquire) != 0;
            let bound = shunt_segment::address::Address::from_words(crate::memory::load2(&listener.ip), 0, 0);
            let is_its = listener.port.load(Relaxed) == u32::from(server.port);
            is_any && is_its && (bound.is_unspecified() || bound.ip == server.ip)
        })
    }

    /// What is remembered of a server. A peer that is another one by now is none.
    pub(crate) fn contact(&self, server: &shunt_segment::address::Address, now: Nanoseconds) -> Option<Result<u32, Refusal>> {
        let contact = self.contact_of(server)?;
        let peer = contact.peer.load(Relaxed);
        if peer & Contact::NOBODY != 0 {
            return (now < contact.until.load(Relaxed))
                .then(|| Err(Refusal::of(peer & !Contact::NOBODY).unwrap_or(Refusal::NoStation)));
        }
        let entry = self.peer(peer)?;
        let is_it = entry.state.load(Relaxed) == peer_state::OPEN
            && entry.was_up.load(Relaxed) != crate::memory::LOST
            && entry.receive.load(Relaxed) == contact.tag.load(Relaxed);
        is_it.then_some(Ok(peer))
    }

    fn contact_of(&self, server: &shunt_segment::address::Address) -> Option<&Contact> {
        self.contacts.iter().find(|contact| {
            contact.port.load(Relaxed) == u32::from(server.port) && crate::memory::load2(&contact.ip) == server.words()
        })
    }

    /// Remembers an answer: in its own place, a free one, or the one that was learned longest ago.
    pub(crate) fn remember(&self, server: &shunt_segment::address::Address, answer: Result<u32, Refusal>, until: Nanoseconds) {
        let free = || self.contacts.iter().find(|contact| contact.port.load(Relaxed) == 0);
        let oldest = || self.contacts.iter().min_by_key(|contact| contact.until.load(Relaxed));
        let Some(contact) = self.contact_of(server).or_else(free).or_else(oldest) else { return };
        contact.port.store(0, Relaxed);
        crate::memory::store2(&contact.ip, server.words());
        contact.until.store(until, Relaxed);
        match answer {
            Ok(peer) => {
                contact.peer.store(peer % PEERS, Relaxed);
                contact.tag.store(self.peer(peer).map_or(0, |peer| peer.receive.load(Relaxed)), Relaxed);
            }
            Err(refusal) => contact.peer.store(Contact::NOBODY | refusal as u32, Relaxed),
        }
        contact.port.store(server.port.into(), Relaxed);
    }

    /// Forgets that a peer serves that address.
    pub(crate) fn forget(&self, server: &shunt_segment::address::Address) {
        if let Some(contact) = self.contact_of(server) {
            contact.port.store(0, Relaxed);
        }
    }
}
