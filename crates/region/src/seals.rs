//! Files whose pages a reader can rely on.

use crate::limit::Limit;
use shunt_sys::{calls, libc};

/// What memory that is handed to others cannot do any more: change its size, or its seals.
const SIZE_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// F_SEAL_FUTURE_WRITE: a process that maps it from now on can read it, whatever its descriptor says.
const READ_ONLY: i32 = 0x10;

/// Seals a pool that its owner has mapped already.
pub(crate) fn seal(fd: i32, read_only: bool) -> Result<(), Limit> {
    let seals = SIZE_SEALS | if read_only { READ_ONLY } else { 0 };
    calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize).map(|_| ()).map_err(Limit::of)
}

/// Bytes of the file, if an access to a mapping of it can never fault: all of a memfd that cannot shrink, of ordinary pages. What is memory
/// there stays so: seals against writing forbid making holes, too (fallocate(2), FALLOC_FL_PUNCH_HOLE). A `trusted` one need only be memory.
///
/// # Errors
/// [`Limit::Unsealed`].
pub(crate) fn size(fd: i32, trusted: bool) -> Result<usize, Limit> {
    // SAFETY: plain integers.
    let (mut status, mut system): (libc::stat, libc::statfs) = unsafe { core::mem::zeroed() };
    let memory = calls::fstat(fd, &mut status).is_ok()
        && calls::fstatfs(fd, &mut system).is_ok()
        && system.f_type == libc::TMPFS_MAGIC
        && status.st_mode & libc::S_IFMT == libc::S_IFREG;
    let whole = |seals: i32| seals & SIZE_SEALS == SIZE_SEALS && seals & (READ_ONLY | libc::F_SEAL_WRITE) != 0;
    let sealed = || calls::fcntl(fd, libc::F_GET_SEALS, 0).is_ok_and(whole);
    match memory && (trusted || sealed()) {
        true => usize::try_from(status.st_size).map_err(|_| Limit::Unsealed),
        false => Err(Limit::Unsealed),
    }
}
