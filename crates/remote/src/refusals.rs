//! Servers that refused a stream a moment ago: connections to them bind no port, and no host is asked, until this is over.

use super::reachability::AREA;
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_sys::clock;
use shunt_table::global::SETUP;

/// For how long (ns): one that said so; one whose answer did not come while `connect` could wait.
pub const SAID: u64 = 1_000_000_000;
pub const LATE: u64 = 100_000_000;

/// Why the next connection to `server` is the kernel's.
pub fn of(server: &Address) -> Option<Reason> {
    let now = clock::monotonic_ns();
    let _setup = SETUP.lock()?;
    // SAFETY: the set-up lock is held.
    let found = unsafe { &*AREA.refusals.get() }.iter().find(|(address, _, until)| address == server && *until > now);
    found.map(|(_, reason, _)| *reason)
}

/// Remembers it.
pub fn note(server: &Address, reason: Reason, believed: u64) {
    let Some(_setup) = SETUP.lock() else { return };
    // SAFETY: the set-up lock is held.
    if let Some(oldest) = unsafe { &mut *AREA.refusals.get() }.iter_mut().min_by_key(|(_, _, until)| *until) {
        *oldest = (*server, reason, clock::monotonic_ns() + believed);
    }
}
