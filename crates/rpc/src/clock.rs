//! The clock of deadlines.

/// CLOCK_MONOTONIC, in nanoseconds: what both sides of a call on one host have.
pub(crate) fn now() -> u64 {
    // SAFETY: plain data.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: room for one.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
