//! System calls by the program's own instructions, told to a handler: syscall user dispatch (Linux 5.11,
//! Documentation/admin-guide/syscall-user-dispatch.rst).
//!
//! A thread names a range of addresses. Calls from inside go on as ever; one from anywhere else is not done, and raises SIGSYS
//! instead. Threads and children begin without.

use crate::{action, calls, check, syscall, thread, Result};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use libc::c_int;

/// prctl(2): the operation, and what switches it on.
pub const SET_SYSCALL_USER_DISPATCH: c_int = 59;
const OFF: usize = 0;
const ON: usize = 1;

/// What a SIGSYS of this origin has for its si_code.
pub const SYS_USER_DISPATCH: c_int = 2;

/// What the process has said of its calls.
struct Dispatch {
    /// The range of this process. A length of 0: none was named.
    start: AtomicUsize,
    length: AtomicUsize,
    /// What the kernel looks at before it tells of a call: the selector of each thread of this process.
    selector: AtomicU8,
    /// No further thread or child is to have its calls told.
    frozen: AtomicBool,
}

static DISPATCH: Dispatch = Dispatch {
    start: AtomicUsize::new(0),
    length: AtomicUsize::new(0),
    selector: AtomicU8::new(BLOCK),
    frozen: AtomicBool::new(false),
};

const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// Names the range whose calls are not told, for this thread and those that [`arm`] later.
///
/// # Errors
/// What the kernel says; then nothing has changed. EINVAL: it does not know of this.
pub fn begin(start: usize, length: usize) -> Result<()> {
    set(start, length)?;
    DISPATCH.start.store(start, Ordering::Relaxed);
    DISPATCH.length.store(length, Ordering::Release);
    Ok(())
}

/// Whether the process has named a range.
#[inline]
pub fn begun() -> bool {
    DISPATCH.length.load(Ordering::Acquire) != 0
}

/// Has the calling thread's calls told, if the process has named a range. One for which the kernel has no room goes without.
pub fn arm() {
    let length = DISPATCH.length.load(Ordering::Acquire);
    if frozen() {
        replaced();
    } else if length != 0 {
        let _ = set(DISPATCH.start.load(Ordering::Relaxed), length);
    }
}

/// Does that for a thread that was there before the range was named, and has not been asked.
#[inline]
pub fn arm_late() {
    // SAFETY: the calling thread's own block.
    if begun() && unsafe { (*thread::block()).asked } == 0 && !frozen() {
        arm();
    }
}

fn set(start: usize, length: usize) -> Result<()> {
    // A blocked SIGSYS would end the process.
    let mut before = 0u64;
    let _ = calls::sigprocmask(libc::SIG_UNBLOCK, &action::bit(libc::SIGSYS), &mut before, calls::KERNEL_SIGSET);
    // SAFETY: the calling thread's own block. It says so first: a handler may come between.
    let told = unsafe {
        (*thread::block()).asked = 1;
        (*thread::block()).veiled |= u32::from(before & action::bit(libc::SIGSYS) != 0);
        &raw mut (*thread::block()).dispatched
    };
    // SAFETY: as above; plain numbers, and a selector that stays.
    unsafe {
        told.write_volatile(1);
        let done = check(syscall!(libc::SYS_prctl, SET_SYSCALL_USER_DISPATCH, ON, start, length, DISPATCH.selector.as_ptr()));
        if done.is_err() {
            told.write_volatile(0);
        }
        done.map(|_| ())
    }
}

/// Whether the calling thread's calls are told because it was [`arm`]ed.
pub fn armed() -> bool {
    // SAFETY: the calling thread's own block.
    unsafe { (*thread::block()).dispatched != 0 }
}

/// No further thread or child has its calls told.
pub fn freeze() {
    DISPATCH.frozen.store(true, Ordering::Relaxed);
}

/// Whether that was said.
#[inline]
pub fn frozen() -> bool {
    DISPATCH.frozen.load(Ordering::Relaxed)
}

/// No thread's calls are told from here on, whether it was armed or not.
pub fn stop() {
    DISPATCH.selector.store(ALLOW, Ordering::Relaxed);
    DISPATCH.length.store(0, Ordering::Release);
}

/// The program has named a range of its own for the calling thread.
pub fn replaced() {
    // SAFETY: the calling thread's own block.
    unsafe { (*thread::block()).dispatched = 0 };
}

/// Has the calling thread's calls no longer told. False: the kernel refuses.
pub fn end() -> bool {
    // SAFETY: plain numbers; the kernel demands zeros.
    let done = check(unsafe { syscall!(libc::SYS_prctl, SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0) }).is_ok();
    if done {
        replaced();
    }
    done
}
