//! How long a turn of the loop takes. A close(2) of what a stranger passed may wait, SO_LINGER for one; a signal ends such a wait (socket(7)). One comes every
//! few milliseconds of a turn, and does nothing but count.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

/// How long one thing may wait within a turn (us).
const TICK: libc::suseconds_t = 50_000;
/// Ticks after which the process ends, and with it all that it was given: some five seconds.
const MOST: u32 = 100;
/// For how long what held a turn up is not heard (ns), and how many such there are at a time.
const UNHEARD: u64 = 1_000_000_000;
const HOLDERS: usize = 64;

/// Of this turn.
static TICKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn tick(_: libc::c_int) {
    if TICKS.fetch_add(1, Ordering::Relaxed) >= MOST {
        // SAFETY: ends the process, which a handler may.
        unsafe { libc::_exit(1) };
    }
}

/// Has the signal handled; calls that it interrupts are not begun again.
pub fn is_handled() {
    // SAFETY: an action of zeros but for the handler, which calls nothing that a handler may not.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = tick as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
    }
}

/// A turn begins.
pub fn begins() {
    TICKS.store(0, Ordering::Relaxed);
    set(TICK);
}

/// It is over.
pub fn ends() {
    set(0);
}

/// How many there were in this turn.
pub fn ticks() -> u32 {
    TICKS.load(Ordering::Relaxed)
}

fn set(time: libc::suseconds_t) {
    let every = libc::timeval { tv_sec: 0, tv_usec: time };
    let time = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: the kernel reads the structure.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const time, std::ptr::null_mut()) };
}

/// Users and networks that have held a turn up lately.
#[derive(Default)]
pub struct Holders(VecDeque<(u32, u64, u64)>);

impl Holders {
    /// One that has, at `now` (ns).
    pub fn add(&mut self, user: u32, network: u64, now: u64) {
        if self.0.len() >= HOLDERS {
            self.0.pop_front();
        }
        self.0.push_back((user, network, now + UNHEARD));
    }

    /// Whether it has, lately.
    pub fn has(&mut self, user: u32, network: u64, now: u64) -> bool {
        while self.0.front().is_some_and(|(.., until)| *until <= now) {
            self.0.pop_front();
        }
        self.0.iter().any(|(its_user, its_network, _)| (*its_user, *its_network) == (user, network))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_held_a_turn_up_is_unheard_for_a_while() {
        let mut holders = Holders::default();
        holders.add(1, 7, 10);
        assert!(holders.has(1, 7, UNHEARD) && !holders.has(1, 8, UNHEARD) && !holders.has(2, 7, UNHEARD));
        assert!(!holders.has(1, 7, UNHEARD + 10) && holders.0.is_empty());
        (0..1000).for_each(|user| holders.add(user, 7, 10));
        assert!(holders.0.len() == HOLDERS && holders.has(999, 7, 11));
    }
}
