//! Sleeping on descriptors.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Sleeps until one of the descriptors is readable, or for so long. True: one is.
pub(crate) fn readable(descriptors: &[BorrowedFd<'_>], limit: Duration) -> bool {
    let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 2];
    for (poll, descriptor) in polls.iter_mut().zip(descriptors) {
        poll.fd = descriptor.as_raw_fd();
    }
    let limit = libc::timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // SAFETY: as many entries as are said, and a time.
    unsafe { libc::ppoll(polls.as_mut_ptr(), descriptors.len() as u64, &limit, std::ptr::null()) > 0 }
}
