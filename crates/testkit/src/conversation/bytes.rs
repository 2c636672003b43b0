//! Bytes that tell whose they are and where they belong.

use std::io::{self, ErrorKind};

/// The bytes of one direction of a conversation.
pub struct Bytes {
    seed: u64,
    offset: u64,
}

impl Bytes {
    /// The bytes that follow from `seed`, from their beginning.
    pub fn new(seed: u64) -> Bytes {
        Bytes { seed, offset: 0 }
    }

    /// The same bytes from `offset` on.
    pub fn from_offset(self, offset: u64) -> Bytes {
        Bytes { offset, ..self }
    }

    fn at(&self, offset: u64) -> u8 {
        // One 64-bit multiplication a byte is slower than the memory but quick enough; the high bits are well mixed.
        let word = (self.seed ^ offset).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((word >> 56) ^ (word >> 24)) as u8
    }

    /// Fills `buffer` with the next bytes.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for (index, byte) in buffer.iter_mut().enumerate() {
            *byte = self.at(self.offset + index as u64);
        }
        self.offset += buffer.len() as u64;
    }

    /// Checks that `buffer` holds the next bytes.
    pub fn check(&mut self, buffer: &[u8]) -> io::Result<()> {
        for (index, byte) in buffer.iter().enumerate() {
            if *byte != self.at(self.offset + index as u64) {
                return Err(io::Error::new(ErrorKind::InvalidData, "a byte differs from what was sent"));
            }
        }
        self.offset += buffer.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_seed_or_place_are_noticed() {
        let mut buffer = [0; 1000];
        Bytes::new(1).fill(&mut buffer);
        assert!(Bytes::new(1).check(&buffer).is_ok());
        assert!(Bytes::new(2).check(&buffer).is_err());
        assert!(Bytes::new(1).check(&buffer[1..]).is_err());
        assert!(Bytes::new(1).from_offset(1).check(&buffer[1..]).is_ok());
    }
}
