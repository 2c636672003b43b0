//! An input: prepared when it is posted, ready when bytes come, disposed of when they are there. Section 6.2.

use crate::memory::{Memory, Work};
use crate::semantics::Semantics;
use crate::tables::{Architecture, Operation, EARLY};
use shunt_region::Limit;

/// Where an input stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Posted,
    Ready(Architecture),
}

/// One that is under way.
#[derive(Clone, Copy, Debug)]
#[must_use = "an input is completed, or it failed"]
pub struct Input {
    semantics: Semantics,
    stage: Stage,
    /// Its buffers.
    pub work: Work,
}

fn walk(row: &'static [Operation], work: &mut Work, memory: &mut impl Memory) -> Result<(), Limit> {
    for (done, operation) in row.iter().enumerate() {
        if let Err(limit) = memory.perform(*operation, work) {
            for operation in row[..done].iter().rev() {
                memory.undo(*operation, work);
            }
            return Err(limit);
        }
    }
    Ok(())
}

impl Input {
    /// Prepares an input as table 3 does, whatever the device: early demultiplexing may come, or not.
    ///
    /// # Errors
    /// What is missing; nothing has changed.
    pub fn post(semantics: Semantics, mut work: Work, memory: &mut impl Memory) -> Result<Input, Limit> {
        work.input = true;
        walk(EARLY[semantics.index()].prepare, &mut work, memory)?;
        Ok(Input { semantics, stage: Stage::Posted, work })
    }

    /// What it was posted with.
    pub fn semantics(&self) -> Semantics {
        self.semantics
    }

    /// Bytes come, by a device of this kind.
    ///
    /// # Errors
    /// What is missing; the input is still posted.
    ///
    /// # Panics
    /// When it was ready before.
    pub fn ready(&mut self, architecture: Architecture, memory: &mut impl Memory) -> Result<(), Limit> {
        assert_eq!(self.stage, Stage::Posted);
        walk(architecture.row(self.semantics).ready, &mut self.work, memory)?;
        self.stage = Stage::Ready(architecture);
        Ok(())
    }

    /// They are there: gives the buffers, in the application's hands.
    ///
    /// # Errors
    /// What is missing; the input has failed.
    ///
    /// # Panics
    /// When it is not ready.
    pub fn complete(mut self, memory: &mut impl Memory) -> Result<Work, Limit> {
        let Stage::Ready(architecture) = self.stage else { panic!("an input that is not ready") };
        for operation in architecture.row(self.semantics).dispose {
            if let Err(limit) = memory.perform(*operation, &mut self.work) {
                // What is the application's and what the system's is not told apart any more: neither has it.
                memory.undo(Operation::AllocateSystem, &mut self.work);
                memory.undo(Operation::MarkMovingIn, &mut self.work);
                return Err(limit);
            }
        }
        Ok(self.work)
    }

    /// No bytes come, or not all: nothing of them is seen with strong integrity, and the application's buffers are as they were
    /// before it was posted.
    pub fn fail(mut self, memory: &mut impl Memory) {
        if let Stage::Ready(architecture) = self.stage {
            for operation in architecture.row(self.semantics).ready.iter().rev() {
                memory.undo(*operation, &mut self.work);
            }
        }
        for operation in EARLY[self.semantics.index()].prepare.iter().rev() {
            memory.undo(*operation, &mut self.work);
        }
    }
}
