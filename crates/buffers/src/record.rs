//! What one side of a port tells the other: a record in front of each message. Any bytes are read safely.

use crate::semantics::Semantics;
use shunt_region::{Reference, Violation};

/// What follows a record, or lies where it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// As many bytes as the reference says follow.
    Bytes = 1,
    /// They lie in a region.
    Region = 2,
    /// They lie in a region while the sender's call lasts; see [`shunt_region::pull`].
    Pull = 3,
    /// They lie in a region of a third process's, which sent them to the sender of this; see [`crate::port::Port::forward`].
    Forwarded = 4,
}

/// A record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What follows.
    pub kind: Kind,
    /// What the sender asked for: what its bytes can still do.
    pub semantics: Semantics,
    /// The number of a pull.
    pub serial: u16,
    /// Where the bytes are; of [`Kind::Bytes`] the length counts alone.
    pub reference: Reference,
    /// Of a pull, where the sender's own buffer is; the reference is to the system's, into which the sender copies.
    pub source: u64,
}

impl Record {
    /// Bytes of one.
    pub const SIZE: usize = 48;

    /// As bytes.
    pub fn to_bytes(self) -> [u8; Record::SIZE] {
        let mut bytes = [0; Record::SIZE];
        bytes[0] = self.kind as u8;
        bytes[1] = self.semantics.index() as u8;
        bytes[2..4].copy_from_slice(&self.serial.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.source.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.reference.to_bytes());
        bytes
    }

    /// From bytes of a peer's.
    ///
    /// # Errors
    /// [`Violation::Record`].
    pub fn from_bytes(bytes: &[u8; Record::SIZE]) -> Result<Record, Violation> {
        let kind = match bytes[0] {
            1 => Kind::Bytes,
            2 => Kind::Region,
            3 => Kind::Pull,
            4 => Kind::Forwarded,
            _ => return Err(Violation::Record),
        };
        let semantics = Semantics::of_index(bytes[1] as usize).ok_or(Violation::Record)?;
        if bytes[4..8] != [0; 4] {
            return Err(Violation::Record);
        }
        let array = |at: usize| -> [u8; 8] { bytes[at..at + 8].try_into().expect("eight bytes") };
        let reference = Reference::from_bytes(bytes[16..48].try_into().expect("as many bytes"));
        let serial = u16::from_le_bytes([bytes[2], bytes[3]]);
        if kind == Kind::Pull && serial == 0 {
            return Err(Violation::Record);
        }
        Ok(Record { kind, semantics, serial, reference, source: u64::from_le_bytes(array(8)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_a_record_is_the_same_one_again(bytes: [u8; Record::SIZE], kind in 0u8..6, semantics in 0u8..10) {
            let mut bytes = bytes;
            (bytes[0], bytes[1]) = (kind, semantics);
            bytes[4..8].fill(0);
            if let Ok(record) = Record::from_bytes(&bytes) {
                prop_assert_eq!(record.to_bytes(), bytes);
            } else {
                prop_assert!(!(1..=4).contains(&kind) || semantics > 7 || bytes[2..4] == [0, 0]);
            }
        }
    }
}
