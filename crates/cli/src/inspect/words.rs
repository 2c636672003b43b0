//! Copies of shared memory, read word by word.
//!
//! Offsets come from the structures of `shunt_segment`, so there is one definition of every layout; values are whatever
//! the other process left there.
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A copy of the first bytes of a segment. Words beyond its end read as zero.
pub struct Words {
    bytes: Vec<u8>,
}

impl Words {
    /// Copies the first `length` bytes of `file`, or as many as it has.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn copy(file: &File, length: usize) -> io::Result<Words> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match file.read_at(&mut bytes[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Words { bytes })
    }

    /// The bytes at `offset`.
    pub fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut array = [0; N];
        if let Some(bytes) = offset.checked_add(N).and_then(|end| self.bytes.get(offset..end)) {
            array.copy_from_slice(bytes);
        }
        array
    }

    /// The 32-bit word at `offset`.
    pub fn word32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.array(offset))
    }

    /// The 64-bit word at `offset`.
    pub fn word64(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.array(offset))
    }

    #[cfg(test)]
    pub fn from_bytes(bytes: Vec<u8>) -> Words {
        Words { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_reads_as_zero() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 0).unwrap();
        let words = Words::copy(&file, 4096).unwrap();
        assert_eq!(words.word64(1), u64::from_ne_bytes([2, 3, 4, 5, 6, 7, 8, 9]));
        assert_eq!(words.word32(8), u32::from_ne_bytes([9, 0, 0, 0]));
        assert_eq!((words.word64(4090), words.word64(usize::MAX), words.word32(1 << 40)), (0, 0, 0));
    }
}
