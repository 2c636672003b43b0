//! What is told of a region to a peer, and how the peer reads it.

/// Bytes of a region, for one peer, under a ticket that it gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// First byte, from the start of the pool's units.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// The generation of the region.
    pub generation: u32,
    /// The number of the pool between these two processes.
    pub pool: u32,
    /// What the peer gives back when it has finished.
    pub ticket: u64,
}

/// What a peer sent that no honest peer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// No such pool.
    Pool,
    /// Bytes that are not in it.
    Outside,
    /// Bytes that are not memory yet, and would be this process's to pay for.
    Hole,
    /// No such ticket, or one that was given back before.
    Ticket,
    /// A record that says nothing.
    Record,
}

impl Reference {
    /// Bytes of the record.
    pub const SIZE: usize = 32;

    /// As a record.
    pub fn to_bytes(self) -> [u8; Reference::SIZE] {
        let mut bytes = [0; Reference::SIZE];
        bytes[0..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.pool.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.ticket.to_le_bytes());
        bytes
    }

    /// From a record of a peer's: any bytes are one, and nothing of it has been checked.
    pub fn from_bytes(bytes: &[u8; Reference::SIZE]) -> Reference {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Reference {
            offset: word(0),
            length: word(8),
            generation: word(16) as u32,
            pool: (word(16) >> 32) as u32,
            ticket: word(24),
        }
    }

    /// The bytes as a range of a pool with `size` bytes of units.
    ///
    /// # Errors
    /// [`Violation::Outside`].
    pub fn range(&self, size: usize) -> Result<core::ops::Range<usize>, Violation> {
        match self.offset.checked_add(self.length) {
            Some(end) if end <= size as u64 => Ok(self.offset as usize..end as usize),
            _ => Err(Violation::Outside),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_record_is_read_and_no_range_leaves_the_pool(bytes: [u8; Reference::SIZE], size in 0usize..1 << 40) {
            let reference = Reference::from_bytes(&bytes);
            prop_assert_eq!(reference.to_bytes(), bytes);
            if let Ok(range) = reference.range(size) {
                prop_assert!(range.start <= range.end && range.end <= size);
            }
        }
    }
}
