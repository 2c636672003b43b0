//! Sleeps that end when the process is stopped and goes on (SIGSTOP, SIGCONT), as calls on a socket with a limit of time do
//! (signal(7)).
//!
//! After a stop ppoll(2) goes on by itself, with the time that is left, which it writes back. Where it cannot write, it gives
//! EINTR (`poll_select_finish` in fs/select.c). So such sleeps name a time in read-only memory; and as it cannot be the time that
//! is left, they go there step by step.

use crate::{calls, clock, sleeping, Errno, Result};
use libc::{pollfd, sigset_t, timespec};

/// A step's unit, 2 to the power of this in ns: 66 us, about what the kernel lets a timer be late.
const UNIT: u32 = 16;

/// Hexadecimal digits of a limit of time in such units.
const DIGITS: usize = 12;

/// Times of one digit: `TIMES[place][digit]`.
static TIMES: [[timespec; 16]; DIGITS] = {
    let mut times = [[timespec { tv_sec: 0, tv_nsec: 0 }; 16]; DIGITS];
    let mut place = 0;
    while place < DIGITS {
        let mut digit = 1;
        while digit <= 15 {
            let ns = (digit as u64) << (UNIT as usize + 4 * place);
            times[place][digit] = timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
            digit += 1;
        }
        place += 1;
    }
    times
};

/// The first step on a way of `ns`, which ends less than a unit late.
fn step(ns: u64) -> &'static timespec {
    let units = ns.div_ceil(1 << UNIT).min((1 << (4 * DIGITS)) - 1);
    match units.checked_ilog2() {
        None => &TIMES[0][0],
        Some(bits) => {
            let place = bits as usize / 4;
            &TIMES[place][(units >> (4 * place)) as usize]
        }
    }
}

/// ppoll(2) that sleeps until `deadline` (CLOCK_MONOTONIC, in ns); `began`: see [`crate::sleeping::sleep6`].
///
/// Errors: EINTR also when the process was stopped and continued.
pub fn ppoll_until(set: &mut [pollfd], deadline: u64, mask: *const sigset_t, began: u64) -> Result<usize> {
    loop {
        let left = deadline.saturating_sub(clock::monotonic_ns());
        let time = step(left) as *const timespec;
        let ready = sleeping::ppoll(set.as_mut_ptr(), set.len(), time.cast_mut(), mask, began)?;
        if ready > 0 || left == 0 || clock::monotonic_ns() >= deadline {
            return Ok(ready);
        }
    }
}

/// [`calls::poll_one`] for `time_ns`, whatever handlers run meanwhile.
///
/// # Errors
/// The kernel's, but EINTR.
pub fn poll_one_through(fd: libc::c_int, events: i16, time_ns: i64) -> Result<i16> {
    let until = clock::monotonic_ns().saturating_add(time_ns as u64);
    loop {
        let left = until.saturating_sub(clock::monotonic_ns());
        match calls::poll_one(fd, events, left as i64) {
            Err(Errno(libc::EINTR)) if left > 0 => {}
            Err(Errno(libc::EINTR)) => return Ok(0),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of a way of `ns`, of which none is cut short.
    fn way(mut ns: u64) -> (u64, u32) {
        let (mut gone, mut steps) = (0, 0);
        while ns > 0 {
            let time = step(ns);
            let length = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
            gone += length;
            ns = ns.saturating_sub(length);
            steps += 1;
        }
        (gone, steps)
    }

    #[test]
    fn steps_end_in_time() {
        for ns in [1, 999_999, 1_000_000, 15_000_001, 1_500_000_000, 86_400_000_000_000, 1_000_000_000_000_000_007] {
            let (gone, steps) = way(ns);
            assert!((ns..ns + (1 << UNIT)).contains(&gone) && steps <= DIGITS as u32, "{ns}: {gone} in {steps}");
        }
        assert_eq!(step(0).tv_nsec, 0);
        assert!(step(u64::MAX).tv_sec > 1 << 33);
    }

    #[test]
    fn the_kernel_cannot_write_the_time_back() {
        let time = step(1) as *const timespec;
        // SAFETY: a plain system call: it faults where the memory is read-only.
        let read = unsafe { crate::syscall!(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, time) };
        assert_eq!(read, -(libc::EFAULT as isize));
    }
}
