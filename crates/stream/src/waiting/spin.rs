//! How long to spin before sleeping.
//!
//! A wake-up across cores costs tens of microseconds; a message that comes sooner is better awaited awake. Each thread
//! keeps a moving average of how long its waits last: it spins while waits are expected to be shorter than twice the
//! budget, so idle sockets cost nothing and busy ones never sleep. A spinning thread yields, so that one with more to do
//! gets the processor; when a yield turns out to be long, it does not spin.
//!
//! Where the peer waits on this very processor, only giving it the processor can help. Two yields cost less than a sleep
//! and a doorbell; and a peer with many connections serves all of them before it yields back, where a doorbell would have it
//! woken for each. So that is tried even where waits are long.

use super::WAITING;
use crate::socket::Socket;
use crate::waiting::wake;
use core::sync::atomic::Ordering;
use shunt_segment::channel::Wait;
use shunt_sys::libc::timespec;
use shunt_sys::{calls, clock, processor, thread};
use shunt_table::global;
use shunt_table::process::status_page;

/// A timeout of zero.
pub const ZERO: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// A wait that may spin.
pub struct Spin {
    start: u64,
    limit: u64,
    yield_at: u64,
    /// True if the peer last waited on this processor: only giving it the processor can help.
    pub same_processor: bool,
    yields: u32,
    rounds: u32,
    /// The clock is read when these bits of `rounds` are clear: rarely, where a look costs less than the clock.
    free: u32,
}

/// Looks at one socket between two looks at the clock.
const FREE_LOOKS: u32 = 16;
/// Ticks that a look at one socket of many takes at least: lines that the peer writes, in a page of their own.
const LOOK_TICKS: u64 = 32;

/// Tells the peer on which processor this side waits; written only when it changes, because the peer reads the line after
/// each send.
#[inline]
pub fn show_processor(own: &Wait) {
    // SAFETY: the calling thread's own block.
    let here = unsafe { (*thread::block()).processor };
    if here != 0 && own.processor.load(Ordering::Relaxed) != here {
        own.processor.store(here, Ordering::Relaxed);
    }
}

/// Ticks of looking after which tools are told.
const TOLD_EVERY: u64 = 1 << 20;
/// Ticks after which a spinning thread begins to yield, and between yields.
const FIRST_YIELD: u64 = 5_000;
const YIELD_EVERY: u64 = 5_000;
/// A yield that took this many ticks gave the processor to another thread: more threads want to run than there are
/// processors, and a sleeping thread is woken on a busy processor at once.
const LONG_YIELD: u64 = 6_000;
/// A hand-over that took this many ticks went to a thread that gives nothing back: sleeping threads are woken sooner.
const LONG_HAND_OVER: u64 = 2_500_000;
/// Waits that then do not hand over.
const HAND_OVER_PENALTY: u32 = 64;
/// Waits that do not hand over after one in which the peer did nothing.
const IN_VAIN_PENALTY: u32 = 8;
/// Waits that then do not spin.
const PENALTY: u32 = 16;
const WORST_PENALTY: u32 = 256;

/// The part of its budget that a thread spins which would not spin, for something that is near.
const BRIEF: u64 = 4;

/// Begins a wait; `peer_processor` is where the peer last waited (plus one; 0: unknown).
#[inline]
pub fn begin(peer_processor: u32) -> Spin {
    begin_expecting(peer_processor, false)
}

/// The same; `soon`: what comes next is known to be near, however long waits and yields were of late.
#[inline]
pub fn begin_expecting(peer_processor: u32, soon: bool) -> Spin {
    let now = clock::ticks();
    // SAFETY: the calling thread's own block.
    let block = unsafe { &mut *thread::block() };
    block.processor = processor::number() + 1;
    block.waits = block.waits.wrapping_add(1);
    let same_processor = peer_processor == block.processor;
    let budget = budget_ticks();
    let limit = if same_processor {
        let refused = block.hand_over_penalty > 0 && !soon;
        block.hand_over_penalty -= refused as u32;
        !refused as u64
    } else if block.spin_penalty > 0 {
        block.spin_penalty -= 1;
        if soon {
            budget / BRIEF
        } else {
            0
        }
    } else if block.expected_wait > 2 * budget {
        if soon {
            budget / BRIEF
        } else {
            0
        }
    } else {
        budget
    };
    let free = FREE_LOOKS - 1;
    Spin { start: now, limit: now + limit, yield_at: now + FIRST_YIELD, same_processor, yields: 0, rounds: 0, free }
}

/// Looks at a stream's word before a thread begins to wait in earnest in a set or in poll: as `stream::swift` does in recv.
const LOOKS: u32 = 32;

/// Looks for a short while whether the peer's word changes from `word`. No clock is read meanwhile.
#[inline(always)]
pub fn comes(socket: &Socket, word: u64) -> bool {
    let (own, peer) = (socket.own(), socket.peer());
    // A peer on this processor runs when we do not; where spinning was found to steal from others, none is done.
    let here = own.wait.processor.load(Ordering::Relaxed);
    if (here != 0 && here == peer.wait.processor.load(Ordering::Relaxed)) || !promising() {
        return false;
    }
    for _ in 0..LOOKS {
        // A look in each few cycles would take the line from the peer while it writes.
        core::hint::spin_loop();
        if peer.post.word.load(Ordering::Acquire) != word {
            // SAFETY: the calling thread's own block.
            let block = unsafe { &mut *thread::block() };
            if block.expected_wait | socket.connected.sleeps.load(Ordering::Relaxed) as u64 > 3 {
                block.expected_wait -= block.expected_wait / 4;
                wake::stayed_awake(socket);
            }
            return true;
        }
    }
    false
}

/// Looks for as short a while for anything else that a peer brings which last waited on `peer_processor` (plus one; 0: unknown). `None`: the peer
/// runs when this thread does not, or spinning was found to steal from others.
#[inline]
pub fn comes_to(peer_processor: u32, came: impl Fn() -> bool) -> Option<bool> {
    if peer_processor == processor::number() + 1 || !promising() {
        return None;
    }
    for _ in 0..LOOKS {
        core::hint::spin_loop();
        if came() {
            // SAFETY: the calling thread's own block.
            let block = unsafe { &mut *thread::block() };
            block.expected_wait -= block.expected_wait / 4;
            return Some(true);
        }
    }
    Some(false)
}

/// Whether a stream's peer waits on this processor: it runs when we do not.
#[inline]
pub fn is_beside(socket: &Socket) -> bool {
    let here = socket.own().wait.processor.load(Ordering::Relaxed);
    here != 0 && here == socket.peer().wait.processor.load(Ordering::Relaxed)
}

/// Whether a wait of this thread would look at least twice.
#[inline]
pub fn promising() -> bool {
    // SAFETY: the calling thread's own block.
    let block = unsafe { &*thread::block() };
    block.spin_penalty == 0 && block.expected_wait <= 2 * budget_ticks()
}

/// A call that took fewer ticks than this did not sleep.
const SLEPT: u64 = 5_000;

/// Makes a call that sleeps, and whose peer only the kernel knows, where looks do not pay: it is a wait as others are, if it slept.
#[inline]
pub fn rest<T>(sleep: impl FnOnce() -> T) -> T {
    let start = clock::ticks();
    let result = sleep();
    if clock::ticks() - start > SLEPT {
        // SAFETY: the calling thread's own block.
        let block = unsafe { &mut *thread::block() };
        block.spin_penalty = block.spin_penalty.saturating_sub(1);
        learn(clock::ticks() - start);
    }
    result
}

fn budget_ticks() -> u64 {
    let known = WAITING.spin.load(core::sync::atomic::Ordering::Relaxed);
    if known & 0xff != 0 {
        return known >> 8;
    }
    let ticks = clock::ticks_for_ns(global::options().spin_ns);
    // The rate is exact a millisecond after start; until then it is asked again.
    if clock::calibrated() {
        WAITING.spin.store(ticks << 8 | 1, core::sync::atomic::Ordering::Relaxed);
    }
    ticks
}

impl Spin {
    /// Each look is one at `count` sockets: with many, the clock is read between any two, and where a single one would
    /// outlast the budget there is none. (Fifteen looks at ten thousand idle sockets took 60 ms.)
    pub fn among(mut self, count: usize) -> Spin {
        self.free = (FREE_LOOKS / (count as u32).clamp(1, FREE_LOOKS).next_power_of_two()) - 1;
        if !self.same_processor && count as u64 * LOOK_TICKS > self.limit - self.start {
            self.limit = self.start;
        }
        self
    }

    /// Each look is a system call: the clock is read between any two.
    pub fn by_calls(mut self) -> Spin {
        self.free = 0;
        self
    }

    /// The same, for so many ns at most.
    pub fn at_most(mut self, ns: u64) -> Spin {
        self.limit = self.limit.min(self.start.saturating_add(clock::ticks_for_ns(ns)));
        self
    }

    /// The same, with no looks: it is known that they are of no use.
    pub fn at_once(mut self) -> Spin {
        self.limit = self.start;
        self
    }

    /// Whether [`Spin::more`] will say yes at least once. Unlike it, this spends nothing: no look, no yield.
    #[inline(always)]
    pub fn begins(&self) -> bool {
        self.limit != self.start
    }

    /// Whether to look once more before sleeping. Called between looks.
    #[inline(always)]
    pub fn more(&mut self) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        if self.same_processor {
            return self.hand_over();
        }
        if self.rounds & self.free != 0 {
            core::hint::spin_loop(); // leaves the peer its line: see `swift`
            return self.limit != self.start;
        }
        self.slow()
    }

    #[cold]
    #[inline(never)]
    fn slow(&mut self) -> bool {
        let now = clock::ticks();
        if now >= self.limit {
            return false;
        }
        // SAFETY: the calling thread's own block.
        let spun = unsafe { &mut (*thread::block()).spun };
        if *spun > TOLD_EVERY {
            status_page::waited(core::mem::take(spun), None);
        }
        if now >= self.yield_at {
            calls::sched_yield();
            let after = clock::ticks();
            if after - now > LONG_YIELD {
                // SAFETY: the calling thread's own block.
                let block = unsafe { &mut *thread::block() };
                block.penalty = (block.penalty * 2).clamp(PENALTY, WORST_PENALTY);
                block.spin_penalty = block.penalty;
                self.limit = after;
            }
            self.yield_at = after + YIELD_EVERY;
        }
        core::hint::spin_loop();
        true
    }

    /// On one processor the peer runs when we let it: yielding is cheaper than sleeping and being woken.
    fn hand_over(&mut self) -> bool {
        if self.limit == self.start {
            return false;
        }
        if self.yields >= 2 {
            // In vain: among many threads the peer's turn may be far off.
            // SAFETY: the calling thread's own block.
            unsafe { (*thread::block()).hand_over_penalty = IN_VAIN_PENALTY };
            return false;
        }
        self.yields += 1;
        let before = clock::ticks();
        calls::sched_yield();
        if clock::ticks() - before > LONG_HAND_OVER {
            // SAFETY: the calling thread's own block.
            unsafe { (*thread::block()).hand_over_penalty = HAND_OVER_PENALTY };
        }
        true
    }

    /// Looks made so far.
    #[inline(always)]
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The wait is over: learns from its length.
    #[inline]
    pub fn end(&self) {
        if self.same_processor {
            return; // such waits last as long as the peer has work
        }
        let length = clock::ticks() - self.start;
        // SAFETY: the calling thread's own block.
        unsafe { (*thread::block()).spun += length };
        learn(length);
    }

    /// The same of a wait that was to sleep from `since` on. Tools are told what such waits are made of.
    pub fn end_asleep(&self, since: u64) {
        let now = clock::ticks();
        if !self.same_processor {
            learn(now - self.start);
        }
        let looked = if self.same_processor { 0 } else { since - self.start };
        // SAFETY: the calling thread's own block.
        let spun = unsafe { core::mem::take(&mut (*thread::block()).spun) } + looked;
        status_page::waited(spun, Some(now.saturating_sub(since)).filter(|slept| *slept > SLEPT));
    }
}

/// A wait lasted so many ticks.
fn learn(length: u64) {
    let budget = budget_ticks().max(1);
    let length = length.min(8 * budget);
    // SAFETY: the calling thread's own block.
    let block = unsafe { &mut *thread::block() };
    block.expected_wait = (block.expected_wait * 3 + length) / 4;
    if block.spin_penalty == 0 && block.penalty > 0 && length < budget {
        block.penalty -= 1;
    }
}

/// A wait that looks for ever, without yields.
#[cfg(test)]
pub fn always() -> Spin {
    Spin {
        start: clock::ticks(),
        limit: u64::MAX,
        yield_at: u64::MAX,
        same_processor: false,
        yields: 0,
        rounds: 0,
        free: FREE_LOOKS - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_whether_a_wait_looks_gives_the_processor_to_nobody() {
        let mut spin = Spin { start: 1, limit: 2, yield_at: 0, same_processor: true, yields: 0, rounds: 0, free: 15 };
        assert!(spin.begins());
        assert_eq!((spin.yields, spin.rounds), (0, 0));
        assert!(spin.more());
        assert_eq!(spin.yields, 1);
    }

    #[test]
    fn the_clock_is_read_between_looks_at_many() {
        let spin = || Spin { start: 1, limit: 1 << 20, yield_at: 0, same_processor: false, yields: 0, rounds: 0, free: 15 };
        assert_eq!([1, 2, 3, 8, 16, 10_000].map(|count| spin().among(count).free), [15, 7, 3, 1, 0, 0]);
        assert!(spin().among(1000).begins());
        assert!(!spin().among(100_000).begins());
    }
}
