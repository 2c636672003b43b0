//! Messages that go together: what a program sends between two looks at what came.
//!
//! The first message after a look goes at once; those that follow within some microseconds go with the next look, which most
//! programs take when they have done what they had to do, or with the first message after that time. So one call of the
//! kernel's sends what an event loop answers in one round.
//!
//! A program that does something else instead of looking leaves messages behind. The keeper finds them, a millisecond late at
//! most: while messages are held it looks so often, and if it looks more rarely none is held. When that happens nothing is held
//! for a while, and the longer the more often.

use super::local_station::LocalStation;
use core::sync::atomic::Ordering;

/// How long a message may wait for others (ns): about as long as a batch of the device's takes to be sent.
const TOGETHER: u64 = 25_000;
/// How often the keeper looks while messages are held (ns).
pub const TICK: u64 = 1_000_000;
/// What was held for so long was left behind (ns).
const LEFT_BEHIND: u64 = 100_000;
/// How long nothing is held after that, at least and at most (ns).
const PAUSE: [u64; 2] = [50_000_000, 2_000_000_000];

/// Whether a message is the first after a look, or the first after too long: it leaves at once.
pub fn is_first(local: &LocalStation, now: u64) -> bool {
    let held_since = &local.common().held_since;
    let since = held_since.load(Ordering::Relaxed);
    let first = since == 0 || now.saturating_sub(since) >= TOGETHER;
    if first {
        held_since.store(now, Ordering::Relaxed);
    }
    first
}

/// Whether the message that was just marked may wait.
pub fn may_wait(local: &LocalStation, now: u64) -> bool {
    if is_first(local, now) {
        return false;
    }
    let common = local.common();
    if now < common.no_hold_until.load(Ordering::Relaxed) {
        return false;
    }
    if common.holding.load(Ordering::Relaxed) == 0 {
        common.holding.store(1, Ordering::Relaxed);
    }
    let looks_at = common.sleeps_until.load(Ordering::Acquire);
    looks_at.saturating_sub(now) <= TICK + TICK / 2
}

/// All that is marked is looked after behind this: a thread whose mark is not seen then sees this.
pub fn none_is(local: &LocalStation) {
    let since = &local.common().held_since;
    if since.load(Ordering::Relaxed) != 0 {
        since.swap(0, Ordering::SeqCst);
    }
}

/// The keeper's view.
pub struct Watcher {
    pause: u64,
}

impl Watcher {
    pub const fn new() -> Watcher {
        Watcher { pause: PAUSE[0] }
    }

    /// Whether messages were held since the last look: the keeper is to look often.
    pub fn is_due(&mut self, local: &LocalStation) -> bool {
        local.common().holding.swap(0, Ordering::Relaxed) != 0
    }

    /// Whether messages were left behind: the keeper drives.
    pub fn finds(&mut self, local: &LocalStation, now: u64) -> bool {
        let common = local.common();
        let since = common.held_since.load(Ordering::Relaxed);
        let marked = common.is_any_marked(Ordering::Relaxed);
        if marked && since != 0 && now.saturating_sub(since) > LEFT_BEHIND {
            common.no_hold_until.store(now + self.pause, Ordering::Relaxed);
            self.pause = (2 * self.pause).min(PAUSE[1]);
            return true;
        }
        if now > common.no_hold_until.load(Ordering::Relaxed) + PAUSE[1] {
            self.pause = PAUSE[0];
        }
        marked
    }
}
