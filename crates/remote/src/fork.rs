//! Forking the keeper: twice, as a relay is, so that it is no child of the program's.

use super::driving::PROGRESS;
use super::keeper;
use super::local_station::{self, LocalStation};
use core::sync::atomic::Ordering;
use shunt_sys::libc::{self, MSG_DONTWAIT, MSG_NOSIGNAL, POLLIN};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::process::helper;
use shunt_table::process::helper::ALL_SIGNALS;
use shunt_table::upcalls::forks;

/// How long to wait until the keeper has closed what it inherited (ns). What is closed later is open for longer than the program
/// thinks, and no more than that.
const SHEDDING: u64 = 1_000_000_000;

/// Forks the keeper of `local`, which is told things over `control`, whose other end is `ours`.
///
/// The keeper takes nothing of the program's along, so nothing counts as shared because of it.
///
/// Errors: EAGAIN (RLIMIT_NPROC, no memory).
pub fn keeper(local: &'static LocalStation, ours: i32, control: i32) -> Result<()> {
    // A handler in the copy would be the program's code.
    let mut mask = 0u64;
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &ALL_SIGNALS, &mut mask, 8);
    forks::before_own();
    let child = helper::copy();
    if child == 0 {
        let grandchild = helper::copy();
        if grandchild == 0 {
            begin(local, control);
        }
        helper::exit(i32::from(grandchild < 0));
    }
    let born = child > 0 && helper::waited(child as i32);
    forks::parent_of_own();
    if born {
        await_shedding(ours);
    }
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
    if born {
        Ok(())
    } else {
        Err(Errno(libc::EAGAIN))
    }
}

/// Until the keeper says that it has closed everything; or until it is gone, or for a moment.
fn await_shedding(ours: i32) {
    let deadline = clock::monotonic_ns() + SHEDDING;
    let mut left = SHEDDING;
    while left > 0 && matches!(calls::poll_one(ours, POLLIN, left as i64), Err(Errno(libc::EINTR))) {
        left = deadline.saturating_sub(clock::monotonic_ns());
    }
    let mut byte = 0u8;
    let _ = calls::recvfrom(ours, (&raw mut byte).cast(), 1, MSG_DONTWAIT, core::ptr::null_mut(), core::ptr::null_mut());
}

fn begin(local: &'static LocalStation, control: i32) -> ! {
    // SAFETY: a plain call.
    unsafe { shunt_sys::syscall!(libc::SYS_setsid) };
    forks::child_of_own();
    helper::name(c"shunt-keeper");
    allow_descriptors();
    shunt_table::process::status_page::begin_anew();
    let descriptors = local.station.descriptors();
    let kept = |fd: i32| fd == control || fd == shunt_table::process::status_page::descriptor() || descriptors.contains(&fd);
    helper::all_but(kept);
    let byte = 1u8;
    let _ = calls::sendto(control, (&raw const byte).cast(), 1, MSG_DONTWAIT | MSG_NOSIGNAL, core::ptr::null(), 0);
    local.station.set_keeper();
    keeps(local);
    keeper::run(local, control)
}

/// Two for each stream: more than the program may have allowed itself. It runs no other program.
fn allow_descriptors() {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    if calls::prlimit(0, libc::RLIMIT_NOFILE, core::ptr::null(), &mut limit).is_ok() {
        limit.rlim_cur = limit.rlim_max;
        let _ = calls::prlimit(0, libc::RLIMIT_NOFILE, &limit, core::ptr::null_mut());
    }
}

/// In the keeper: its station, which its maker does not have yet when it forks. Without it no sleeper would be rung for
/// bytes or space that the keeper finds before it has heard of the stream.
fn keeps(local: &'static LocalStation) {
    local.control.store(-1, Ordering::Relaxed); // the keeper does not wake itself
    local_station::be_local(core::ptr::from_ref(local).cast_mut(), Some(&PROGRESS));
}
