//! Messages that are passed on without being read: a reference to the first process's region goes to the third, which maps the
//! first one's pool.
//!
//! ```text
//! first  ── region ──> this ── forwarded ──> third
//!        <─ ticket ───      <── ticket ─────
//! ```
//!
//! The first process knows of this one alone. If this one dies it takes its regions back, and the third may read what it puts there next:
//! so what is copied out of a forwarded message is compared with the region's generation afterwards, and is refused if it has changed.

use super::{Error, Message, Port};
use crate::record::{Kind, Record};
use shunt_region::{Limit, Reference, Violation};

/// Tickets of forwarded messages; those of loans are below.
const MARK: u64 = 1 << 63;

/// A message that the peer has.
pub(super) struct Forward {
    ticket: u64,
    source: u64,
    message: Message,
}

pub(super) fn is_one(ticket: u64) -> bool {
    ticket & MARK != 0
}

impl Port {
    /// Passes a message on that came by `from`. It goes back there by [`Port::settle`] when the peer has finished with it. Where it lies in
    /// a region the peer reads it there, and from now on sees all of that pool; else, or where that is not possible, it is copied.
    ///
    /// # Errors
    /// As [`Port::send`] and [`Port::give_back`]; the message is lost with the port that failed.
    pub fn forward(&mut self, message: Message, from: &mut Port) -> Result<(), Error> {
        from.has_brought(&message)?;
        self.progress()?;
        match self.passed_on(&message, from) {
            Ok(pool) => {
                self.forwarded += 1;
                let ticket = MARK | self.forwarded;
                let reference = Reference { pool, ticket, ..message.record.reference };
                let semantics = message.record.semantics;
                let record = Record { kind: Kind::Forwarded, semantics, serial: 0, reference, source: 0 };
                self.forwards.push(Forward { ticket, source: from.id, message });
                self.link.put(0, &record.to_bytes())
            }
            Err(Error::Limit(limit)) => {
                self.note(limit);
                // SAFETY: checked when it came, and not given back yet.
                let bytes = unsafe { core::slice::from_raw_parts(message.start(), message.length()) };
                self.send_bytes(bytes, message.record.semantics)?;
                from.give_back(message)
            }
            Err(error) => Err(error),
        }
    }

    /// The number that the message's pool has at the peer's.
    fn passed_on(&mut self, message: &Message, from: &mut Port) -> Result<u32, Error> {
        if message.at.is_none() {
            return Err(Limit::Private.into());
        }
        // One that was forwarded to this process is the first one's no more: no process here could say when it changed.
        if message.record.kind == Kind::Forwarded {
            return Err(Limit::Stale.into());
        }
        let number = message.record.reference.pool as usize;
        let pool = from.attached.get_mut(number).ok_or(Violation::Pool)?;
        match pool.passed {
            Some((port, number)) if port == self.id => Ok(number),
            // Through another port: its number here is not kept.
            Some(_) => Err(Limit::OtherPeer.into()),
            None => {
                self.link.pass_foreign(pool)?;
                let number = self.passed;
                self.passed += 1;
                pool.passed = Some((self.id, number));
                Ok(number)
            }
        }
    }

    pub(super) fn finish(&mut self, ticket: u64) -> Result<(), Violation> {
        let place = self.forwards.iter().position(|forward| forward.ticket == ticket).ok_or(Violation::Ticket)?;
        let forward = self.forwards.swap_remove(place);
        self.finished.push(forward);
        Ok(())
    }

    /// Gives back to `from` what the peer has finished with of its messages. Gives how many the peer still has.
    ///
    /// # Errors
    /// As [`Port::progress`] and [`Port::give_back`].
    pub fn settle(&mut self, from: &mut Port) -> Result<usize, Error> {
        let progress = match self.progress() {
            // What it had comes back all the same.
            Err(Error::Gone) => {
                self.abandon();
                Ok(())
            }
            other => other,
        };
        while let Some(place) = self.finished.iter().position(|forward| forward.source == from.id) {
            from.give_back(self.finished.swap_remove(place).message)?;
        }
        progress?;
        Ok(self.forwards.len())
    }

    /// Whether a message that was forwarded is still what its first sender sent: asked after reading it in place. Others are, as far as
    /// their sender is honest.
    pub fn is_whole(&self, message: &Message) -> bool {
        message.record.kind != Kind::Forwarded || self.is_fresh(&message.record.reference)
    }

    pub(super) fn is_fresh(&self, reference: &Reference) -> bool {
        let Some(foreign) = self.attached.get(reference.pool as usize) else { return false };
        let unit = foreign.attached.shape().unit as u64;
        // Messages by reference begin where their region does.
        let fresh = |span: shunt_region::Span<'_>| span.is_fresh((reference.offset / unit) as usize);
        reference.offset.is_multiple_of(unit) && foreign.attached.check(reference).is_ok_and(fresh)
    }
}
