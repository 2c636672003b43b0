//! Reservations that are over, while their connections may still come. As soon as there is a SYN, every user of the client's host can
//! read the mark that it shows, and whoever reserved the connection anew would have it: so for a time only the same
//! station may. Where that cannot be remembered any more, nobody's connections are reserved: they are TCP's.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use shunt_am::{config::MILLISECOND, Nanoseconds};

use crate::memory::{Entry, Shared};
use crate::FourTuple;

/// Given up by its client, or lost: a SYN that nobody answers is repeated for 127 s (tcp_syn_retries, tcp(7)).
pub(crate) const NOT_MADE: Nanoseconds = 130_000 * MILLISECOND;
/// Closed by its client, whose SYN is not repeated any more: the connection may be on its way.
pub(crate) const CLOSED: Nanoseconds = 1_000 * MILLISECOND;

/// Those that are remembered.
pub(crate) const SPENT: usize = 256;

/// One of them.
#[repr(C, align(64))]
pub(crate) struct Spent {
    client: [AtomicU64; 2],
    server: [AtomicU64; 2],
    ports: AtomicU32,
    reserved: AtomicU32,
    /// Its peer's tag: another peer at the same place has another one.
    tag: AtomicU64,
    until: AtomicU64,
}

/// The words of a connection's addresses.
fn words(four: &FourTuple) -> ([u64; 4], u32) {
    let ([a, b], [c, d]) = (four.client.words(), four.server.words());
    ([a, b, c, d], u32::from(four.client.port) | u32::from(four.server.port) << 16)
}

impl Spent {
    fn addresses(&self) -> [&AtomicU64; 4] {
        [&self.client[0], &self.client[1], &self.server[0], &self.server[1]]
    }
}

impl Shared {
    /// This reservation is over, unclaimed: for so long its connection is nobody else's.
    pub(crate) fn spend(&self, entry: &Entry, time: Nanoseconds) {
        let now = self.now.load(Relaxed);
        let until = now + time;
        let Some(spent) = self.spent.iter().find(|spent| spent.until.load(Relaxed) <= now) else {
            self.no_more_until.store(until.max(self.no_more_until.load(Relaxed)), Relaxed);
            return;
        };
        let (addresses, ports) = words(&entry.four());
        spent.addresses().into_iter().zip(addresses).for_each(|(word, value)| word.store(value, Relaxed));
        spent.ports.store(ports, Relaxed);
        spent.tag.store(self.peer(entry.peer.load(Relaxed)).map_or(0, |peer| peer.receive.load(Relaxed)), Relaxed);
        spent.until.store(until, Relaxed);
        self.spent_until.store(until.max(self.spent_until.load(Relaxed)), Relaxed);
    }

    /// Whether another peer than that with `tag` had reserved this connection; or may have.
    pub(crate) fn is_spent(&self, four: &FourTuple, tag: u64) -> bool {
        let now = self.now.load(Relaxed);
        if now >= self.spent_until.load(Relaxed) {
            return false;
        }
        let (addresses, ports) = words(four);
        self.spent.iter().any(|spent| {
            spent.until.load(Relaxed) > now
                && spent.ports.load(Relaxed) == ports
                && spent.addresses().into_iter().zip(addresses).all(|(word, value)| word.load(Relaxed) == value)
                && spent.tag.load(Relaxed) != tag
        })
    }
}
