//! Forking the keeper: twice, as a carrier, so that it is nobody's child.

use super::home::Home;
use super::keeper;
use crate::carrier::{self, shed};
use crate::process;
use shunt_sys::libc;
use shunt_sys::{calls, Errno, Result};

const ALL_SIGNALS: u64 = u64::MAX;

/// Forks the keeper of `home`, which is told things over `control`.
///
/// Errors: EAGAIN (RLIMIT_NPROC, no memory).
pub fn keeper(home: &'static Home, control: i32) -> Result<()> {
    // A handler in the copy would be the program's code.
    let mut mask = 0u64;
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &ALL_SIGNALS, &mut mask, 8);
    process::before_fork();
    let child = carrier::copy();
    if child == 0 {
        let grandchild = carrier::copy();
        if grandchild == 0 {
            begin(home, control);
        }
        carrier::exit(i32::from(grandchild < 0));
    }
    let born = child > 0 && carrier::waited(child as i32);
    if born {
        process::after_fork_parent();
    } else {
        process::fork_failed();
    }
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
    if born {
        Ok(())
    } else {
        Err(Errno(libc::EAGAIN))
    }
}

fn begin(home: &'static Home, control: i32) -> ! {
    // SAFETY: a plain call.
    unsafe { shunt_sys::syscall!(libc::SYS_setsid) };
    process::after_fork_child();
    shed::name(c"shunt-keeper");
    allow_descriptors();
    // It owns none of the program's streams, which the fork had counted.
    let _ = shed::table(&[]);
    crate::report::begin_anew();
    let descriptors = home.station.descriptors();
    let kept = |fd: i32| fd == control || fd == crate::report::descriptor() || descriptors.contains(&fd);
    shed::all_but(kept);
    home.station.set_keeper();
    keeper::run(home, control)
}

/// Two for each stream: more than the program may have allowed itself. It runs no other program.
fn allow_descriptors() {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    if calls::prlimit(0, libc::RLIMIT_NOFILE, core::ptr::null(), &mut limit).is_ok() {
        limit.rlim_cur = limit.rlim_max;
        let _ = calls::prlimit(0, libc::RLIMIT_NOFILE, &limit, core::ptr::null_mut());
    }
}
