//! Operations of inputs into memory that is no region's: a buffer that its program lends for the length of a call is kept by that.
//! The device is this process, so it need not be wired either: that would undo the program's own mlock(2), which does not nest. Where it is
//! a window, pages are swapped into it. Everything else is the host's.

use super::window::Window;
use crate::linux::Host;
use crate::memory::{Memory, Work};
use crate::tables::Operation;
use shunt_region::Limit;

pub(super) struct Inputs<'a> {
    pub(super) host: &'a mut Host,
    /// The buffer, and from which length on pages are swapped.
    pub(super) window: Option<(&'a mut Window, usize)>,
}

impl<'a> Inputs<'a> {
    pub(super) fn of(host: &'a mut Host) -> Inputs<'a> {
        Inputs { host, window: None }
    }

    /// Swaps pages if that is to be done; false: the bytes are to be copied.
    fn swap(&mut self, work: &mut Work) -> Result<bool, Limit> {
        let (Some((window, from)), Some(system)) = (&mut self.window, work.system) else { return Ok(false) };
        if work.length < *from || work.offset != 0 {
            return Ok(false);
        }
        match window.swap(system, work.length) {
            Ok(()) => {
                // The overlay is the window's now.
                work.system = None;
                Ok(true)
            }
            Err(limit) if window.bytes().is_empty() => Err(limit),
            Err(_) => Ok(false),
        }
    }
}

fn is_private(work: &Work) -> bool {
    work.region.is_none() && work.address != 0
}

impl Memory for Inputs<'_> {
    fn perform(&mut self, operation: Operation, work: &mut Work) -> Result<(), Limit> {
        match operation {
            Operation::Reference | Operation::Unreference | Operation::Wire | Operation::Unwire if is_private(work) => Ok(()),
            Operation::SwapPages | Operation::SwapOrCopyout => match self.swap(work)? {
                true => Ok(()),
                false => self.host.perform(operation, work),
            },
            _ => self.host.perform(operation, work),
        }
    }

    fn undo(&mut self, operation: Operation, work: &mut Work) {
        match operation {
            Operation::Reference | Operation::Wire if is_private(work) => {}
            _ => self.host.undo(operation, work),
        }
    }
}
