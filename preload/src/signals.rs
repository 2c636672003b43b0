//! Signal handlers that interrupt calls are counted.
//!
//! The kernel ends a blocking call with EINTR, or with what it has done so far, when a handler without SA_RESTART runs
//! during it (signal(7)). A call of ours spends part of its time in user space, copying and spinning, where a handler
//! runs unseen; the call would then sleep, for ever if the handler was its only hope. So such a handler is entered
//! through [`counted`], and a call looks at the count before it sleeps. Handlers with SA_RESTART are left alone, and so
//! are those of signals that a fault raises, which interrupt nothing.

use crate::real;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use shunt_calls::libc::{self, siginfo_t, SA_RESTART, SA_SIGINFO};
use shunt_sockets::sys::thread;

const SIGNALS: usize = 65;
const BY_FAULTS: [c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
static FLAGS: [AtomicU32; SIGNALS] = [const { AtomicU32::new(0) }; SIGNALS];

unsafe extern "C" fn counted(number: c_int, information: *mut siginfo_t, context: *mut c_void) {
    let Some(handler) = HANDLERS.get(number as usize) else { return };
    let handler = handler.load(Ordering::Acquire);
    thread::interrupted();
    // SAFETY: the program gave this handler for this signal, of the kind that its flags say.
    unsafe {
        if FLAGS[number as usize].load(Ordering::Relaxed) & SA_SIGINFO as u32 != 0 {
            core::mem::transmute::<usize, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)>(handler)(
                number,
                information,
                context,
            );
        } else {
            core::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(number);
        }
    }
}

/// sigaction(2).
///
/// # Safety
/// As the function itself.
pub unsafe fn install(number: c_int, action: *const c_void, old: *mut c_void) -> c_int {
    // SAFETY: the caller's structures, null or valid.
    unsafe {
        let (wanted, told) = (action.cast::<libc::sigaction>(), old.cast::<libc::sigaction>());
        if !(1..SIGNALS as c_int).contains(&number) || BY_FAULTS.contains(&number) {
            return real::sigaction(number, action, old);
        }
        let (handler, flags) = (&HANDLERS[number as usize], &FLAGS[number as usize]);
        let known = (handler.load(Ordering::Relaxed), flags.load(Ordering::Relaxed));
        let result = match wanted.as_ref() {
            Some(new) if new.sa_sigaction > libc::SIG_IGN && new.sa_flags & SA_RESTART == 0 => {
                let mut copy = *new;
                copy.sa_sigaction = counted as *const () as usize;
                copy.sa_flags |= SA_SIGINFO;
                flags.store(new.sa_flags as u32, Ordering::Relaxed);
                handler.store(new.sa_sigaction, Ordering::Release);
                let result = real::sigaction(number, (&raw const copy).cast(), old);
                if result != 0 {
                    flags.store(known.1, Ordering::Relaxed);
                    handler.store(known.0, Ordering::Release);
                }
                result
            }
            _ => real::sigaction(number, action, old),
        };
        if let (0, Some(told)) = (result, told.as_mut()) {
            if told.sa_sigaction == counted as *const () as usize {
                told.sa_sigaction = known.0;
                if known.1 & SA_SIGINFO as u32 == 0 {
                    told.sa_flags &= !SA_SIGINFO;
                }
            }
        }
        result
    }
}
