//! select(2) and pselect(2) in terms of poll(2).

use crate::poll::Query;
use crate::scratch::Scratch;
use shunt_sys::libc::{self, pollfd, sigset_t, POLLERR, POLLHUP, POLLIN, POLLOUT};
use shunt_sys::{Errno, Result};

/// select(2): fills the sets in, and gives the number of bits that are set.
///
/// # Safety
/// The sets are null or hold `count` bits.
pub unsafe fn select(count: i32, sets: [*mut u64; 3], deadline: u64, mask: *const sigset_t) -> Result<isize> {
    if count < 0 {
        return Err(Errno(libc::EINVAL));
    }
    let count = count as usize;
    let bit = |set: *mut u64, fd: usize| -> bool {
        // SAFETY: promised by the caller.
        !set.is_null() && unsafe { *set.add(fd / 64) } >> (fd % 64) & 1 == 1
    };
    let wanted = |fd: usize| -> i16 {
        let mut events = 0;
        for (set, mask) in sets.iter().zip([POLLIN, POLLOUT, libc::POLLPRI]) {
            if bit(*set, fd) {
                events |= mask;
            }
        }
        events
    };
    let used = (0..count).filter(|fd| wanted(*fd) != 0).count();
    let mut scratch = Scratch::new(used, pollfd { fd: -1, events: 0, revents: 0 })?;
    for (entry, fd) in scratch.items().iter_mut().zip((0..count).filter(|fd| wanted(*fd) != 0)) {
        *entry = pollfd { fd: fd as i32, events: wanted(fd), revents: 0 };
    }
    let entries = &mut scratch.items()[..used];
    Query { entries, deadline, mask }.poll()?;
    if entries.iter().any(|e| e.revents & libc::POLLNVAL != 0) {
        return Err(Errno(libc::EBADF));
    }
    for set in sets.iter().filter(|s| !s.is_null()) {
        for word in 0..count.div_ceil(64) {
            let keep = if (word + 1) * 64 > count { u64::MAX << (count % 64) } else { 0 };
            // SAFETY: promised by the caller; bits from `count` on stay as they are.
            unsafe { *set.add(word) &= keep };
        }
    }
    let mut total = 0;
    // What the kernel's select counts as readable, writable, exceptional (POLLIN_SET and so on in fs/select.c).
    let meaning = [
        libc::POLLRDNORM | libc::POLLRDBAND | POLLIN | POLLHUP | POLLERR,
        libc::POLLWRBAND | libc::POLLWRNORM | POLLOUT | POLLERR,
        libc::POLLPRI,
    ];
    for entry in entries.iter() {
        let fd = entry.fd as usize;
        for ((set, asked), counts) in sets.iter().zip([POLLIN, POLLOUT, libc::POLLPRI]).zip(meaning) {
            if entry.events & asked != 0 && entry.revents & counts != 0 {
                // SAFETY: promised by the caller.
                unsafe { *set.add(fd / 64) |= 1 << (fd % 64) };
                total += 1;
            }
        }
    }
    Ok(total)
}
