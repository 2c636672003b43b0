//! Copies of the process: fork(2) and its kin.
//!
//! The C library runs our handlers (`pthread_atfork`) in fork(3) alone. The others are wrapped here: before each copy the
//! engine marks what will have two owners, behind it the child gets an identity of its own.

use crate::real;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use shunt_calls::libc::{self, SIG_SETMASK};
use shunt_sockets::process;
use shunt_sys::{calls, raw, Errno, Result};
use shunt_table::process::split_fd_tables;
use shunt_table::{global, private};

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

/// A copy of the process, made by `copy` (which gets both ends of a pipe), and one end of a pipe whose writing end no process has but the copy: the parent
/// reads its end when the copy has become another program or has ended. The lock over forks is held from the making of the pipe
/// until the parent has closed the writing end, so no child of another thread's gets it. Errors: no descriptors.
///
/// # Safety
/// `copy` forks.
pub unsafe fn awaited(copy: impl FnOnce(i32, i32) -> c_int) -> Result<(c_int, i32)> {
    process::before_fork();
    let (reader, writer) = match pipe() {
        Ok(ends) => ends,
        Err(error) => {
            process::fork_failed();
            return Err(error);
        }
    };
    let result = copy(reader, writer);
    if result == 0 {
        begin_awaited(reader, writer);
        return Ok((0, writer));
    }
    private::close(writer);
    Ok((finish(result), reader))
}

/// In the copy.
fn begin_awaited(reader: i32, writer: i32) {
    process::after_fork_child();
    private::close(reader);
    process::awaited().store(writer, Ordering::Relaxed);
}

/// In the parent: returns when copy `child` (if one was made) is another program or has ended.
fn await_end(child: c_int, reader: i32) {
    let mut byte = 0u8;
    while child > 0 && calls::read(reader, (&raw mut byte).cast(), 1) == Err(Errno(libc::EINTR)) {}
    private::close(reader);
}

/// A pipe of ours: its reading and its writing end.
fn pipe() -> Result<(i32, i32)> {
    let mut ends = [-1i32; 2];
    calls::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC)?;
    let reader = private::keep(ends[0]).inspect_err(|_| private::close(ends[1]))?;
    let writer = private::keep(ends[1]).inspect_err(|_| private::close(reader))?;
    Ok((reader, writer))
}

/// vfork(2). A child in the parent's memory would edit the parent's table, so it gets a copy; the parent waits, as it
/// would, until the child is another program or has ended.
///
/// # Safety
/// As the function itself.
pub unsafe fn vfork() -> c_int {
    // SAFETY: plain calls; the pipe is ours.
    unsafe {
        if !global::ready() {
            return real::fork();
        }
        let mut mask = 0u64;
        let _ = calls::sigprocmask(SIG_SETMASK, &ALL_SIGNALS, &mut mask, 8);
        let result = match awaited(|_, _| real::_Fork()) {
            Ok((0, _)) => 0,
            // glibc before 2.34 has no _Fork.
            Ok((-1, reader)) if crate::errno::errno() == libc::ENOSYS => {
                private::close(reader);
                real::fork()
            }
            Ok((result, reader)) => {
                await_end(result, reader);
                result
            }
            Err(_) => real::fork(),
        };
        let errno = crate::errno::errno();
        let _ = calls::sigprocmask(SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
        crate::errno::set_errno(errno);
        result
    }
}

/// What a cloned child is to do, and the pipe at which its parent waits for its end, or -1.
#[repr(C)]
struct Call {
    function: *mut c_void,
    argument: *mut c_void,
    pipe: [i32; 2],
}

unsafe extern "C" fn in_child(call: *mut c_void) -> c_int {
    // SAFETY: the parent's stack frame, in the child's copy of the memory.
    unsafe {
        let call = &*call.cast::<Call>();
        begin_awaited(call.pipe[0], call.pipe[1]);
        let function: unsafe extern "C" fn(*mut c_void) -> c_int = core::mem::transmute(call.function);
        function(call.argument)
    }
}

/// What a copy of ours cannot share with its parent: descriptors, of which both have a table of their own; and, as handlers belong to
/// the memory, these with it.
pub fn unshared(flags: u64) -> u64 {
    let memory = (libc::CLONE_VM | libc::CLONE_SIGHAND) as u64;
    flags & !(libc::CLONE_FILES as u64) & !(if flags & libc::CLONE_VM as u64 != 0 { memory } else { 0 })
}

/// clone(2) with a function and a stack. Threads are the C library's own; a child that would share memory and not descriptors gets
/// a copy as of vfork if its parent waits, or if there are connections: the two would edit one table for two sets of numbers.
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
    let splits = shares && flags & (libc::CLONE_FILES | libc::CLONE_THREAD) == 0;
    let waits = flags & libc::CLONE_VFORK != 0;
    if splits {
        shunt_pipes::kept_pipes::settle_all();
    }
    let parting = if global::ready() && splits && !waits { split_fd_tables::begin() } else { None };
    let copied = global::ready() && (!shares || (splits && parting.is_none()));
    // SAFETY: passed on.
    unsafe {
        if !copied || function.is_null() || stack.is_null() {
            let result = real::clone(function, stack, flags, argument, parent_tid, tls, child_tid);
            if let (1.., Some(parting)) = (result, parting) {
                parting.done();
            }
            return result;
        }
        let copy = |flags: c_int, pipe: [i32; 2]| {
            let mut call = Call { function, argument, pipe };
            let entry = in_child as *const () as *mut c_void;
            real::clone(entry, stack, unshared(flags as u32 as u64) as c_int, (&raw mut call).cast(), parent_tid, tls, child_tid)
        };
        // The kernel would keep the parent, with the lock over forks, until the child has ended.
        if waits {
            if let Ok((result, reader)) = awaited(|reader, writer| copy(flags & !libc::CLONE_VFORK, [reader, writer])) {
                let errno = crate::errno::errno();
                await_end(result, reader);
                crate::errno::set_errno(errno);
                return result;
            }
        }
        process::before_fork();
        finish(copy(flags, [-1; 2]))
    }
}

/// fork by the kernel's own call, with the signal of a child: for a child that only prepares an exec. As [`awaited`].
///
/// # Safety
/// The child calls nothing of the C library's that needs its thread's number.
pub unsafe fn bare_fork() -> Result<(c_int, i32)> {
    // SAFETY: without a stack of its own the child goes on in a copy of this memory.
    unsafe { awaited(|_, _| raw::call6(libc::SYS_clone, libc::SIGCHLD as usize, 0, 0, 0, 0, 0) as c_int) }
}
