//! What the kernel lets this process do to another.

use shunt_sys::{calls, libc, Errno};

/// Whether this process may inspect process `pid` (ptrace(2), "Ptrace access mode checking"): asked by process_vm_readv(2) of a
/// byte that is never mapped, which is refused with another error than it fails with.
///
/// That is not whether the process may inspect this one: a peer is trusted only where it could change *this* process, which only the peer can
/// find out, and its word is a stranger's.
pub fn may_inspect(pid: i32) -> bool {
    let mut byte = 0u8;
    let here = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let there = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 1 };
    pid > 0 && calls::process_vm_readv(pid, &here, 1, &there, 1, 0) == Err(Errno(libc::EFAULT))
}
