//! A small seeded generator, so that a failing run can be repeated from the seed it printed.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator with a fixed seed.
    pub fn seeded(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A generator seeded from `SHUNT_TEST_SEED` if set, else from the clock. Prints the seed, which the test
    /// harness shows when the test fails.
    pub fn for_test() -> Random {
        let seed = match std::env::var("SHUNT_TEST_SEED") {
            Ok(text) => text.parse().expect("SHUNT_TEST_SEED is a decimal number"),
            Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_nanos() as u64,
        };
        println!("repeat with SHUNT_TEST_SEED={seed}");
        Random::seeded(seed)
    }

    /// The next 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number in `0..bound`; `bound` must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// `length` random bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.word().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_published_sequence() {
        // First outputs of the reference implementation for seed 1234567.
        let mut random = Random::seeded(1_234_567);
        assert_eq!(random.word(), 6_457_827_717_110_365_317);
        assert_eq!(random.word(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn bytes_have_the_length_asked_for() {
        for length in [0, 1, 7, 8, 9, 1000] {
            assert_eq!(Random::seeded(7).bytes(length).len(), length);
        }
    }
}
