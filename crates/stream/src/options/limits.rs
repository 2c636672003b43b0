//! SO_RCVTIMEO and SO_SNDTIMEO (`sock_set_timeout` and `sock_get_timeout` of net/core/sock.c).
//!
//! A time of zero, or one that is too long for the kernel's clock, is no limit. Negative seconds are no time at all: a call acts as with
//! O_NONBLOCK. getsockopt(2) tells zero of both, so what was given is kept, as [`NO_TIME`], wherever the kernel cannot be asked.

use crate::socket::stored::Entry;
use crate::socket::stored::LONGEST;
use shunt_sys::libc::{self, c_int, socklen_t, timeval, SOL_SOCKET};
use shunt_sys::{clock, user};

/// What [`crate::socket::Socket::receive_timeout`] is where a call has no time at all. No limit that the kernel keeps is as short: it
/// counts in ticks.
pub const AT_ONCE: u64 = 1;

/// The forms of 32-bit programs with 64-bit time; to a 64-bit program they are the same (SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW).
const RECEIVE_NEW: c_int = 66;
const SEND_NEW: c_int = 67;

/// What is kept of negative seconds, and sets a socket of the kernel to the same.
pub const NO_TIME: [u8; LONGEST] = {
    let mut bytes = [0; LONGEST];
    let mut at = 0;
    while at < 8 {
        bytes[at] = 0xff;
        at += 1;
    }
    bytes
};

/// The name under which an option is kept.
pub fn name(level: c_int, name: c_int) -> c_int {
    match (level, name) {
        (SOL_SOCKET, RECEIVE_NEW) => libc::SO_RCVTIMEO,
        (SOL_SOCKET, SEND_NEW) => libc::SO_SNDTIMEO,
        _ => name,
    }
}

/// Whether an option is one of both, under either name.
pub fn is_one(level: c_int, option: c_int) -> bool {
    level == SOL_SOCKET && matches!(name(level, option), libc::SO_RCVTIMEO | libc::SO_SNDTIMEO)
}

/// Whether setsockopt(2) with these arguments, which the kernel takes, says that calls have no time at all.
///
/// # Safety
/// `data` may be any address that is not ours.
pub unsafe fn is_no_time(level: c_int, option: c_int, data: *const u8, length: socklen_t) -> bool {
    // SAFETY: as above.
    is_one(level, option)
        && length as usize >= size_of::<timeval>()
        && unsafe { user::read(data.cast::<i64>()) }.is_ok_and(|s| s < 0)
}

/// Whether that is what is kept of an option.
pub fn is_kept_no_time(entry: &Entry) -> bool {
    is_one(entry.level, entry.name) && entry.bytes() == NO_TIME
}

/// The limit in ns, 0: none.
pub fn of(bytes: &[u8]) -> u64 {
    let (Some(seconds), Some(micros)) = (bytes.first_chunk::<8>(), bytes.get(8..16)) else { return 0 };
    let seconds = i64::from_ne_bytes(*seconds);
    let micros = i64::from_ne_bytes(micros.try_into().unwrap_or([0; 8]));
    if seconds < 0 {
        return AT_ONCE;
    }
    (seconds as u64).saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000)
}

/// When a call ends that begins to wait now; `u64::MAX`: never. One with a limit, however long, is a call with a limit: a signal handler
/// ends it (signal(7)).
pub fn deadline(limit: u64) -> u64 {
    match limit {
        0 => u64::MAX,
        limit => clock::monotonic_ns().saturating_add(limit).min(u64::MAX - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seconds: i64, micros: i64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&seconds.to_ne_bytes());
        bytes[8..].copy_from_slice(&micros.to_ne_bytes());
        bytes
    }

    #[test]
    fn negative_seconds_are_no_time_and_zero_is_no_limit() {
        assert_eq!(of(&bytes(0, 0)), 0);
        assert_eq!(of(&bytes(2, 5)), 2_000_005_000);
        assert_eq!(of(&bytes(-1, 0)), AT_ONCE);
        assert_eq!(of(&bytes(i64::MIN, 999_999)), AT_ONCE);
        assert_eq!(of(&NO_TIME), AT_ONCE);
        assert_eq!(of(&bytes(i64::MAX, 0)), u64::MAX);
        assert_eq!(of(&[0xff; 8]), 0);
    }

    #[test]
    fn a_limit_however_long_is_one() {
        assert_eq!(deadline(0), u64::MAX);
        assert_eq!(deadline(u64::MAX), u64::MAX - 1);
    }
}
