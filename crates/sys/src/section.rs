//! Sections of ours in which no handler of the program may run.
//!
//! A handler may use any socket, leave by `longjmp`, or fork. It must not find a lock of ours held by the thread that it
//! interrupted, or a position half moved. Blocking signals around each section would cost two system calls; instead the
//! thread counts its sections in its block, one instruction on the way in and two on the way out. A handler that arrives
//! inside is *deferred*: our own handler, which stands before the program's, keeps the siginfo, blocks all other signals
//! in the mask that its return restores, and returns. The end of the section sends the signal again, to this thread and
//! with the same siginfo, and restores the mask: the kernel then delivers it as if it had come that much later.
//!
//! Signals that a fault of the program raises are never deferred. Sections never sleep.

use crate::action::{bit, BY_INSTRUCTIONS};
use crate::{calls, syscall, thread};
use core::arch::asm;
use core::mem::{offset_of, size_of};
use libc::{c_int, siginfo_t, ucontext_t};

/// Bit of the count of sections: a signal waits for the end.
pub const DUE: u32 = 1 << 31;

/// Proof of being in a section; it ends on drop.
pub struct Section(());

impl Section {
    /// Begins a section.
    #[inline(always)]
    pub fn begin() -> Section {
        enter();
        Section(())
    }
}

impl Drop for Section {
    #[inline(always)]
    fn drop(&mut self) {
        leave();
    }
}

/// Begins a section that [`leave`] ends. Memory accesses do not move before it.
#[inline(always)]
pub fn enter() {
    // SAFETY: the count belongs to this thread; one instruction, so that no handler comes in the middle of it.
    unsafe {
        asm!("inc dword ptr fs:[{block} + {section}]", block = in(reg) thread::block_offset(),
            section = const offset_of!(thread::Block, section), options(nostack));
    }
}

/// Ends a section. Memory accesses do not move behind it.
#[inline(always)]
pub fn leave() {
    if !leave_quietly() {
        due();
    }
}

/// As [`leave`]; false: this was not the last section, or a signal came in it, and [`due`] must be called at once.
#[inline(always)]
#[must_use]
pub fn leave_quietly() -> bool {
    // SAFETY: as in enter. A signal before the first instruction finds a count, and is due; one behind it finds none.
    unsafe {
        asm!("dec dword ptr fs:[{block} + {section}]", "jnz {due}", block = in(reg) thread::block_offset(),
            section = const offset_of!(thread::Block, section), due = label { return false }, options(nostack));
    }
    true
}

/// Whether this thread is in a section.
#[inline]
pub fn inside() -> bool {
    // SAFETY: the calling thread's own block.
    unsafe { (*thread::block()).section & !DUE != 0 }
}

/// The end of an inner section, or of one in which a signal came: that is sent again.
#[cold]
#[inline(never)]
pub fn due() {
    // SAFETY: outside all sections the kept signal is this function's; all others are blocked, so nothing comes between.
    unsafe {
        let block = thread::block();
        if (*block).section != DUE {
            return;
        }
        (*block).section = 0;
        let mask = (*block).kept_mask;
        let information = (&raw const (*block).kept).cast::<siginfo_t>();
        let (process, thread) = (calls::getpid(), calls::gettid());
        let number = (*information).si_signo;
        let send = |information: *const siginfo_t| {
            let queued = syscall!(libc::SYS_rt_tgsigqueueinfo, process, thread, number, information);
            if queued != 0 {
                // No room left to queue what it says: that it came, at least.
                let _ = calls::tgkill(process as i32, thread as i32, number);
            }
        };
        if number < FIRST_QUEUED {
            send(information);
        } else {
            before_those_that_wait(number, || send(information), send);
        }
        let _ = calls::sigprocmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut(), calls::KERNEL_SIGSET);
    }
}

/// The kernel's SIGRTMIN: signals from here on queue, in their order (signal(7)).
const FIRST_QUEUED: c_int = 32;

/// Signals of one number that may wait behind the kept one; further ones would come before them.
const MOST_WAITING: usize = 16;

/// Sends the kept signal `number` by `first`, and by `again` those of its number that came after it and wait, behind it.
#[inline(never)]
unsafe fn before_those_that_wait(number: c_int, first: impl FnOnce(), again: impl Fn(*const siginfo_t)) {
    let mut waiting = [const { core::mem::MaybeUninit::<siginfo_t>::uninit() }; MOST_WAITING];
    let mut count = 0;
    let only = bit(number);
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one siginfo each; all signals are blocked, so whatever waits stays until it is taken here.
    unsafe {
        while count < MOST_WAITING
            && syscall!(
                libc::SYS_rt_sigtimedwait,
                &raw const only,
                waiting[count].as_mut_ptr(),
                &raw const no_time,
                calls::KERNEL_SIGSET
            ) == number as isize
        {
            count += 1;
        }
        first();
        waiting[..count].iter().for_each(|one| again(one.as_ptr()));
    }
}

/// A handler arrived in a section: keeps it for the end. False: it must run now (a signal that instructions raise, sent
/// by another process or thread while another one waits).
///
/// # Safety
/// The arguments are the kernel's, and the thread is in a section.
pub unsafe fn defer(number: c_int, information: *const siginfo_t, context: *mut ucontext_t) -> bool {
    // SAFETY: the kernel's structures; the block is this thread's.
    unsafe {
        let block = thread::block();
        if (*block).section & DUE != 0 {
            return false;
        }
        (*block).kept = information.cast::<[u64; size_of::<siginfo_t>() / 8]>().read_unaligned();
        (*(&raw mut (*block).kept).cast::<siginfo_t>()).si_signo = number;
        // The kernel's signal set is the first word of the C library's larger one.
        let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
        (*block).kept_mask = mask.read_unaligned();
        mask.write_unaligned(!BY_INSTRUCTIONS);
        (*block).section |= DUE;
        true
    }
}

/// In the child after fork: signals that wait are the parent's.
pub fn forked() {
    // SAFETY: the calling thread's own block.
    unsafe {
        let block = thread::block();
        if (*block).section & DUE != 0 {
            (*block).section &= !DUE;
            let mask = (*block).kept_mask;
            let _ = calls::sigprocmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut(), calls::KERNEL_SIGSET);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    static SEEN: Mutex<Vec<(c_int, usize)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn arrived(number: c_int, information: *mut siginfo_t, context: *mut core::ffi::c_void) {
        // SAFETY: the kernel's structures.
        unsafe {
            if inside() && defer(number, information, context.cast()) {
                return;
            }
            SEEN.lock().unwrap().push((number, (*information).si_value().sival_ptr as usize));
        }
    }

    #[test]
    fn queued_signals_come_in_their_order_behind_a_section() {
        let numbers = [libc::SIGUSR1, libc::SIGRTMIN() + 3];
        // SAFETY: handlers of this test, for this thread alone; only signals that it sends to itself arrive.
        unsafe {
            for number in numbers {
                let mut action: libc::sigaction = core::mem::zeroed();
                action.sa_sigaction = arrived as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                assert_eq!(libc::sigaction(number, &action, core::ptr::null_mut()), 0);
            }
            let send = |number: c_int, value: usize| {
                let value = libc::sigval { sival_ptr: value as *mut core::ffi::c_void };
                assert_eq!(libc::pthread_sigqueue(libc::pthread_self(), number, value), 0);
            };
            for count in 1..=MOST_WAITING + 1 {
                let section = Section::begin();
                (0..count).for_each(|value| send(numbers[1], value));
                assert!(SEEN.lock().unwrap().is_empty(), "no handler runs in a section");
                drop(section);
                let seen = core::mem::take(&mut *SEEN.lock().unwrap());
                assert_eq!(seen, (0..count).map(|value| (numbers[1], value)).collect::<Vec<_>>());
            }
            // One that does not queue comes once.
            let section = Section::begin();
            (0..3).for_each(|value| send(numbers[0], value));
            drop(section);
            assert!(!SEEN.lock().unwrap().is_empty());
        }
    }
}
