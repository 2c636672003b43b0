//! Messages that are timed, so that the policy learns what its choices cost.

use super::{Error, Port, Ticket, AT_ONCE};
use crate::costs::{Costs, Line};
use crate::fault;
use crate::learned::Against;
use crate::memory::Work;
use crate::policy::Realisation;
use core::time::Duration;
use std::time::Instant;

/// What a fault costs, and how many a message under TCOW has.
pub(super) struct Timing {
    fault: Line,
    rewriting: Line,
    sending: Line,
    /// Faults that had been mended when the last such message went.
    mended: u64,
    /// Of messages lately; other ports' are among them, where a program has several.
    each: f64,
}

impl Timing {
    pub(super) fn new(costs: &Costs) -> Timing {
        // What is not known yet is rewritten each time.
        Timing { fault: costs.fault, rewriting: costs.rewriting, sending: costs.sending, mended: fault::mended(), each: 1.0 }
    }

    /// A message went under TCOW.
    pub(super) fn protected(&mut self) {
        const MOST: u64 = 8;
        let mended = fault::mended();
        let faults = (mended - self.mended).min(MOST) as f64;
        self.mended = mended;
        self.each += (faults - self.each) / 8.0;
    }

    /// What the faults to come will cost the sender of such a message, of which copying takes `copied` (0: that is not known). A buffer that is written
    /// again has its lines in the reader's caches; where copying takes longer than out of its sender's caches, they are in no one's either way.
    fn faults(&self, length: usize, copied: f32) -> f32 {
        let fault = self.fault.at(length);
        let cold = (f64::from(copied) - self.sending.at(length)).max(0.0);
        let lines = (self.rewriting.at(length) - fault - cold).max(0.0);
        (self.each * fault + self.each.min(1.0) * lines) as f32
    }
}

impl Port {
    /// Sends a message that is timed.
    #[cold]
    pub(super) fn send_timed(
        &mut self,
        bytes: &[u8],
        number: usize,
        work: Work,
        realisation: Realisation,
        against: Against,
    ) -> Result<Ticket, Error> {
        let begun = Instant::now();
        let (ticket, other) = match self.send_by(realisation, number, work)? {
            Ok(ticket) => (ticket, true),
            Err(limit) => {
                let ticket = self.send_copied(bytes, limit)?;
                // What went another way than it was to says nothing.
                if !matches!(realisation, Realisation::Copy(_)) {
                    return Ok(ticket);
                }
                (ticket, false)
            }
        };
        let own = begun.elapsed();
        let length = bytes.len();
        if against != Against::Waiting {
            let faults = if other { self.timing.faults(length, self.policy.copied(against, length)) } else { 0.0 };
            self.policy.note(against, length, other, own.as_nanos() as f32 + faults);
        } else if self.is_received(ticket, other, begun, own)? {
            self.policy.note(against, length, other, begun.elapsed().as_nanos() as f32);
        }
        // What a call that waited has lent is nothing that the program waits for.
        Ok(if other && against != Against::Waiting { ticket } else { AT_ONCE })
    }

    /// Looks whether the receiver has all, for about as long as the call took. A receiver that is not at it says nothing of the ways.
    fn is_received(&mut self, ticket: Ticket, other: bool, begun: Instant, own: Duration) -> Result<bool, Error> {
        let most = own * 3 + Duration::from_micros(20);
        loop {
            let all = match other {
                true => self.completed(ticket)?,
                false => self.link.shared().is_ok_and(|link| link.is_taken()),
            };
            if all || begun.elapsed() > most {
                return Ok(all);
            }
            core::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_written_again_pays_for_lines_that_its_reader_took_and_for_no_others() {
        let mut timing = Timing::new(&Costs::USUAL);
        let length = 256 << 10;
        let (fault, rewriting, sending) =
            (Costs::USUAL.fault.at(length), Costs::USUAL.rewriting.at(length), Costs::USUAL.sending.at(length));
        assert_eq!(timing.faults(length, 0.0), rewriting as f32);
        assert_eq!(timing.faults(length, sending as f32), rewriting as f32);
        assert_eq!(timing.faults(length, (sending + 2.0 * rewriting) as f32), fault as f32);
        timing.each = 0.0;
        assert_eq!(timing.faults(length, 0.0), 0.0);
    }
}
