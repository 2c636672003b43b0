//! System calls that sleep: a handler of the program ends them (EINTR), and so does a cancellation of the thread (ECANCELED).

use crate::{calls, cancel, check, filter, thread, Errno, Result};
use core::arch::asm;
use core::ffi::c_void;
use libc::{c_int, epoll_event, msghdr, pollfd, sigset_t, timespec};

/// As [`crate::raw::call6`], for a call that sleeps: EINTR at once if a handler of the program has run in this thread since
/// [`thread::handled`] gave `began`, and at the latest when the next one returns.
///
/// A handler that runs between the look and the instruction would otherwise be missed; and a call that the kernel
/// restarts after a handler with SA_RESTART would sleep on, although the handler may have used up what was to wake it.
/// So the entry before the handlers ([`leave_sleep`]) moves a thread that it finds here out.
///
/// # Safety
/// As for [`crate::raw::call6`].
#[inline(always)]
pub unsafe fn sleep6(number: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, began: u64) -> isize {
    let value: isize;
    // SAFETY: as in `call6`; the word is this thread's.
    unsafe {
        asm!(
            "2: cmp qword ptr [{word}], {began}",
            "jne 4f",
            "syscall",
            "3:",
            ".pushsection .text.shunt_sleeps,\"ax\",@progbits",
            "4: mov rax, -4",
            "jmp 3b",
            ".popsection",
            ".pushsection shunt_sleeps,\"aR\",@progbits",
            ".long 2b - .",
            ".long 3b - .",
            ".long 4b - .",
            ".popsection",
            ".hidden __start_shunt_sleeps",
            ".hidden __stop_shunt_sleeps",
            word = in(reg) thread::handled_word(),
            began = in(reg) began,
            inlateout("rax") number as isize => value,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    value
}

extern "C" {
    #[link_name = "__start_shunt_sleeps"]
    static FIRST: Entry;
    #[link_name = "__stop_shunt_sleeps"]
    static LAST: Entry;
}

/// Instructions of [`sleep6`], and where to go on: distances from the fields themselves.
#[repr(C)]
struct Entry {
    start: i32,
    end: i32,
    exit: i32,
}

/// Whether a thread that the kernel finds at `at` is in a call of [`sleep6`].
pub fn is_sleep(at: usize) -> bool {
    // SAFETY: the table lies between the linker's two symbols.
    unsafe {
        let far = |field: *const i32| (field as usize).wrapping_add_signed(*field as isize);
        let count = (&raw const LAST).offset_from(&raw const FIRST) as usize;
        (0..count).map(|i| (&raw const FIRST).add(i)).any(|entry| far(&raw const (*entry).end) == at)
    }
}

/// A handler of the program is about to run: if it interrupts a sleep, or one that was about to begin, the thread goes on
/// behind it, with EINTR.
///
/// # Safety
/// `context` is what the kernel gave to the handler.
pub unsafe fn leave_sleep(context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's structure; the table lies between the linker's two symbols.
    unsafe {
        let at = &mut (*context).uc_mcontext.gregs[libc::REG_RIP as usize];
        let far = |field: *const i32| (field as usize).wrapping_add_signed(*field as isize);
        let mut entry = &raw const FIRST;
        while entry < &raw const LAST {
            if (far(&raw const (*entry).start)..far(&raw const (*entry).end)).contains(&(*at as usize)) {
                *at = far(&raw const (*entry).exit) as i64;
                return;
            }
            entry = entry.add(1);
        }
    }
}

/// recvfrom(2) that sleeps; `began`: see [`sleep6`].
pub fn recvfrom(fd: c_int, data: *mut c_void, length: usize, flags: c_int, began: u64) -> Result<usize> {
    let (fd, data, flags) = (fd as usize, data as usize, flags as usize);
    // SAFETY: as for those of `calls`.
    check(cancel::sleep(|| unsafe { sleep6(libc::SYS_recvfrom, fd, data, length, flags, 0, 0, began) }))
}

/// sendmsg(2) or recvmsg(2), by their numbers, of a blocking socket; see [`sleep6`].
pub fn message(call: i64, fd: c_int, message: &mut msghdr, flags: c_int, began: u64) -> Result<usize> {
    let (fd, message, flags) = (fd as usize, message as *mut msghdr as usize, flags as usize);
    // SAFETY: as for those of `calls`.
    check(cancel::sleep(|| unsafe { sleep6(call, fd, message, flags, 0, 0, 0, began) }))
}

/// ppoll(2) that sleeps; `began`: see [`sleep6`].
pub fn ppoll(set: *mut pollfd, count: usize, timeout: *mut timespec, mask: *const sigset_t, began: u64) -> Result<usize> {
    let (entries, time, signals) = (set as usize, timeout as usize, mask as usize);
    // SAFETY: as for those of `calls`.
    let older = || unsafe { sleep6(libc::SYS_poll, entries, count, calls::milliseconds(timeout), 0, 0, 0, began) };
    if mask.is_null() && filter::avoids(filter::PPOLL) {
        return check(cancel::sleep(older));
    }
    // SAFETY: as for those of `calls`.
    let made = || unsafe { sleep6(libc::SYS_ppoll, entries, count, time, signals, calls::KERNEL_SIGSET, 0, began) };
    match check(cancel::sleep(made)) {
        Err(error) if mask.is_null() && error.is_refusal() => check(cancel::sleep(older)),
        result => result,
    }
}

/// epoll_pwait2(2) that sleeps; `began`: see [`sleep6`].
pub fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
    began: u64,
) -> Result<usize> {
    let (epfd, events, count, signals) = (epfd as usize, events as usize, count as usize, mask as usize);
    let made = |number: i64, time: usize| {
        // SAFETY: as for those of `calls`.
        check(cancel::sleep(|| unsafe { sleep6(number, epfd, events, count, time, signals, calls::KERNEL_SIGSET, began) }))
    };
    let older = || {
        let (number, time) = calls::older_epoll(timeout, mask);
        made(number, time)
    };
    if filter::avoids(filter::EPOLL_PWAIT2) {
        return older();
    }
    match made(libc::SYS_epoll_pwait2, timeout as usize) {
        Err(error) if error.is_refusal() => older(),
        result => result,
    }
}

/// wait4(2) of the child `pid` in a call that waits, for its status: ECANCELED when the thread was cancelled.
pub fn await_child(pid: c_int) -> Result<c_int> {
    let mut status = 0;
    loop {
        let (place, began) = (&raw mut status as usize, thread::handled());
        // SAFETY: as for those of `calls`.
        match check(cancel::sleep(|| unsafe { sleep6(libc::SYS_wait4, pid as usize, place, 0, 0, 0, 0, began) })) {
            Err(Errno(libc::EINTR)) => {}
            result => return result.map(|_| status),
        }
    }
}

/// nanosleep(2) in a call that waits: ECANCELED when the thread was cancelled, EINTR after a handler of the program.
pub fn nap(ns: i64) -> Result<()> {
    let pause = timespec { tv_sec: 0, tv_nsec: ns };
    let (pause, began) = (&raw const pause as usize, thread::handled());
    // SAFETY: as for those of `calls`.
    check(cancel::sleep(|| unsafe { sleep6(libc::SYS_nanosleep, pause, 0, 0, 0, 0, 0, began) })).map(|_| ())
}
