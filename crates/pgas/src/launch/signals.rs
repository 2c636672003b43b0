//! Signals that the launcher takes one by one.

use std::io;
use std::time::Duration;

/// From now on a pipe without a reader is an error of `write` and no signal. Programs that start later get the usual action.
pub(super) fn ignore_broken_pipes() {
    // SAFETY: sets an action that runs no code.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Held back until [`Signals::next`] takes them. Restored when dropped.
pub(super) struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
    /// SIGCHLD was ignored, by which the kernel forgets how children end.
    children_ignored: bool,
}

/// What a signal does here.
fn action(signal: i32) -> libc::sighandler_t {
    // SAFETY: asks only; plain data of ours.
    unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut found);
        found.sa_sigaction
    }
}

impl Signals {
    pub fn hold() -> io::Result<Signals> {
        // SAFETY: plain data of ours.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            // The kernel keeps a signal that is held back even where it is ignored (of `nohup`, or in a script's background).
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
                if action(signal) != libc::SIG_IGN {
                    libc::sigaddset(&mut set, signal);
                }
            }
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            let children_ignored = action(libc::SIGCHLD) == libc::SIG_IGN;
            if children_ignored {
                libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            }
            Ok(Signals { set, before, children_ignored })
        }
    }

    /// Whether a job ends by this signal.
    pub fn ends(signal: i32) -> bool {
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal)
    }

    /// Whether programs start with SIGCHLD ignored, as this one did.
    pub fn children_ignored(&self) -> bool {
        self.children_ignored
    }

    /// The mask that programs get.
    pub fn before(&self) -> libc::sigset_t {
        self.before
    }

    /// The next one; none when the time is over, which is a fifth of a second if nothing else is said.
    pub fn next(&self, limit: Option<Duration>) -> Option<i32> {
        let limit = limit.unwrap_or(Duration::from_millis(200));
        let limit = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        // SAFETY: plain data of ours.
        let signal = unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &limit) };
        (signal > 0).then_some(signal)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: plain data of ours, and an action that runs no code.
        unsafe {
            if self.children_ignored {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}
