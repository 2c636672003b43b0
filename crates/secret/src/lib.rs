//! Numbers that no other side can guess: SipHash-2-4 of a counter under a secret of 128 bits.
//!
//! Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), section 2. It is used as a pseudo-random
//! function here, which is what it was made for; a generator such as xorshift would give its state away with its outputs.
//!
//! ```
//! // The first vector of the reference implementation.
//! assert_eq!(shunt_secret::siphash([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908], &[]), 0x726f_db47_dd0e_0e31);
//! ```
#![no_std]

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

/// SipHash-2-4 of the bytes, which must be a multiple of eight long here: words.
pub fn siphash(key: [u64; 2], words: &[u64]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let last = (words.len() as u64 * 8) << 56;
    for &word in words.iter().chain(core::iter::once(&last)) {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[cfg(test)]
mod tests {
    use super::siphash;

    /// The vectors of the reference implementation: key 00..0f, input 00, 01, 02, ...
    #[test]
    fn reference_vectors() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash(key, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash(key, &[0x0706_0504_0302_0100]), 0x93f5_f579_9a93_2462);
    }
}
