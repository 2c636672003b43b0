//! What is known of others: whether a server claims connections and the way to it, which clients did not answer, and how long was waited for them in vain. A
//! few entries, of which the oldest goes when there is no room; a server that is forgotten costs a client one wait more.

use crate::mark;
use shunt_segment::address::Address;
use shunt_table::global::{LockedCell, SETUP};

/// Entries.
const MOST: usize = 64;
const SECOND: u64 = 1_000_000_000;
/// How long a server that has claimed a connection is waited for with patience (ns).
const PROVED: u64 = 10 * SECOND;
/// So many connections in a row may miss a server that has claimed others: it was busy.
const BUSY: u32 = 8;
/// How long a server that did not is left alone, at most (ns).
const LEFT_ALONE: u64 = 60 * SECOND;

/// One address.
#[derive(Clone, Copy)]
struct Entry {
    address: Address,
    /// What is known is believed until then (ns).
    until: u64,
    /// How often in a row it has failed.
    failures: u32,
    /// It has claimed a connection lately: until then.
    claims: bool,
    /// The way to it, believed until then (ns).
    way: (Way, u64),
    /// Nobody shows that it listens there: believed until then (ns).
    unserved: u64,
    /// The process that has claimed the last connection there; 0: none.
    process: u64,
    /// How that looked to it.
    seen: Seen,
    /// So many connections in a row it has claimed.
    row: u32,
    /// So often another process has accepted what was announced to one: twice as many in a row are wanted for each.
    missed: u32,
}

/// How connections look to the server that claims them: where they come from, but for the port, and where they were accepted. Others than at the client, where they are
/// translated.
pub type Seen = (Address, Address);

/// How packets to a server leave this namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The address that they come from.
    pub source: Address,
    /// The largest segment that a connection of the kernel's would name.
    pub segment: u32,
}

impl Way {
    /// A mark for a connection that goes it, by a random number; `None`: it has no room for one.
    pub fn mark(&self, kind: mark::Kind, random: u64) -> Option<u16> {
        mark::drawn(kind, self.segment, random)
    }
}

const NOWHERE: Address = Address { ip: [0; 16], port: 0, scope: 0 };

/// An entry that is not used.
const NONE: Entry = Entry {
    address: NOWHERE,
    until: 0,
    failures: 0,
    claims: false,
    way: (Way { source: NOWHERE, segment: 0 }, 0),
    unserved: 0,
    process: 0,
    seen: (NOWHERE, NOWHERE),
    row: 0,
    missed: 0,
};
/// So many connections in a row are one process's, before the next one is announced to it.
const ROW: u32 = 4;
/// Times that number is doubled, at most.
const MOST_MISSED: u32 = 10;

/// Servers by address, or clients by address and user.
pub struct Known {
    entries: [Entry; MOST],
    next: usize,
}

/// What this process knows of others. Under the set-up lock.
struct Lists {
    /// Servers that claim connections, or do not.
    servers: LockedCell<Known>,
    /// Clients, by address and user, that did not answer a claim.
    clients: LockedCell<Known>,
    /// Waits for clients.
    waits: LockedCell<Waits>,
}

static LISTS: Lists = Lists {
    servers: LockedCell::new(Known::NONE),
    clients: LockedCell::new(Known::NONE),
    waits: LockedCell::new(Waits { since: 0, waited: 0 }),
};

/// How long accept may wait in a second (ns), for whatever clients.
const WAITS: u64 = 50_000_000;
/// So much of each wait is free (ns): what a client takes that is awake.
const FREE: u64 = 200_000;

/// How long was waited in the second that began at `since` (ns), whatever came of it, and in those before it beyond their share.
pub struct Waits {
    since: u64,
    waited: u64,
}

impl Waits {
    fn left(&mut self, now: u64) -> u64 {
        let seconds = now.saturating_sub(self.since) / SECOND;
        if seconds > 0 {
            *self = Waits { since: now, waited: self.waited.saturating_sub(seconds.saturating_mul(WAITS)) };
        }
        WAITS.saturating_sub(self.waited)
    }

    fn waited(&mut self, time: u64) {
        self.waited = self.waited.saturating_add(time.saturating_sub(FREE));
    }
}

/// How long accept may wait for a client (ns): not longer in this second than is left of it for all.
pub fn may_wait(now: u64) -> u64 {
    let _setup = SETUP.lock();
    // SAFETY: as of the servers.
    unsafe { &mut *LISTS.waits.get() }.left(now)
}

/// It has waited so long (ns).
pub fn waited(time: u64) {
    let _setup = SETUP.lock();
    // SAFETY: as of the servers.
    unsafe { &mut *LISTS.waits.get() }.waited(time);
}

/// What a client is known by: others of its address may be other users'.
pub fn client(address: &Address, user: u32) -> Address {
    Address { port: 0, scope: user, ..*address }
}

/// Looks at what is known of servers, or changes it.
pub fn servers<T>(look: impl FnOnce(&mut Known) -> T) -> T {
    let _setup = SETUP.lock();
    // SAFETY: under the set-up lock; a handler that interrupted its holder finds values, and nothing points into them.
    look(unsafe { &mut *LISTS.servers.get() })
}

/// The same of clients, by what [`client`] gives.
pub fn clients<T>(look: impl FnOnce(&mut Known) -> T) -> T {
    let _setup = SETUP.lock();
    // SAFETY: as of the servers.
    look(unsafe { &mut *LISTS.clients.get() })
}

/// What is known of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// It has claimed a connection lately.
    Claims,
    /// Nothing, or no longer.
    Unknown,
    /// It did not, lately.
    Silent,
}

impl Known {
    /// None is known.
    pub const NONE: Known = Known { entries: [NONE; MOST], next: 0 };

    fn find(&mut self, address: &Address) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.until != 0 && entry.address == *address)
    }

    /// What is known of the address now.
    pub fn of(&mut self, address: &Address, now: u64) -> Server {
        match self.find(address).filter(|entry| now < entry.until) {
            Some(entry) if entry.claims => Server::Claims,
            Some(_) => Server::Silent,
            None => Server::Unknown,
        }
    }

    fn entry(&mut self, address: &Address) -> &mut Entry {
        let index = match self.entries.iter().position(|entry| entry.until != 0 && entry.address == *address) {
            Some(index) => index,
            None => {
                self.next = (self.next + 1) % MOST;
                self.entries[self.next] = Entry { address: *address, until: 1, ..NONE };
                self.next
            }
        };
        &mut self.entries[index]
    }

    /// The way to it, if that was asked for lately.
    pub fn way(&mut self, address: &Address, now: u64) -> Option<Way> {
        self.find(address).filter(|entry| now < entry.way.1).map(|entry| entry.way.0)
    }

    /// The kernel has told the way to it: believed for a second, as other routes are.
    pub fn goes(&mut self, address: &Address, way: Way, now: u64) {
        self.entry(address).way = (way, now + SECOND);
    }

    /// Whether nobody showed a moment ago that it listens there.
    pub fn is_unserved(&mut self, address: &Address, now: u64) -> bool {
        self.find(address).is_some_and(|entry| now < entry.unserved)
    }

    /// Nobody does, believed until then.
    pub fn unserved(&mut self, address: &Address, until: u64) {
        self.entry(address).unserved = until;
    }

    /// It has claimed a connection.
    pub fn claims(&mut self, address: &Address, now: u64) {
        let entry = self.entry(address);
        (entry.failures, entry.claims, entry.until) = (0, true, now + PROVED);
    }

    /// This process has claimed one there, which looked so to it; 0: one to which none can be announced.
    pub fn claimed_by(&mut self, address: &Address, process: u64, seen: Seen) {
        let entry = self.entry(address);
        entry.row = if (entry.process, entry.seen) == (process, seen) { entry.row.saturating_add(1) } else { 1 };
        (entry.process, entry.seen) = (process, seen);
    }

    /// The process to which the next connection there may be announced, and what that will look like to it.
    pub fn process(&mut self, address: &Address) -> Option<(u64, Seen)> {
        let entry = self.find(address).filter(|entry| entry.process != 0 && entry.row >= ROW << entry.missed)?;
        Some((entry.process, entry.seen))
    }

    /// The process has taken a connection that was announced to it. After as many in a row as it had to claim before, one miss is forgotten.
    pub fn taken(&mut self, address: &Address) {
        let entry = self.entry(address);
        entry.row = entry.row.saturating_add(1);
        if entry.missed > 0 && entry.row >= 2 * (ROW << entry.missed) {
            entry.missed -= 1;
            entry.row = ROW << entry.missed;
        }
    }

    /// The process to which a connection there was announced has not claimed it.
    pub fn missed(&mut self, address: &Address) {
        let entry = self.entry(address);
        (entry.row, entry.missed) = (0, (entry.missed + 1).min(MOST_MISSED));
    }

    /// It has not. One that has claimed others lately is busy, unless that happens several times in a row. Else it is left alone for a second, and
    /// for longer the oftener that happens.
    pub fn failed(&mut self, address: &Address, now: u64) {
        let entry = self.entry(address);
        entry.failures += 1;
        if entry.claims && now < entry.until {
            if entry.failures < BUSY {
                return;
            }
            entry.failures = 1;
        }
        entry.claims = false;
        entry.until = now + (SECOND << (entry.failures - 1).min(6)).min(LEFT_ALONE);
    }

    /// It is far: none of this host's.
    pub fn is_far(&mut self, address: &Address, now: u64) {
        let entry = self.entry(address);
        (entry.failures, entry.claims, entry.until) = (7, false, now + LEFT_ALONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_believed_for_longer_each_time() {
        let mut servers = Known::NONE;
        let server = Address::v4([10, 0, 0, 2], 80);
        assert_eq!(servers.of(&server, 5), Server::Unknown);
        let mut now = 5;
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            servers.failed(&server, now);
            assert_eq!(servers.of(&server, now + seconds * SECOND - 1), Server::Silent, "{seconds}");
            now += seconds * SECOND;
            assert_eq!(servers.of(&server, now), Server::Unknown, "{seconds}");
        }
        servers.claims(&server, now);
        assert_eq!(servers.of(&server, now + PROVED - 1), Server::Claims);
        for _ in 1..BUSY {
            servers.failed(&server, now + 1);
            assert_eq!(servers.of(&server, now + 2), Server::Claims, "it was busy");
        }
        servers.failed(&server, now + 1);
        assert_eq!(servers.of(&server, now + SECOND), Server::Silent);
        assert_eq!(servers.of(&server, now + 2 * SECOND), Server::Unknown);
        assert_eq!(servers.of(&Address { port: 81, ..server }, now), Server::Unknown, "another server");
    }

    /// Also for clients that take all the time they have and succeed.
    #[test]
    fn accept_waits_for_a_share_of_a_second() {
        let mut waits = Waits { since: 0, waited: 0 };
        let mut now = 5 * SECOND;
        for _ in 0..3 {
            let began = now;
            while let time @ 1.. = waits.left(now).min(20_000_000) {
                waits.waited(time + FREE);
                now += time + FREE;
            }
            assert!(now - began <= WAITS + 4 * FREE, "{}", now - began);
            now += SECOND;
        }
        now += SECOND;
        assert_eq!(waits.left(now), WAITS);
        waits.waited(4 * WAITS + FREE);
        for second in 0..4 {
            assert_eq!(waits.left(now + second * SECOND), 0, "{second}: a long wait is paid for later");
        }
        now += 4 * SECOND;
        assert_eq!(waits.left(now), WAITS);
        for _ in 0..1000 {
            waits.waited(FREE);
        }
        assert_eq!(waits.left(now), WAITS, "those that are awake cost nothing");
    }

    /// A server of several processes that accept in turn is announced to hardly ever.
    #[test]
    fn a_process_is_believed_after_a_row() {
        let mut servers = Known::NONE;
        let server = Address::v4([10, 0, 0, 2], 80);
        let seen = (Address::v4([10, 0, 0, 1], 0), server);
        let rows = |servers: &mut Known, process: u64| {
            (1..100_000).find(|_| {
                servers.claimed_by(&server, process, seen);
                servers.process(&server) == Some((process, seen))
            })
        };
        assert_eq!(rows(&mut servers, 7), Some(ROW));
        servers.claimed_by(&server, 8, seen);
        assert_eq!(servers.process(&server), None, "another one");
        assert_eq!(rows(&mut servers, 7), Some(ROW));
        servers.claimed_by(&server, 7, (Address::v4([10, 0, 0, 9], 0), server));
        assert_eq!(servers.process(&server), None, "it looks otherwise now");
        assert_eq!(rows(&mut servers, 7), Some(ROW));
        servers.claimed_by(&server, 0, seen);
        (0..ROW).for_each(|_| servers.claimed_by(&server, 0, seen));
        assert_eq!(servers.process(&server), None, "nobody");
        assert_eq!(rows(&mut servers, 7), Some(ROW));
        for times in 1..=12 {
            servers.missed(&server);
            assert_eq!(servers.process(&server), None);
            assert_eq!(rows(&mut servers, 7), Some(ROW << times.min(MOST_MISSED)));
        }
        // It is forgotten as slowly as it was learnt.
        let mut taken = 0;
        for missed in (1..=MOST_MISSED).rev() {
            (0..ROW << missed).for_each(|_| servers.taken(&server));
            taken += ROW << missed;
            assert_eq!(servers.process(&server), Some((7, seen)));
            assert_eq!(servers.entry(&server).missed, missed - 1, "{taken}");
        }
    }

    #[test]
    fn a_client_is_an_address_and_a_user() {
        let mut clients = Known::NONE;
        let address = Address::v4([10, 0, 0, 2], 5000);
        clients.is_far(&client(&address, 4001), 5);
        assert_eq!(clients.of(&client(&Address { port: 5001, ..address }, 4001), 6), Server::Silent);
        assert_eq!(clients.of(&client(&address, 4002), 6), Server::Unknown);
    }

    #[test]
    fn the_oldest_goes() {
        let mut servers = Known::NONE;
        for port in 1..=MOST as u16 + 1 {
            servers.is_far(&Address::v4([10, 0, 0, 2], port), 5);
        }
        assert_eq!(servers.of(&Address::v4([10, 0, 0, 2], 1), 6), Server::Unknown);
        assert_eq!(servers.of(&Address::v4([10, 0, 0, 2], 2), 6), Server::Silent);
    }
}
