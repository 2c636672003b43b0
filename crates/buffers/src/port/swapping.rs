//! Messages of a port in shared memory that are swapped into a window: regions that their sender gave away, in a pool for trusted peers.
//!
//! The window's pages *are* the sender's then, which has them back when the next message takes their place: so two regions change
//! places, one message later. What was only lent (copy and share semantics, a message that was passed on) is copied, as its sender goes on using it.

use super::window::{Loan, Returns, Window};
use super::{Error, Port};
use crate::align::Alignment;
use crate::record::{Kind, Record};
use crate::semantics::Allocation;
use shunt_region::{Pool, Violation};
use std::sync::Arc;

/// Ordinary pages are swapped from here on: measured by `shunt bench cell buffers`, "into a window".
const SMALL_FROM: usize = usize::MAX;

/// What a port keeps for windows.
#[derive(Default)]
pub(super) struct Swapping {
    /// None before there was one.
    returns: Option<Arc<Returns>>,
    from: Option<usize>,
}

impl Port {
    /// The input alignment query (section 5.2), of windows of `pool`: messages begin where regions do, and so where pages do. Nothing is swapped
    /// where no pool for trusted peers can come ([`Port::trust`]).
    pub fn alignment(&self, pool: &Pool) -> Alignment {
        let page = super::window::page(pool);
        let copy_below = if self.link.trusts() { self.swap_from(page) } else { usize::MAX };
        Alignment { granularity: page, offset: 0, preferred: pool.shape().unit, copy_below }
    }

    /// From this length on pages are swapped into windows, and fewer bytes are copied: at first from a page on for huge ones, and never for
    /// ordinary ones.
    pub fn set_swap_from(&mut self, bytes: usize) {
        self.swapping.from = Some(bytes);
    }

    fn swap_from(&self, page: usize) -> usize {
        self.swapping.from.unwrap_or(if page > 4096 { page } else { SMALL_FROM })
    }

    /// Receives a message into a window, any that is long enough: as [`Port::receive`], but pages of a region that its sender moved are swapped in.
    /// They count as lent until other messages have taken their place, and are to be neither read, written, nor received into when either port has
    /// ended ([`Window::keep`]). Pages that another port has lent, or this one whose peer has ended, are kept first.
    ///
    /// # Errors
    /// As [`Port::receive`], and as [`Window::keep`]: the message waits.
    pub fn receive_into(&mut self, window: &mut Window) -> Result<usize, Error> {
        let record = self.record()?;
        let length = usize::try_from(record.reference.length).map_err(|_| Violation::Outside)?;
        if length > window.bytes().len() {
            return Err(Error::Length(length));
        }
        let swapped = self.is_swapped(&record, length, window);
        // Of a peer that has ended the regions are its process's again: nothing is written there, and none is swapped in.
        let ended = (swapped || window.is_lent()) && self.link.has_hung_up();
        if window.is_lent_besides(self.swapping.returns.as_ref()) || ended && window.is_lent() {
            window.keep()?;
        }
        if swapped && !ended {
            let span = self.span(&record.reference)?;
            let (system, offset) = (span.pointer(), record.reference.offset as usize);
            let attached = self.attached[record.reference.pool as usize].attached.clone();
            let returns = self.swapping.returns.get_or_insert_default().clone();
            let loan = Loan { attached, offset, ticket: Some(record.reference.ticket), returns };
            // SAFETY: the bytes were checked; the region has whole units, which are whole pages. Its sender gave it away, and is trusted.
            let swapped = unsafe { window.swap_lent(system, loan, length) };
            match swapped {
                Ok(()) => {
                    self.next = None;
                    self.pass_back();
                    return Ok(length);
                }
                // It is copied, and goes back then.
                Err((limit, loan)) => {
                    loan.forget();
                    self.note(limit);
                }
            }
        }
        self.receive(window.bytes_mut())
    }

    fn is_swapped(&self, record: &Record, length: usize, window: &Window) -> bool {
        let given = record.kind == Kind::Region && record.semantics.allocation == Allocation::System;
        let Some(foreign) = self.attached.get(record.reference.pool as usize).filter(|_| given) else { return false };
        let (page, unit) = (window.page(), foreign.attached.shape().unit);
        let aligned = unit.is_multiple_of(page) && record.reference.offset.is_multiple_of(unit as u64);
        foreign.attached.is_writable() && aligned && length >= self.swap_from(page)
    }

    /// Gives back what windows have let go of. To a peer that has ended there is nothing to give back, and what it sent before is not lost for that.
    pub(super) fn pass_back(&mut self) {
        let Some(returns) = &self.swapping.returns else { return };
        for ticket in returns.take() {
            let _ = self.link.put(1, &ticket.to_le_bytes());
        }
    }
}
