//! Calls that change signal masks, while calls are told by SIGSYS (`shunt_conventions::veil`).

use core::ffi::c_int;
use shunt_calls::libc::{self, sigset_t, ucontext_t};
use shunt_conventions::veil::{self, BIT};
use shunt_sys::{calls, dispatch, thread, user};

/// Whether the program believes SIGSYS blocked in this thread.
pub fn veiled() -> &'static mut u32 {
    // SAFETY: the calling thread's own block, and no reference is kept.
    unsafe { &mut (*thread::block()).veiled }
}

/// A change of the mask that succeeded.
fn changed(how: c_int, wanted: u64) {
    *veiled() = veil::changed(*veiled(), how, wanted);
}

/// sigprocmask(3) and pthread_sigmask(3), of which `kernel` is one.
///
/// # Safety
/// As the functions themselves.
pub unsafe fn change(
    how: c_int,
    set: *const sigset_t,
    old: *mut sigset_t,
    kernel: unsafe fn(c_int, *const sigset_t, *mut sigset_t) -> c_int,
) -> c_int {
    // SAFETY: the program's sets.
    unsafe {
        if !dispatch::armed() {
            return kernel(how, set, old);
        }
        let before = *veiled();
        let wanted = if set.is_null() { None } else { Some(set.cast::<u64>().read()) };
        let mut without = wanted.map(|_| *set);
        if let (Some(without), Some(wanted)) = (&mut without, wanted) {
            (without as *mut sigset_t).cast::<u64>().write(veil::without(wanted));
        }
        let result = kernel(how, without.as_ref().map_or(core::ptr::null(), |set| set), old);
        if result == 0 {
            if !old.is_null() {
                let told = old.cast::<u64>();
                *told = veil::told(*told, before);
            }
            if let Some(wanted) = wanted {
                changed(how, wanted);
            }
        }
        result
    }
}

/// rt_sigprocmask(2), called by number. `None`: the kernel's.
///
/// # Safety
/// As the call itself.
pub unsafe fn by_number(how: c_int, set: usize, old: usize, size: usize) -> Option<isize> {
    if !dispatch::armed() || size != calls::KERNEL_SIGSET {
        return None;
    }
    // SAFETY: the program's sets, which may fault.
    unsafe {
        let before = *veiled();
        let wanted = if set == 0 { None } else { Some(user::read(set as *const u64).ok()?) };
        let without = wanted.map(veil::without);
        let mut told = 0u64;
        let given = without.as_ref().map_or(core::ptr::null(), |set| set);
        if let Err(error) = calls::sigprocmask(how, given, &mut told, size) {
            return Some(crate::errno::answer(Err(error)));
        }
        if let Some(wanted) = wanted {
            changed(how, wanted);
        }
        if old != 0 && user::write(old as *mut u64, veil::told(told, before)).is_err() {
            crate::errno::set_errno(libc::EFAULT);
            return Some(-1);
        }
        Some(0)
    }
}

/// Unblocks SIGSYS in a thread that may have begun, or entered a handler, with any mask.
pub fn open() {
    if dispatch::armed() {
        let _ = calls::sigprocmask(libc::SIG_UNBLOCK, &BIT, core::ptr::null_mut(), calls::KERNEL_SIGSET);
    }
}

/// A context is about to become the calling thread's.
///
/// What the program believes of the mask stays the thread's: a context that was saved does not tell.
///
/// # Safety
/// As setcontext(3).
pub unsafe fn open_context(context: *mut ucontext_t) {
    if dispatch::armed() {
        // SAFETY: promised by the caller. Written only where it must be.
        unsafe {
            let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
            if *mask & BIT != 0 {
                *mask &= !BIT;
            }
        }
    }
}
