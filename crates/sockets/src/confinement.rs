//! Programs that confine themselves: sshd's half that talks to strangers gives up files and descriptors by limits, and
//! then has a filter kill it for every system call but the few that it names. Bells and barriers are not among those, and
//! where no descriptor can be made any more, no connection can become the kernel's. So its connections do before.

use crate::{carried, table};
use shunt_sys::libc::{self, rlimit};
use shunt_sys::{calls, user};

/// What sshd leaves itself: one descriptor below the limit, for poll's sake.
const FEW: u64 = 1;

/// Before `setrlimit(resource, limit)`: connections become a carrier's if the limit takes descriptors away from a program
/// that may write no files either. A connection for which no carrier can be made stays what it is.
///
/// # Safety
/// `limit` may be any address that is not ours.
pub unsafe fn before_limit(resource: i32, limit: *const rlimit) {
    if resource != libc::RLIMIT_NOFILE as i32 {
        return;
    }
    // SAFETY: the caller's limits, which may fault: that is the kernel's to say.
    let Ok(wanted) = (unsafe { user::read(limit) }) else { return };
    let mut files = libc::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    if wanted.rlim_max > FEW
        || calls::prlimit(0, libc::RLIMIT_FSIZE, core::ptr::null(), &mut files).is_err()
        || files.rlim_max != 0
    {
        return;
    }
    for fd in 0..table::high_water() {
        if let Some(socket) = table::stream(fd) {
            let _ = carried::carry(fd, socket);
        }
    }
}
