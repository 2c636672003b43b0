//! Regions that are shown to peers: a store of a peer's goes straight to its place in one (the paper's early demultiplexed input), and a
//! get takes bytes out of one that waits there (outboard). Both are the engine's stores and gets, at addresses behind the segment.
//!
//! ```text
//! address:  63 | 62 .. 55 | 54 .. 32   | 31 .. 0
//!            1 | slot     | generation | offset in the region
//! ```
//!
//! A region is shown to one peer, for one use, until it is taken back or the connection ends. What names it afterwards, from
//! another peer, for another use or out of its bounds reaches no memory: the store or get comes back to its sender.

use crate::dispatch::{Access, Dispatch, Message};
use shunt_region::{told, Limit, Region};

const REGION: u64 = 1 << 63;
const SLOT_SHIFT: u32 = 55;
const GENERATION_SHIFT: u32 = 32;
const GENERATIONS: u32 = (1 << (SLOT_SHIFT - GENERATION_SHIFT)) - 1;
/// Regions shown at a time.
pub const SHOWN: usize = 256;

/// A region that one of two ports shows the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    peer: u32,
    at: u64,
    length: u64,
}

impl Name {
    /// To be told to the peer, in a request say.
    #[must_use]
    pub fn to_words(self) -> [u64; 2] {
        [self.at, self.length]
    }

    /// What `peer` told.
    ///
    /// # Errors
    /// [`Limit::Violation`]: no region has this name.
    pub fn from_words(peer: u32, [at, length]: [u64; 2]) -> Result<Name, Limit> {
        match at & REGION != 0 && at as u32 == 0 && length <= u64::from(u32::MAX) {
            true => Ok(Name { peer, at, length }),
            false => Err(Limit::Violation),
        }
    }

    /// The peer at the other end.
    #[must_use]
    pub fn peer(self) -> u32 {
        self.peer
    }

    /// Bytes.
    #[must_use]
    pub fn length(self) -> u64 {
        self.length
    }

    /// The address of the part.
    pub(super) fn part(self, offset: u64, length: u64) -> Result<u64, Limit> {
        match offset.checked_add(length).is_some_and(|end| end <= self.length) {
            true => Ok(self.at + offset),
            false => Err(Limit::Outside),
        }
    }

    fn slot(self) -> usize {
        slot(self.at)
    }
}

fn slot(at: u64) -> usize {
    (at >> SLOT_SHIFT) as usize % SHOWN
}

fn generation(at: u64) -> u32 {
    (at >> GENERATION_SHIFT) as u32 & GENERATIONS
}

/// A blocking get into a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fetching {
    Not,
    UnderWay,
    Ended(bool),
}

struct Shown {
    peer: u32,
    access: Access,
    length: u64,
    region: Region,
    fetching: Fetching,
    /// The connection that it was shown by has ended.
    lapsed: bool,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    shown: Option<Shown>,
}

/// The regions that a program shows its peers.
#[derive(Default)]
pub struct Regions {
    slots: Vec<Slot>,
    refusal: Option<(u32, Limit)>,
}

impl Regions {
    /// Whether an address is a region's, not the segment's.
    #[must_use]
    pub fn has(at: u64) -> bool {
        at & REGION != 0
    }

    /// Shows the first `length` bytes of a region to a peer, for one use. The region is kept until it is taken back; if it cannot
    /// be shown it is free.
    ///
    /// # Errors
    /// [`Limit::Outside`]: it has fewer bytes, or 4 GiB were asked for. [`Limit::Loans`]: [`SHOWN`] are shown.
    pub fn show(&mut self, peer: u32, access: Access, region: Region, length: usize) -> Result<Name, Limit> {
        if length > region.size() || length > u32::MAX as usize {
            return Err(Limit::Outside);
        }
        let free = self.slots.iter().position(|slot| slot.shown.is_none());
        let at = match free {
            Some(at) => at,
            None if self.slots.len() < SHOWN => {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            }
            None => return Err(Limit::Loans),
        };
        let (slot, length) = (&mut self.slots[at], length as u64);
        slot.generation = (slot.generation + 1) & GENERATIONS;
        slot.shown = Some(Shown { peer, access, length, region, fetching: Fetching::Not, lapsed: false });
        let at = REGION | (at as u64) << SLOT_SHIFT | u64::from(slot.generation) << GENERATION_SHIFT;
        Ok(Name { peer, at, length })
    }

    fn slot(&mut self, name: Name) -> Result<&mut Slot, Limit> {
        let slot = self.slots.get_mut(name.slot()).ok_or(Limit::Stale)?;
        match slot.shown.is_some() && slot.generation == generation(name.at) {
            true => Ok(slot),
            false => Err(Limit::Stale),
        }
    }

    fn shown(&mut self, name: Name) -> Result<&mut Shown, Limit> {
        self.slot(name)?.shown.as_mut().ok_or(Limit::Stale)
    }

    /// Takes a region back: no message of the peer's reaches it any more. Also what was shown by a connection that ended.
    ///
    /// # Errors
    /// [`Limit::Stale`]: it was taken back before.
    pub fn take_back(&mut self, name: Name) -> Result<Region, Limit> {
        self.slot(name)?.shown.take().map(|shown| shown.region).ok_or(Limit::Stale)
    }

    /// A region while it is shown.
    ///
    /// # Errors
    /// [`Limit::Stale`].
    pub fn region(&mut self, name: Name) -> Result<&mut Region, Limit> {
        self.shown(name).map(|shown| &mut shown.region)
    }

    /// The last message that was refused a region: the peer it came from, and why. The sender learns of it as of a request that
    /// comes back, and not why: it might be guessing names.
    #[must_use]
    pub fn last_refusal(&self) -> Option<(u32, Limit)> {
        self.refusal
    }

    /// The connection to a peer ended: what it was shown is out of reach for the next one.
    pub fn lapse(&mut self, peer: u32) {
        let shown = self.slots.iter_mut().filter_map(|slot| slot.shown.as_mut());
        shown.filter(|shown| shown.peer == peer).for_each(|shown| shown.lapsed = true);
    }

    /// As [`Dispatch::place`], for addresses behind the segment.
    pub fn place(&mut self, peer: u32, access: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        match self.judge(peer, access, at, length) {
            Ok(()) => {
                let shown = self.slots[slot(at)].shown.as_mut()?;
                let from = at as u32 as usize;
                shown.region.bytes_mut().get_mut(from..from + length as usize)
            }
            Err(limit) => {
                told::note(limit);
                self.refusal = Some((peer, limit));
                None
            }
        }
    }

    fn judge(&self, peer: u32, access: Access, at: u64, length: u64) -> Result<(), Limit> {
        let slot = self.slots.get(slot(at)).ok_or(Limit::Stale)?;
        let shown = slot.shown.as_ref().filter(|_| slot.generation == generation(at)).ok_or(Limit::Stale)?;
        if shown.peer != peer {
            return Err(Limit::OtherPeer);
        }
        if shown.lapsed {
            return Err(Limit::Stale);
        }
        if shown.access != access {
            return Err(Limit::State);
        }
        match u64::from(at as u32).checked_add(length).is_some_and(|end| end <= shown.length) {
            true => Ok(()),
            false => Err(Limit::Outside),
        }
    }

    /// A blocking get into a region begins.
    pub(super) fn begin(&mut self, name: Name) -> Result<(), Limit> {
        let shown = self.shown(name)?;
        if shown.access != Access::Fetch || shown.fetching == Fetching::UnderWay {
            return Err(Limit::State);
        }
        if shown.lapsed {
            return Err(Limit::Stale);
        }
        shown.fetching = Fetching::UnderWay;
        Ok(())
    }

    /// Whether it has ended, and well.
    pub(super) fn outcome(&mut self, name: Name) -> Option<bool> {
        match self.shown(name) {
            Ok(Shown { fetching: Fetching::Ended(well), .. }) => Some(*well),
            Ok(_) => None,
            Err(_) => Some(false),
        }
    }

    /// No get into it is waited for any more.
    pub(super) fn end(&mut self, name: Name) {
        if let Ok(shown) = self.shown(name) {
            shown.fetching = Fetching::Not;
        }
    }

    /// To be called first by [`Dispatch::reply`] (`well`) and [`Dispatch::returned`]: true if the message is the end of a blocking get,
    /// and no handler's.
    pub fn heed(&mut self, message: &Message<'_>, well: bool) -> bool {
        let Some((at, _)) = message.bulk.filter(|(at, _)| Regions::has(*at)) else { return false };
        let slot = self.slots.get_mut(slot(at)).filter(|slot| slot.generation == generation(at));
        match slot.and_then(|slot| slot.shown.as_mut()) {
            Some(shown) if shown.fetching == Fetching::UnderWay => {
                shown.fetching = Fetching::Ended(well);
                true
            }
            _ => false,
        }
    }
}

/// A program that shows regions.
pub trait Shows: Dispatch {
    /// Its regions.
    fn regions(&mut self) -> &mut Regions;
}
