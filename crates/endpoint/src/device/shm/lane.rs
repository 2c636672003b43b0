//! One direction of a channel in shared memory: the only thing that two peers share.
//!
//! The receiver makes it and hands it to the sender. Slots of one cache line carry messages: a word that announces, and 56
//! bytes. The word holds the position, so a line is known from an older one, and one line transfer carries a small
//! message. What exceeds two lines lies in a ring of bytes, in order.
//!
//! ```text
//! word of a slot: | position + 1 (32 bits) | notification (1) | lines - 1 (1) | length (30) |
//! ```
//!
//! Each side keeps its own positions in its endpoint's memory; here lie only the receiver's *heads*, published now and
//! then, and the flags by which sleepers are woken. Everything is written by one side, and read as input by the other.

use crate::shared::{CacheLine, SEALS};
use crate::WORDS;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use shunt_segment::channel::Wait;
use shunt_sys::{calls, libc, mapping, Errno};

/// Slots of a lane.
pub const SLOTS: u32 = 512;
/// Bytes of a slot behind its word.
pub const SLOT_BYTES: usize = 56;
/// Bytes of the ring. In a smaller one each line is still in the caches of a processor that has just read it when it is written
/// again, and to take it from there costs more than from the cache behind: 8 GB/s with 256 KiB, 12 to 23 with this (AMD, near).
pub const RING: u32 = 1 << 20;
/// What bodies in the ring are aligned to.
pub const GRAIN: u32 = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"shuntlan");
const VERSION: u32 = 2;
const PAGE: usize = 4096;
const SLOTS_AT: usize = PAGE;
const RING_AT: usize = SLOTS_AT + SLOTS as usize * 64;
/// Bytes of a lane.
pub const SIZE: usize = RING_AT + RING as usize;

const LENGTH: u64 = (1 << 30) - 1;
const TWO_LINES: u64 = 1 << 30;
const NOTICE: u64 = 1 << 31;

/// The first page.
#[repr(C, align(4096))]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    /// Written by the receiver: slots and bytes that are free again, low and high half; and 1 when it has closed.
    pub heads: CacheLine<AtomicU64>,
    /// 1: the receiver takes no more.
    pub closed: CacheLine<AtomicU32>,
    /// The receiver sleeps (IN).
    pub wait: CacheLine<Wait>,
    /// Written by the sender: 1 while it sleeps until there is room.
    pub blocked: CacheLine<AtomicU32>,
    /// Written by the sender: 1 if it takes part in membarrier(2), and so does not fence when it sends.
    pub barrier: CacheLine<AtomicU32>,
}

#[repr(C, align(64))]
struct Slot {
    word: AtomicU64,
    bytes: [u8; SLOT_BYTES],
}

const _: () = assert!(WORDS * 8 == SLOT_BYTES);
const _: () = assert!(core::mem::size_of::<Slot>() == 64 && core::mem::size_of::<Header>() == PAGE);

/// A lane as this process has it mapped.
#[derive(Clone, Copy)]
pub struct Lane(*mut u8);

/// What a slot announces: a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(u64);

impl Word {
    /// Bytes of the message.
    #[inline(always)]
    pub fn length(self) -> u32 {
        (self.0 & LENGTH) as u32
    }

    /// Whether the message is all in this slot, as it says and as its length says.
    #[inline(always)]
    pub fn is_one_line(self) -> bool {
        self.0 & (LENGTH | TWO_LINES | NOTICE) <= SLOT_BYTES as u64
    }

    /// Slots that it takes.
    #[inline(always)]
    pub fn lines(self) -> u32 {
        1 + (self.0 & TWO_LINES != 0) as u32
    }

    /// Whether it is a notification of an update.
    #[inline(always)]
    pub fn is_notice(self) -> bool {
        self.0 & NOTICE != 0
    }
}

/// Makes a lane: a sealed memfd.
///
/// # Errors
/// What the system answers.
pub fn create() -> Result<i32, Errno> {
    let fd = calls::memfd_create(b"shunt-lane\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
    let made = calls::ftruncate(fd, SIZE as i64)
        .and_then(|()| calls::fcntl(fd, libc::F_ADD_SEALS, SEALS as usize))
        .and_then(|_| mapping::shared(fd, PAGE));
    match made {
        Ok(page) => {
            // SAFETY: a page of zeroes is mapped there.
            let header: &Header = unsafe { &*page.cast() };
            header.version.store(VERSION, Relaxed);
            header.magic.store(MAGIC, Relaxed);
            let _ = calls::munmap(page, PAGE);
            Ok(fd)
        }
        Err(error) => {
            let _ = calls::close(fd);
            Err(error)
        }
    }
}

/// Copies up to 64 bytes: no call. Word by word, because a processor that has just written words cannot have them back in wider
/// pieces before they are in the cache.
///
/// # Safety
/// Both are valid for `length <= 64` bytes and do not overlap; `target` is aligned to 8.
#[inline(always)]
pub unsafe fn copy_line(source: *const u8, target: *mut u8, length: usize) {
    // SAFETY: each piece lies inside the two ranges.
    unsafe {
        if length >= 8 {
            let word = |at: usize| {
                let value = source.add(at).cast::<u64>().read_unaligned();
                // Atomic, so that no compiler makes one wide copy of many; the target is a slot, whose bytes are aligned.
                if at.is_multiple_of(8) {
                    (*target.add(at).cast::<AtomicU64>()).store(value, Relaxed);
                } else {
                    target.add(at).cast::<u64>().write_unaligned(value);
                }
            };
            let mut at = 0;
            while at + 8 <= length {
                word(at);
                at += 8;
            }
            if at < length {
                word(length - 8);
            }
        } else if length >= 4 {
            core::ptr::copy_nonoverlapping(source, target, 4);
            core::ptr::copy_nonoverlapping(source.add(length - 4), target.add(length - 4), 4);
        } else {
            for at in 0..length {
                target.add(at).write(*source.add(at));
            }
        }
    }
}

/// Writes all words of a slot.
///
/// # Safety
/// `target` is where the bytes of a slot lie, and no thread reads them now.
#[inline(always)]
pub unsafe fn put_words(words: &[u64; WORDS], target: *mut u8) {
    for (at, &word) in words.iter().enumerate() {
        // SAFETY: inside the slot, whose bytes are aligned. Atomic, so that no compiler gathers registers for a wider store.
        unsafe { (*target.cast::<AtomicU64>().add(at)).store(word, Relaxed) };
    }
}

impl Lane {
    /// No lane.
    pub const NONE: Lane = Lane(core::ptr::null_mut());

    /// The lane mapped at `base`.
    ///
    /// # Safety
    /// [`SIZE`] bytes stay mapped there as long as any copy is used.
    #[inline(always)]
    pub const unsafe fn at(base: *mut u8) -> Lane {
        Lane(base)
    }

    /// The first page.
    #[inline(always)]
    pub fn header<'a>(self) -> &'a Header {
        // SAFETY: mapped (see `at`), page-aligned; atomics accept any bytes.
        unsafe { &*self.0.cast() }
    }

    /// Whether the first words are those of a lane of this version.
    pub fn is_ours(self) -> bool {
        self.header().magic.load(Relaxed) == MAGIC && self.header().version.load(Relaxed) == VERSION
    }

    #[inline(always)]
    fn slot(self, position: u32) -> *mut Slot {
        // SAFETY: masked, so inside the lane.
        unsafe { self.0.add(SLOTS_AT).cast::<Slot>().add((position % SLOTS) as usize) }
    }

    #[inline(always)]
    fn word<'a>(self, position: u32) -> &'a AtomicU64 {
        // SAFETY: inside the lane, aligned.
        unsafe { &(*self.slot(position)).word }
    }

    /// Where the bytes of a slot lie.
    #[inline(always)]
    pub fn bytes(self, position: u32) -> *mut u8 {
        // SAFETY: inside the lane; no reference is made.
        unsafe { (&raw mut (*self.slot(position)).bytes).cast() }
    }

    /// Announces the message of `length` bytes whose first slot is `position`. Pairs with [`Lane::announced`].
    #[inline(always)]
    pub fn announce(self, position: u32, length: u32) {
        let word = |position: u32, low: u64| (position.wrapping_add(1) as u64) << 32 | low;
        let two = length as usize > SLOT_BYTES;
        if two {
            let second = position.wrapping_add(1);
            self.word(second).store(word(second, 0), Release);
        }
        self.word(position).store(word(position, length as u64 | if two { TWO_LINES } else { 0 }), Release);
    }

    /// The same of one that is all in its slot.
    #[inline(always)]
    pub fn announce_line(self, position: u32, length: u32) {
        self.word(position).store((position.wrapping_add(1) as u64) << 32 | length as u64, Release);
    }

    /// Announces a notification of `length` bytes.
    pub fn announce_notice(self, position: u32, length: u32) {
        self.word(position).store((position.wrapping_add(1) as u64) << 32 | NOTICE | length as u64, Release);
    }

    /// What the slot at `position` announces, if it does yet.
    #[inline(always)]
    pub fn announced(self, position: u32) -> Option<Word> {
        let word = self.word(position).load(Acquire);
        ((word >> 32) as u32 == position.wrapping_add(1)).then_some(Word(word))
    }

    /// Whether a message of two lines is what an honest sender writes: the second line comes before the first one's word.
    #[inline(always)]
    pub fn is_complete(self, position: u32, word: Word) -> bool {
        let second = position.wrapping_add(1);
        word.0 & TWO_LINES != 0
            && word.length() as usize > SLOT_BYTES
            && (self.word(second).load(Acquire) >> 32) as u32 == second.wrapping_add(1)
    }

    /// Asks for a slot's line before it is needed.
    #[inline(always)]
    pub fn prefetch(self, position: u32) {
        // SAFETY: a hint about an address inside the lane.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(self.slot(position).cast()) };
    }

    /// Where byte `position` of the ring lies, and how many bytes follow before the ring begins again.
    #[inline(always)]
    pub fn ring(self, position: u32) -> (*mut u8, u32) {
        let at = position % RING;
        // SAFETY: inside the lane.
        (unsafe { self.0.add(RING_AT + at as usize) }, RING - at)
    }

    /// Offset in the lane of byte `position` of the ring.
    #[inline(always)]
    pub fn ring_offset(position: u32) -> u32 {
        RING_AT as u32 + position % RING
    }
}
