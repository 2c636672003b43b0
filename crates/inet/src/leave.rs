//! Why a connection goes back to the kernel.

/// The reason. The segment that caused it, if one did, is for the kernel: of it nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// The peer has ended its direction: closing is the kernel's.
    Fin,
    /// A reset, true or forged (RFC 5961, section 3).
    Reset,
    /// A segment of a new connection.
    Syn,
    /// Urgent data.
    Urgent,
    /// Marks of congestion (RFC 3168).
    Congestion,
    /// A header with an option, or without an acknowledgement or the time stamps, that an established connection does not have.
    Odd,
    /// Something before this segment is missing.
    Gap,
    /// A packet was lost, and its repetition, too; or nothing was heard for too long.
    Loss,
}

impl Leave {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Leave::Fin => "fin",
            Leave::Reset => "reset",
            Leave::Syn => "syn",
            Leave::Urgent => "urgent",
            Leave::Congestion => "ecn",
            Leave::Odd => "odd",
            Leave::Gap => "gap",
            Leave::Loss => "loss",
        }
    }
}
