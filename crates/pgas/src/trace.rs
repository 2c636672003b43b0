//! What a rank did and how long it took: a ring of records in the job's memory, for the launcher to read when the job is over.
//!
//! A job that is not traced has no rings, and a call that could be traced pays one load and a branch. Words, atomic operations and puts of
//! less than [`BULK`] bytes are never traced. A rank alone writes its ring, with all of its threads; the oldest records are overwritten.

use crate::layout::Layout;
use crate::world::World;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Records that the ring of a traced rank has.
pub const RECORDS: usize = 1 << 16;
/// Bytes from which on a put or a get is traced.
pub const BULK: usize = 4096;

/// What took time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A barrier of a group, in collectives, too.
    Barrier = 1,
    /// The same by the name of OpenSHMEM that promises less.
    Sync,
    /// Waiting for a value, signals among them.
    Wait,
    /// Waiting for a lock.
    Lock,
    /// See [`crate::collective`].
    Broadcast,
    /// See [`crate::collective`].
    Collect,
    /// See [`crate::collective`].
    Fcollect,
    /// See [`crate::collective`].
    Alltoall,
    /// See [`crate::collective`].
    Reduce,
    /// At least [`BULK`] bytes.
    Put,
    /// At least [`BULK`] bytes.
    Get,
    /// Of [`crate::Team`]: what the members up to each make together.
    Scan,
}

impl Kind {
    /// All, in order of their numbers.
    pub const ALL: [Kind; 12] = {
        use Kind::*;
        [Barrier, Sync, Wait, Lock, Broadcast, Collect, Fcollect, Alltoall, Reduce, Put, Get, Scan]
    };

    /// The kind with this number.
    pub(crate) fn numbered(number: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// What is written of a call, as words: `place` is a group's key, a place's number plus one, or bytes; `amount` has 40 bits: bytes of a collective,
/// or the rank of a put or get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct What {
    /// Its kind.
    pub kind: Kind,
    /// See above.
    pub place: u64,
    /// See above.
    pub amount: u64,
}

/// Bits of a thread's number; that of its kind is below, the amount above.
const THREAD: u32 = 16;

/// The words of a record.
pub(crate) type Words = [u64; 4];

/// A record as words: beginning, end, kind with thread and amount, place.
pub(crate) fn words(what: What, thread: u16, begun: u64, ended: u64) -> Words {
    let amount = what.amount.min((1 << 40) - 1);
    [begun, ended, u64::from(what.kind as u8) | u64::from(thread) << 8 | amount << (8 + THREAD), what.place]
}

/// What a record's third and fourth words say, with the thread; none if there is no such kind.
pub(crate) fn what(word: u64, place: u64) -> Option<(What, u16)> {
    let kind = Kind::numbered(word as u8)?;
    Some((What { kind, place, amount: word >> (8 + THREAD) }, (word >> 8) as u16))
}

/// The ring of a rank, as it lies in the job's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring<'m> {
    /// Records that were ever written, or are about to be.
    next: &'m AtomicU64,
    records: &'m [[AtomicU64; 4]],
}

/// Before the first record, so that its writers have a cache line of their own.
const HEAD: usize = 64;

/// Bytes of a ring of so many records; none for none.
pub(crate) const fn ring_bytes(records: usize) -> usize {
    match records {
        0 => 0,
        _ => HEAD + records * size_of::<Words>(),
    }
}

impl Ring<'_> {
    /// A rank's ring in the memory mapped at `base`; none if the job is not traced.
    ///
    /// # Safety
    /// The job's memory of this layout must be mapped there for as long as the ring is used.
    pub(crate) unsafe fn of<'m>(base: usize, layout: &Layout, rank: usize) -> Option<Ring<'m>> {
        if layout.trace == 0 {
            return None;
        }
        let at = base + layout.ring(rank);
        // SAFETY: the caller's promise; the layout has room for head and records, both aligned to eight bytes, and all is atomic.
        unsafe {
            let records = std::slice::from_raw_parts((at + HEAD) as *const [AtomicU64; 4], layout.trace);
            Some(Ring { next: &*(at as *const AtomicU64), records })
        }
    }

    /// Writes a record over the oldest one. Threads take their places one after the other.
    pub(crate) fn write(&self, words: Words) {
        let turn = self.next.fetch_add(1, Relaxed) as usize;
        let record = &self.records[turn % self.records.len()];
        record.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
    }

    /// All that is there, the oldest first, and how many were overwritten.
    pub(crate) fn read(&self) -> (Vec<Words>, u64) {
        let (next, size) = (self.next.load(Relaxed), self.records.len() as u64);
        let first = next.saturating_sub(size);
        let record = |turn: u64| std::array::from_fn(|at| self.records[(turn % size) as usize][at].load(Relaxed));
        ((first..next).map(record).collect(), first)
    }
}

/// A call that is traced and under way; its record is written when this is dropped.
#[derive(Debug)]
pub struct Scope<'w> {
    ring: Ring<'w>,
    what: What,
    begun: u64,
}

/// Begins a record of what the calling thread does until the result is dropped; none if the job is not traced.
#[inline(always)]
pub fn scope(world: &World, what: impl FnOnce() -> What) -> Option<Scope<'_>> {
    if world.is_traced() {
        return begin(world, what());
    }
    None
}

/// The same for a put or a get of so many bytes; none if they are fewer than [`BULK`].
#[inline(always)]
pub fn bulk(world: &World, kind: Kind, rank: usize, bytes: usize) -> Option<Scope<'_>> {
    match bytes {
        0..BULK => None,
        _ => scope(world, || What { kind, place: bytes as u64, amount: rank as u64 }),
    }
}

#[cold]
#[inline(never)]
fn begin(world: &World, what: What) -> Option<Scope<'_>> {
    Some(Scope { ring: world.ring()?, what, begun: clock() })
}

impl Drop for Scope<'_> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        self.ring.write(words(self.what, thread(), self.begun, clock()));
    }
}

static THREADS: AtomicU64 = AtomicU64::new(0);

/// The number of this thread among those of the process that were traced: the first has 0.
fn thread() -> u16 {
    thread_local!(static NUMBER: Cell<Option<u16>> = const { Cell::new(None) });
    NUMBER.get().unwrap_or_else(|| {
        let number = THREADS.fetch_add(1, Relaxed) as u16;
        NUMBER.set(Some(number));
        number
    })
}

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of a host have in common.
pub(crate) fn clock() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_the_newest_and_counts_the_others() {
        let next = AtomicU64::new(0);
        let records: Vec<[AtomicU64; 4]> = (0..4).map(|_| Default::default()).collect();
        let ring = Ring { next: &next, records: &records };
        assert_eq!(ring.read(), (vec![], 0));
        for number in 0..3 {
            ring.write([number; 4]);
        }
        assert_eq!(ring.read(), (vec![[0; 4], [1; 4], [2; 4]], 0));
        for number in 3..11 {
            ring.write([number; 4]);
        }
        assert_eq!(ring.read(), (vec![[7; 4], [8; 4], [9; 4], [10; 4]], 7));
        next.store(u64::MAX, Relaxed);
        assert_eq!(ring.read().0.len(), 4);
    }

    #[test]
    fn words_say_what_was_done() {
        for kind in Kind::ALL {
            let done = What { kind, place: 5, amount: 1 << 39 };
            let [begun, ended, word, place] = words(done, 700, 3, 9);
            assert_eq!((begun, ended, what(word, place)), (3, 9, Some((done, 700))));
        }
        let much = What { kind: Kind::Get, place: 0, amount: u64::MAX };
        assert_eq!(what(words(much, 1, 0, 0)[2], 0).unwrap().0.amount, (1 << 40) - 1);
        assert_eq!((what(0, 0), what(13, 0)), (None, None));
    }
}
