//! Where a channel's rings lie: one small ring inside the channel page, larger ones in sparse areas behind.
//!
//! A direction uses one class at a time. Idle connections stay in class 0, which shares the channel's page; only
//! pages that a class really used cost memory.
//!
//! Each process maps the *base* of a link: header, channel pages and the smaller classes. The largest classes of a
//! direction form its *window* behind the base; a process maps a window when it first uses it. So a link costs 22 MB of
//! address space, which some servers limit (RLIMIT_AS), and a direction can still hold as many bytes as the kernel's.

use crate::CHANNELS;

/// Size of a page, of a link header and of a channel page.
pub const PAGE: usize = 4096;

/// Number of ring classes.
pub const CLASSES: usize = 6;

/// The class of bytes that lie in no ring, but in their sender's memory ([`crate::channel::references`]).
pub const REFERRED: usize = 7;
const _: () = assert!(CLASSES <= REFERRED && REFERRED < 8);

/// The first class that lies in a window.
#[cfg(not(loom))]
pub const FIRST_IN_WINDOW: usize = 4;
/// The first class that lies in a window: a model has none.
#[cfg(loom)]
pub const FIRST_IN_WINDOW: usize = CLASSES;

/// Bytes in a ring of each class.
#[cfg(not(loom))]
pub const RING_SIZE: [u32; CLASSES] = [1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Bytes in a ring of each class: small enough to be filled in a model.
#[cfg(loom)]
pub const RING_SIZE: [u32; CLASSES] = [8, 16, 32, 64, 128, 256];

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

/// Bytes of a link that every process maps.
pub const BASE_SIZE: usize = class_offset(FIRST_IN_WINDOW);

/// Bytes of the window of one direction of a channel.
pub const WINDOW_SIZE: usize = window_size();

const fn window_size() -> usize {
    let (mut size, mut k) = (0, FIRST_IN_WINDOW);
    while k < CLASSES {
        size += RING_SIZE[k] as usize;
        k += 1;
    }
    size
}

/// Bytes of one direction that can be referred to at a time, and for which there is a place in the link's file: behind the windows, where
/// no process maps them. Addressed as a ring of this size is.
pub const KEPT_SIZE: usize = 4 << 20;

/// Offset in the link's file of the place for bytes that are kept of the direction that `side` of `channel` writes.
pub const fn kept_offset(channel: usize, side: usize) -> usize {
    BASE_SIZE + CHANNELS * 2 * WINDOW_SIZE + ((channel & (CHANNELS - 1)) * 2 + (side & 1)) * KEPT_SIZE
}

/// Size of a link's file in bytes (sparse: nothing is resident before it is used).
pub const LINK_SIZE: usize = BASE_SIZE + CHANNELS * 2 * (WINDOW_SIZE + KEPT_SIZE);

/// Bytes of the file of a link that is closed to further connections. No process can make it smaller again (F_SEAL_SHRINK).
pub const CLOSED_SIZE: usize = LINK_SIZE + PAGE;

/// Offset in the link's file of the window of the direction that `side` of `channel` writes.
pub const fn window_offset(channel: usize, side: usize) -> usize {
    BASE_SIZE + ((channel & (CHANNELS - 1)) * 2 + (side & 1)) * WINDOW_SIZE
}

/// The parts of the base that channels have: where each begins, and how many bytes of it are one channel's. All are whole pages.
#[cfg(not(loom))]
pub const SHARES: [(usize, usize); FIRST_IN_WINDOW] = shares();

#[cfg(not(loom))]
const fn shares() -> [(usize, usize); FIRST_IN_WINDOW] {
    let mut shares = [(CHANNEL_PAGES, PAGE); FIRST_IN_WINDOW];
    let mut class = 1;
    while class < FIRST_IN_WINDOW {
        shares[class] = (class_offset(class), 2 * RING_SIZE[class] as usize);
        assert!(shares[class].0.is_multiple_of(PAGE) && shares[class].1.is_multiple_of(PAGE));
        class += 1;
    }
    shares
}

/// Offset of a class's ring in its window. A class that lies in no window counts as the first that does.
#[inline(always)]
pub const fn offset_in_window(class: usize) -> usize {
    let (mut offset, mut k) = (0, FIRST_IN_WINDOW);
    while k < class && k + 1 < CLASSES {
        offset += RING_SIZE[k] as usize;
        k += 1;
    }
    offset
}

/// Offset in the link's file of the ring that `side` of `channel` writes in `class`.
///
/// Never panics: indices are masked or clamped, so that a hostile class cannot lead outside the link.
#[cfg(not(loom))]
#[inline(always)]
pub const fn ring_offset(channel: usize, side: usize, class: usize) -> usize {
    if class < FIRST_IN_WINDOW {
        return base_ring_offset(channel, side, class);
    }
    window_offset(channel, side) + offset_in_window(class)
}

/// As [`ring_offset`], for the classes of the base; larger ones count as the largest of these.
#[cfg(not(loom))]
#[inline(always)]
pub const fn base_ring_offset(channel: usize, side: usize, class: usize) -> usize {
    let channel = channel & (CHANNELS - 1);
    let side = side & 1;
    if class == 0 {
        CHANNEL_PAGES + channel * PAGE + SMALL_RINGS + side * RING_SIZE[0] as usize
    } else {
        let class = if class < FIRST_IN_WINDOW { class } else { FIRST_IN_WINDOW - 1 };
        OFFSETS[class] + (channel * 2 + side) * RING_SIZE[class] as usize
    }
}

/// Offset of a ring among the bytes of the only channel that a model has: rings lie side by side.
#[cfg(loom)]
pub fn ring_offset(_channel: usize, side: usize, class: usize) -> usize {
    let smaller: u32 = RING_SIZE[..class].iter().sum();
    2 * smaller as usize + side * RING_SIZE[class] as usize
}

/// As [`ring_offset`].
#[cfg(loom)]
pub fn base_ring_offset(channel: usize, side: usize, class: usize) -> usize {
    ring_offset(channel, side, class)
}

#[cfg(not(loom))]
const OFFSETS: [usize; FIRST_IN_WINDOW] = [0, class_offset(1), class_offset(2), class_offset(3)];

const _: () = assert!(CHANNELS.is_power_of_two());
#[cfg(not(loom))]
const _: () = assert!(BASE_SIZE.is_multiple_of(PAGE) && WINDOW_SIZE.is_multiple_of(PAGE));

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
