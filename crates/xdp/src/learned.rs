//! What a process has learned of servers, its own and others: connections that end after a few messages do not pay for being taken and given back.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Turns in which something moved, after which a connection has paid.
pub const PAID: u32 = 128;
/// So many in a row that did not pay leave the next ones to the kernel.
const IN_A_ROW: u32 = 8;
/// After so long (ns) so many are taken all the same, to see: more than one, as the first connection of a program is often one that asks for little. Of a server that is
/// new and that nobody asked for all are taken until so many did not pay, since its clients may come all at once, and stay.
const PAUSE: u64 = 2_000_000_000;
const TRIES: u32 = 4;

/// Servers that are remembered; one that falls upon another's place takes it.
pub const SERVERS: usize = 64;

/// What is known of one; zeros know nothing.
#[derive(Default)]
pub struct Server {
    name: AtomicU32,
    in_a_row: AtomicU32,
    /// So many are taken to see.
    tries: AtomicU32,
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
        let is_new = self.name.swap(name, Relaxed) != name;
        if is_new {
            self.in_a_row.store(if asked { 0 } else { IN_A_ROW }, Relaxed);
            self.tries.store(0, Relaxed);
        }
        let again = self.again.load(Relaxed);
        if self.in_a_row.load(Relaxed) < IN_A_ROW {
            return true;
        }
        if now >= again && self.again.compare_exchange(again, now + PAUSE, Relaxed, Relaxed).is_ok() {
            if is_new {
                self.in_a_row.store(IN_A_ROW - TRIES, Relaxed);
                return true;
            }
            self.tries.store(TRIES, Relaxed);
        }
        self.tries.fetch_update(Relaxed, Relaxed, |tries| tries.checked_sub(1)).is_ok()
    }

    /// Whether it is known that the next connection does not pay: asked of each of many short ones, before anything else of them is.
    pub fn does_not_pay(&self, name: u32, now: u64) -> bool {
        let is_short = self.name.load(Relaxed) == name && self.in_a_row.load(Relaxed) >= IN_A_ROW;
        is_short && self.tries.load(Relaxed) == 0 && now < self.again.load(Relaxed)
    }

    /// A connection has paid, or has not.
    pub fn learn(&self, has_paid: bool) {
        let count = if has_paid { 0 } else { (self.in_a_row.load(Relaxed) + 1).min(IN_A_ROW) };
        self.in_a_row.store(count, Relaxed);
        if has_paid {
            self.tries.store(0, Relaxed);
        }
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
            assert!(pays(5) && !server.does_not_pay(1, 5));
            server.learn(false);
        }
        assert!(!server.does_not_pay(1, 5), "as below");
        (0..TRIES).for_each(|_| assert!(pays(5), "as none was taken to see yet"));
        for now in [PAUSE + 5, 2 * PAUSE + 5] {
            assert!(!pays(now - 1));
            // Also where none of them has ended.
            (0..TRIES).for_each(|_| assert!(pays(now)));
            assert!(!pays(now));
            some_are_short(TRIES);
            assert!(!pays(now + 1));
        }
        assert!(pays(3 * PAUSE + 5));
        server.learn(true);
        some_are_short(IN_A_ROW - 1);
        assert!(pays(3 * PAUSE + 6));
        some_are_short(1);
        assert!(server.does_not_pay(1, 3 * PAUSE + 7) && !server.does_not_pay(2, 3 * PAUSE + 7));
        assert!(!pays(3 * PAUSE + 7) && server.pays(2, 3 * PAUSE + 7, true), "another server's");
    }

    #[test]
    fn servers_that_nobody_asked_for_are_tried_until_one_connection_has_paid() {
        let server = Server::default();
        (0..50).for_each(|_| assert!(server.pays(1, 5, false), "those that come at once"));
        (0..TRIES).for_each(|_| server.learn(false));
        assert!(!server.pays(1, 6, false) && !server.pays(1, PAUSE, false) && server.pays(1, PAUSE + 5, false));
        server.learn(true);
        (1..IN_A_ROW).for_each(|_| server.learn(false));
        assert!(server.pays(1, PAUSE + 6, false));
        server.learn(false);
        assert!(!server.pays(1, PAUSE + 7, false) && !server.pays(2, PAUSE + 7, false));
    }
}
