//! Where and why bytes are no value of a type.

use super::stack::{DEEPEST, STACK};
use std::fmt;

/// Why bytes are no value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// They end too early.
    Short,
    /// More elements than the bound says.
    Bound {
        /// Elements that the bytes announce.
        count: u32,
        /// The most that the definition allows.
        most: u32,
    },
    /// The bytes that fill the last unit are not zero.
    Padding,
    /// A boolean that is neither 0 nor 1.
    Boolean(u32),
    /// A number that is none of an enumeration's.
    Enumeration(i32),
    /// A discriminant without an arm.
    Arm(i32),
    /// Values that take far more memory than their bytes.
    Memory,
    /// Values nested deeper than [`DEEPEST`], or than a part of the stack.
    Depth,
    /// Bytes remain behind the value.
    Rest(usize),
    /// Arguments that are references cannot be decoded.
    Borrowed,
    /// A decoder of the program's own took them for none.
    Refused,
    /// A window that does not lie in the caller's memory, or is not aligned for its elements.
    Window,
}

/// Where and why bytes are no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// Bytes before it.
    pub at: usize,
    /// What is wrong.
    pub reason: Reason,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "at byte {}: ", self.at)?;
        match self.reason {
            Reason::Short => to.write_str("the bytes end too early"),
            Reason::Bound { count, most } => write!(to, "{count} elements where the definition allows {most}"),
            Reason::Padding => to.write_str("padding that is not zero"),
            Reason::Boolean(value) => write!(to, "{value} is no boolean"),
            Reason::Enumeration(value) => write!(to, "{value} is not of the enumeration"),
            Reason::Arm(value) => write!(to, "no arm of the union for {value}"),
            Reason::Depth => write!(to, "nested deeper than {DEEPEST}, or than {STACK} bytes of the stack"),
            Reason::Memory => to.write_str("values that take far more memory than their bytes"),
            Reason::Rest(count) => write!(to, "{count} bytes behind the value"),
            Reason::Refused => to.write_str("they are not what the definition says, or more than a decoder takes"),
            Reason::Borrowed => to.write_str("a reference is not decoded"),
            Reason::Window => to.write_str("a window outside the caller's memory"),
        }
    }
}

impl std::error::Error for Error {}
