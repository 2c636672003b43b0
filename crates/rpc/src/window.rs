//! The window: memory of the caller's that its server works on. What is passed by reference lies there, and what is longer than a
//! message.
//!
//! On one host it is a sealed memfd that both map. Elsewhere both have one of the same shape, and pieces travel before and after a
//! call. Either way it is a shared whiteboard: whatever is read from it is loaded once, and what was loaded is judged.

use crate::wire::Piece;
use crate::xdr::{loaded_once, Copies, Decoder, Sink};
use shunt_sys::memory_file;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{fence, AtomicU32, Ordering};

/// The first page: for each place of the caller's table, the generation whose call is not wanted any more, plus 1.
pub(crate) const CANCELS: usize = 4096;
/// The caller's table has so many places.
pub const PLACES: usize = CANCELS / 4;
/// Pieces begin at multiples of it: a line of cache.
const GRAIN: u32 = 64;
/// The smallest and the largest window.
pub(crate) const SIZES: std::ops::RangeInclusive<u64> = 8192..=1 << 30;

/// A mapping of the memory.
#[derive(Debug)]
pub(crate) struct Window {
    base: *mut u8,
    size: usize,
    descriptor: Option<OwnedFd>,
}

// SAFETY: the mapping belongs to the value, and is written through raw pointers only.
unsafe impl Send for Window {}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

const SEALS: i32 = memory_file::SIZE_SEALS;

impl Window {
    /// Memory that a server may be given. Pages are there when they are touched.
    pub fn create(size: usize) -> io::Result<Self> {
        // SAFETY: a string that ends in 0.
        let descriptor =
            checked(unsafe { libc::memfd_create(c"shunt-rpc".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
        // SAFETY: just made, and of no other owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // SAFETY: numbers only.
        checked(unsafe { libc::ftruncate(descriptor.as_raw_fd(), size as i64) })?;
        // SAFETY: numbers only.
        checked(unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Self::map(descriptor, size)
    }

    /// Memory that a caller gave: of ordinary pages, it can neither shrink under us nor be less than it said. A page that the caller has not
    /// touched is charged to the memory cgroup that touches it first, this one's too; how much that can be the server's options bound.
    pub fn adopt(descriptor: OwnedFd, size: u64) -> io::Result<Self> {
        let broken = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let Ok((bytes, _)) = memory_file::sealed(descriptor.as_raw_fd(), SEALS) else {
            return broken("the caller's window is not sealed memory of ordinary pages");
        };
        if bytes as u64 != size || !SIZES.contains(&size) {
            return broken("the caller's window is not as long as it said");
        }
        // The mapping is enough: a server has one of these for each caller.
        let mut window = Self::map(descriptor, size as usize)?;
        window.descriptor = None;
        Ok(window)
    }

    fn map(descriptor: OwnedFd, size: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, descriptor.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), size, descriptor: Some(descriptor) })
    }

    /// Memory of this process: one half of a window between hosts.
    pub fn mirror(size: u64) -> io::Result<Self> {
        if !SIZES.contains(&size) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no size for a window"));
        }
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a new mapping.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size as usize, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), size: size as usize, descriptor: None })
    }

    /// The descriptor to hand over, where there is one.
    pub fn descriptor(&self) -> Option<&OwnedFd> {
        self.descriptor.as_ref()
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// All of it, for the engine of a device that copies into it.
    ///
    /// # Safety
    /// No peer has it mapped, and no other thread uses it meanwhile.
    pub unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping; the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.size) }
    }

    /// Where a piece lies; `None`: not in the part that is for pieces.
    #[inline]
    pub fn pointer(&self, piece: Piece) -> Option<*mut u8> {
        let (offset, length) = (piece.offset as usize, piece.length as usize);
        if offset < CANCELS || offset > self.size || length > self.size - offset {
            return None;
        }
        // SAFETY: within the mapping, as was just seen.
        Some(unsafe { self.base.add(offset) })
    }

    /// What reads values where they lie, each byte once.
    pub fn decoder<'a>(&'a self, piece: Piece, copies: &'a Copies) -> Option<Decoder<'a>> {
        let at = self.pointer(piece).filter(|_| piece.offset.is_multiple_of(4))?;
        fence(Ordering::Acquire);
        // SAFETY: within the mapping, which begins a page and lives as long as the borrow.
        Some(unsafe { Decoder::shared(at, piece.length as usize, copies) })
    }

    /// Where values are written to a piece. Its peer may write there, too, and then reads what it wrote.
    pub fn sink(&self, piece: Piece) -> Option<Sink<'_>> {
        // SAFETY: within the mapping, which lives as long as the borrow.
        self.pointer(piece).map(|at| unsafe { Sink::shared(at, piece.length as usize) })
    }

    /// A private copy of a piece.
    pub fn copy_out(&self, piece: Piece, into: &mut Vec<u8>) -> bool {
        let Some(from) = self.pointer(piece) else { return false };
        let length = piece.length as usize;
        into.clear();
        into.reserve(length);
        fence(Ordering::Acquire);
        // SAFETY: within the mapping; room was reserved. The other side may write meanwhile: bytes are bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), length);
            into.set_len(length);
        }
        loaded_once(into.as_ptr());
        true
    }

    #[inline(always)]
    fn cancel(&self, slot: u16) -> Option<&AtomicU32> {
        let at = usize::from(slot);
        if at >= PLACES {
            return None;
        }
        // SAFETY: the first page of the mapping; aligned; atomics may be changed by others.
        Some(unsafe { &*self.base.cast::<AtomicU32>().add(at) })
    }

    /// Says that a call is not wanted any more.
    pub fn set_cancelled(&self, slot: u16, generation: u16) {
        if let Some(word) = self.cancel(slot) {
            word.store(u32::from(generation) + 1, Ordering::Release);
        }
    }

    /// The place's next calls are wanted, whatever was said of the last one.
    pub fn set_wanted(&self, slot: u16) {
        if let Some(word) = self.cancel(slot) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Another call of the place than the named one is over: its word counts no longer, as a later one will have its number.
    pub fn forget_others(&self, slot: u16, generation: u16) {
        if let Some(word) = self.cancel(slot) {
            if word.load(Ordering::Relaxed) != u32::from(generation) + 1 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Whether a call is not wanted any more.
    #[inline(always)]
    pub fn is_cancelled(&self, slot: u16, generation: u16) -> bool {
        self.cancel(slot).is_some_and(|word| word.load(Ordering::Relaxed) == u32::from(generation) + 1)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { libc::munmap(self.base.cast(), self.size) };
    }
}

/// Which pieces of a window are in use: by whom, the calls and buffers count.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Free runs, by offset; none touches the next.
    free: Vec<Piece>,
    /// Those in use.
    used: Vec<Used>,
    idle: Vec<u32>,
    /// Long pieces take turns up to this byte; 0: they do not.
    span: u32,
    /// Where the last of them ended; 0: the next one begins anew.
    hand: u32,
}

/// Pieces of so many bytes take turns in the window's first bytes: where the last one lay, each line is in the nearest cache of the side that has
/// just read it, and to take it from there costs a third more than from the cache behind. Shorter ones gain nothing, and would touch more pages.
const TURNS: u32 = 8 << 10;
const SPAN: u32 = 1 << 20;

/// Bytes with those up to the next piece.
fn rounded(length: usize) -> Option<u32> {
    u32::try_from(length.max(1)).ok()?.checked_next_multiple_of(GRAIN)
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    piece: Piece,
    holders: u32,
}

impl Pieces {
    pub fn new(size: usize) -> Self {
        let all = Piece { offset: CANCELS as u32, length: (size - CANCELS) as u32 / GRAIN * GRAIN };
        let span = if all.length >= SPAN * 15 { SPAN } else { 0 };
        Self { free: vec![all], used: vec![], idle: vec![], span, hand: 0 }
    }

    /// A piece with one holder; its number. The first run that is long enough: it may stay for long.
    pub fn take(&mut self, length: usize) -> Option<u32> {
        let rounded = rounded(length)?;
        let (at, place) = self.find(rounded, 0)?;
        Some(self.take_at(at, place, length, rounded))
    }

    /// The same for a call: what lies behind the hand, where long pieces take turns.
    pub fn take_in_turn(&mut self, length: usize) -> Option<u32> {
        let rounded = rounded(length)?;
        let (at, place) = self.find_in_turn(rounded)?;
        Some(self.take_at(at, place, length, rounded))
    }

    /// A run that has so many bytes, or else the longest. It stays free: what is written there, until another piece is taken, can become
    /// one ([`Pieces::take_front`]) once its length is known.
    pub fn run(&self, least: usize) -> Piece {
        match rounded(least).and_then(|least| self.find_in_turn(least)) {
            Some((at, place)) => Piece { offset: place, length: self.free[at].end() - place },
            None => self.free.iter().max_by_key(|run| run.length).copied().unwrap_or_default(),
        }
    }

    /// A piece at the front of a run that is free.
    pub fn take_front(&mut self, run: Piece, length: usize) -> Option<u32> {
        let rounded = rounded(length).filter(|&rounded| rounded <= run.length)?;
        let at = self.free.iter().position(|free| free.offset <= run.offset && run.end() <= free.end())?;
        Some(self.take_at(at, run.offset, length, rounded))
    }

    /// Where so many bytes are free behind `least`: which run, and from which byte on.
    fn find(&self, rounded: u32, least: u32) -> Option<(usize, u32)> {
        let place = |run: &Piece| run.offset.max(least);
        let at = self.free.iter().position(|run| run.end() >= place(run) && run.end() - place(run) >= rounded)?;
        Some((at, place(&self.free[at])))
    }

    /// What is longer than the span begins where it can, or it would leave a hole that is of no use to another as long.
    fn find_in_turn(&self, rounded: u32) -> Option<(usize, u32)> {
        let turns = self.hand > 0 && (TURNS..=self.span).contains(&rounded);
        turns.then(|| self.find(rounded, self.hand)).flatten().or_else(|| self.find(rounded, 0))
    }

    fn take_at(&mut self, at: usize, place: u32, length: usize, rounded: u32) -> u32 {
        let piece = Piece { offset: place, length: length as u32 };
        let run = self.free[at];
        let before = Piece { offset: run.offset, length: place - run.offset };
        let behind = Piece { offset: place + rounded, length: run.end() - place - rounded };
        match (before.length, behind.length) {
            (0, 0) => drop(self.free.remove(at)),
            (0, _) => self.free[at] = behind,
            (_, 0) => self.free[at] = before,
            _ => {
                self.free[at] = before;
                self.free.insert(at + 1, behind);
            }
        }
        if rounded >= TURNS {
            self.hand = if behind.offset < self.span { behind.offset } else { 0 };
        }
        let used = Used { piece, holders: 1 };
        match self.idle.pop() {
            Some(number) => {
                self.used[number as usize] = used;
                number
            }
            None => {
                self.used.push(used);
                self.used.len() as u32 - 1
            }
        }
    }

    pub fn get(&self, number: u32) -> Piece {
        self.used[number as usize].piece
    }

    pub fn holders(&self, number: u32) -> u32 {
        self.used[number as usize].holders
    }

    /// Counts a call to a buffer that its caller alone holds. False: it is lent already, or this is no buffer of this window.
    pub fn lend(&mut self, number: u32, piece: Piece) -> bool {
        let Some(used) = self.used.get_mut(number as usize).filter(|used| used.piece == piece && used.holders == 1) else {
            return false;
        };
        used.holders += 1;
        true
    }

    /// One holder less; the last one's piece is free again.
    pub fn release(&mut self, number: u32) {
        let used = &mut self.used[number as usize];
        used.holders -= 1;
        if used.holders > 0 {
            return;
        }
        let run = Piece { offset: used.piece.offset, length: used.piece.length.max(1).next_multiple_of(GRAIN) };
        self.idle.push(number);
        let at = self.free.partition_point(|other| other.offset < run.offset);
        self.free.insert(at, run);
        let joins = |one: Piece, next: Piece| one.offset + one.length == next.offset;
        if at + 1 < self.free.len() && joins(self.free[at], self.free[at + 1]) {
            self.free[at].length += self.free[at + 1].length;
            self.free.remove(at + 1);
        }
        if at > 0 && joins(self.free[at - 1], self.free[at]) {
            self.free[at - 1].length += self.free[at].length;
            self.free.remove(at);
        }
    }

    /// The longest run that is free.
    pub fn longest(&self) -> u32 {
        self.free.iter().map(|run| run.length).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_piece_outside_is_none() {
        let window = Window::create(8192).unwrap();
        let piece = |offset, length| window.pointer(Piece { offset, length });
        assert!(piece(4096, 4096).is_some() && piece(8192, 0).is_some());
        for (offset, length) in [(0, 1), (4095, 1), (4096, 4097), (8193, 0), (u32::MAX, u32::MAX), (4096, u32::MAX)] {
            assert!(piece(offset, length).is_none(), "{offset} {length}");
        }
        // Units are read as such.
        let copies = Copies::default();
        let decodes = |offset, length| window.decoder(Piece { offset, length }, &copies).is_some();
        assert!(decodes(4100, 7) && !decodes(4101, 4) && !decodes(4098, 4) && !decodes(0, 4));
    }

    #[test]
    fn only_sealed_memory_of_its_length_is_adopted() {
        let window = Window::create(8192).unwrap();
        let again = || window.descriptor().unwrap().try_clone().unwrap();
        assert!(Window::adopt(again(), 8192).is_ok());
        assert!(Window::adopt(again(), 16384).is_err());
        // SAFETY: a string that ends in 0; the descriptor is new.
        let bare = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"bare".as_ptr(), libc::MFD_ALLOW_SEALING)) };
        // SAFETY: numbers only.
        assert_eq!(unsafe { libc::ftruncate(bare.as_raw_fd(), 8192) }, 0);
        assert!(Window::adopt(bare, 8192).is_err(), "it could shrink");
        // SAFETY: a string that ends in 0. A kernel without huge pages makes no such file.
        let huge = unsafe { libc::memfd_create(c"huge".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB) };
        if huge >= 0 {
            // SAFETY: the descriptor is new; numbers only.
            let huge = unsafe {
                assert_eq!(libc::ftruncate(huge, 2 << 20), 0);
                assert_eq!(libc::fcntl(huge, libc::F_ADD_SEALS, SEALS), 0);
                OwnedFd::from_raw_fd(huge)
            };
            let refused = Window::adopt(huge, 2 << 20).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "it could have holes without pages");
        }
    }

    #[test]
    fn both_see_what_is_cancelled() {
        let here = Window::create(8192).unwrap();
        let there = Window::adopt(here.descriptor().unwrap().try_clone().unwrap(), 8192).unwrap();
        assert!(!there.is_cancelled(0, 0));
        here.set_cancelled(3, 9);
        assert!(there.is_cancelled(3, 9) && !there.is_cancelled(3, 8) && !there.is_cancelled(4, 9));
        assert!(!there.is_cancelled(u16::MAX, 0));
    }

    #[test]
    fn long_pieces_take_turns_in_large_windows() {
        let places = |size: usize, length: usize| {
            let mut pieces = Pieces::new(size);
            let all = pieces.longest();
            let mut places: Vec<u32> = (0..100)
                .map(|_| {
                    let run = pieces.run(length);
                    let piece = pieces.take_front(run, length).unwrap();
                    let room = pieces.take_in_turn(length).unwrap();
                    let (at, behind) = (pieces.get(piece), pieces.get(room));
                    assert!(at.end() <= behind.offset || behind.end() <= at.offset);
                    pieces.release(piece);
                    pieces.release(room);
                    assert_eq!(pieces.longest(), all);
                    at.offset
                })
                .collect();
            places.sort_unstable();
            places.dedup();
            (places.len(), *places.last().unwrap())
        };
        let (many, last) = places(64 << 20, 64 << 10);
        assert!(many > 4 && last < SPAN, "{many} places, the last at {last}");
        assert_eq!(places(64 << 20, 1000).0, 1);
        assert_eq!(places(1 << 20, 64 << 10).0, 1);
        assert_eq!(places(64 << 20, 8 << 20).0, 1);
    }

    /// What went before decides on no long piece, nor on one that stays.
    #[test]
    fn long_pieces_fit_whatever_the_turn() {
        for before in [64 << 10, 512 << 10] {
            for parts in [2, 3] {
                let mut pieces = Pieces::new(64 << 20);
                let turn = pieces.take_in_turn(before).unwrap();
                pieces.release(turn);
                let long = ((64 << 20) - CANCELS) / parts / GRAIN as usize * GRAIN as usize;
                assert!((0..parts).all(|_| pieces.take_in_turn(long).is_some()), "{parts} behind {before}");
            }
            let mut pieces = Pieces::new(64 << 20);
            let turn = pieces.take_in_turn(before).unwrap();
            pieces.release(turn);
            let stays = pieces.take(64 << 10).unwrap();
            assert_eq!(pieces.get(stays).offset, CANCELS as u32);
        }
    }

    proptest! {
        /// Pieces in use never overlap, and all of the window is there when none is.
        #[test]
        fn pieces_are_apart(turns: bool, acts in proptest::collection::vec((any::<bool>(), any::<bool>(), prop_oneof![0usize..3000, 8000usize..9000]), 1..200)) {
            let mut pieces = Pieces::new(1 << 16);
            pieces.span = if turns { 1 << 15 } else { 0 };
            let all = pieces.longest();
            let mut held: Vec<u32> = vec![];
            for (take, front, number) in acts {
                if take {
                    let run = pieces.run(number);
                    let piece = if front { pieces.take_front(run, number) } else { pieces.take_in_turn(number) };
                    // A run is one of those long enough where there is any.
                    prop_assert_eq!(piece.is_some(), run.length as usize >= number.max(1).next_multiple_of(64), "{:?}", run);
                    held.extend(piece);
                } else if !held.is_empty() {
                    pieces.release(held.swap_remove(number % held.len()));
                }
                let mut places: Vec<Piece> = held.iter().map(|&number| pieces.get(number)).collect();
                places.sort_by_key(|piece| piece.offset);
                for two in places.windows(2) {
                    prop_assert!(two[0].offset + two[0].length.max(1) <= two[1].offset);
                }
            }
            held.drain(..).for_each(|number| pieces.release(number));
            prop_assert_eq!(pieces.longest(), all);
        }
    }
}
