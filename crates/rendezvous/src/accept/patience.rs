//! How long clients may hold a server up that have announced something: their link, or themselves.

use core::sync::atomic::{AtomicU64, Ordering};
use shunt_sys::{calls, clock};
use shunt_table::process::identity;

/// With the clients of which user.
pub struct Patience {
    /// The last user whose client never kept its word, and when (in seconds).
    offended: AtomicU64,
}

impl Patience {
    pub(super) const fn new() -> Patience {
        Patience { offended: AtomicU64::new(0) }
    }

    /// How long accept waits for a client of user `uid`, in ns. Our own user and root could stop this process anyway.
    /// Another user gets a while once; one that abused that gets nothing for a minute.
    pub fn of(&self, uid: u32) -> i64 {
        if identity::is_same_user(uid, calls::geteuid()) || uid == 0 {
            return 1_000_000_000;
        }
        let (offender, when) = {
            let word = self.offended.load(Ordering::Relaxed);
            ((word >> 32) as u32, word as u32 as u64)
        };
        let recent = when != 0 && clock::monotonic_ns() / 1_000_000_000 < when + 60;
        if recent && offender == uid {
            0
        } else {
            200_000_000
        }
    }

    /// A client of this user was waited for in vain.
    pub fn failed(&self, uid: u32) {
        self.offended.store((uid as u64) << 32 | (clock::monotonic_ns() / 1_000_000_000) & 0xffff_ffff, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_was_waited_for_in_vain_gets_no_patience_and_others_keep_theirs() {
        let (patience, [offender, other]) = (Patience::new(), [4_000_000_001, 4_000_000_002]);
        assert_eq!([offender, other].map(|user| patience.of(user)), [200_000_000; 2]);
        patience.failed(offender);
        assert_eq!([offender, other].map(|user| patience.of(user)), [0, 200_000_000]);
    }

    #[test]
    fn the_own_user_and_root_could_stop_the_process_anyway() {
        let patience = Patience::new();
        for user in [0, calls::geteuid()] {
            patience.failed(user);
            assert_eq!(patience.of(user), 1_000_000_000);
        }
    }
}
