//! Waiting calls by number, which do what the C library hides: they write back the time that is left, and are told the
//! size of their signal mask.

use crate::errno::answer;
use crate::hooks;
use core::ffi::{c_int, c_long};
use shunt_calls::libc::{self, epoll_event, pollfd, sigset_t, timespec, timeval};
use shunt_epoll::Set;
use shunt_poll::{poll, select};
use shunt_sys::{clock, user};
use shunt_table::table;

/// The last argument of pselect6(2).
#[derive(Clone, Copy)]
#[repr(C)]
struct Mask {
    mask: *const sigset_t,
    size: usize,
}

const NO_MASK: Mask = Mask { mask: core::ptr::null(), size: 0 };

/// select, ppoll, pselect6, epoll_pwait and epoll_pwait2 where one of ours is concerned; `None`: the kernel's, which also finds
/// what is wrong with arguments.
///
/// # Safety
/// Arguments as the system call asks; pointers may fault.
pub unsafe fn call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Option<c_int> {
    // SAFETY: as the caller promises.
    unsafe {
        match number {
            libc::SYS_ppoll => {
                let (time, mask) = (c as *mut timespec, good(d, e)?);
                let limit = hooks::duration(time)?;
                timed(time, || hooks::poll_any(a as *mut pollfd, b as u64, limit, mask))
            }
            libc::SYS_select => {
                // The C library writes the time that is left itself: what is wrong with the program's is the kernel's to say.
                let time = e as *mut timeval;
                let sound = time.is_null() || user::read(time).is_ok_and(|t| t.tv_sec >= 0 && t.tv_usec >= 0);
                let mut sets = select::Sets::new([b as *mut u64, c as _, d as _]);
                if !sound || !sets.read(a as c_int) || !sets.concern_us() {
                    return None;
                }
                Some(hooks::select(a as c_int, b as _, c as _, d as _, time))
            }
            libc::SYS_pselect6 => {
                let time = e as *mut timespec;
                let given = if f == 0 { NO_MASK } else { user::read(f as *const Mask).ok()? };
                let (mask, limit) = (good(given.mask as usize, given.size)?, hooks::duration(time)?);
                let mut sets = select::Sets::new([b as *mut u64, c as _, d as _]);
                if !sets.read(a as c_int) || !sets.concern_us() || !hooks::readable_mask(mask) {
                    return None;
                }
                timed(time, || Some(answer(select::select(&mut sets, poll::deadline(limit), mask)) as c_int))
            }
            libc::SYS_epoll_pwait if table::get(a as c_int).object::<Set>().is_some() => {
                Some(hooks::epoll_pwait(a as c_int, b as *mut epoll_event, c as c_int, d as c_int, good(e, f)?))
            }
            libc::SYS_epoll_pwait2 if table::get(a as c_int).object::<Set>().is_some() => {
                Some(hooks::epoll_pwait2(a as c_int, b as *mut epoll_event, c as c_int, d as *const timespec, good(e, f)?))
            }
            _ => None,
        }
    }
}

/// A mask of the size that the kernel's has, or none (set_user_sigmask of the kernel).
fn good(mask: usize, size: usize) -> Option<*const sigset_t> {
    (mask == 0 || size == 8).then_some(mask as *const sigset_t)
}

/// Writes back what is left of `time`, unless that was zero; forgives a fault (poll_select_finish of the kernel).
unsafe fn timed(time: *mut timespec, call: impl FnOnce() -> Option<c_int>) -> Option<c_int> {
    let began = clock::monotonic_ns();
    // SAFETY: the program's pointer, which may fault.
    let given = if time.is_null() { None } else { unsafe { user::read(time) }.ok() };
    let result = call();
    if let (Some(given), Some(_)) = (given, result) {
        let whole = (given.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(given.tv_nsec as u64);
        if whole > 0 {
            let left = whole.saturating_sub(clock::monotonic_ns() - began);
            let left = timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
            // SAFETY: as above.
            let _ = unsafe { user::write(time, left) };
        }
    }
    result
}
