//! Waiting in a set of which the kernel knows everything, into which another thread may put one of ours meanwhile.
//!
//! TCP sockets that the kernel connects are in it under tags of ours, because they may become streams: such events are translated.

use super::arming::hand_over;
use super::kernel::sort;
use super::scan::{look, Answer};
use super::set::Set;
use super::wait::{counted, Account};
use super::{TAG, TAG_MASK};
use crate::waiting::holding::Waiter;
use core::sync::atomic::Ordering;
use shunt_sys::libc::epoll_event;
use shunt_sys::{cancel, user};

/// Whether the kernel knows everything of the set: epoll_wait then needs nothing of us but names.
#[inline(always)]
pub fn plain(set: &Set) -> bool {
    set.ours.load(Ordering::Acquire) == 0
}

/// Waits by `kernel` in a set that is [`plain`], into `events`: should that change, the thread must be woken. -1 when it was
/// cancelled in there. `None`: the set has changed just now, and nobody would wake the thread, unless it is to go there all
/// the same (`whatever`); or nothing is left to report. Then the caller waits on.
///
/// # Safety
/// `events` has room for what `kernel` gives.
pub unsafe fn wait_plain(
    set: &'static Set,
    epfd: i32,
    events: *mut epoll_event,
    whatever: bool,
    kernel: impl FnOnce() -> i32,
) -> Option<i32> {
    // Names of TCP sockets stand in entries, which go with the set's last descriptor, unless somebody waits.
    counted(
        || Waiter::asleep_in(set),
        |account| {
            // Behind the count: who adds one of ours later sees a sleeper.
            let still = set.ours.load(Ordering::SeqCst) == 0;
            let got = (still || whatever).then(|| cancel::guarded(kernel).unwrap_or(-1))?;
            // SAFETY: the kernel has filled so many; the account is the caller's.
            unsafe { named(set, epfd, events, got, || Account::wake(account)) }
        },
    )
}

/// As [`wait_plain`], of a wait that does not sleep: nobody has to wake the thread, and if the set goes meanwhile, its names may.
///
/// # Safety
/// As for [`wait_plain`].
pub unsafe fn look_plain(set: &'static Set, epfd: i32, events: *mut epoll_event, kernel: impl FnOnce() -> i32) -> Option<i32> {
    // SAFETY: the kernel has filled what it says.
    unsafe { named(set, epfd, events, kernel(), || {}) }
}

/// The answer `got` of the kernel's under the program's names, `before` which something is to be done if there is one of ours.
///
/// # Safety
/// `events` holds as many as `got` says.
#[inline(always)]
unsafe fn named(set: &'static Set, epfd: i32, events: *mut epoll_event, got: i32, before: impl FnOnce()) -> Option<i32> {
    // SAFETY: the program's array, which the kernel has just filled.
    let tagged = |i: i32| unsafe { user::read(events.wrapping_add(i as usize)) }.is_ok_and(|event| event.u64 & TAG_MASK == TAG);
    // The events decide, not the count of entries: the kernel may speak of one that is just being added.
    if !(0..got).any(tagged) {
        return Some(got);
    }
    before();
    // SAFETY: passed on.
    unsafe { translate(set, epfd, events, got as usize) }
}

/// Translates such an answer, which speaks of TCP sockets under their tags, and of entries that came into the set meanwhile. `None`:
/// nothing is left to report, wait on.
///
/// # Safety
/// `events` holds `count` entries and has room for them.
#[cold]
#[inline(never)]
unsafe fn translate(set: &'static Set, epfd: i32, events: *mut epoll_event, count: usize) -> Option<i32> {
    let mut answer = Answer::new(set, events, count);
    // SAFETY: the caller's array.
    let _ = unsafe { sort(set, events, count, &mut answer) };
    let _ = look(set, &mut answer);
    hand_over(set, set.hold().number(epfd), answer.exclusive);
    (answer.count > 0).then_some(answer.count as i32)
}
