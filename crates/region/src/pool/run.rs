//! What a guard does to one region's memory.

use crate::guard::{Access, Claim, Hands};
use crate::limit::Limit;
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_sys::{calls, libc};

use super::{Control, APART, MAPPINGS};

/// The memory of one region.
pub(super) struct Run<'a> {
    pub control: &'a Control,
    pub first: usize,
    pub count: usize,
    /// Others are not given up for this one.
    pub last: bool,
}

impl Hands for Run<'_> {
    fn protect(&self, access: Access) -> Result<(), Limit> {
        let protection = match access {
            Access::None => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let units = self.first..self.first + self.count;
        let done = match self.control.change(units.clone(), protection) {
            Err(_) if access == Access::Write && !self.last => self.control.open_among_others(units),
            other => other,
        };
        done.map_err(|_| Limit::Protection)
    }

    fn open(&self, unit: usize) -> Result<(), Limit> {
        let unit = self.first + unit;
        self.control.change(unit..unit + 1, libc::PROT_READ | libc::PROT_WRITE).map_err(|_| Limit::Protection)
    }

    fn save(&self, unit: usize) {
        let unit = self.first + unit;
        // SAFETY: both lie in the mapping; no thread can write the unit, and no reader looks at the spare before the redirect
        // says so.
        unsafe {
            core::ptr::copy_nonoverlapping(self.control.pointer(unit), self.control.spare(unit), self.control.shape.unit);
        }
    }

    fn redirect(&self, unit: usize) -> &AtomicU32 {
        self.control.told(self.first + unit, 0)
    }

    fn claim(&self, unit: usize) -> &Claim {
        &self.control.unit(self.first + unit).claim
    }

    fn part(&self) -> Result<(), Limit> {
        if APART.fetch_add(2, Ordering::Relaxed) >= MAPPINGS {
            APART.fetch_sub(2, Ordering::Relaxed);
            return Err(Limit::Mappings);
        }
        self.control.apart.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn join(&self, parts: u32) {
        APART.fetch_sub(2 * parts, Ordering::Relaxed);
        self.control.apart.fetch_sub(parts, Ordering::Relaxed);
    }

    fn rest(&self) {
        calls::sched_yield();
    }
}
