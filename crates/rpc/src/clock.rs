//! The clock of deadlines.

use std::time::{Duration, Instant};

/// Nanoseconds of a duration, however long.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// So much later; a duration that no clock has is a century.
pub(crate) fn later(duration: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    let now = Instant::now();
    now.checked_add(duration).unwrap_or(now + CENTURY)
}

/// CLOCK_MONOTONIC, in nanoseconds: what both sides of a call on one host have.
pub(crate) fn now() -> u64 {
    // SAFETY: plain data.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: room for one.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
