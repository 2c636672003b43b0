//! Options whose usual values the kernel takes as they are: these are set without a probe, and so where no descriptor is left. Servers
//! set several of them on each connection (redis and PostgreSQL the times of keepalive, Erlang those of IP), and a probe costs five
//! system calls.
//!
//! Any other value is the probe's, which knows what becomes of it, or the error.

use shunt_stream::options::limits::NO_TIME;
use shunt_stream::socket::stored::LONGEST;
use shunt_sys::libc::{self, c_int, linger, socklen_t, timeval, IPPROTO_IP, IPPROTO_TCP, SOL_SOCKET};
use shunt_sys::{user, Result};

/// MAX_TCP_KEEPIDLE, and as many for TCP_KEEPINTVL; MAX_TCP_KEEPCNT (net/tcp.h).
const LONGEST_KEEP: c_int = 32_767;
const MOST_PROBES: c_int = 127;

/// Seconds that no kernel cuts, whatever its clock ticks in.
const SECONDS: u64 = 1 << 16;

/// What getsockopt(2) would tell when the option was set to the `length` bytes at `data` (`do_tcp_setsockopt`, `do_ip_setsockopt`,
/// `sk_setsockopt`): bytes, and how many. `None`: a probe is to be asked.
///
/// # Safety
/// `data` may be any address that is not ours. Errors: EFAULT.
pub(crate) unsafe fn as_given(
    level: c_int,
    name: c_int,
    data: *const u8,
    length: socklen_t,
) -> Result<Option<([u8; LONGEST], usize)>> {
    let long_enough = |size: usize| length as i32 >= size as i32;
    // SAFETY: as above.
    unsafe {
        Ok(match (level, name) {
            (SOL_SOCKET, libc::SO_LINGER) if long_enough(size_of::<linger>()) => {
                let linger { l_onoff, l_linger } = user::read(data.cast::<linger>())?;
                let (on, time) = (l_onoff != 0, if l_onoff != 0 { l_linger } else { 0 });
                ((time as u32 as u64) < SECONDS).then(|| of_integers(&[on as c_int, time]))
            }
            (SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) if long_enough(size_of::<timeval>()) => {
                let timeval { tv_sec, tv_usec } = user::read(data.cast::<timeval>())?;
                if tv_sec < 0 && (0..1_000_000).contains(&tv_usec) {
                    return Ok(Some((NO_TIME, LONGEST)));
                }
                (tv_usec == 0 && (tv_sec as u64) < SECONDS).then(|| of_integers(&[tv_sec as c_int, 0, 0, 0]))
            }
            (SOL_SOCKET | IPPROTO_TCP | IPPROTO_IP, _) if of_one_integer(level, name) && long_enough(size_of::<c_int>()) => {
                let value = user::read(data.cast::<c_int>())?;
                kept(level, name, value).map(|kept| of_integers(&[kept]))
            }
            _ => None,
        })
    }
}

fn of_one_integer(level: c_int, name: c_int) -> bool {
    match level {
        SOL_SOCKET => matches!(name, libc::SO_OOBINLINE | libc::SO_PRIORITY),
        IPPROTO_IP => matches!(name, libc::IP_TTL | libc::IP_RECVTTL | libc::IP_RECVTOS),
        _ => matches!(
            name,
            libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT
                | libc::TCP_USER_TIMEOUT
                | libc::TCP_NOTSENT_LOWAT
                | libc::TCP_QUICKACK
        ),
    }
}

/// What the kernel keeps of `value`, where nothing is to be judged.
fn kept(level: c_int, name: c_int, value: c_int) -> Option<c_int> {
    let taken = match (level, name) {
        // More is for the privileged.
        (SOL_SOCKET, libc::SO_PRIORITY) => (0..=6).contains(&value),
        (IPPROTO_IP, libc::IP_TTL) => (1..=255).contains(&value),
        (SOL_SOCKET | IPPROTO_IP, _) => return Some((value != 0) as c_int),
        (_, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL) => (1..=LONGEST_KEEP).contains(&value),
        (_, libc::TCP_KEEPCNT) => (1..=MOST_PROBES).contains(&value),
        (_, libc::TCP_USER_TIMEOUT) => value >= 0,
        // Others have to do with segments that wait for their acknowledgement.
        (_, libc::TCP_QUICKACK) => matches!(value, 0 | 1),
        _ => true,
    };
    taken.then_some(value)
}

fn of_integers(integers: &[c_int]) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    for (place, integer) in bytes.chunks_exact_mut(size_of::<c_int>()).zip(integers) {
        place.copy_from_slice(&integer.to_ne_bytes());
    }
    (bytes, size_of_val(integers))
}
