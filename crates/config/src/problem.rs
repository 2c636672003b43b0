//! What can be wrong with a value.

/// Why a value cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It does not have the form the option asks for: `12q` as a size, `maybe` as a switch.
    Malformed,
    /// It has the right form, and lies outside [`crate::Entry::range`].
    OutOfRange,
    /// A port list with more ranges than [`crate::PORT_RANGES`].
    TooManyRanges,
    /// A list with more subnets than [`crate::SUBNETS`].
    TooManySubnets,
    /// A subnet whose address has bits behind its prefix: `10.1.0.1/16`.
    BeyondPrefix,
    /// A port range whose first port is greater than its last.
    Backwards,
}
