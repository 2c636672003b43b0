//! Whether a station's address is still its host's: a question to the kernel that is put seldom, and believed when it was answered twice.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use shunt_am::{config::MILLISECOND, Nanoseconds};
use shunt_segment::address::Address;

/// Between two questions: each takes a descriptor for a moment. An address that a link lost, or that is tentative, is often back by then.
const AGAIN: Nanoseconds = 1_000 * MILLISECOND;

/// What a process has been answered.
#[derive(Default)]
pub(crate) struct Presence {
    /// No question before then.
    next: AtomicU64,
    /// It was gone when that was asked last.
    missed: AtomicBool,
}

/// Whether a connection at `own` says anything about the station's address. One of the other family, which the station does not have, says
/// nothing.
pub(crate) fn concerns(here: &Address, own: &Address) -> bool {
    here.ip != own.ip && !here.is_unspecified() && here.as_v4().is_some() == own.as_v4().is_some()
}

impl Presence {
    /// Whether the address is gone, by this answer and the one before.
    pub(crate) fn is_over(&self, now: Nanoseconds, is_gone: impl FnOnce() -> bool) -> bool {
        let next = self.next.load(Relaxed);
        if now < next || self.next.compare_exchange(next, now + AGAIN, Relaxed, Relaxed).is_err() {
            return false;
        }
        let gone = is_gone();
        self.missed.swap(gone, Relaxed) && gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_gone_when_it_was_missed_twice() {
        let presence = Presence::default();
        let mut asked = 0;
        let mut over = |now, gone| {
            presence.is_over(now, || {
                asked += 1;
                gone
            })
        };
        assert!(!over(AGAIN, true), "once");
        assert!(!over(AGAIN + 1, true) && !over(2 * AGAIN - 1, true), "not asked");
        assert!(!over(2 * AGAIN, false), "it is back");
        assert!(!over(3 * AGAIN, true) && over(4 * AGAIN, true));
        assert_eq!(asked, 4);
    }

    #[test]
    fn other_addresses_of_the_family_alone_make_one_ask() {
        let here = Address::v4([10, 0, 0, 1], 7);
        let v6 = Address { ip: [0xfd; 16], port: 0, scope: 0 };
        assert!(concerns(&here, &Address::v4([10, 0, 0, 2], 80)));
        assert!(!concerns(&here, &Address::v4([10, 0, 0, 1], 80)), "its own");
        assert!(!concerns(&here, &v6) && !concerns(&v6, &here));
        assert!(concerns(&v6, &Address { ip: [0xfc; 16], ..v6 }));
        assert!(!concerns(&Address::v4([0; 4], 7), &here), "at any address");
    }
}
