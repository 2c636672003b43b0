//! Which peers are trusted: those that could read and write this process's memory anyway.

use shunt_sys::{calls, libc, Errno};

/// Whether this process may inspect process `pid` (ptrace(2), "Ptrace access mode checking"): asked by process_vm_readv(2) of a
/// byte that is never mapped, which is refused with another error than it fails with.
///
/// Both sides ask, and tell each other: trust is of one that can change me, which only the other can find out.
pub fn may_inspect(pid: i32) -> bool {
    let mut byte = 0u8;
    let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let there = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 1 };
    pid > 0 && calls::process_vm_readv(pid, &here, 1, &there, 1, 0) == Err(Errno(libc::EFAULT))
}
