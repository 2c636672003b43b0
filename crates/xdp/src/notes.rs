//! Frames that a queue's owner notes for the agent's capture: what goes by AF_XDP passes every tap of the kernel by.
//!
//! ```text
//! owner (holds the endpoint's lock)              agent, which believes nothing of it
//!   frame on the transmit ring, or taken   ──►  ring in the endpoint's memory  ──►  a file
//!   no room: counted, and on it goes              Head: how far each is
//! ```
//!
//! The owner never waits and makes no system call. What is noted is its own word: a hostile one hides frames or makes some up, in the capture
//! alone. Each record is a [`RECORD`] of words and the frame's first bytes, padded to 8; it wraps at the ring's end.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use shunt_sys::clock::ticks;

/// Bytes of the ring: a few milliseconds of a stream.
pub const RING: usize = 4 << 20;
/// Bytes of a ring and its head.
pub const SIZE: usize = 4096 + RING;
/// The longest part of a frame that is kept: all of any packet.
pub const LONGEST: usize = 1 << 17;

/// Where in its memory the owner says how many bytes it has written.
pub const WRITTEN: usize = core::mem::offset_of!(Head, owner);

/// Bytes in front of those of the frame: when (ticks), how long it was and how much is kept, which way it went.
const RECORD: usize = 24;

/// How far each side is: the first page.
#[repr(C, align(4096))]
struct Head {
    agent: Agent,
    owner: Owner,
}

/// What the agent writes.
#[repr(C, align(128))]
struct Agent {
    /// 1: it reads.
    reads: AtomicU32,
    /// Bytes of each frame that it wants.
    longest: AtomicU32,
    /// Bytes that were read.
    read: AtomicU64,
}

/// What the owner writes.
#[repr(C, align(128))]
struct Owner {
    /// Bytes that were written.
    written: AtomicU64,
    /// Frames that were not noted, as there was no room.
    lost: AtomicU64,
    /// 1: the chunk that was taken last is not its packet's last one.
    within: AtomicU32,
}

/// Which way a frame went.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It was received.
    In = 1,
    /// It was sent.
    Out = 2,
}

/// The memory of both sides.
#[derive(Clone, Copy)]
struct Place(*mut u8);

// SAFETY: plain memory that several processes share anyway, read as atomic words or copied byte by byte.
unsafe impl Send for Place {}

impl Place {
    fn head(&self) -> &Head {
        // SAFETY: a page at least, aligned to one, as long as the handle is used: its maker says so. Atomics accept any bytes.
        unsafe { &*self.0.cast() }
    }

    /// Calls `copy` with each piece of the ring in which the `length` bytes from position `at` on lie, and how many are in front of it.
    #[inline]
    fn pieces(&self, at: u64, length: usize, mut copy: impl FnMut(*mut u8, usize, usize)) {
        let start = at as usize & (RING - 1);
        let first = length.min(RING - start);
        // SAFETY: inside the ring: nobody asks for more than it has.
        unsafe {
            copy(self.0.add(4096 + start), 0, first);
            if length > first {
                copy(self.0.add(4096), first, length - first);
            }
        }
    }
}

/// The owner's side.
pub struct Notes(Place);

/// A frame that is being noted.
struct Note<'a> {
    notes: &'a Notes,
    at: u64,
    end: u64,
    /// Bytes of the frame that are still wanted.
    left: usize,
}

impl Notes {
    /// Over memory.
    ///
    /// # Safety
    /// `place` is the start of a page, and [`SIZE`] bytes from there are mapped, readable and writable, as long as the value is used.
    pub unsafe fn new(place: *mut u8) -> Notes {
        Notes(Place(place))
    }

    /// Notes a frame that was sent, in some parts.
    ///
    /// # Safety
    /// As many bytes as said can be read at each.
    #[cold]
    pub unsafe fn sent(&self, parts: &[(*const u8, usize)]) {
        let length = parts.iter().map(|(_, length)| length).sum();
        if let Some(mut note) = self.begin(Direction::Out, length) {
            // SAFETY: as the caller says.
            parts.iter().for_each(|(bytes, length)| unsafe { note.add(*bytes, *length) });
            note.end();
        }
    }

    /// Notes a packet of which the first chunk was taken, by all of its chunks. Those that come behind a first one are passed over.
    ///
    /// # Safety
    /// As many bytes as said can be read at each.
    #[cold]
    pub(crate) unsafe fn received(&self, goes_on: bool, chunks: impl Fn(u32) -> Option<(*const u8, usize, bool)>) {
        let owner = &self.0.head().owner;
        let is_within = owner.within.load(Relaxed) != 0;
        owner.within.store(goes_on.into(), Relaxed);
        if is_within {
            return;
        }
        let all = || (0..).map_while(&chunks).scan(true, |goes_on, chunk| core::mem::replace(goes_on, chunk.2).then_some(chunk));
        let length = all().map(|(_, length, _)| length).sum();
        if let Some(mut note) = self.begin(Direction::In, length) {
            // SAFETY: as the caller says.
            all().for_each(|(bytes, length, _)| unsafe { note.add(bytes, length) });
            note.end();
        }
    }

    fn begin(&self, direction: Direction, length: usize) -> Option<Note<'_>> {
        let Head { agent, owner } = self.0.head();
        if agent.reads.load(Relaxed) == 0 {
            return None;
        }
        let kept = length.min(agent.longest.load(Relaxed) as usize).min(LONGEST);
        let at = owner.written.load(Relaxed);
        // Acquire pairs with the agent's release of what it has read.
        let used = at.wrapping_sub(agent.read.load(Acquire));
        let end = at.wrapping_add((RECORD + kept.next_multiple_of(8)) as u64);
        if end.wrapping_sub(at).saturating_add(used) > RING as u64 {
            owner.lost.store(owner.lost.load(Relaxed).wrapping_add(1), Relaxed);
            return None;
        }
        let mut note = Note { notes: self, at, end, left: usize::MAX };
        let record = [ticks(), (length as u64) << 32 | kept as u64, direction as u64];
        // SAFETY: an array of ours.
        unsafe { note.add(record.as_ptr().cast(), RECORD) };
        note.left = kept;
        Some(note)
    }
}

impl Note<'_> {
    /// # Safety
    /// As many bytes as said can be read there.
    unsafe fn add(&mut self, bytes: *const u8, length: usize) {
        let length = length.min(self.left);
        // SAFETY: as the caller says; pieces are inside the ring, which nothing else is a reference to.
        self.notes
            .0
            .pieces(self.at, length, |to, skip, count| unsafe { core::ptr::copy_nonoverlapping(bytes.add(skip), to, count) });
        self.at = self.at.wrapping_add(length as u64);
        self.left -= length;
    }

    fn end(self) {
        // Release publishes the record to the agent's acquire.
        self.notes.0.head().owner.written.store(self.end, Release);
    }
}

/// What a record says of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// When, by the processor's counter.
    pub ticks: u64,
    /// Bytes of the frame.
    pub length: u32,
    /// Which way it went.
    pub direction: Direction,
}

/// The agent's side, which the owner may write into at any time.
pub struct Reader {
    place: Place,
    read: u64,
    /// Bytes that made no sense were passed over, so often.
    nonsense: u64,
}

impl Reader {
    /// Over memory; the owner notes from now on, `longest` bytes of each frame at most.
    ///
    /// # Safety
    /// As for [`Notes::new`].
    pub unsafe fn begin(place: *mut u8, longest: u32) -> Reader {
        let place = Place(place);
        let Head { agent, owner } = place.head();
        let read = owner.written.load(Acquire);
        agent.read.store(read, Relaxed);
        agent.longest.store(longest, Relaxed);
        agent.reads.store(1, Release);
        Reader { place, read, nonsense: 0 }
    }

    /// Gives what was noted so far to `take`, frame by frame: no more than the ring holds, however fast the owner writes.
    pub fn read(&mut self, bytes: &mut [u8; LONGEST], mut take: impl FnMut(Noted, &[u8])) {
        let Head { agent, owner } = self.place.head();
        // Acquire pairs with the owner's release of records.
        let written = owner.written.load(Acquire);
        while self.read != written {
            let waiting = written.wrapping_sub(self.read);
            let Some((noted, kept, size)) = self.record(waiting) else {
                self.nonsense = self.nonsense.saturating_add(1);
                self.read = written;
                break;
            };
            let bytes = &mut bytes[..kept];
            self.copy(self.read.wrapping_add(RECORD as u64), bytes);
            self.read = self.read.wrapping_add(size as u64);
            take(noted, bytes);
            // Release gives the room back after it was read.
            agent.read.store(self.read, Release);
        }
        agent.read.store(self.read, Release);
    }

    /// The next record, its bytes that are kept and all of its bytes; `None`: what lies there is none.
    fn record(&self, waiting: u64) -> Option<(Noted, usize, usize)> {
        if waiting > RING as u64 || waiting < RECORD as u64 {
            return None;
        }
        let mut head = [0; RECORD];
        self.copy(self.read, &mut head);
        let word = |index: usize| u64::from_ne_bytes(core::array::from_fn(|byte| head[8 * index + byte]));
        let (length, kept) = ((word(1) >> 32) as u32, word(1) as u32 as usize);
        let direction = [Direction::In, Direction::Out].into_iter().find(|direction| *direction as u64 == word(2))?;
        let size = RECORD + kept.checked_next_multiple_of(8)?;
        (kept <= LONGEST && kept <= length as usize && size as u64 <= waiting).then_some((
            Noted { ticks: word(0), length, direction },
            kept,
            size,
        ))
    }

    fn copy(&self, at: u64, bytes: &mut [u8]) {
        let to = bytes.as_mut_ptr();
        // SAFETY: pieces are inside the ring and, together, as long as the buffer; another process may write there, and bytes are bytes.
        self.place
            .pieces(at, bytes.len(), |from, skip, count| unsafe { core::ptr::copy_nonoverlapping(from, to.add(skip), count) });
    }

    /// Frames that are missing, by the owner's word, and how often it wrote nonsense.
    pub fn lost(&self) -> u64 {
        self.place.head().owner.lost.load(Relaxed).saturating_add(self.nonsense)
    }

    /// The owner is to note nothing more.
    pub fn end(&self) {
        self.place.head().agent.reads.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::mapping;

    /// Both sides of one ring, which stays mapped.
    fn sides(longest: u32) -> (Notes, Reader) {
        let place = mapping::reserve(SIZE).expect("memory");
        // SAFETY: so many bytes, for good.
        unsafe { (Notes::new(place), Reader::begin(place, longest)) }
    }

    fn read(reader: &mut Reader) -> Vec<(Direction, u32, Vec<u8>)> {
        let (mut buffer, mut all) = (Box::new([0; LONGEST]), Vec::new());
        reader.read(&mut buffer, |noted, bytes| all.push((noted.direction, noted.length, bytes.to_vec())));
        all
    }

    /// Of each length, over the ring's end many times; nothing is changed, missing or twice.
    #[test]
    fn frames_are_read_as_they_were_noted() {
        let (notes, mut reader) = sides(u32::MAX);
        for turn in 0..3000usize {
            let one: Vec<u8> = (0..turn % 70).map(|at| (at + turn) as u8).collect();
            let other: Vec<u8> = (0..turn * 7 % 9000).map(|at| (at * 3 + turn) as u8).collect();
            // SAFETY: both are there.
            unsafe { notes.sent(&[(one.as_ptr(), one.len()), (other.as_ptr(), other.len())]) };
            let chunks = [&one, &other, &one];
            for taken in 0..3 {
                // SAFETY: the chunks are there.
                unsafe {
                    notes.received(taken < 2, |ahead| {
                        let index = taken + ahead as usize;
                        chunks.get(index).map(|chunk| (chunk.as_ptr(), chunk.len(), index < 2))
                    });
                }
            }
            let all = read(&mut reader);
            assert_eq!(all.len(), 2, "turn {turn}");
            assert_eq!(all[0], (Direction::Out, (one.len() + other.len()) as u32, [&one[..], &other].concat()));
            assert_eq!(all[1], (Direction::In, (2 * one.len() + other.len()) as u32, [&one[..], &other, &one].concat()));
        }
        assert_eq!(reader.lost(), 0);
    }

    /// What finds no room is counted, what there is stays as it is; and there is room again.
    #[test]
    fn a_full_ring_holds_nothing_up() {
        let (notes, mut reader) = sides(1000);
        let frame = [7u8; 1500];
        // SAFETY: it is there.
        (0..5000).for_each(|_| unsafe { notes.sent(&[(frame.as_ptr(), frame.len())]) });
        let fits = RING / (RECORD + 1000);
        assert_eq!(reader.lost(), 5000 - fits as u64);
        let all = read(&mut reader);
        assert!(all.len() == fits && all.iter().all(|(_, length, bytes)| *length == 1500 && **bytes == frame[..1000]));
        // SAFETY: as above.
        unsafe { notes.sent(&[(frame.as_ptr(), 3)]) };
        assert_eq!(read(&mut reader), [(Direction::Out, 3, vec![7; 3])]);
        reader.end();
        // SAFETY: as above.
        unsafe { notes.sent(&[(frame.as_ptr(), 3)]) };
        assert!(read(&mut reader).is_empty());
    }
}
