//! What is under way: one record for each packet that was sent and not acknowledged, in the order of their bytes.

use crate::sequence::Seq;
use shunt_path::Nanoseconds;

/// What is known of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// On its way, as far as is known.
    Sent,
    /// The receiver has told that it is there, behind a gap.
    Arrived,
    /// Taken for lost, and not sent again yet.
    Lost,
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// Its first byte.
    pub start: Seq,
    /// Bytes.
    pub length: u32,
    /// When it was sent the last time.
    pub sent: Nanoseconds,
    /// What is known of it.
    pub fate: Fate,
    /// It was sent more than once.
    pub again: bool,
}

impl Flight {
    /// The place behind its last byte.
    pub fn end(&self) -> Seq {
        self.start.plus(self.length)
    }
}

const NONE: Flight = Flight { start: Seq(0), length: 0, sent: 0, fate: Fate::Sent, again: false };

/// `MOST` packets at the most.
#[derive(Clone, Copy, Debug)]
pub struct Flights<const MOST: usize> {
    records: [Flight; MOST],
    first: usize,
    count: usize,
    /// Bytes of those with that fate.
    arrived: u32,
    lost: u32,
}

impl<const MOST: usize> Default for Flights<MOST> {
    fn default() -> Self {
        Flights { records: [NONE; MOST], first: 0, count: 0, arrived: 0, lost: 0 }
    }
}

impl<const MOST: usize> Flights<MOST> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether there is room for another.
    pub fn is_full(&self) -> bool {
        self.count == MOST
    }

    /// Bytes of those that arrived behind a gap.
    pub fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Bytes of those that are lost and not sent again.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// The packet of that index, the oldest being 0.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn at(&self, index: usize) -> &Flight {
        assert!(index < self.count);
        &self.records[(self.first + index) % MOST]
    }

    fn at_mut(&mut self, index: usize) -> &mut Flight {
        assert!(index < self.count);
        &mut self.records[(self.first + index) % MOST]
    }

    /// All of them.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &Flight> {
        (0..self.count).map(|index| self.at(index))
    }

    /// Adds the youngest.
    ///
    /// # Panics
    /// If it is full.
    pub fn push(&mut self, flight: Flight) {
        assert!(!self.is_full());
        self.records[(self.first + self.count) % MOST] = flight;
        self.count += 1;
    }

    /// Gives a packet another fate.
    pub fn decide(&mut self, index: usize, fate: Fate) {
        let flight = *self.at(index);
        match flight.fate {
            Fate::Sent => {}
            Fate::Arrived => self.arrived -= flight.length,
            Fate::Lost => self.lost -= flight.length,
        }
        match fate {
            Fate::Sent => {}
            Fate::Arrived => self.arrived += flight.length,
            Fate::Lost => self.lost += flight.length,
        }
        self.at_mut(index).fate = fate;
    }

    /// A packet leaves again; the first `length` bytes of it, if they are fewer.
    pub fn send_again(&mut self, index: usize, length: u32, now: Nanoseconds) {
        if length < self.at(index).length && !self.is_full() {
            self.split(index, length);
        }
        self.decide(index, Fate::Sent);
        let flight = self.at_mut(index);
        flight.sent = now;
        flight.again = true;
    }

    /// Makes two of one, the first of `length` bytes.
    fn split(&mut self, index: usize, length: u32) {
        let mut second = *self.at(index);
        second.start = second.start.plus(length);
        second.length -= length;
        self.at_mut(index).length = length;
        self.count += 1;
        for later in (index + 2..self.count).rev() {
            *self.at_mut(later) = *self.at(later - 1);
        }
        *self.at_mut(index + 1) = second;
    }

    /// Forgets what lies before `una`, and gives each packet that had not arrived before to `each`.
    pub fn acknowledge(&mut self, una: Seq, mut each: impl FnMut(Flight)) {
        while self.count > 0 {
            let flight = *self.at(0);
            if !flight.start.before(una) {
                return;
            }
            let told = una.earliest(flight.end()).since(flight.start);
            let fate = flight.fate;
            if fate != Fate::Arrived {
                each(Flight { length: told, ..flight });
            }
            self.decide(0, Fate::Sent);
            if told == flight.length {
                self.first = (self.first + 1) % MOST;
                self.count -= 1;
            } else {
                let flight = self.at_mut(0);
                flight.start = una;
                flight.length -= told;
                self.decide(0, fate);
            }
        }
    }

    /// The receiver has told of a range: gives each packet that arrived newly to `each`. A packet of which a part arrived becomes two, if there
    /// is room.
    pub fn arrive(&mut self, start: Seq, end: Seq, mut each: impl FnMut(Flight)) {
        let mut index = 0;
        while index < self.count {
            let flight = *self.at(index);
            if !flight.start.before(end) {
                return;
            }
            if flight.fate != Fate::Arrived && start.before(flight.end()) {
                if flight.start.before(start) {
                    if !self.is_full() {
                        self.split(index, start.since(flight.start));
                    }
                    // The second half comes next.
                    index += 1;
                    continue;
                }
                if flight.end().after(end) {
                    if self.is_full() {
                        return;
                    }
                    self.split(index, end.since(flight.start));
                }
                each(*self.at(index));
                self.decide(index, Fate::Arrived);
            }
            index += 1;
        }
    }

    /// After a time-out: all that has not arrived is lost. If the oldest has arrived and is not acknowledged, the receiver threw away what
    /// it told of, and nothing it told counts (RFC 2018, section 8).
    pub fn lose_all(&mut self) {
        let reneged = self.count > 0 && self.at(0).fate == Fate::Arrived;
        for index in 0..self.count {
            if reneged || self.at(index).fate != Fate::Arrived {
                self.decide(index, Fate::Lost);
            }
        }
    }

    /// The first that is lost.
    pub fn first_lost(&self) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        (0..self.count).find(|&index| self.at(index).fate == Fate::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Operation {
        Push(u32),
        Acknowledge(u32),
        Arrive(u32, u32),
        Lose(usize),
        Again(usize, u32),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            (1u32..10).prop_map(Operation::Push),
            (0u32..12).prop_map(Operation::Acknowledge),
            (0u32..40, 1u32..12).prop_map(|(start, length)| Operation::Arrive(start, length)),
            (0usize..8).prop_map(Operation::Lose),
            (0usize..8, 1u32..10).prop_map(|(index, length)| Operation::Again(index, length)),
        ]
    }

    proptest! {
        /// Packets tile what is under way, and the sums are those of the packets.
        #[test]
        fn packets_tile_what_is_under_way(operations in proptest::collection::vec(operation(), 0..60)) {
            let mut flights = Flights::<8>::default();
            let (mut una, mut next) = (Seq(u32::MAX - 30), Seq(u32::MAX - 30));
            for (now, operation) in operations.into_iter().enumerate() {
                match operation {
                    Operation::Push(length) if !flights.is_full() => {
                        flights.push(Flight { start: next, length, sent: now as u64, fate: Fate::Sent, again: false });
                        next = next.plus(length);
                    }
                    Operation::Acknowledge(bytes) => {
                        una = una.plus(bytes.min(next.since(una)));
                        flights.acknowledge(una, |_| {});
                    }
                    Operation::Arrive(start, length) => {
                        let (start, end) = (una.plus(start), una.plus(start + length));
                        let before = flights.arrived();
                        let mut told = 0;
                        flights.arrive(start, end, |flight| told += flight.length);
                        prop_assert_eq!(flights.arrived(), before + told);
                        for flight in flights.iter().filter(|flight| flight.fate != Fate::Arrived && !flights.is_full()) {
                            prop_assert!(!flight.start.before(end) || !start.before(flight.end()), "{:?} in {:?} {:?}", flight, start, end);
                        }
                    }
                    Operation::Lose(index) if index < flights.count() => flights.decide(index, Fate::Lost),
                    Operation::Again(index, length) if index < flights.count() => flights.send_again(index, length, now as u64),
                    _ => {}
                }
                let mut place = una;
                let (mut arrived, mut lost) = (0, 0);
                for flight in flights.iter() {
                    prop_assert_eq!(flight.start, place);
                    prop_assert!(flight.length > 0);
                    place = flight.end();
                    match flight.fate {
                        Fate::Arrived => arrived += flight.length,
                        Fate::Lost => lost += flight.length,
                        Fate::Sent => {}
                    }
                }
                prop_assert_eq!(place, next);
                prop_assert_eq!((arrived, lost), (flights.arrived(), flights.lost()));
                prop_assert_eq!(flights.first_lost().is_some(), lost > 0);
            }
        }
    }
}
