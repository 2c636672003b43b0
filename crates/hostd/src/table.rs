//! Half-open claims: one end of a TCP connection that waits for the other. No socket, no clock.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{HashSet, VecDeque};

/// How much there may be at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections of ends, and so claims.
    pub all: usize,
    /// Of those, of one user.
    pub of_user: usize,
    /// Claims of one network namespace.
    pub of_network: usize,
    /// How long an end may take to say something, and its claim waits for the other half (ns).
    pub patience: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { all: 16_384, of_user: 8192, of_network: 2048, patience: 100_000_000 }
    }
}

/// Which end of its connection a socket is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that connected.
    Client,
    /// The one that accepted.
    Server,
}

/// Sequence numbers of a socket (RFC 9293, 3.3.1): SND.NXT with all that was written, and RCV.NXT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Numbers {
    /// Of the next byte that is written.
    pub sends: u32,
    /// Of the next byte that comes.
    pub expects: u32,
}

/// What a claim came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// The other half is not there yet.
    Waits,
    /// The claim with this number was the other half; it waits no more.
    Meets(u32),
    /// The claim with this number is of the same side, and neither is believed; it waits no more.
    Ambiguous(u32),
    /// Such a connection was claimed before, and is not introduced again: one of the two claims is false.
    Spent,
    /// There is no room.
    Full,
}

/// All claims. Its memory is taken when it is made.
pub struct Table {
    limits: Limits,
    /// By the client's numbers: the claim's number and side.
    claims: HashMap<Numbers, (u32, Side)>,
    /// The client's numbers of those that were introduced or ambiguous, as many as there may be claims: the newest are behind.
    spent: HashSet<Numbers>,
    order: VecDeque<Numbers>,
}

impl Table {
    /// An empty one.
    pub fn new(limits: Limits) -> Table {
        // Twice the room: the map then cleans what was removed in its place, and never grows.
        let (claims, spent) = (HashMap::with_capacity(2 * limits.all), HashSet::with_capacity(2 * limits.all));
        Table { limits, claims, spent, order: VecDeque::with_capacity(limits.all) }
    }

    /// An end that claims this later is told that another one did.
    fn spend(&mut self, of_client: Numbers) {
        if self.order.len() >= self.limits.all.max(1) {
            if let Some(oldest) = self.order.pop_front() {
                self.spent.remove(&oldest);
            }
        }
        if self.spent.insert(of_client) {
            self.order.push_back(of_client);
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.claims.len()
    }

    /// The end with this number holds a socket with these sequence numbers.
    pub fn claim(&mut self, number: u32, side: Side, numbers: Numbers) -> Came {
        let is_full = self.claims.len() >= self.limits.all;
        let key = of_client(side, numbers);
        if self.spent.contains(&key) {
            return Came::Spent;
        }
        match self.claims.entry(key) {
            Entry::Occupied(found) => {
                let (other, its) = found.remove();
                self.spend(key);
                match its != side {
                    true => Came::Meets(other),
                    false => Came::Ambiguous(other),
                }
            }
            Entry::Vacant(_) if is_full => Came::Full,
            Entry::Vacant(place) => {
                place.insert((number, side));
                Came::Waits
            }
        }
    }

    /// The end with this number waits no more.
    pub fn forget(&mut self, number: u32, side: Side, numbers: Numbers) {
        let key = of_client(side, numbers);
        if self.claims.get(&key) == Some(&(number, side)) {
            self.claims.remove(&key);
        }
    }
}

/// The numbers of the connection's client.
fn of_client(side: Side, numbers: Numbers) -> Numbers {
    match side {
        Side::Client => numbers,
        Side::Server => Numbers { sends: numbers.expects, expects: numbers.sends },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(sends: u32, expects: u32) -> Numbers {
        Numbers { sends, expects }
    }

    #[test]
    fn the_other_half_is_the_one_with_the_same_numbers_crosswise() {
        let mut table = Table::new(Limits::default());
        assert_eq!(table.claim(1, Side::Client, numbers(10, 20)), Came::Waits);
        assert_eq!(table.claim(2, Side::Server, numbers(10, 20)), Came::Waits, "the same, not crosswise");
        assert_eq!(table.claim(3, Side::Server, numbers(20, 11)), Came::Waits);
        assert_eq!(table.claim(4, Side::Server, numbers(20, 10)), Came::Meets(1));
        assert_eq!(table.claim(6, Side::Client, numbers(11, 20)), Came::Meets(3), "whichever comes first");
        assert_eq!(table.waiting(), 1);
    }

    /// A false end that came first has taken the place of a true one, which must not go on as if nobody had come.
    #[test]
    fn a_connection_is_claimed_once() {
        let mut table = Table::new(Limits { all: 3, ..Limits::default() });
        assert_eq!(table.claim(1, Side::Client, numbers(10, 20)), Came::Waits);
        assert_eq!(table.claim(2, Side::Server, numbers(20, 10)), Came::Meets(1));
        for side in [Side::Client, Side::Server] {
            let numbers = if side == Side::Client { numbers(10, 20) } else { numbers(20, 10) };
            assert_eq!(table.claim(3, side, numbers), Came::Spent);
        }
        assert_eq!(table.claim(4, Side::Server, numbers(21, 11)), Came::Waits);
        assert_eq!(table.claim(5, Side::Server, numbers(21, 11)), Came::Ambiguous(4));
        assert_eq!(table.claim(6, Side::Client, numbers(11, 21)), Came::Spent);
        // As many as there may be claims are known, the newest ones.
        for other in 30..33 {
            assert_eq!(table.claim(7, Side::Client, numbers(other, 22)), Came::Waits);
            assert_eq!(table.claim(8, Side::Server, numbers(22, other)), Came::Meets(7));
        }
        assert_eq!(table.claim(9, Side::Client, numbers(10, 20)), Came::Waits);
        assert!(table.spent.len() == 3 && table.order.len() == 3);
    }

    #[test]
    fn two_of_one_side_are_both_refused() {
        for side in [Side::Client, Side::Server] {
            let mut table = Table::new(Limits::default());
            assert_eq!(table.claim(1, side, numbers(10, 20)), Came::Waits);
            assert_eq!(table.claim(2, side, numbers(10, 20)), Came::Ambiguous(1));
            assert_eq!(table.waiting(), 0);
        }
    }

    #[test]
    fn what_waits_no_more_is_met_by_nobody() {
        let mut table = Table::new(Limits::default());
        assert_eq!(table.claim(1, Side::Client, numbers(10, 20)), Came::Waits);
        table.forget(2, Side::Client, numbers(10, 20));
        assert_eq!(table.waiting(), 1, "another's");
        table.forget(1, Side::Client, numbers(10, 20));
        assert_eq!(table.claim(3, Side::Server, numbers(20, 10)), Came::Waits);
    }

    /// Ten thousand that wait, and as many more that find no room, take no memory that was not there.
    #[test]
    fn ten_thousand_claims_have_their_room_from_the_beginning() {
        let mut table = Table::new(Limits { all: 10_000, ..Limits::default() });
        let most = table.claims.capacity();
        let entry = size_of::<(Numbers, (u32, Side))>() + 1;
        assert!(most * entry < 64 * 16_384, "{most} entries of {entry} bytes");
        for turn in 0..5 {
            for i in 0..20_000 {
                let wanted = if i < 10_000 { Came::Waits } else { Came::Full };
                assert_eq!(table.claim(i, Side::Client, numbers(i, i ^ turn)), wanted);
            }
            for i in (0..10_000).rev() {
                assert_eq!(table.claim(i + 20_000, Side::Server, numbers(i ^ turn, i)), Came::Meets(i));
            }
            assert!(table.waiting() == 0 && table.claims.capacity() <= most);
        }
    }
}
