//! epoll_wait(2): look, spin, arm, look again, sleep in the kernel's epoll.

use super::arming::{arm_all, cool, wake};
use super::kernel::{ask_kernel, KERNEL_EVERY, KERNEL_EVERY_MIXED};
use super::scan::{check_peers, look, Events};
use super::set::Set;
use crate::spin;
use crate::wait as waiting;
use core::sync::atomic::Ordering;
use shunt_sys::libc::{epoll_event, sigset_t};
use shunt_sys::{clock, libc, thread, Errno, Result};

/// epoll_wait(2) and its forms on a set that holds entries of ours.
///
/// # Safety
/// `events` has room for `room` entries; `mask` is null or valid.
pub unsafe fn wait(
    set: &'static Set,
    epfd: i32,
    events: *mut epoll_event,
    room: i32,
    deadline: u64,
    mask: *const sigset_t,
) -> Result<isize> {
    if room <= 0 {
        return Err(Errno(libc::EINVAL));
    }
    let began = thread::interruptions();
    let mut events = Events { start: events, room: room as usize, count: 0 };
    let now = clock::ticks();
    let every = if set.foreign.load(Ordering::Relaxed) > 0 { KERNEL_EVERY_MIXED } else { KERNEL_EVERY };
    let due = now.wrapping_sub(set.last_kernel.load(Ordering::Relaxed)) > every;
    if due || deadline == 0 {
        ask_kernel(set, epfd, &mut events, Some(0), core::ptr::null())?;
    }
    look(set, &mut events)?;
    if events.count > 0 || deadline == 0 {
        if events.count == 0 && check_peers(set) {
            look(set, &mut events)?;
        }
        return Ok(events.count as isize);
    }
    loop {
        let mut spin = spin::begin(0);
        while spin.more() {
            look(set, &mut events)?;
            if events.count == 0 && spin.rounds() & 0x3f == 0 {
                ask_kernel(set, epfd, &mut events, Some(0), core::ptr::null())?;
            }
            if events.count > 0 {
                spin.end();
                return Ok(events.count as isize);
            }
        }
        let slept = sleep(set, epfd, &mut events, deadline, mask, began);
        spin.end();
        slept?;
        if events.count > 0 || (deadline != u64::MAX && clock::monotonic_ns() >= deadline) {
            return Ok(events.count as isize);
        }
    }
}

/// Arms the active streams, looks once more, and sleeps in the kernel's epoll. `began`: as in `wait::wait`.
fn sleep(set: &'static Set, epfd: i32, events: &mut Events, deadline: u64, mask: *const sigset_t, began: u32) -> Result<()> {
    set.sleepers.fetch_add(1, Ordering::AcqRel);
    let result = (|| {
        if !set.active.load(Ordering::Relaxed).is_null() {
            if arm_all(set) {
                waiting::barrier();
            }
            look(set, events)?;
            if events.count > 0 {
                wake(set);
                return Ok(());
            }
        }
        if thread::interruptions() != began {
            return Err(Errno(libc::EINTR)); // a handler ran while we looked
        }
        let left = if deadline == u64::MAX { None } else { Some(deadline.saturating_sub(clock::monotonic_ns())) };
        let asked = ask_kernel(set, epfd, events, left, mask);
        cool(set);
        asked?;
        wake(set);
        look(set, events)
    })();
    set.sleepers.fetch_sub(1, Ordering::AcqRel);
    result
}
