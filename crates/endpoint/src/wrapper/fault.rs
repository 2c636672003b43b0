//! A bad network: loss, duplication, reordering, corruption, delay, from a seed.
//!
//! Faults happen to what arrives. Delay is counted in calls of `receive`, not in time, so a run at virtual time repeats
//! exactly: the same seed and the same calls give the same faults.
//!
//! Updates by frames never arrive at the program, so they are lost, doubled and corrupted where they are sent, each as a
//! whole; they are not reordered or delayed. Memory that is mapped has no faults.

use super::pass_on;
use crate::{Area, Arrival, ArrivalKind, Bytes, Capabilities, DirectAccess, Endpoint, Import, SendError, Ticket};

/// What happens to arrivals, each in parts of a million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Seed of the choices.
    pub seed: u64,
    /// Dropped.
    pub loss: u32,
    /// Given twice.
    pub duplicate: u32,
    /// Held back while later ones pass.
    pub reorder: u32,
    /// One bit turned.
    pub corrupt: u32,
    /// Every message waits for up to so many calls of `receive` (not in parts of a million). 0: none does.
    pub delay: u32,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Messages dropped.
    pub lost: u64,
    /// Messages given twice.
    pub duplicated: u64,
    /// Messages held back.
    pub reordered: u64,
    /// Messages with a bit turned.
    pub corrupted: u64,
}

/// Messages that are held back at most, so that the device keeps some buffers.
const HELD: usize = 24;
/// How many calls of `receive` one that is reordered waits at most.
const REORDER: u64 = 12;

struct Held {
    arrival: Arrival,
    due: u64,
    order: u64,
}

/// An endpoint behind a bad network.
pub struct Fault<E> {
    inner: E,
    capabilities: Capabilities,
    faults: Faults,
    happened: Happened,
    random: u64,
    calls: u64,
    taken: u64,
    held: Vec<Held>,
    /// First buffers of messages that were given twice, and how often they are still to be released before the last.
    doubled: Vec<(Area, u32)>,
}

impl<E: Endpoint> Fault<E> {
    /// Wraps `inner`.
    pub fn new(inner: E, faults: Faults) -> Fault<E> {
        let mut capabilities = *inner.capabilities();
        let moved = faults.reorder > 0 || faults.delay > 0;
        capabilities.lossy |= faults.loss > 0 || faults.duplicate > 0 || faults.corrupt > 0 || faults.reorder > 0;
        capabilities.ordered &= !moved && faults.duplicate == 0;
        Fault {
            inner,
            capabilities,
            faults,
            happened: Happened::default(),
            random: faults.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            calls: 0,
            taken: 0,
            held: Vec::new(),
            doubled: Vec::new(),
        }
    }

    /// What happened so far.
    pub fn happened(&self) -> Happened {
        self.happened
    }

    /// Other faults from now on.
    pub fn set(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The endpoint inside.
    pub fn inner(&mut self) -> &mut E {
        &mut self.inner
    }

    /// xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators".
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn happens(&mut self, millionths: u32) -> bool {
        millionths > 0 && ((self.draw() >> 32) * 1_000_000) >> 32 < millionths as u64
    }

    /// Takes in what has arrived, with its fate.
    fn take_in(&mut self) {
        let mut arrival = Arrival::empty();
        while self.held.len() < HELD && self.inner.receive(&mut arrival) {
            if self.happens(self.faults.loss) {
                self.happened.lost += 1;
                self.inner.release(&mut arrival);
                continue;
            }
            if self.happens(self.faults.corrupt) && !arrival.is_empty() && arrival.kind() == ArrivalKind::Message {
                self.happened.corrupted += 1;
                let at = self.draw() as usize;
                self.turn_a_bit(&mut arrival, at);
            }
            let mut due = self.calls;
            if self.faults.delay > 0 {
                due += self.draw() % (self.faults.delay as u64 + 1);
            }
            if self.happens(self.faults.reorder) {
                self.happened.reordered += 1;
                due += 1 + self.draw() % REORDER;
            }
            self.hold(arrival, due);
            if self.happens(self.faults.duplicate) {
                self.happened.duplicated += 1;
                let later = due + self.draw() % REORDER;
                if let Some(first) = arrival.buffers().first() {
                    self.doubled.push((*first, 1));
                }
                self.hold(arrival, later);
            }
        }
    }

    fn hold(&mut self, arrival: Arrival, due: u64) {
        self.taken += 1;
        self.held.push(Held { arrival, due, order: self.taken });
    }

    fn turn_a_bit(&mut self, arrival: &mut Arrival, at: usize) {
        let mask = 1u8 << (at >> 32 & 7);
        let at = at % arrival.len();
        if let Some(byte) = arrival.head.get_mut(at) {
            *byte ^= mask;
            return;
        }
        let first = arrival.areas_from(at).next();
        if let Some(area) = first {
            let (mut byte, segment) = ([0], self.inner.segment());
            if segment.read(area, &mut byte) {
                segment.write(area, &[byte[0] ^ mask]);
            }
        }
    }
}

impl<E: Endpoint> Endpoint for Fault<E> {
    pass_on!(segment address new_tag open close send flush injected post descriptor disarm counters);

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        self.calls += 1;
        self.take_in();
        let now = self.calls;
        let due = self.held.iter().enumerate().filter(|(_, held)| held.due <= now);
        let Some((index, _)) = due.min_by_key(|(_, held)| (held.due, held.order)) else { return false };
        *arrival = self.held.swap_remove(index).arrival;
        true
    }

    fn release(&mut self, arrival: &mut Arrival) {
        let first = arrival.buffers().first().copied();
        if let Some(place) = self.doubled.iter().position(|(buffer, _)| Some(*buffer) == first) {
            self.doubled.swap_remove(place);
            arrival.count = 0;
            return;
        }
        self.inner.release(arrival)
    }

    fn backlog(&mut self) -> crate::Backlog {
        let inner = self.inner.backlog();
        crate::Backlog { waiting: inner.waiting + self.held.len() as u32, ..inner }
    }

    fn arm(&mut self) -> bool {
        // What is held comes by polling: a sleeper would wait for it for ever.
        self.held.is_empty() && self.inner.arm()
    }
}

impl<E: DirectAccess> DirectAccess for Fault<E> {
    pass_on!(export unexport notify import);

    fn update(&mut self, import: &Import, offset: u32, bytes: Bytes<'_>, notify: bool) -> Result<Ticket, SendError> {
        // What is refused is not sent, and so not lost.
        if import.mapped().is_some() || !import.contains(offset, bytes.len()) {
            return self.inner.update(import, offset, bytes, notify);
        }
        if self.happens(self.faults.loss) {
            self.happened.lost += 1;
            // One that has left already.
            return Ok(Ticket(self.inner.injected().0.wrapping_sub(1)));
        }
        let mut copy = Vec::new();
        let mut sent = bytes;
        if self.happens(self.faults.corrupt) && !bytes.is_empty() {
            self.happened.corrupted += 1;
            copy.resize(bytes.len(), 0);
            // SAFETY: as many bytes as there are.
            if !unsafe { bytes.copy_to(0, copy.as_mut_ptr(), copy.len()) } {
                return Err(SendError::Fault);
            }
            let at = self.draw() as usize;
            let place = at % copy.len();
            copy[place] ^= 1 << (at >> 32 & 7);
            sent = Bytes::from(&copy[..]);
        }
        if self.happens(self.faults.duplicate) {
            self.happened.duplicated += 1;
            self.inner.update(import, offset, sent, notify)?;
        }
        self.inner.update(import, offset, sent, notify)
    }
}
