//! Processes of our own, which are forked past the C library and live beside the program: what each of them needs.

use crate::table;
use shunt_sys::{calls, libc};

/// Every signal: blocked while a process of ours is forked, as a handler in the copy would be the program's code.
pub const ALL_SIGNALS: u64 = u64::MAX;

/// fork(2) without any of the C library's doings, and without a signal to the parent at the end.
pub fn copy() -> isize {
    // SAFETY: without a stack of its own the child goes on in a copy of this memory.
    unsafe { shunt_sys::syscall!(libc::SYS_clone, libc::CLONE_UNTRACED, 0, 0, 0, 0) }
}

/// Whether the child ended well.
pub fn waited(child: i32) -> bool {
    shunt_sys::process::reap(child) == Some(0)
}

/// Ends the process.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { shunt_sys::syscall!(libc::SYS_exit_group, status) };
    }
}

/// Names the process, and leaves the giver's directory.
pub fn name(name: &core::ffi::CStr) {
    // SAFETY: the names end with a NUL; plain calls.
    unsafe {
        shunt_sys::syscall!(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr());
        shunt_sys::syscall!(libc::SYS_chdir, c"/".as_ptr());
    }
}

/// Closes every descriptor but those that `kept` knows.
pub fn all_but(kept: impl Fn(i32) -> bool) {
    let mut start = 0;
    for fd in 0..table::high_water().max(1024) {
        if kept(fd) {
            if fd > start {
                let _ = calls::close_range(start as u32, fd as u32 - 1, 0);
            }
            start = fd + 1;
        }
    }
    let _ = calls::close_range(start as u32, u32::MAX, 0);
}

/// Whether the other end of `fd` is reset when no process has this one any more (SO_LINGER, socket(7)).
pub fn dies_by_reset(fd: i32, resets: bool) {
    let linger = libc::linger { l_onoff: i32::from(resets), l_linger: 0 };
    let length = core::mem::size_of::<libc::linger>() as libc::socklen_t;
    let _ = calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), length);
}
