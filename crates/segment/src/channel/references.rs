//! Bytes of a stream that lie in a pool of their sender's, and which pools it has shown to the receiver.
//!
//! They count as bytes of the stream, in a ring of their own number ([`crate::area::REFERRED`]) that holds nothing: a record here tells
//! where each run of them is. A record is its sender's; the receiver writes the answers about pools, and may write where bytes lie that
//! it has put into the link itself ([`place::KEPT`]).
//!
//! Bytes of a send that goes by reference only while it lasts are [`place::LENT`]: their sender puts into the link what is not received when it
//! returns, and then says [`place::KEPT`]. A receiver believes what it has copied from the pool only if the word has not changed meanwhile.

use crate::sync::{AtomicU32, AtomicU64};

/// Runs of bytes that can be under way in a direction.
pub const RECORDS: usize = 8;
/// Pools that a side can have shown at a time.
pub const SHOWN: usize = 2;

/// In [`ShownPool::descriptor`]: a file of memory of the program's, and no pool. The secret names a byte that is locked in it.
pub const FILE: u32 = 1 << 31;

/// In [`super::Receive::held`]: the word is one.
pub const HELD: u64 = 1 << 63;

/// The coding of [`Record::at`]: the position of the first byte, and above it the low half of the connection's generation.
pub mod at {
    /// Shift of the generation.
    pub const GENERATION_SHIFT: u32 = 48;
}

/// The coding of [`Record::place`].
pub mod place {
    /// Bits of the offset in the units of a pool; of an offer, the bytes themselves.
    pub const OFFSET_BITS: u32 = 36;
    /// Bits of the length, above the offset.
    pub const LENGTH_BITS: u32 = 24;
    /// Most bytes of a run.
    pub const LONGEST: usize = 8 << 20;
    /// Bytes that an offer carries in place of the offset.
    pub const CARRIED: usize = 4;
    /// Above the length: the bytes may change as soon as the word does.
    pub const LENT: u64 = 1 << 60;
    /// Which of the pools.
    pub const POOL: u64 = 1 << 61;
    /// The bytes stand in place of the offset, and the pool is one that the receiver is asked to map.
    pub const OFFER: u64 = 1 << 62;
    /// The bytes were copied into the link, to where a ring of this number would have them.
    pub const KEPT: u64 = 1 << 63;

    /// A word.
    pub const fn of(offset: u64, length: usize, kind: u64) -> u64 {
        offset & ((1 << OFFSET_BITS) - 1) | (length as u64) << OFFSET_BITS | kind
    }

    /// The offset in a word, or the bytes.
    pub const fn offset(word: u64) -> u64 {
        word & ((1 << OFFSET_BITS) - 1)
    }

    /// The length in a word.
    pub const fn length(word: u64) -> usize {
        (word >> OFFSET_BITS & ((1 << LENGTH_BITS) - 1)) as usize
    }

    /// The number of the pool in a word.
    pub const fn pool(word: u64) -> usize {
        (word & POOL != 0) as usize
    }
}

/// A run of bytes.
#[repr(C)]
pub struct Record {
    /// Where in the stream ([`at`]).
    pub at: AtomicU64,
    /// Where in memory ([`place`]).
    pub place: AtomicU64,
}

/// A pool that the side shows.
#[repr(C)]
pub struct ShownPool {
    /// What its header says, too.
    pub secret: [AtomicU64; 2],
    /// The process that has it open, as it knows itself.
    pub pid: AtomicU32,
    /// Its descriptor there; with [`FILE`], of a file that has no header.
    pub descriptor: AtomicU32,
    /// Names the offer: odd, and different from those before. 0: none.
    pub number: AtomicU32,
    /// The receiver's answer: the number, if it reads the pool; one less, if it does not.
    pub answer: AtomicU32,
}

/// What a side sends by reference.
#[repr(C)]
pub struct References {
    /// Runs of bytes, in no order.
    pub records: [Record; RECORDS],
    /// Pools.
    pub shown: [ShownPool; SHOWN],
}

#[cfg(loom)]
impl References {
    /// As fresh memory, for a model: its atomics are not plain memory.
    #[allow(clippy::new_without_default)]
    pub fn new() -> References {
        let (narrow, wide) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        References {
            records: core::array::from_fn(|_| Record { at: wide(), place: wide() }),
            shown: core::array::from_fn(|_| ShownPool {
                secret: [wide(), wide()],
                pid: narrow(),
                descriptor: narrow(),
                number: narrow(),
                answer: narrow(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::place::*;

    #[test]
    fn words_tell_what_was_put_into_them() {
        for (offset, length, kind) in
            [(0, 1, 0), ((1 << 36) - 1, LONGEST, POOL), (0xffff_ffff, CARRIED, OFFER | POOL), (7, 9, KEPT), (8, LONGEST, LENT)]
        {
            let word = of(offset, length, kind);
            assert_eq!((super::place::offset(word), super::place::length(word)), (offset, length));
            assert_eq!(word & (LENT | POOL | OFFER | KEPT), kind);
            assert_eq!(pool(word), (kind & POOL != 0) as usize);
        }
    }
}
