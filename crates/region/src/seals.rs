//! Files whose pages a reader can rely on.

use crate::limit::Limit;
use shunt_sys::memory_file::{self, SIZE_SEALS, WRITE_SEALS};
use shunt_sys::{calls, libc};

/// A process that maps it from now on can read it, whatever its descriptor says.
const READ_ONLY: i32 = libc::F_SEAL_FUTURE_WRITE;

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
    if trusted {
        return memory_file::size(fd).map_err(|_| Limit::Unsealed);
    }
    match memory_file::sealed(fd, SIZE_SEALS) {
        Ok((size, seals)) if seals & WRITE_SEALS != 0 => Ok(size),
        _ => Err(Limit::Unsealed),
    }
}
