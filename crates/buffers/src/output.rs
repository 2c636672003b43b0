//! An output: prepared when it is called for, disposed of when its bytes have been read. Section 6.1.

use crate::memory::{Memory, Work};
use crate::semantics::{Allocation, Semantics};
use crate::tables::{self, Operation};
use shunt_region::Limit;

/// One that is under way. The row of table 2 that it walks, and what became of it.
#[derive(Clone, Copy, Debug)]
#[must_use = "an output is completed, or it failed"]
pub struct Output {
    asked: Semantics,
    realised: Semantics,
    why: Option<Limit>,
    /// Its buffers.
    pub work: Work,
}

impl Output {
    /// Prepares an output. What cannot be done as it was asked for is done by copying, and says why ([`Output::why`]); `copy` says
    /// so from the start, because it costs less (section 6: thresholds).
    ///
    /// # Errors
    /// It cannot be copied either; nothing has changed. A region that is to be moved must be moved in.
    pub fn prepare(asked: Semantics, work: Work, copy: Option<Limit>, memory: &mut impl Memory) -> Result<Output, Limit> {
        let mut output = Output { asked, realised: asked, why: copy, work };
        if copy.is_none() {
            match output.walk(tables::output(asked).prepare, memory) {
                Ok(()) => return Ok(output),
                Err(limit) => output.why = Some(limit),
            }
        }
        output.realised = Semantics::COPY;
        if asked.allocation == Allocation::System {
            memory.perform(Operation::MarkMovingOut, &mut output.work)?;
        }
        if let Err(limit) = output.walk(tables::output(Semantics::COPY).prepare, memory) {
            if asked.allocation == Allocation::System {
                memory.undo(Operation::MarkMovingOut, &mut output.work);
            }
            return Err(limit);
        }
        Ok(output)
    }

    fn walk(&mut self, row: &'static [Operation], memory: &mut impl Memory) -> Result<(), Limit> {
        for (done, operation) in row.iter().enumerate() {
            if let Err(limit) = memory.perform(*operation, &mut self.work) {
                for operation in row[..done].iter().rev() {
                    memory.undo(*operation, &mut self.work);
                }
                return Err(limit);
            }
        }
        Ok(())
    }

    /// What was asked for.
    pub fn asked(&self) -> Semantics {
        self.asked
    }

    /// What was done.
    pub fn realised(&self) -> Semantics {
        self.realised
    }

    /// Why the two differ.
    pub fn why(&self) -> Option<Limit> {
        self.why
    }

    /// The bytes have been read.
    pub fn complete(mut self, memory: &mut impl Memory) {
        for operation in tables::output(self.realised).dispose {
            let _ = memory.perform(*operation, &mut self.work);
        }
        if self.realised != self.asked && self.asked.allocation == Allocation::System {
            // The region went all the same: only its bytes were copied.
            if let Some(last) = tables::output(self.asked).dispose.last() {
                let _ = memory.perform(*last, &mut self.work);
            }
        }
    }

    /// It was not sent: the application has everything as it was before ("graceful recovery in case of error").
    pub fn fail(mut self, memory: &mut impl Memory) {
        for operation in tables::output(self.realised).prepare.iter().rev() {
            memory.undo(*operation, &mut self.work);
        }
        if self.realised != self.asked && self.asked.allocation == Allocation::System {
            memory.undo(Operation::MarkMovingOut, &mut self.work);
        }
    }
}
