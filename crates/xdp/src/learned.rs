//! What a process has learned of servers, its own and others: connections that end after a few messages do not pay for being taken and given back.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Turns in which something moved, after which a connection has paid.
pub const PAID: u32 = 128;
/// So many in a row that did not pay leave the next ones to the kernel.
const IN_A_ROW: u32 = 16;
/// After so long (ns) the next ones are taken all the same, to see, until so many of them did not pay: more than one, as the first connection of
/// a program is often one that asks for little.
const PAUSE: u64 = 2_000_000_000;
const TRIES: u32 = 4;

/// Servers that are remembered; one that falls upon another's place takes it.
pub const SERVERS: usize = 64;

/// What is known of one; zeros know nothing.
#[derive(Default)]
pub struct Server {
    name: AtomicU32,
    in_a_row: AtomicU32,
    /// When some are taken to see.
    again: AtomicU64,
}

/// The place of the server at this address, and its name there.
pub fn place(ip: &[u8; 16], port: u16) -> (usize, u32) {
    let sum = ip.iter().fold(u32::from(port), |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    (sum as usize % SERVERS, sum)
}

impl Server {
    /// Whether the next connection with the server of that name is to be taken. One of which nothing is known pays if it was `asked` for.
    pub fn pays(&self, name: u32, now: u64, asked: bool) -> bool {
        if self.name.swap(name, Relaxed) != name {
            self.in_a_row.store(if asked { 0 } else { IN_A_ROW }, Relaxed);
        }
        let again = self.again.load(Relaxed);
        let does_not = self.in_a_row.load(Relaxed) >= IN_A_ROW;
        if does_not && now >= again && self.again.compare_exchange(again, now + PAUSE, Relaxed, Relaxed).is_ok() {
            self.in_a_row.store(IN_A_ROW - TRIES, Relaxed);
            return true;
        }
        !does_not
    }

    /// A connection has paid, or has not.
    pub fn learn(&self, has_paid: bool) {
        let count = if has_paid { 0 } else { (self.in_a_row.load(Relaxed) + 1).min(IN_A_ROW) };
        self.in_a_row.store(count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ones_in_a_row_leave_the_next_to_the_kernel_but_for_some_in_a_while() {
        let server = Server::default();
        let pays = |now| server.pays(1, now, true);
        let some_are_short = |count| (0..count).for_each(|_| server.learn(false));
        for _ in 0..IN_A_ROW {
            assert!(pays(5));
            server.learn(false);
        }
        for now in [PAUSE, 2 * PAUSE] {
            assert!(pays(now) && pays(now + 1), "all until some have ended");
            some_are_short(TRIES);
            assert!(!pays(now + 1) && !pays(now + PAUSE - 1));
        }
        assert!(pays(3 * PAUSE));
        server.learn(true);
        some_are_short(IN_A_ROW - 1);
        assert!(pays(3 * PAUSE + 1));
        some_are_short(1);
        assert!(!pays(3 * PAUSE + 2) && server.pays(2, 3 * PAUSE + 2, true), "another server's");
    }

    #[test]
    fn servers_that_nobody_asked_for_are_tried_until_one_connection_has_paid() {
        let server = Server::default();
        assert!(server.pays(1, 5, false));
        (0..TRIES).for_each(|_| server.learn(false));
        assert!(!server.pays(1, 6, false) && !server.pays(1, PAUSE, false) && server.pays(1, PAUSE + 5, false));
        server.learn(true);
        (1..IN_A_ROW).for_each(|_| server.learn(false));
        assert!(server.pays(1, PAUSE + 6, false));
        server.learn(false);
        assert!(!server.pays(1, PAUSE + 7, false) && !server.pays(2, PAUSE + 7, false));
    }
}
