//! Filters of system calls that were there before the library could ask them: whether they refuse what connections need.

use crate::process::kernel_only;
use shunt_segment::reason::Reason;
use shunt_sys::{libc, syscall};

/// Calls on descriptors that connections cannot do without, each of which fails in one way where there is none.
const ON_DESCRIPTORS: [i64; 13] = [
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_fcntl,
    libc::SYS_dup3,
    libc::SYS_ftruncate,
    libc::SYS_fstat,
    libc::SYS_pread64,
];

/// Before this process first connects: a filter from before it began, which the library could not read, may refuse what it needs.
#[inline]
pub fn look() {
    if !kernel_only::has_looked() {
        look_again();
    }
}

/// Before it listens: one that was installed past the library may have come since.
#[cold]
pub fn look_again() {
    kernel_only::note_look();
    if kernel_only::keeps() {
        return; // a filter that is known may kill for them
    }
    // SAFETY: there is no such descriptor, and nothing lies at the addresses.
    let refused = |number: &i64| unsafe { syscall!(*number, -1i32, 0, 0, 0, 0, 0) } != -(libc::EBADF as isize);
    if ON_DESCRIPTORS.iter().any(refused) {
        kernel_only::begin(Reason::SystemCallFilter);
    }
}
