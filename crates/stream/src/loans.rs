//! What a stream keeps of bytes that go by reference, on both ends; and which of its sends with MSG_ZEROCOPY are not complete.

use crate::pools::Looks;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use shunt_segment::area::KEPT_SIZE;
use shunt_segment::channel::references::SHOWN;
use shunt_segment::channel::word;
use shunt_sys::calls;
use shunt_table::global::{LockedCell, Mutex};

/// Of one stream, in this process.
pub struct Loans {
    /// The pools that the program lets the peer see, by their numbers in this process; 0: none.
    pub(crate) shown: [AtomicU32; SHOWN],
    /// Where the peer's pools are mapped, by their places in this process's list, from 1 on; 0: nowhere yet.
    pub(crate) views: [AtomicU32; SHOWN],
    /// How often a pool of the peer's was looked for.
    pub(crate) looks: Looks,
    /// Bytes were taken up to the end of a run of the peer's: its sender may sleep until then.
    pub(crate) ended: AtomicU32,
    /// Where what the peer's direction keeps in the link is mapped, in a process that has the link's file no more; null: nowhere.
    pub(crate) kept: AtomicPtr<u8>,
    /// Pieces of the peer's pools that the program has been handed ([`crate::views`]).
    pub(crate) handed: AtomicU32,
    /// Bytes that went by reference.
    pub bytes: AtomicU64,
    /// Bytes that may be under way so: as many as the link has a place to keep, or fewer, as the program says.
    pub quota: AtomicU64,
    /// Sends that went by reference, in part or whole, or were copied where a reference would have paid.
    pub(crate) referred: AtomicU32,
    /// See [`Loans::referred`].
    pub(crate) copied: AtomicU32,
    /// The position behind the last byte that went by reference.
    pub(crate) end: AtomicU64,
    /// How many runs of completions there are.
    waiting: AtomicU32,
    /// How many runs are there no more: they were told of, or joined.
    gone: AtomicU32,
    /// Plain sends that lend.
    pub lending: Lending,
    lock: Mutex,
    runs: LockedCell<Runs>,
}

/// Of plain sends that lend their bytes while they last ([`crate::references::emulated`]). All zero: none do.
pub struct Lending {
    /// 1: the program asks for it.
    pub wanted: AtomicU32,
    /// Where what this side takes back goes is mapped, in the link; null: nowhere yet.
    pub(crate) kept: AtomicPtr<u8>,
    /// How far this side had received when it last sent much.
    pub(crate) heard: AtomicU64,
    /// Large sends that are copied before the next one that may lend.
    pub(crate) skipped: AtomicU32,
    /// As many as they will be when bytes are taken back the next time.
    pub(crate) penalty: AtomicU32,
}

impl Lending {
    const fn new() -> Lending {
        Lending {
            wanted: AtomicU32::new(0),
            kept: AtomicPtr::new(core::ptr::null_mut()),
            heard: AtomicU64::new(0),
            skipped: AtomicU32::new(0),
            penalty: AtomicU32::new(0),
        }
    }

    fn reset(&self) {
        [&self.wanted, &self.skipped, &self.penalty].into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.heard.store(0, Ordering::Relaxed);
    }
}

/// Sends that follow each other, went by reference, and are complete once the peer has taken what is before `end`.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub first: u32,
    pub last: u32,
    pub end: u64,
    /// Parts of them were copied.
    pub copied: bool,
}

impl Run {
    /// Of one send.
    pub fn of(number: u32, end: u64, copied: bool) -> Run {
        Run { first: number, last: number, end, copied }
    }

    /// Whether `next` follows at once, and can be told of together with this one.
    pub fn is_before(&self, next: &Run) -> bool {
        self.last.wrapping_add(1) == next.first && self.copied == next.copied
    }
}

/// Runs at a time: eight that are under way, and those that are complete and were not asked for.
const MOST: usize = 24;
const NONE: Run = Run { first: 0, last: 0, end: 0, copied: false };

/// In the order of their numbers.
pub(crate) struct Runs {
    list: [Run; MOST],
    count: usize,
    gone: u32,
}

impl Runs {
    /// The oldest.
    pub fn first(&self) -> Option<Run> {
        self.list[..self.count].first().copied()
    }

    fn remove(&mut self, at: usize) {
        self.list.copy_within(at + 1..self.count, at);
        self.count -= 1;
        self.gone = self.gone.wrapping_add(1);
    }

    /// The oldest was told of.
    pub fn pop(&mut self) {
        self.remove(0);
    }

    /// Joins those that are complete and follow each other, and adds one.
    pub fn add(&mut self, run: Run, is_complete: impl Fn(u64) -> bool) {
        let mut at = 1;
        while at < self.count {
            let (before, here) = (self.list[at - 1], self.list[at]);
            if before.is_before(&here) && is_complete(before.end) && is_complete(here.end) {
                self.list[at - 1] = Run { first: before.first, ..here };
                self.remove(at);
            } else {
                at += 1;
            }
        }
        if self.count == MOST {
            // Told of later than need be.
            let last = &mut self.list[MOST - 1];
            *last = Run { first: last.first, copied: true, ..run };
            return;
        }
        self.list[self.count] = run;
        self.count += 1;
    }

    fn complete(&self, is_complete: impl Fn(u64) -> bool) -> usize {
        self.list[..self.count].iter().take_while(|run| is_complete(run.end)).count()
    }
}

impl Default for Loans {
    fn default() -> Loans {
        Loans::new()
    }
}

impl Loans {
    /// Of a stream that has sent nothing.
    pub const fn new() -> Loans {
        Loans {
            shown: [const { AtomicU32::new(0) }; SHOWN],
            views: [const { AtomicU32::new(0) }; SHOWN],
            looks: Looks::new(),
            ended: AtomicU32::new(0),
            kept: AtomicPtr::new(core::ptr::null_mut()),
            handed: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            quota: AtomicU64::new(KEPT_SIZE as u64),
            referred: AtomicU32::new(0),
            copied: AtomicU32::new(0),
            end: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            gone: AtomicU32::new(0),
            lending: Lending::new(),
            lock: Mutex::new(),
            runs: LockedCell::new(Runs { list: [NONE; MOST], count: 0, gone: 0 }),
        }
    }

    /// For another connection. The views were given back, and what is kept was unmapped.
    pub(crate) fn reset(&self) {
        self.shown.iter().chain(&self.views).for_each(|word| word.store(0, Ordering::Relaxed));
        let narrow = [&self.ended, &self.handed, &self.referred, &self.copied, &self.waiting, &self.gone];
        narrow.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.looks.reset();
        self.quota.store(KEPT_SIZE as u64, Ordering::Relaxed);
        [&self.bytes, &self.end].into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.lending.reset();
        self.lock.reset();
        // SAFETY: no thread has the object yet, or any more.
        unsafe { ((*self.runs.get()).count, (*self.runs.get()).gone) = (0, 0) };
    }

    /// What the peer's direction keeps in the link is mapped at `base`, [`KEPT_SIZE`] bytes. A thread that still copies from where it was
    /// gets a fault, which its copy answers.
    pub(crate) fn map_kept(&self, base: *mut u8) {
        unmap(self.kept.swap(base, Ordering::AcqRel));
    }

    /// Nothing of the link is mapped here any more. No thread lends: those that wait for the sending lock find the stream ended.
    pub(crate) fn unmap(&self) {
        [&self.kept, &self.lending.kept].into_iter().for_each(|place| unmap(place.swap(core::ptr::null_mut(), Ordering::AcqRel)));
    }

    /// In a child of fork: no other thread exists here.
    pub(crate) fn forked(&self) {
        self.lock.reset();
    }

    /// What `part` does with the runs, one thread at a time. `None`: this thread was interrupted in there.
    pub(crate) fn with<R>(&self, part: impl FnOnce(&mut Runs) -> R) -> Option<R> {
        let held = self.lock.lock()?;
        // SAFETY: the lock is held.
        let runs = unsafe { &mut *self.runs.get() };
        let result = part(runs);
        self.gone.store(runs.gone, Ordering::Relaxed);
        self.waiting.store(runs.count as u32, Ordering::Release);
        drop(held);
        Some(result)
    }

    /// Whether there are runs that were not told of.
    #[inline(always)]
    pub(crate) fn are_any(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Changes with each run that becomes complete.
    pub(crate) fn completions(&self, is_complete: impl Fn(u64) -> bool) -> u32 {
        let counted = |runs: &mut Runs| runs.gone.wrapping_add(runs.complete(is_complete) as u32);
        let looked = if self.are_any() { self.with(counted) } else { None };
        looked.unwrap_or_else(|| self.gone.load(Ordering::Relaxed))
    }
}

fn unmap(base: *mut u8) {
    if !base.is_null() {
        let _ = calls::munmap(base, KEPT_SIZE);
    }
}

/// Whether a reader that has taken everything before `taken` has taken everything before `end`.
pub(crate) fn is_behind(taken: u64, end: u64) -> bool {
    taken.wrapping_sub(end) & word::POSITION < 1 << 47
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_round() {
        assert!(is_behind(10, 10) && is_behind(11, 10) && !is_behind(9, 10));
        assert!(is_behind(3, word::POSITION - 3) && !is_behind(word::POSITION - 3, 3));
    }

    #[test]
    fn complete_runs_that_follow_each_other_are_one() {
        let loans = Loans::new();
        for number in 0..100u32 {
            loans.with(|runs| runs.add(Run::of(number, u64::from(number + 1) * 10, false), |end| end <= 900)).unwrap();
        }
        let first = loans.with(|runs| (runs.first().unwrap(), runs.count)).unwrap();
        assert_eq!((first.0.first, first.0.last, first.1), (0, 89, 11));
        loans.with(Runs::pop);
        assert_eq!(loans.with(|runs| runs.first().unwrap().first), Some(90));
    }

    #[test]
    fn what_finds_no_place_is_told_of_later() {
        let loans = Loans::new();
        for number in (0..100u32).step_by(2) {
            loans.with(|runs| runs.add(Run::of(number, u64::from(number) * 10, false), |_| false)).unwrap();
        }
        let (count, last) = loans.with(|runs| (runs.count, runs.list[MOST - 1])).unwrap();
        assert_eq!((count, last.last, last.end), (MOST, 98, 980));
    }
}
