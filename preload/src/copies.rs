//! Copies of the process: fork(2) and its kin.
//!
//! The C library runs our handlers (`pthread_atfork`) in fork(3) alone. The others are wrapped here: before each copy the
//! engine marks what will have two owners, behind it the child gets an identity of its own.

use crate::real;
use core::ffi::{c_int, c_void};
use shunt_calls::libc::{self, SIG_SETMASK};
use shunt_sockets::sys::{calls, raw};
use shunt_sockets::{global, private, process};

/// fork(3).
///
/// # Safety
/// As the function itself.
pub unsafe fn fork() -> c_int {
    // SAFETY: passed on; our handlers run inside.
    unsafe {
        if !global::ready() {
            return real::fork();
        }
        let result = real::fork();
        if result < 0 {
            // The C library ran the parent's handler all the same.
            process::fork_had_failed();
        }
        result
    }
}

/// _Fork(3): no handlers of the program's.
///
/// # Safety
/// As the function itself.
pub unsafe fn fork_without_handlers() -> c_int {
    // SAFETY: passed on.
    unsafe {
        if !global::ready() {
            return real::_Fork();
        }
        process::before_fork();
        finish(real::_Fork())
    }
}

fn finish(result: c_int) -> c_int {
    match result {
        0 => process::after_fork_child(),
        1.. => process::after_fork_parent(),
        _ => process::fork_failed(),
    }
    result
}

const ALL_SIGNALS: u64 = u64::MAX;

/// vfork(2). A child in the parent's memory would edit the parent's table, so it gets a copy; the parent waits, as it
/// would, until the child is another program or has ended.
///
/// # Safety
/// As the function itself.
pub unsafe fn vfork() -> c_int {
    // SAFETY: plain calls; the pipe is ours.
    unsafe {
        let mut ends = [-1i32; 2];
        if !global::ready() || calls::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC).is_err() {
            return real::fork();
        }
        let (Ok(reader), Ok(writer)) = (private::keep(ends[0]), private::keep(ends[1])) else { return real::fork() };
        let mut mask = 0u64;
        let _ = calls::sigprocmask(SIG_SETMASK, &ALL_SIGNALS, &mut mask, 8);
        process::before_fork();
        let copied = finish(real::_Fork());
        // glibc before 2.34 has no _Fork.
        let result = if copied < 0 && *crate::__errno_location() == libc::ENOSYS { real::fork() } else { copied };
        if result != 0 {
            private::close(writer);
            let mut byte = 0u8;
            // Ends when the last descriptor of the other end closes: by exec, or with the process.
            while result > 0 && calls::read(reader, (&raw mut byte).cast(), 1) == Err(shunt_sockets::sys::Errno(libc::EINTR)) {}
        }
        private::close(reader);
        let errno = *crate::__errno_location();
        let _ = calls::sigprocmask(SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
        crate::set_errno(errno);
        result
    }
}

/// What a cloned child is to do.
#[repr(C)]
struct Call {
    function: *mut c_void,
    argument: *mut c_void,
}

unsafe extern "C" fn in_child(call: *mut c_void) -> c_int {
    process::after_fork_child();
    // SAFETY: the parent's stack frame, in the child's copy of the memory.
    unsafe {
        let call = &*call.cast::<Call>();
        let function: unsafe extern "C" fn(*mut c_void) -> c_int = core::mem::transmute(call.function);
        function(call.argument)
    }
}

/// clone(2) with a function and a stack. Threads are the C library's own; a child that shares memory and not descriptors,
/// while its parent waits, gets a copy as of vfork.
///
/// # Safety
/// As the function itself.
pub unsafe fn clone(
    function: *mut c_void,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: usize,
    tls: usize,
    child_tid: usize,
) -> c_int {
    let shares = flags & libc::CLONE_VM != 0;
    let copied = !shares || flags & (libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_THREAD) == libc::CLONE_VFORK;
    // SAFETY: passed on.
    unsafe {
        if !global::ready() || !copied || function.is_null() || stack.is_null() {
            return real::clone(function, stack, flags, argument, parent_tid, tls, child_tid);
        }
        let mut call = Call { function, argument };
        process::before_fork();
        let entry = in_child as *const () as *mut c_void;
        let result = real::clone(entry, stack, flags & !libc::CLONE_VM, (&raw mut call).cast(), parent_tid, tls, child_tid);
        finish(result)
    }
}

/// fork by the kernel's own call, with the signal of a child: for a child that only prepares an exec.
///
/// # Safety
/// The child calls nothing of the C library's that needs its thread's number.
pub unsafe fn bare_fork() -> isize {
    process::before_fork();
    // SAFETY: without a stack of its own the child goes on in a copy of this memory.
    let result = unsafe { raw::call6(libc::SYS_clone, libc::SIGCHLD as usize, 0, 0, 0, 0, 0) };
    finish(result as c_int);
    result
}
