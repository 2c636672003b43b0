//! Waiting in a set of which the kernel knows everything, into which another thread may put one of ours meanwhile.
//!
//! TCP sockets that the kernel connects are in it under tags of ours, because they may become streams: such events are translated.

use super::arming::hand_over;
use super::kernel::sort;
use super::scan::{look, Answer};
use super::set::Set;
use super::wait::{asleep_in, waiting_in};
use super::{TAG, TAG_MASK};
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
    let body = || {
        let got = asleep_in(set, || {
            let still = set.ours.load(Ordering::SeqCst) == 0;
            (still || whatever).then(|| cancel::guarded(kernel).unwrap_or(-1))
        })?;
        // SAFETY: the kernel has filled so many.
        let told = unsafe { translate(set, epfd, events, got.max(0) as usize) }?;
        Some(if got < 0 { got } else { told as i32 })
    };
    // Its names stand in entries, which go with the set's last descriptor, unless somebody waits.
    waiting_in(set, epfd, |_| body())
}

/// Translates the kernel's answer to such a wait, which speaks of TCP sockets under their tags, and of entries that came into the
/// set meanwhile. `None`: nothing is left to report, wait on.
///
/// # Safety
/// `events` holds `count` entries and has room for them.
unsafe fn translate(set: &'static Set, epfd: i32, events: *mut epoll_event, count: usize) -> Option<usize> {
    // SAFETY: the program's array, which the kernel has just filled.
    let tagged = |i: usize| unsafe { user::read(events.wrapping_add(i)) }.is_ok_and(|event| event.u64 & TAG_MASK == TAG);
    // The events decide, not the count of entries: the kernel may speak of one that is just being added.
    if !(0..count).any(tagged) {
        return Some(count);
    }
    let mut answer = Answer::new(set, events, count);
    // SAFETY: the caller's array.
    let _ = unsafe { sort(set, events, count, &mut answer) };
    let _ = look(set, &mut answer);
    hand_over(set, set.hold().number(epfd), answer.exclusive);
    (answer.count > 0).then_some(answer.count)
}
