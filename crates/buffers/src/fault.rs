//! The faulting thread's handler: a write to a region that is being output is mended where it happens; every other fault is the
//! program's, and its handler gets it as if this one were not there.
//!
//! ```text
//! SIGSEGV ─> entry of level n ─> a write to a protected unit of ours? ─ yes ─> mend, return: the write is done again
//!                                        └ no ─> what SIGSEGV did before level n was installed
//! ```
//!
//! A program that installs a handler after this one takes the signal away; the next output under TCOW notices, and puts a further
//! level over it. Each level goes on to what *it* found, so a program's handler that goes on to ours does not come round.

use crate::threads;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use shunt_region::Limit;
use shunt_sys::action::{self, Action};
use shunt_sys::{calls, libc};

/// Levels at most.
const LEVELS: usize = 4;

/// What a level goes on to: handler, flags, restorer, mask.
struct Before {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

static BEFORE: [Before; LEVELS] = [const {
    Before { handler: AtomicUsize::new(0), flags: AtomicU64::new(0), restorer: AtomicUsize::new(0), mask: AtomicU64::new(0) }
}; LEVELS];
static USED: AtomicU32 = AtomicU32::new(0);
static BUSY: AtomicU32 = AtomicU32::new(0);
static MENDED: AtomicU64 = AtomicU64::new(0);

type Entry = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t);
const ENTRIES: [Entry; LEVELS] = [entry::<0>, entry::<1>, entry::<2>, entry::<3>];

const SA_RESTORER: u64 = 0x0400_0000;
/// What is blocked while a fault is looked at.
const OURS: u64 = !action::BY_INSTRUCTIONS;

core::arch::global_asm!(
    ".pushsection .text",
    ".globl shunt_buffers_return",
    ".hidden shunt_buffers_return",
    "shunt_buffers_return:",
    "mov eax, 15", // rt_sigreturn
    "syscall",
    ".popsection",
);
extern "C" {
    fn shunt_buffers_return();
}

/// Faults that were mended.
pub fn mended() -> u64 {
    MENDED.load(Ordering::Relaxed)
}

/// Makes sure that faults come here, and that this process's threads may have some.
///
/// # Errors
/// [`Limit::SignalBlocked`], [`Limit::FaultHandler`].
pub fn ensure() -> Result<(), Limit> {
    let mut blocked = 0u64;
    let _ = calls::sigprocmask(libc::SIG_BLOCK, core::ptr::null(), &mut blocked, calls::KERNEL_SIGSET);
    if blocked & action::bit(libc::SIGSEGV) != 0 {
        return Err(Limit::SignalBlocked);
    }
    if !threads::all_take_faults() {
        return Err(Limit::SignalBlocked);
    }
    let now = action::current(libc::SIGSEGV).ok_or(Limit::FaultHandler)?;
    match ENTRIES.iter().any(|entry| *entry as *const () as usize == now.handler) {
        true => Ok(()),
        false => install(now),
    }
}

#[cold]
fn install(now: Action) -> Result<(), Limit> {
    if BUSY.swap(1, Ordering::Acquire) != 0 {
        return Err(Limit::FaultHandler);
    }
    let level = USED.load(Ordering::Relaxed) as usize;
    let done = if level < LEVELS {
        let before = &BEFORE[level];
        before.handler.store(now.handler, Ordering::Relaxed);
        before.flags.store(now.flags, Ordering::Relaxed);
        before.restorer.store(now.restorer, Ordering::Relaxed);
        before.mask.store(now.mask, Ordering::Release);
        USED.store(level as u32 + 1, Ordering::Release);
        // On the stack that the program's handler would have had; not blocked, so that a fault in a fault is the program's, too.
        let like = libc::SA_ONSTACK as u64 | libc::SA_RESTART as u64;
        let flags = (libc::SA_SIGINFO | libc::SA_NODEFER) as u64 | SA_RESTORER | now.flags & like;
        let ours = Action {
            handler: ENTRIES[level] as *const () as usize,
            flags,
            restorer: shunt_buffers_return as *const () as usize,
            // A handler that came in the middle of mending, and wrote to the same unit, would wait for what it had interrupted.
            mask: OURS,
        };
        action::exchange(libc::SIGSEGV, &ours);
        Ok(())
    } else {
        Err(Limit::FaultHandler)
    };
    BUSY.store(0, Ordering::Release);
    done
}

/// Whether a fault was ours, and is mended: for a program that would rather ask than be chained to.
///
/// # Safety
/// `information` and `context` are what the kernel gave to a handler.
pub unsafe fn is_mended(information: *const libc::siginfo_t, context: *const libc::ucontext_t) -> bool {
    // SAFETY: promised by the caller.
    action::undisturbed(|| unsafe { is_ours_and_mended(information, context) })
}

/// The same, where no handler comes in between.
///
/// # Safety
/// As for [`is_mended`].
unsafe fn is_ours_and_mended(information: *const libc::siginfo_t, context: *const libc::ucontext_t) -> bool {
    const SEGV_ACCERR: i32 = 2;
    const WRITE: i64 = 2;
    // SAFETY: promised by the caller.
    let ours = unsafe {
        (*information).si_code == SEGV_ACCERR
            && (*context).uc_mcontext.gregs[libc::REG_ERR as usize] & WRITE != 0
            && shunt_region::mend((*information).si_addr() as usize)
    };
    if ours {
        MENDED.fetch_add(1, Ordering::Relaxed);
    }
    ours
}

unsafe extern "C" fn entry<const LEVEL: usize>(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's, or those of a handler that goes on to this one.
    unsafe {
        let mended = match was_entered(context) {
            true => is_ours_and_mended(information, context),
            false => is_mended(information, context),
        };
        if !mended {
            go_on(&BEFORE[LEVEL], signal, information, context);
        }
    }
}

/// Whether the kernel came to a level of ours, with its mask; else a program's handler has gone on to this one, with a mask of its own.
///
/// # Safety
/// As for [`is_mended`].
unsafe fn was_entered(context: *const libc::ucontext_t) -> bool {
    let mut now = 0;
    let _ = calls::sigprocmask(libc::SIG_BLOCK, core::ptr::null(), &mut now, calls::KERNEL_SIGSET);
    // SAFETY: in front of the context lies what the handler returns to: the kernel's struct rt_sigframe.
    let returns_to_us = || unsafe { *context.cast::<usize>().sub(1) == shunt_buffers_return as *const () as usize };
    let unblockable = action::bit(libc::SIGKILL) | action::bit(libc::SIGSTOP);
    now | unblockable | action::BY_INSTRUCTIONS == u64::MAX && returns_to_us()
}

/// # Safety
/// As for [`is_mended`].
unsafe fn go_on(before: &Before, signal: i32, information: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let mask = before.mask.load(Ordering::Acquire);
    let (handler, flags) = (before.handler.load(Ordering::Relaxed), before.flags.load(Ordering::Relaxed));
    // SAFETY: the program's own action; the arguments are the kernel's.
    unsafe {
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            let sent = (*information).si_code <= 0;
            if sent && handler == libc::SIG_IGN {
                return;
            }
            // The fault comes again, and ends the process; a signal that was sent is sent again.
            action::exchange(signal, &Action::of(libc::SIG_DFL));
            if sent {
                let _ = calls::tgkill(calls::getpid() as i32, calls::gettid() as i32, signal);
            }
            return;
        }
        if flags & libc::SA_RESETHAND as u32 as u64 != 0 {
            before.handler.store(libc::SIG_DFL, Ordering::Relaxed);
        }
        let own = if flags & libc::SA_NODEFER as u64 != 0 { 0 } else { action::bit(signal) };
        // What is blocked when the kernel calls that handler: what was before the fault, and what it asks for. What returns from here gets its
        // mask back with the context.
        let (how, blocked) = match was_entered(context) {
            true => (libc::SIG_SETMASK, (&raw const (*context).uc_sigmask).cast::<u64>().read() | mask | own),
            false => (libc::SIG_BLOCK, mask | own),
        };
        let _ = calls::sigprocmask(how, &blocked, core::ptr::null_mut(), calls::KERNEL_SIGSET);
        if flags & libc::SA_SIGINFO as u64 != 0 {
            let handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t) = core::mem::transmute(handler);
            handler(signal, information, context);
        } else {
            let handler: unsafe extern "C" fn(i32) = core::mem::transmute(handler);
            handler(signal);
        }
    }
}
