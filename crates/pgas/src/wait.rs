//! Waiting for a value that another rank writes: spin, give the processor away, sleep (`doze`).

use crate::arrival;
use crate::doze;
use crate::error::{Error, Result};
use crate::group;
use crate::layout::{GroupHead, RankBlock};
use crate::trace::{self, Kind, What};
use crate::world::World;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// Looks without a pause: the other rank answers within a cache miss or two.
const QUICK: u32 = 200;
/// Looks with a pause in between, and how often the processor is offered to others among them: a few hundred microseconds. Each
/// rank has a processor then, and ranks that compute the same differ by so much; waking a sleeper takes an idle processor tens.
const PAUSED: u32 = 500;
const ROUNDS: u32 = 10;
/// In a job of several hosts the processor is offered so much oftener.
const FINER: u32 = 10;
/// The same where ranks share processors: the awaited rank may well be the next on this one.
const CROWDED: u32 = 3;
/// Times that the processor is given away before sleep.
const YIELDS: u32 = 2;
/// The same where ranks share processors: the awaited rank gets it, and neither a wake-up nor an idle processor's start is paid.
const CROWDED_YIELDS: u32 = 100;
/// Looks between two offers of the processor while the awaited ranks are on others: two or three microseconds.
const AWAY: u32 = 48;
/// The longest sleep in nanoseconds: stores through plain pointers wake no thread.
const LONGEST: i64 = 1_000_000;
/// And the first one.
const SHORTEST: i64 = 50_000;

/// Why a rank waits, for those who look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Waits {
    /// For a value in symmetric memory.
    Value = 1,
    /// For others to arrive.
    Barrier = 2,
    /// For a lock.
    Lock = 3,
}

/// What is waited for: memory of this process, or none that others put to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Where it begins; 0 if it is a flag of the job's own.
    pub address: usize,
    /// How many bytes.
    pub bytes: usize,
}

impl Span {
    /// A flag of the job's own.
    pub const FLAG: Span = Span { address: 0, bytes: 0 };

    /// A flag of the job's own, with the number of what it belongs to, for those who look.
    pub(crate) fn flag(number: u64) -> Span {
        Span { address: 0, bytes: number as usize + 1 }
    }

    /// What is waited on, plus one.
    fn on(self, world: &World) -> u64 {
        match self.address {
            0 => self.bytes as u64,
            address => address.checked_sub(world.own_heap().0).map_or(0, |offset| offset as u64 + 1),
        }
    }

    /// The number of its place in the own symmetric memory, plus one; 0 if it is not there.
    fn place(self, world: &World) -> u64 {
        world.own_number(self.address, self.bytes).map_or(0, |number| number + 1)
    }

    /// A value.
    pub fn of<T>(value: *const T) -> Span {
        Span { address: value as usize, bytes: size_of::<T>() }
    }

    fn publish(self, world: &World, block: &RankBlock, alone: bool) {
        let (from, to) = match self.address {
            0 if alone => (1, 0),
            _ => match world.place(world.me(), self.address, self.bytes) {
                Some(from) if alone => (from, from + self.bytes as u64),
                // Another thread sleeps for something else, or the value is not symmetric: any put may be the one.
                _ => (0, u64::MAX),
            },
        };
        block.waits_from.store(from, Relaxed);
        block.waits_to.store(to, Relaxed);
    }
}

const MEMBARRIER_GLOBAL_EXPEDITED: i32 = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;

/// From now on sleepers' barriers reach this process. Where the kernel has none, sleeps end by their limit.
pub fn register() {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_REGISTER_GLOBAL_EXPEDITED, 0, 0) };
}

fn barrier_everywhere() {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_GLOBAL_EXPEDITED, 0, 0) };
}

/// Sleeps while the word has this value, at most so many nanoseconds.
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, nanoseconds: i64) {
    let limit = libc::timespec { tv_sec: nanoseconds / 1_000_000_000, tv_nsec: nanoseconds % 1_000_000_000 };
    // SAFETY: the word lives as long as the process; the limit is read during the call. `errno` is the program's, so it is kept.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &limit, 0, 0);
        *libc::__errno_location() = errno;
    }
}

/// Wakes all that sleep on the word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word lives as long as the process.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
}

/// Wakes a rank that said that it sleeps, if it waits for the bytes at `place`.
#[cold]
#[inline(never)]
pub(crate) fn rouse_for(world: &World, rank: usize, at: usize, bytes: usize) {
    let block = world.block(rank);
    let (from, to) = (block.waits_from.load(Relaxed), block.waits_to.load(Relaxed));
    let place = world.number(at);
    if place < to && from < place + bytes as u64 {
        rouse(block);
    }
}

/// Wakes a rank that said that it sleeps.
#[cold]
pub(crate) fn rouse(block: &RankBlock) {
    doze::rouse(&block.asleep, || futex_wake(&block.asleep));
}

/// Until `ready`.
///
/// # Errors
/// If the job ends first.
#[inline]
pub fn until(world: &World, why: Waits, span: Span, mut ready: impl FnMut() -> bool) -> Result<()> {
    // Barriers and locks are traced as a whole, by themselves.
    let traced = || trace::scope(world, || What { kind: Kind::Wait, place: span.place(world), amount: 0 });
    let _scope = if why == Waits::Value { traced() } else { None };
    let quick = if world.crowded() { CROWDED } else { QUICK };
    for _ in 0..quick {
        if ready() {
            return Ok(());
        }
    }
    until_slowly(world, why, span, &mut ready)
}

#[cold]
fn until_slowly(world: &World, why: Waits, span: Span, ready: &mut dyn FnMut() -> bool) -> Result<()> {
    let (rounds, paused) = match (world.crowded(), world.other_hosts()) {
        (true, _) => (0, 0),
        // What is waited for may have to be written by the keeper of this host, which has no processor of its own.
        (false, Some(_)) => (ROUNDS * FINER, PAUSED / FINER),
        (false, None) => (ROUNDS, PAUSED),
    };
    for _ in 0..rounds {
        for _ in 0..paused {
            if ready() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        std::thread::yield_now();
    }
    for _ in 0..if world.crowded() { CROWDED_YIELDS } else { YIELDS } {
        std::thread::yield_now();
        if ready() {
            return Ok(());
        }
        world.progress();
    }
    let block = world.own_block();
    tell(block, why, span.on(world));
    let outcome = sleep(world, block, why, span, ready);
    block.waits_for.store(0, Relaxed);
    outcome
}

/// For those who look from outside: before the first sleep, when a clock's reading does not matter any more.
fn tell(block: &RankBlock, why: Waits, on: u64) {
    block.waits_on.store(on, Relaxed);
    block.waits_since.store(trace::clock(), Relaxed);
    block.waits_for.store(why as u32, Relaxed);
}

/// An error if a member of the group at `slot` will not come to the barrier that this rank is in ([`group::absentee`]).
fn all_come(world: &World, slot: usize) -> Result<()> {
    match group::absentee(world, slot) {
        Some(rank) => Err(world.finalized_early(rank)),
        None => Ok(()),
    }
}

fn sleep(world: &World, block: &RankBlock, why: Waits, span: Span, ready: &mut dyn FnMut() -> bool) -> Result<()> {
    let mut limit = SHORTEST;
    loop {
        world.progress();
        let wake = || futex_wake(&block.asleep);
        doze::lie_down(&block.asleep, &world.sleepers, |alone| span.publish(world, block, alone), barrier_everywhere, wake);
        let mut done = ready();
        if !done && world.ended().is_none() {
            futex_wait(&block.asleep, 1, limit);
            done = ready();
        }
        doze::rise(&block.asleep, &world.sleepers, wake);
        if done {
            return Ok(());
        }
        if let Some(cause) = world.ended() {
            return Err(Error::Ended(cause));
        }
        // Once it sleeps as long as it does, so that no short wait looks at all members.
        if let (Waits::Barrier, 0, true) = (why, span.address, limit == LONGEST) {
            all_come(world, span.bytes.wrapping_sub(1))?;
        }
        limit = (limit * 2).min(LONGEST);
    }
}

/// The processor that this thread runs on.
pub(crate) fn processor() -> u32 {
    // SAFETY: takes nothing; an error is a number that no member has.
    unsafe { libc::sched_getcpu() as u32 }
}

/// Until all members of the group at `slot` have arrived at its barrier of this number. `needed` tells whether one that has not was last seen on
/// this processor: only then does giving it away help.
///
/// # Errors
/// If the job ends first.
pub(crate) fn until_gathered(
    world: &World,
    head: &GroupHead,
    slot: usize,
    number: u32,
    mut complete: impl FnMut() -> bool,
    needed: impl Fn() -> bool,
) -> Result<()> {
    let finish = || {
        arrival::release(&head.turn, &head.sleepers, number, || futex_wake(&head.turn));
        Ok(())
    };
    for _ in 0..CROWDED_YIELDS {
        if complete() {
            return finish();
        }
        if !needed() {
            for _ in 0..AWAY {
                if complete() {
                    return finish();
                }
                std::hint::spin_loop();
            }
        }
        std::thread::yield_now();
    }
    tell(world.own_block(), Waits::Barrier, slot as u64 + 1);
    let outcome = loop {
        let seen = arrival::lie_down(&head.turn, &head.sleepers, barrier_everywhere);
        let mut here = complete();
        if !here && world.ended().is_none() {
            futex_wait(&head.turn, seen, 20 * LONGEST);
            here = complete();
        }
        arrival::rise(&head.sleepers);
        if here {
            break finish();
        }
        if let Some(cause) = world.ended() {
            break Err(Error::Ended(cause));
        }
        if let Err(error) = all_come(world, slot) {
            break Err(error);
        }
    };
    world.own_block().waits_for.store(0, Relaxed);
    outcome
}

/// Until the word of the group at `slot` has another value than this; `sleepers` counts the threads that sleep, for the one that changes it.
///
/// # Errors
/// If the job ends first.
pub(crate) fn until_changed(world: &World, word: &AtomicU32, value: u32, sleepers: &AtomicU32, slot: usize) -> Result<()> {
    let quick = if world.crowded() { CROWDED } else { QUICK + PAUSED };
    for _ in 0..quick {
        if word.load(Acquire) != value {
            return Ok(());
        }
        std::hint::spin_loop();
    }
    for _ in 0..if world.crowded() { CROWDED_YIELDS } else { YIELDS } {
        std::thread::yield_now();
        if word.load(Acquire) != value {
            return Ok(());
        }
    }
    tell(world.own_block(), Waits::Barrier, slot as u64 + 1);
    let outcome = loop {
        sleepers.fetch_add(1, SeqCst);
        futex_wait(word, value, 20 * LONGEST);
        sleepers.fetch_sub(1, SeqCst);
        if word.load(Acquire) != value {
            break Ok(());
        }
        if let Some(cause) = world.ended() {
            break Err(Error::Ended(cause));
        }
        if let Err(error) = all_come(world, slot) {
            break Err(error);
        }
    };
    world.own_block().waits_for.store(0, Relaxed);
    outcome
}
