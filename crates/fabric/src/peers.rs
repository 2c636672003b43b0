//! The endpoints that channels lead to. Each is made known to libfabric once, however many channels lead there, so that a
//! message's source is one number.
//!
//! A peer whose last channel was closed stays known, with its connection, until its place is wanted and nothing is under way
//! to it: what was sent before is not lost, and a channel that comes again finds the way open.

use crate::interface::{Interface, Taken, NAME, NOBODY};
use crate::open::{self, Open};
use shunt_endpoint::{Address, OpenError};
use std::sync::Arc;

/// A peer.
pub struct Peer {
    address: Address,
    /// What libfabric calls it.
    pub number: u64,
    channels: u32,
    /// Messages that the provider has not taken yet.
    pub waiting: u32,
    /// Operations under way.
    pub posted: u32,
    /// The look at the send queue in which it took no more.
    pub refused_in: u64,
    /// The provider has not begun to set up the way.
    unopened: bool,
    /// It is of this process, and must not be closed before we are.
    _kept: Option<Arc<Open>>,
}

impl Peer {
    fn is_idle(&self) -> bool {
        self.channels == 0 && self.waiting == 0 && self.posted == 0
    }
}

/// All of them; a peer is named by its place.
pub struct Peers {
    places: Vec<Peer>,
    most: usize,
    /// How many are [`Peer::unopened`], at most.
    unopened: usize,
}

impl Peers {
    /// None yet, and `most` at most.
    pub fn new(most: usize) -> Peers {
        Peers { places: Vec::new(), most, unopened: 0 }
    }

    /// One more channel leads to `address`, which is `name` in the provider's words: its place.
    ///
    /// # Errors
    /// `Full`; `Address` if the provider cannot go there.
    pub fn open(&mut self, interface: &Interface, address: &Address, name: &[u8; NAME]) -> Result<usize, OpenError> {
        if let Some(place) = self.places.iter().position(|peer| peer.address == *address) {
            self.places[place].channels += 1;
            return Ok(place);
        }
        let place = match self.places.iter().position(Peer::is_idle) {
            None if self.places.len() == self.most => return Err(OpenError::Full),
            Some(place) if self.places.len() == self.most => {
                if self.places[place].number != NOBODY {
                    interface.remove(self.places[place].number);
                }
                place
            }
            _ => self.places.len(),
        };
        let peer = |address: Address, number, channels| Peer {
            address,
            number,
            channels,
            waiting: 0,
            posted: 0,
            refused_in: 0,
            unopened: channels > 0,
            _kept: open::kept(&address),
        };
        let Ok(number) = interface.insert(name) else {
            // The place may have lost its peer: it is no peer's now, and idle.
            if let Some(old) = self.places.get_mut(place) {
                *old = peer(Address::NONE, NOBODY, 0);
            }
            return Err(OpenError::Address);
        };
        match self.places.get_mut(place) {
            Some(old) => *old = peer(*address, number, 1),
            None => self.places.push(peer(*address, number, 1)),
        }
        self.unopened += 1;
        Ok(place)
    }

    /// Has the ways to new peers set up: by a frame without bytes, which its receiver takes for nothing. True: all are open.
    pub fn open_ways(&mut self, interface: &Interface) -> bool {
        if self.unopened == 0 {
            return true;
        }
        for peer in self.places.iter_mut().filter(|peer| peer.unopened) {
            // An error is for the messages to meet.
            peer.unopened = peer.channels > 0 && interface.inject(&[], peer.number) == Ok(Taken::Later);
        }
        self.unopened = self.places.iter().filter(|peer| peer.unopened).count();
        self.unopened == 0
    }

    /// One channel fewer leads there.
    pub fn close(&mut self, place: usize) {
        if let Some(peer) = self.places.get_mut(place) {
            peer.channels = peer.channels.saturating_sub(1);
        }
    }

    /// The peer at a place.
    pub fn get(&mut self, place: usize) -> Option<&mut Peer> {
        self.places.get_mut(place)
    }

    /// The peer's number; [`NOBODY`], if there is none.
    pub fn number(&self, place: usize) -> u64 {
        self.places.get(place).map_or(NOBODY, |peer| peer.number)
    }
}
