//! Waiting in a set of which the kernel knows everything, into which another thread may put one of ours meanwhile.
//!
//! TCP sockets that the kernel connects are in it under tags of ours, because they may become streams: such events are translated.

use super::arming::hand_over;
use super::entry::{tagged, Entry};
use super::frames;
use super::kernel::sort;
use super::list::address;
use super::scan::{look, Answer};
use super::set::Set;
use super::wait::InSet;
use super::{ONESHOT, TAG, TAG_MASK};
use core::sync::atomic::{AtomicBool, Ordering};
use shunt_stream::waiting::kernel_sockets::{self, When};
use shunt_stream::waiting::spin;
use shunt_stream::waiting::until::Look;
use shunt_sys::libc::epoll_event;
use shunt_sys::sleeper::counted;
use shunt_sys::{calls, cancel, libc, user, Errno, Result};

/// Whether the kernel knows everything of the set: epoll_wait then needs nothing of us but names.
#[inline(always)]
pub fn is_all_in_kernel(set: &Set) -> bool {
    set.ours.load(Ordering::Acquire) == 0
}

/// Waits by `kernel` in a set that is [`is_all_in_kernel`], into `events`: should that change, the thread must be woken. -1 when it was
/// cancelled in there. `None`: the set has changed just now, and nothing would wake the thread, unless it is to go there all
/// the same (`whatever`); or nothing is left to report. Then the caller waits on.
///
/// # Safety
/// `events` has room for what `kernel` gives.
pub unsafe fn wait_in_kernel(
    set: &'static Set,
    epfd: i32,
    events: *mut epoll_event,
    whatever: bool,
    kernel: impl FnOnce() -> i32,
) -> Option<i32> {
    // Names of TCP sockets stand in entries, which go with the set's last descriptor, unless a thread waits.
    counted(InSet::new(set, true), |account| {
        // Behind the count: a thread that adds one of ours later sees a sleeper.
        let still = set.ours.load(Ordering::SeqCst) == 0;
        let got = (still || whatever).then(|| cancel::guarded(kernel).unwrap_or(-1))?;
        // SAFETY: the kernel has filled so many.
        unsafe { named(set, epfd, events, got, || _ = account.with(InSet::wake)) }
    })
}

/// As [`wait_in_kernel`], of a call without a mask that may wait for `limit` ns: where TCP connections are in the set, it looks as long as
/// that pays. Errors: EINTR, where a handler ended it.
///
/// A thread that looks is in no queue of the kernel's, which wakes another one in its place: so it looks only where no other
/// thread waits in the set, no other process has it, and nothing in it is EPOLLEXCLUSIVE.
///
/// # Safety
/// As for [`wait_in_kernel`]; `events` has room for `room`.
pub unsafe fn spin_in_kernel(
    set: &'static Set,
    epfd: i32,
    events: *mut epoll_event,
    room: i32,
    limit: Option<u64>,
    began: u64,
    kernel: impl FnOnce() -> i32,
) -> Result<Option<i32>> {
    // SAFETY: passed on.
    let own = || unsafe { wait_in_kernel(set, epfd, events, false, kernel) };
    if !has_connections(set) || !is_alone(set, 0) {
        return Ok(own());
    }
    if !kernel_sockets::promises_one() {
        let got = spin::rest(own);
        kernel_sockets::gathers(got.unwrap_or(0) as isize);
        return Ok(got);
    }
    let when = When { limit, began, restartable: false };
    // A descriptor of the set stays open, whatever other threads close.
    let waited = counted(InSet::new(set, false), |_| {
        let look =
            || match calls::epoll_pwait2(set.number(epfd), events, room, &spin::ZERO, core::ptr::null(), calls::KERNEL_SIGSET) {
                Ok(0) if is_alone(set, 1) && is_all_in_kernel(set) => Look::Nothing,
                Ok(0) | Err(_) => Look::Sleep,
                // SAFETY: the kernel has filled so many.
                Ok(got) => Look::Found(unsafe { named(set, epfd, events, got as i32, || {}) }),
            };
        // By the number of the program's call, unless that is another's by now.
        kernel_sockets::wait(when, look, || if set.number(epfd) == epfd { own() } else { None })
    });
    if let Some(Some(got)) = waited {
        kernel_sockets::gathers(got as isize);
    }
    waited.ok_or(Errno(libc::EINTR))
}

/// Whether TCP connections are in the set, for which looking may pay.
pub(super) fn has_connections(set: &'static Set) -> bool {
    set.tcp.load(Ordering::Relaxed) || set.count.load(Ordering::Relaxed) > set.ours.load(Ordering::Relaxed)
}

/// Whether no thread waits in the set but `mine` of the caller's.
pub(super) fn is_alone(set: &'static Set, mine: u32) -> bool {
    let flag = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
    set.hold().calls() <= mine && !flag(&set.exclusive) && !flag(&set.shared)
}

/// As [`wait_in_kernel`], of a wait that does not sleep: nothing has to wake the thread, and if the set goes meanwhile, its names
/// may.
///
/// # Safety
/// As for [`wait_in_kernel`].
pub unsafe fn look_in_kernel(
    set: &'static Set,
    epfd: i32,
    events: *mut epoll_event,
    kernel: impl FnOnce() -> i32,
) -> Option<i32> {
    // SAFETY: the kernel has filled what it says.
    unsafe { named(set, epfd, events, kernel(), || {}) }
}

/// The answer `got` of the kernel's under the program's names, `before` which something is to be done if there is one of ours.
///
/// # Safety
/// `events` holds as many as `got` says.
#[inline(always)]
unsafe fn named(set: &'static Set, epfd: i32, events: *mut epoll_event, got: i32, before: impl FnOnce()) -> Option<i32> {
    if got <= 0 {
        return Some(got);
    }
    // SAFETY: the program's array, which the kernel has just filled.
    if unsafe { renamed(set, events, got as usize) } {
        return Some(got);
    }
    before();
    // SAFETY: passed on.
    unsafe { translate(set, epfd, events, got as usize) }
}

/// Gives the events of such an answer the program's names, where no more than that is to be done: TCP sockets which are the
/// kernel's. False: one of them is of another kind, or asks for one event only; those before it have their names, which stay.
/// The events decide, not the count of entries: the kernel may speak of one that is just being added.
///
/// # Safety
/// `events` holds `count` entries.
unsafe fn renamed(set: &'static Set, events: *mut epoll_event, count: usize) -> bool {
    (0..count).all(|i| {
        let event = events.wrapping_add(i);
        // SAFETY: the caller's array, which may go at any moment.
        match unsafe { user::read(event) }.map(|event| event.u64) {
            Ok(tag) if tag & TAG_MASK == TAG => match name(set, tag) {
                // SAFETY: as above; a field of a packed structure.
                Some(name) => unsafe { user::write(&raw mut (*event).u64, name) }.is_ok(),
                None => false,
            },
            _ => true,
        }
    })
}

/// What the program calls the kernel's TCP socket `tag`, if that cannot be taken for a tag.
#[inline(always)]
fn name(set: &'static Set, tag: u64) -> Option<u64> {
    let mine = |entry: &&Entry| {
        entry.set.load(Ordering::Acquire) == address(set) && entry.valid() && !entry.ours.load(Ordering::Acquire)
    };
    let entry = tagged(tag).filter(mine).filter(|entry| entry.wanted() & ONESHOT == 0)?;
    let name = entry.terms().data.load(Ordering::Acquire);
    // No thread holds the set's lock: the entry may have become another one's.
    (entry.tag.load(Ordering::Relaxed) == tag && name & TAG_MASK != TAG).then_some(name)
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
    frames::drive(&answer);
    hand_over(set, epfd, answer.exclusive);
    (answer.count > 0).then_some(answer.count as i32)
}
