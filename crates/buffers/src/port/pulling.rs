//! One copy while the sender's call lasts: see [`shunt_region::pull`].

use super::setup::PULLS;
use super::{Error, Port, Ticket};
use crate::memory::Work;
use crate::record::{Kind, Record};
use crate::semantics::Semantics;
use core::sync::atomic::Ordering;
use shunt_region::word::Use;
use shunt_region::{pull, Limit, Located, Pool, Reference};

/// Bytes of a chunk.
const CHUNK: usize = 16 << 10;
/// Looks at a receiver that does not go on, after which the sender copies a chunk itself.
const STALL: u32 = 200;
/// Looks at one that does not finish the last chunk, after which it is revoked.
const PATIENCE: u32 = 20_000;

fn chunk(number: u16, length: usize) -> core::ops::Range<usize> {
    let start = number as usize * CHUNK;
    start..(start + CHUNK).min(length)
}

impl Port {
    /// Sends a buffer that lies in a region; when this returns no process reads it any more. Gives the ticket of the system's buffer; or why it
    /// cannot.
    pub(super) fn send_waiting(&mut self, number: usize, work: &Work) -> Result<Result<Ticket, Limit>, Error> {
        if !self.link.is_shared() {
            return Ok(Err(Limit::Apart));
        }
        let (pool, length) = (self.hosts[number].pool().clone(), work.length);
        let chunks = length.div_ceil(CHUNK);
        let Some(chunks) = u16::try_from(chunks).ok().filter(|chunks| *chunks <= pull::MOST) else {
            return Ok(Err(Limit::Outside));
        };
        let serial = self.serial.wrapping_add(1).max(1);
        // The words of a message stay as they are until its receiver has finished with it.
        let slot = serial as usize % PULLS;
        if self.account.holds(self.pulls[slot]) {
            return Ok(Err(Limit::Pulling));
        }
        let source = work.region.ok_or(Limit::Private)?;
        if let Err(limit) = pool.touch(&source, length).and_then(|()| pool.reference(&source, Use::Output).map(|_| ())) {
            return Ok(Err(limit));
        }
        // Of an earlier output that is being read: a reader would be sent to what was saved for that.
        let sent = match pool.settled(&source) {
            Ok(()) => self.send_pulled(self.numbers[number], &pool, work, source, chunks, serial),
            Err(limit) => Ok(Err(limit)),
        };
        let _ = pool.unreference(&source, Use::Output);
        sent
    }

    /// Sends a buffer that an output has been noted of.
    fn send_pulled(
        &mut self,
        number: u32,
        pool: &Pool,
        work: &Work,
        source: Located,
        chunks: u16,
        serial: u16,
    ) -> Result<Result<Ticket, Limit>, Error> {
        let length = work.length;
        let slot = serial as usize % PULLS;
        let Ok(system) = pool.allocate(length) else { return Ok(Err(Limit::PoolFull)) };
        let at = system.located();
        let mut reference = match self.account.lend_located(pool, &at, length) {
            Ok(reference) => reference,
            Err(limit) => return Ok(Err(limit)),
        };
        reference.pool = number;
        // Free once the peer has given it back.
        drop(system);
        (self.serial, self.pulls[slot]) = (serial, reference.ticket);
        let link = self.link.shared()?;
        let (word, ready) = link.pull(link.side, serial);
        word.begin(serial, chunks);
        let record =
            Record { kind: Kind::Pull, semantics: Semantics::EMULATED_COPY, serial, reference, source: source.offset as u64 };
        self.link.put(0, &record.to_bytes())?;
        let copy = |number: u16| {
            let part = chunk(number, length);
            // SAFETY: the caller's buffer, and a region of the same length that is this call's until `ready`.
            unsafe {
                let from = (work.address as *const u8).add(part.start);
                core::ptr::copy_nonoverlapping(from, pool.pointer(&at).add(part.start), part.len());
            }
        };
        let (mut back, mut stall) = (chunks, pull::Stall::default());
        while !word.is_met(serial, back) {
            core::hint::spin_loop();
            let border = word.progress(serial);
            let looks = stall.look(border);
            if looks >= STALL && back > 0 && word.take(serial, &mut back) {
                copy(back);
            } else if looks >= PATIENCE || (looks >= STALL && border == u16::MAX) {
                let first = word.revoke(serial, back);
                (first..back).for_each(copy);
                if first == 0 {
                    // Whatever the word says now: all is in the system's buffer.
                    (back..chunks).for_each(copy);
                }
                break;
            }
        }
        ready.store(serial as u32, Ordering::Release);
        Ok(Ok(Ticket(reference.ticket)))
    }

    /// Receives what is being pulled.
    pub(super) fn pull(&mut self, record: &Record, target: &mut [u8]) -> Result<(), Error> {
        let source = Reference { offset: record.source, ..record.reference };
        let link = self.link.shared()?;
        let (word, ready) = link.pull(1 - link.side, record.serial);
        let (from, system) = (self.span(&source)?, self.span(&record.reference)?);
        let length = target.len();
        // Each chunk comes after the one before: a peer that sets the word back has sent what was copied by then.
        let mut next = 0;
        while let Some(number) = word.claim(record.serial).filter(|number| *number >= next) {
            next = number.saturating_add(1);
            let part = chunk(number, length);
            if part.start >= length {
                break;
            }
            from.copy_to(part.start, &mut target[part]);
            if !word.finish(record.serial, number) {
                break;
            }
        }
        let mut looks = 0;
        while ready.load(Ordering::Acquire) != record.serial as u32 {
            self.link.idle_longer(&mut looks)?;
        }
        // A word that says nothing: the system's buffer has all.
        let border = word.border(record.serial).map_or(0, |border| (border as usize * CHUNK).min(length));
        system.copy_to(border, &mut target[border..]);
        Ok(())
    }
}
