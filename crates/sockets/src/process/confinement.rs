//! Programs that confine themselves: sshd's half that talks to strangers gives up files and descriptors by limits, and
//! then has a filter kill it for every system call but the few that it names. Bells and barriers are not among those, and
//! where no descriptor can be made any more, no connection can become the kernel's. So its connections do before.
//!
//! Dovecot's login processes forbid themselves to fork, accept, and pass each connection on to a program that may be without
//! shunt: Dovecot starts most with an environment of its own. No carrier could be made for it. So their listeners become the
//! kernel's while one still can be, for the clients that wait. So do those of a program that leaves itself fewer descriptors than
//! the taking in of a new client's process needs: that client would be reset.

use crate::handover::carried;
use crate::private;
use crate::table::{self, Kind};
use shunt_sys::libc::{self, rlimit};
use shunt_sys::{calls, user};

/// What sshd leaves itself: one descriptor below the limit, for poll's sake.
const FEW: u64 = 1;

/// Before `setrlimit(resource, limit)`: connections become a carrier's if the limit takes descriptors away from a program
/// that may write no files either, listeners the kernel's if no process can be made any more. A connection for which no carrier
/// can be made stays what it is.
///
/// # Safety
/// `limit` may be any address that is not ours.
pub unsafe fn before_limit(resource: i32, limit: *const rlimit) {
    let forks = resource == libc::RLIMIT_NPROC as i32;
    if !forks && resource != libc::RLIMIT_NOFILE as i32 {
        return;
    }
    // SAFETY: the caller's limits, which may fault: that is the kernel's to say.
    let Ok(wanted) = (unsafe { user::read(limit) }) else { return };
    if forks {
        // The limit does not hold for root (setrlimit(2)). Below it one process counts: this one.
        if wanted.rlim_max <= 1 && calls::geteuid() != 0 {
            leave_listeners();
        }
        return;
    }
    if wanted.rlim_cur > FEW && wanted.rlim_cur < private::ENOUGH {
        leave_listeners();
    }
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

fn leave_listeners() {
    for fd in 0..table::high_water() {
        let word = table::get(fd);
        if let (Kind::Listener, Some(listener)) = (word.kind(), word.socket()) {
            let _ = carried::leave_listener(fd, listener);
        }
    }
}
