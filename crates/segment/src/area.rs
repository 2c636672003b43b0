//! Where a channel's rings lie: one small ring inside the channel page, larger ones in sparse areas behind.
//!
//! A direction uses one class at a time. Idle connections stay in class 0, which shares the channel's page; only
//! pages that a class really used cost memory.

use crate::CHANNELS;

/// Size of a page, of a link header and of a channel page.
pub const PAGE: usize = 4096;

/// Number of ring classes.
pub const CLASSES: usize = 5;

/// Bytes in a ring of each class.
#[cfg(not(loom))]
pub const RING_SIZE: [u32; CLASSES] = [1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes in a ring of each class: small enough to be filled in a model.
#[cfg(loom)]
pub const RING_SIZE: [u32; CLASSES] = [8, 16, 32, 64, 128];

/// Offset of the class 0 rings in the channel page; side 0's ring first.
pub const SMALL_RINGS: usize = 2048;

/// Offset of channel page 0 in a link.
pub const CHANNEL_PAGES: usize = PAGE;

const fn class_offset(class: usize) -> usize {
    let mut offset = CHANNEL_PAGES + CHANNELS * PAGE;
    let mut k = 1;
    while k < class {
        offset += CHANNELS * 2 * RING_SIZE[k] as usize;
        k += 1;
    }
    offset
}

/// Size of a link in bytes (sparse: nothing is resident before it is used). It counts against RLIMIT_AS, which some
/// servers set to a few hundred megabytes: so a link has few channels rather than many.
pub const LINK_SIZE: usize = class_offset(CLASSES);

/// Offset in the link of the ring that `side` of `channel` writes in `class`.
///
/// Never panics: indices are masked or clamped, so that a hostile class cannot lead outside the link.
#[cfg(not(loom))]
#[inline(always)]
pub const fn ring_offset(channel: usize, side: usize, class: usize) -> usize {
    let channel = channel & (CHANNELS - 1);
    let side = side & 1;
    if class == 0 {
        CHANNEL_PAGES + channel * PAGE + SMALL_RINGS + side * RING_SIZE[0] as usize
    } else {
        let class = if class < CLASSES { class } else { CLASSES - 1 };
        OFFSETS[class] + (channel * 2 + side) * RING_SIZE[class] as usize
    }
}

/// Offset of a ring among the bytes of the only channel that a model has: rings lie side by side.
#[cfg(loom)]
pub fn ring_offset(_channel: usize, side: usize, class: usize) -> usize {
    let smaller: u32 = RING_SIZE[..class].iter().sum();
    2 * smaller as usize + side * RING_SIZE[class] as usize
}

#[cfg(not(loom))]
const OFFSETS: [usize; CLASSES] = [0, class_offset(1), class_offset(2), class_offset(3), class_offset(4)];

const _: () = assert!(CHANNELS.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_lie_inside_the_link_and_do_not_overlap() {
        let mut all = Vec::new();
        for (class, &size) in RING_SIZE.iter().enumerate() {
            for channel in 0..CHANNELS {
                for side in 0..2 {
                    let start = ring_offset(channel, side, class);
                    all.push((start, start + size as usize));
                }
            }
        }
        all.sort();
        assert!(all.windows(2).all(|w| w[0].1 <= w[1].0));
        assert!(all.last().unwrap().1 <= LINK_SIZE);
    }
}
