//! Ending a server from any thread, and the bells by which its threads wake each other.

use crate::forks;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Ends a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(pub(super) Arc<Stop>);

#[derive(Debug)]
pub(super) struct Stop {
    pub(super) stopped: AtomicBool,
    /// An eventfd that stays readable.
    pub(super) bell: OwnedFd,
    forks: u32,
}

pub(super) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and of no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(super) fn ring(bell: &OwnedFd) {
    // SAFETY: eight bytes.
    unsafe { libc::write(bell.as_raw_fd(), 1u64.to_ne_bytes().as_ptr().cast(), 8) };
}

impl Stopper {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Stop { stopped: AtomicBool::new(false), bell: eventfd()?, forks: forks::watch() })))
    }

    /// Whether this process is a child of the server's.
    pub(super) fn is_parents(&self) -> bool {
        self.0.forks != forks::number()
    }

    /// Callers are told that the server is gone; [`Server::run`](crate::Server::run) returns.
    pub fn stop(&self) {
        if self.is_parents() {
            return; // the server is not here, and its bell is its own
        }
        self.0.stopped.store(true, Ordering::SeqCst);
        ring(&self.0.bell);
    }
}
