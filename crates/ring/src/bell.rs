//! The doorbell protocol: how a side sleeps without missing what the peer does, and costs the peer nothing while awake.
//!
//! ```text
//! sleeper                          waker
//!   armed |= condition               publish (position, space, end)
//!   BARRIER                          (fence, unless the sleeper issues barriers)
//!   check the condition again        armed has the condition?
//!   sleep on the companion             take all conditions; any was set: ring (one byte on the companion)
//! ```
//!
//! Either the sleeper's check sees what the waker published, or the waker sees the flag (Dekker). The full fence that
//! this asks of the waker, on each send, is moved to the sleeper, which has time: membarrier(2) makes every processor that
//! runs a registered process execute one, but for some, for which the sleeper waits (`shunt_sys::barrier`). Where that is not
//! available, [`LinkHeader`] says so and the waker fences.
//!
//! A side that sleeps often would pay for many barriers. It sets [`arm::FENCE`] beside its conditions, once with a barrier;
//! from then on its peer fences after each send, and the sleeper needs none. A side that stays awake takes it back.
//!
//! A waker may be killed between any two steps. Where other processes share its side, and go on, it rings first and takes the
//! conditions then ([`Due`]): if it does not come to it they stay armed, and the next waker that looks rings.
//!
//! [`LinkHeader`]: shunt_segment::link::LinkHeader

use shunt_segment::channel::{arm, Wait};
use shunt_segment::sync::{compiler_fence, fence, Ordering};

/// The sleeper announces that it waits for `conditions`, and checks again after the barrier. True: the barrier is due;
/// false: the peer fences, and this call was the sleeper's own fence.
#[inline]
pub fn arm(wait: &Wait, conditions: u32) -> bool {
    arm_with(wait, conditions, false) & arm::FENCE == 0
}

/// As [`arm()`], by a sleeper that can look for itself soon ([`arm::LOOKS`]). The second: the peer relies on such looks now, this
/// sleeper's as well. It does not where another thread slept for input before, which may not look.
#[inline]
pub fn arm_to_look(wait: &Wait, conditions: u32) -> (bool, bool) {
    let armed = arm_with(wait, conditions, conditions & INPUT != 0);
    (armed & arm::FENCE == 0, armed & arm::LOOKS != 0)
}

/// The conditions of those who wait for bytes.
const INPUT: u32 = arm::IN | arm::IN << arm::SET_SHIFT;

/// Gives the word as it was before, and LOOKS as it is now.
#[inline(always)]
fn arm_with(wait: &Wait, conditions: u32, looks: bool) -> u32 {
    let armed = (0..ATTEMPTS).find_map(|_| {
        let before = wait.armed.load(Ordering::Relaxed);
        let looks = if looks && before & INPUT == 0 { arm::LOOKS } else { 0 };
        let armed = (before | conditions | looks).wrapping_add(arm::ONE_ARMING);
        // What was there at this very step counts: another thread may have taken FENCE back since the look.
        wait.armed.compare_exchange(before, armed, Ordering::SeqCst, Ordering::Relaxed).ok().map(|before| before | looks)
    });
    let armed = armed.unwrap_or_else(|| wait.armed.fetch_or(conditions, Ordering::SeqCst));
    fence(Ordering::SeqCst);
    armed
}

/// Whether the first of bytes that are held back needs no bell. The caller has fenced since it said that they are.
#[inline]
pub fn looks(wait: &Wait) -> bool {
    wait.armed.load(Ordering::Relaxed) & arm::LOOKS != 0
}

/// From now on it does, and this is the look: the caller looks at what is held back next.
pub fn looked(wait: &Wait) {
    if looks(wait) {
        wait.armed.fetch_and(!arm::LOOKS, Ordering::SeqCst);
    }
    fence(Ordering::SeqCst);
}

/// After so many the peer is one that scribbles.
#[cfg(not(loom))]
const ATTEMPTS: u32 = 64;
/// The same; a model has patience enough.
#[cfg(loom)]
const ATTEMPTS: u32 = 4;

const FENCES: u32 = arm::FENCE | arm::FENCE_ASKED;
/// What a waker leaves when it takes the conditions.
const LASTING: u32 = FENCES | arm::STAMP | arm::ALWAYS | arm::TAP | arm::CUT | !(arm::ONE_ARMING - 1);

/// The waker's question after publishing: does a thread sleep for `conditions`? True: the caller must ring once.
#[inline(always)]
pub fn must_ring(wait: &Wait, conditions: u32) -> bool {
    may_ask(wait, conditions) && take(wait, conditions)
}

/// The first look: false where [`must_ring`] would be.
#[inline(always)]
pub fn may_ask(wait: &Wait, conditions: u32) -> bool {
    // The sleeper's barrier keeps the processor from looking before it publishes; this keeps the compiler from it.
    compiler_fence(Ordering::SeqCst);
    wait.armed.load(Ordering::Relaxed) & (for_sets_too(conditions) | FENCES | arm::ALWAYS | arm::TAP | arm::CUT) != 0
}

fn for_sets_too(conditions: u32) -> u32 {
    conditions | conditions << arm::SET_SHIFT
}

/// A bell that is due: the caller rings once, and says so then.
#[must_use]
pub struct Due {
    armed: u32,
}

/// The question of [`must_ring`] by a waker whose side other processes share.
#[cold]
pub fn due(wait: &Wait, conditions: u32) -> Option<Due> {
    fence(Ordering::SeqCst);
    let armed = wait.armed.load(Ordering::Relaxed);
    let slept = armed & for_sets_too(conditions) != 0;
    (slept || (armed & arm::ALWAYS != 0 && conditions & arm::IN != 0)).then_some(Due { armed })
}

impl Due {
    /// It was rung: takes the conditions that were armed before, unless anything changed: a sleeper may have been woken already
    /// and sleep anew, for which no waker has rung.
    pub fn rung(self, wait: &Wait) {
        let Due { armed } = self;
        let _ = wait.armed.compare_exchange(armed, armed & LASTING, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// Whether the peer is to be told when bytes arrive; asked after each send, from a line that is at hand.
#[inline(always)]
pub fn wants_stamp(wait: &Wait) -> bool {
    wait.armed.load(Ordering::Relaxed) & arm::STAMP != 0
}

/// Asks for stamps, for as long as the connection lives.
pub fn ask_for_stamps(wait: &Wait) {
    if !wants_stamp(wait) {
        wait.armed.fetch_or(arm::STAMP, Ordering::SeqCst);
    }
}

/// The waker that takes a flag away rings, whatever flag it is: since the look, another waker may have rung for what we saw,
/// and a sleeper may have armed another condition, which no other one would ring for any more.
#[cold]
#[inline(never)]
pub fn take(wait: &Wait, conditions: u32) -> bool {
    let conditions = for_sets_too(conditions);
    fence(Ordering::SeqCst);
    let armed = wait.armed.load(Ordering::Relaxed);
    let slept = armed & conditions != 0 && wait.armed.fetch_and(LASTING, Ordering::SeqCst) & !LASTING != 0;
    slept || (armed & arm::ALWAYS != 0 && conditions & arm::IN != 0)
}

/// Asks for a bell with each message, or no longer. A barrier makes the peer see it at once.
#[cold]
pub fn ask_always(wait: &Wait, on: bool) {
    if on {
        wait.armed.fetch_or(arm::ALWAYS, Ordering::SeqCst);
    } else {
        wait.armed.fetch_and(!arm::ALWAYS, Ordering::SeqCst);
    }
}

/// Whether `conditions` are still armed: no waker rang since.
#[inline]
pub fn is_armed(wait: &Wait, conditions: u32) -> bool {
    wait.armed.load(Ordering::Relaxed) & conditions == conditions
}

/// This side is awake again and will look for itself: spares the peer its bells. Only for conditions that no other thread armed
/// which still sleeps: another sleeper's would be taken away unheard. A set arms with [`arm::SET_SHIFT`], and disarms when it is
/// the only set of the socket and no other thread sleeps in it.
#[inline]
pub fn disarm(wait: &Wait, conditions: u32) {
    if wait.armed.load(Ordering::Relaxed) & conditions != 0 {
        wait.armed.fetch_and(!conditions, Ordering::SeqCst);
    }
}

/// A thread that slept alone is awake, and takes `conditions` back. True: another has begun to sleep meanwhile, whose
/// announcement may be gone with it, and for which no waker may have rung since; it is to be woken. To announce it anew would be
/// too late.
#[must_use]
pub fn take_back(wait: &Wait, conditions: u32) -> bool {
    if wait.sleepers.load(Ordering::SeqCst) != 1 {
        return false;
    }
    disarm(wait, conditions);
    wait.sleepers.load(Ordering::SeqCst) != 1
}

/// Asks the peer to fence from now on, and relies on it once `barrier` has made sure that it knows: so a thread that arms
/// in between still has its barrier.
#[cold]
pub fn agree_on_fences(wait: &Wait, barrier: impl FnOnce()) {
    wait.armed.fetch_or(arm::FENCE_ASKED, Ordering::SeqCst);
    barrier();
    let asked = wait.armed.load(Ordering::Relaxed);
    if asked & arm::FENCE_ASKED != 0 {
        // Fails when anything changed meanwhile: then the next sleep tries again.
        let _ = wait.armed.compare_exchange(asked, asked | arm::FENCE, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// Asks the peer to fence (with the next barrier; no other thread may arm before that), or no longer to.
#[cold]
pub fn ask_for_fences(wait: &Wait, on: bool) {
    if on {
        wait.armed.fetch_or(arm::FENCE, Ordering::SeqCst);
    } else {
        wait.armed.fetch_and(!FENCES, Ordering::SeqCst);
    }
}
