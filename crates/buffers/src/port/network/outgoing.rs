//! The sending half: outputs in the order of their messages, and what the peer has told of room.
//!
//! An output is prepared when it is called for, and disposed of when its last byte is in a packet, of which the engine below keeps a copy
//! until it is acknowledged. In between its region is referenced, and its bytes are read by a mapping of their own: past a hidden region's
//! protection, and from where a unit was saved that is written meanwhile.

use super::incoming::AHEAD;
use super::notice::{Notice, Place};
use crate::linux::Host;
use crate::output::Output;
use crate::policy::Policy;
use crate::semantics::Semantics;
use shunt_region::{Attached, Limit, Pool, Reference};
use std::collections::VecDeque;

/// A pool of which regions are sent.
pub(super) struct Lender {
    pub(super) host: Host,
    /// Its bytes as a device has them.
    device: Attached,
}

impl Lender {
    pub(super) fn new(pool: &Pool) -> Result<Lender, Limit> {
        Ok(Lender { host: Host::new(pool.clone()), device: Attached::map(pool.descriptor(), pool.audience())? })
    }
}

/// Where the bytes of a message are.
enum Source {
    Lent {
        lender: usize,
        reference: Reference,
        output: Output,
    },
    /// Lent by the caller for the length of the call.
    Held(*const u8),
    /// Copied into memory of the port's own, which is no pool's.
    Kept(Vec<u8>),
}

// SAFETY: the caller's memory is read by the thread that calls, while the call lasts.
unsafe impl Send for Source {}

struct Departing {
    number: u64,
    length: usize,
    semantics: Semantics,
    source: Source,
    done: usize,
    announced: bool,
}

pub(super) struct Outgoing {
    queue: VecDeque<Departing>,
    next: u64,
    /// Messages that are all in packets.
    stored: u64,
    /// Messages that the peer says it has.
    arrived: u64,
    below: u64,
    each: usize,
    rooms: VecDeque<(u64, usize)>,
    /// Bytes of the messages in the queue.
    bytes: usize,
    pub(super) quota: usize,
    pub(super) policy: Policy,
}

impl Outgoing {
    pub(super) fn new(policy: Policy, quota: usize) -> Outgoing {
        Outgoing {
            queue: VecDeque::new(),
            next: 0,
            stored: 0,
            arrived: 0,
            below: 0,
            each: 0,
            rooms: VecDeque::new(),
            bytes: 0,
            quota,
            policy,
        }
    }

    /// Messages that are not all in packets, and their bytes.
    pub(super) fn queued(&self) -> (usize, usize) {
        (self.bytes, self.queue.len())
    }

    /// Whether this message is; one that was given up never is.
    pub(super) fn is_stored(&self, number: u64) -> bool {
        number < self.stored
    }

    /// The number of the first message whose buffer is still needed.
    pub(super) fn first(&self) -> u64 {
        self.next - self.queue.len() as u64
    }

    /// The peer has one message more. False: it was not sent.
    #[must_use]
    pub(super) fn arrived(&mut self) -> bool {
        self.arrived += 1;
        self.arrived <= self.first()
    }

    pub(super) fn all_arrived(&self) -> bool {
        self.arrived == self.next
    }

    /// Whether a further message of so many bytes may be queued. One may always, or it never could.
    pub(super) fn has_room(&self, length: usize) -> bool {
        self.queue.is_empty() || (self.queue.len() < AHEAD && length <= self.quota.saturating_sub(self.bytes))
    }

    fn push(&mut self, length: usize, semantics: Semantics, source: Source) -> u64 {
        let number = self.next;
        self.queue.push_back(Departing { number, length, semantics, source, done: 0, announced: false });
        self.next += 1;
        self.bytes += length;
        number
    }

    /// Whether a copy of so many bytes may be made in a lender's pool. At most half of it is for copies: the rest is for what comes.
    pub(super) fn may_copy(&self, lenders: &[Lender], lender: usize, length: usize) -> bool {
        let shape = lenders[lender].host.pool().shape();
        let copies = self.queue.iter().filter_map(|message| match &message.source {
            Source::Lent { lender: other, output, .. } if *other == lender => output.work.system.map(|at| at.count),
            _ => None,
        });
        copies.sum::<usize>() + length.div_ceil(shape.unit).max(1) <= shape.units / 2
    }

    /// Queues an output that was prepared; gives its number.
    pub(super) fn lend(&mut self, lenders: &[Lender], lender: usize, output: Output, semantics: Semantics) -> u64 {
        let at = if output.realised() == Semantics::COPY { output.work.system } else { output.work.region };
        let at = at.expect("what is sent lies in a region");
        debug_assert!(at.offset + output.work.length <= lenders[lender].host.pool().shape().bytes());
        let length = output.work.length;
        let reference =
            Reference { offset: at.offset as u64, length: length as u64, generation: at.generation, pool: 0, ticket: 0 };
        self.push(length, semantics, Source::Lent { lender, reference, output })
    }

    /// Queues bytes that stay as they are until they are stored ([`Outgoing::is_stored`]), or [`Outgoing::end`] was called.
    pub(super) fn hold(&mut self, bytes: &[u8], semantics: Semantics) -> u64 {
        self.push(bytes.len(), semantics, Source::Held(bytes.as_ptr()))
    }

    /// Whether a message lies in memory of the port's own.
    pub(super) fn is_keeping(&self) -> bool {
        self.queue.iter().any(|message| matches!(message.source, Source::Kept(_)))
    }

    /// Queues a copy of bytes that is made in memory of the port's own.
    ///
    /// # Errors
    /// [`Limit::Memory`].
    pub(super) fn keep(&mut self, bytes: &[u8], semantics: Semantics) -> Result<u64, Limit> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len()).map_err(|_| Limit::Memory)?;
        copy.extend_from_slice(bytes);
        Ok(self.push(bytes.len(), semantics, Source::Kept(copy)))
    }

    /// The peer tells of room, which is never taken back. What is none, or for a message that has gone, changes nothing.
    pub(super) fn room(&mut self, below: u64, each: usize, number: u64, bytes: usize) {
        self.below = self.below.max(below);
        self.each = each;
        let (first, most) = (self.first(), 4 * AHEAD);
        if number >= first && number - first < most as u64 {
            self.rooms.retain(|(other, _)| *other >= first);
            match self.rooms.iter_mut().find(|(other, _)| *other == number) {
                Some((_, most)) => *most = bytes.max(*most),
                None => self.rooms.push_back((number, bytes)),
            }
        }
    }

    fn may_go(&self, number: u64, length: usize) -> bool {
        let unasked = number < self.below && length <= self.each;
        unasked || self.rooms.iter().any(|(other, bytes)| *other == number && length <= *bytes)
    }

    /// The next message that is to be announced; to be called again when it has been.
    pub(super) fn announcement(&self) -> Option<Notice> {
        let untold = self.queue.iter().take(AHEAD).filter(|message| !message.announced);
        let mut waiting = untold.filter(|message| !self.may_go(message.number, message.length));
        waiting.next().map(|message| Notice::Announce { number: message.number, length: message.length })
    }

    pub(super) fn announced(&mut self, number: u64) {
        let message = self.queue.iter_mut().find(|message| message.number == number);
        message.into_iter().for_each(|message| message.announced = true);
    }

    /// Stores the next message as far as it goes: `store` is given its address, the notice for its end, how many bytes it has, how they are
    /// copied, and how many are under way, and says whether all are. True: there may be more to do.
    ///
    /// # Errors
    /// Its memory is a hole that the program has made, and cannot be filled.
    pub(super) fn go_on(
        &mut self,
        lenders: &mut [Lender],
        store: impl FnOnce(u64, Notice, usize, &mut dyn FnMut(usize, &mut [u8]), &mut usize) -> bool,
    ) -> Result<bool, Limit> {
        let Some(front) = self.queue.front() else { return Ok(false) };
        let (number, length, semantics) = (front.number, front.length, front.semantics);
        if front.done == 0 && !self.may_go(number, length) {
            return Ok(false);
        }
        let Some(front) = self.queue.front_mut() else { return Ok(false) };
        let (address, end) = (Place { length, offset: 0 }.address(), Notice::Whole { number, semantics });
        let whole = match &front.source {
            Source::Lent { lender, reference, output } => {
                let lender = &lenders[*lender];
                let span = match lender.device.check(reference) {
                    Ok(span) => span,
                    Err(_) => {
                        // The program has made a hole in its own pool, which reads as zeros.
                        let at = if output.realised() == Semantics::COPY { output.work.system } else { output.work.region };
                        lender.host.pool().touch_again(&at.ok_or(Limit::Private)?, length)?;
                        lender.device.check(reference).map_err(|_| Limit::Memory)?
                    }
                };
                let mut copy = |at: usize, into: &mut [u8]| {
                    span.copy_to(at, into);
                };
                store(address, end, length, &mut copy, &mut front.done)
            }
            Source::Held(bytes) => {
                let bytes = *bytes;
                // SAFETY: the message has its length, of which the engine asks for parts; the caller waits.
                let mut copy = |at: usize, into: &mut [u8]| unsafe {
                    core::ptr::copy_nonoverlapping(bytes.add(at), into.as_mut_ptr(), into.len());
                };
                store(address, end, length, &mut copy, &mut front.done)
            }
            Source::Kept(bytes) => {
                let mut copy = |at: usize, into: &mut [u8]| into.copy_from_slice(&bytes[at..at + into.len()]);
                store(address, end, length, &mut copy, &mut front.done)
            }
        };
        if whole {
            self.stored += 1;
            self.dispose(lenders);
        }
        Ok(whole)
    }

    /// The first message is all under way, or will never be.
    fn dispose(&mut self, lenders: &mut [Lender]) {
        let Some(Departing { number, length, source, .. }) = self.queue.pop_front() else { return };
        self.bytes -= length;
        self.rooms.retain(|(other, _)| *other > number);
        let Source::Lent { lender, output, .. } = source else { return };
        let host = &mut lenders[lender].host;
        let (guarded, region) = (output.realised() == Semantics::EMULATED_COPY, output.work.region);
        output.complete(host);
        // As a port in shared memory does: what was not written stays protected, and costs nothing when it is sent again.
        if let Some(at) = region.filter(|at| guarded && host.pool().was_written(at)) {
            host.pool().disarm(&at);
            self.policy.rewritten(at.first, at.generation);
        }
    }

    /// Nothing goes any more: every buffer is its program's again.
    pub(super) fn end(&mut self, lenders: &mut [Lender]) {
        while !self.queue.is_empty() {
            self.dispose(lenders);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;

    #[test]
    fn room_is_never_taken_back() {
        let mut outgoing = Outgoing::new(Policy::new(&Costs::USUAL), 1 << 20);
        outgoing.hold(&[0; 1000], Semantics::COPY);
        outgoing.room(0, 0, 0, 1000);
        outgoing.room(0, 0, 0, 10);
        assert!(outgoing.may_go(0, 1000) && !outgoing.may_go(0, 1001) && outgoing.rooms.len() == 1);
    }
}
