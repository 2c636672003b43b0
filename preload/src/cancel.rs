//! Cancellation of threads: what hooks do about it besides their work (`shunt_sys::cancel` holds the mechanism).
//!
//! - A call that is a cancellation point acts on a cancellation that waits before it does anything ([`point`]).
//! - A thread that the program made cancellable at any moment is not so while it is in a hook: it might hold a lock.
//! - A thread that was cancelled in a sleep of ours leaves its hook with nothing held, and is unwound from there.
//!
//! In a thread that is not cancelled, all of that is a word that reads as zero, at both ends of a hook.

use crate::{loader, real};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use shunt_sys::cancel;
use shunt_sys::cancel::{bit, FUNCTIONS};

/// Looks the C library's functions up.
pub fn start() {
    // SAFETY: names end with zero bytes.
    unsafe {
        let needed: [(&core::sync::atomic::AtomicUsize, &[u8]); 4] = [
            (&FUNCTIONS.set_jump, b"__sigsetjmp\0"),
            (&FUNCTIONS.register, b"__pthread_register_cancel\0"),
            (&FUNCTIONS.unregister, b"__pthread_unregister_cancel\0"),
            (&FUNCTIONS.unwind_next, b"__pthread_unwind_next\0"),
        ];
        for (slot, name) in needed {
            let found = loader::find(name);
            if found.is_null() {
                return; // another C library: sleeps are no cancellation points
            }
            slot.store(found as usize, Ordering::Relaxed);
        }
        FUNCTIONS.test.store(loader::find(b"pthread_testcancel\0") as usize, Ordering::Relaxed);
        FUNCTIONS.single_threaded.store(loader::find(b"__libc_single_threaded\0") as usize, Ordering::Relaxed);
        FUNCTIONS.set_state.store(loader::find(b"pthread_setcancelstate\0") as usize, Ordering::Relaxed);
        FUNCTIONS.set_type.store(loader::following(b"pthread_setcanceltype\0") as usize, Ordering::Release);
    }
}

/// A hook at work; see the head of this file.
pub struct Shield {
    /// The thread is cancellable at any moment outside.
    lowered: bool,
}

/// Begins a hook.
#[inline(always)]
pub fn shield() -> Shield {
    Shield { lowered: cancel::noted() != 0 && lower() }
}

impl Drop for Shield {
    #[inline(always)]
    fn drop(&mut self) {
        if cancel::noted() != 0 {
            raise(self.lowered);
        }
    }
}

#[cold]
#[inline(never)]
fn lower() -> bool {
    let outermost = cancel::noted() & (bit::ASYNCHRONOUS | bit::SHIELDED) == bit::ASYNCHRONOUS;
    if outermost {
        cancel::set_type(cancel::DEFERRED);
        cancel::note(bit::SHIELDED);
    }
    outermost
}

#[cold]
#[inline(never)]
fn raise(lowered: bool) {
    if lowered {
        cancel::forget(bit::SHIELDED);
    }
    if cancel::noted() & bit::HOLDING != 0 {
        shunt_stream::waiting::holding::release();
    }
    if cancel::noted() & bit::UNWINDING != 0 {
        // SAFETY: hooks hold nothing when they end.
        unsafe { cancel::unwind() };
    }
    if cancel::noted() & (bit::ASYNCHRONOUS | bit::SHIELDED) == bit::ASYNCHRONOUS {
        cancel::set_type(cancel::ASYNCHRONOUS);
    }
}

/// A cancellation point: nothing is held, and nothing has been done yet.
#[inline(always)]
pub fn point() {
    if cancel::noted() & bit::PENDING != 0 {
        test();
    }
}

#[cold]
#[inline(never)]
fn test() {
    // SAFETY: pthread_testcancel(3).
    unsafe {
        let function = FUNCTIONS.test.load(Ordering::Relaxed) as *mut c_void;
        if !function.is_null() {
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(function)();
        }
    }
}

/// pthread_cancel(3).
///
/// # Safety
/// As the function itself.
pub unsafe fn pthread_cancel(thread: usize) -> c_int {
    // SAFETY: passed on. The note comes first: a thread that was detached may be gone afterwards.
    unsafe {
        cancel::note_pending(thread);
        real::pthread_cancel(thread)
    }
}

/// pthread_setcanceltype(3): what the program asked for is kept here, and holds outside of hooks.
///
/// # Safety
/// As the function itself.
pub unsafe fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    if !(cancel::DEFERRED..=cancel::ASYNCHRONOUS).contains(&kind) || FUNCTIONS.set_type.load(Ordering::Relaxed) == 0 {
        // SAFETY: passed on.
        return unsafe { real::pthread_setcanceltype(kind, old) };
    }
    let before = cancel::noted();
    if kind == cancel::ASYNCHRONOUS {
        cancel::note(bit::ASYNCHRONOUS);
    } else {
        cancel::forget(bit::ASYNCHRONOUS);
    }
    if !old.is_null() {
        // SAFETY: the caller's variable.
        unsafe { *old = if before & bit::ASYNCHRONOUS != 0 { cancel::ASYNCHRONOUS } else { cancel::DEFERRED } };
    }
    if before & bit::SHIELDED == 0 {
        cancel::set_type(kind);
    }
    0
}
