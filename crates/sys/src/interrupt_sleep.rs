//! Ends a sleep of another thread of this process ([`crate::sleeping::sleep6`]): it gives EINTR, though no handler has run in that thread.
//!
//! That takes a signal. It is one that the C library keeps to itself (SIGCANCEL, by which pthread_cancel(3) comes), so that no program
//! blocks it, waits for it or has it for something else; and it comes with a code by which the C library's own handler would know that it is
//! not meant.

use crate::action::{self, Action};
use crate::{calls, sleeping, syscall};
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{c_int, c_void, siginfo_t, ucontext_t};

const SIGNAL: c_int = 32;
/// Where a siginfo_t has si_value, in words.
const VALUE: usize = 3;
const SA_RESTORER: u64 = 0x0400_0000;

/// The C library's handler; 0: it has none yet.
static BEHIND: AtomicUsize = AtomicUsize::new(0);

/// Rouses the thread of this number, if it sleeps in recv on the descriptor `fd`.
pub fn thread(id: u32, fd: c_int) {
    take();
    // SAFETY: zeroes are a siginfo_t; the fields are those of a queued signal (rt_tgsigqueueinfo(2)).
    unsafe {
        let mut information: siginfo_t = core::mem::zeroed();
        let process = calls::getpid();
        information.si_signo = SIGNAL;
        information.si_code = libc::SI_QUEUE;
        (&raw mut information).cast::<u32>().add(4).write(process);
        (&raw mut information).cast::<usize>().add(VALUE).write(fd as usize);
        syscall!(libc::SYS_rt_tgsigqueueinfo, process, id, SIGNAL, &raw const information);
    }
}

/// Puts the handler of this file before the C library's, which that installs when a thread is cancelled for the first time.
fn take() {
    let ours = arrived as *const () as usize;
    let Some(now) = action::current(SIGNAL) else { return };
    if now.handler == ours {
        return;
    }
    BEHIND.store(if now.handler > libc::SIG_IGN { now.handler } else { 0 }, Ordering::Release);
    let flags = (libc::SA_SIGINFO | libc::SA_RESTART) as u64 | SA_RESTORER;
    let restorer = shunt_return_from_rousing as *const () as usize;
    action::exchange(SIGNAL, &Action { handler: ours, flags, restorer, mask: now.mask });
}

unsafe extern "C" fn arrived(number: c_int, information: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's structures; the C library's handler is one of this kind.
    unsafe {
        if (*information).si_code == libc::SI_QUEUE {
            // It may have left that sleep meanwhile, and be in another.
            let context = context.cast::<ucontext_t>();
            if (*context).uc_mcontext.gregs[libc::REG_RDI as usize] as usize == *information.cast::<usize>().add(VALUE) {
                sleeping::leave_sleep(context);
            }
            return;
        }
        let behind = BEHIND.load(Ordering::Acquire);
        if behind != 0 {
            let behind: unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = core::mem::transmute(behind);
            behind(number, information, context);
        }
    }
}

// By these very bytes, and no entry for them among those for unwinding, libgcc knows the frame of a signal. It looks for an entry by the
// address before.
core::arch::global_asm!(
    ".pushsection .text.shunt_return_from_rousing, \"ax\", @progbits",
    "nop",
    ".hidden shunt_return_from_rousing",
    ".globl shunt_return_from_rousing",
    "shunt_return_from_rousing:",
    ".byte 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0", // mov rax, SYS_rt_sigreturn
    "syscall",
    ".popsection"
);

extern "C" {
    fn shunt_return_from_rousing();
}
