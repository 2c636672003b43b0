//! What the machines ask of memory.

use crate::tables::Operation;
use shunt_region::{Limit, Located};

/// One message's buffers, as its operations find and leave them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// The application's buffer: its address.
    pub address: usize,
    /// Its bytes, as many as the message has.
    pub length: usize,
    /// The region that it lies in, if it does.
    pub region: Option<Located>,
    /// The buffer of the system's: a region, too. For an input the overlay, or the outboard buffer.
    pub system: Option<Located>,
    /// Where the data starts in the system's buffer.
    pub offset: usize,
    /// Bytes come in; else they go out.
    pub input: bool,
}

/// Page operations of one process: Linux's ([`crate::linux`]), or a model's.
pub trait Memory {
    /// Does one operation of the tables.
    ///
    /// # Errors
    /// Why it could not be done; then it has not.
    fn perform(&mut self, operation: Operation, work: &mut Work) -> Result<(), Limit>;

    /// Takes an operation back that was done before. It cannot fail; what could not be undone is lost, and never another's.
    fn undo(&mut self, operation: Operation, work: &mut Work);
}
