//! Reservations that are over, while their connections may still come. As soon as there is a SYN, every user of the client's host can
//! read the mark that it shows, and a station that reserved the connection anew would have it: so for a time only the same
//! station may. Only stations of the client's host can (OPEN is believed from no other host), so each host has a row, and where a row
//! is full, it is its hosts whose connections are TCP's. A host's row is drawn by a secret: no host can choose to share another one's.
//! A host is an address, in IPv6, too: a /64 is a link, and by one row for all its hosts each would cost its neighbours theirs.
//!
//! A peer that was lost comes back with another tag and is another one here: what it had reserved is refused, and if that was more
//! than a row remembers, all that it asks for until those are over.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use shunt_am::{config::MILLISECOND, siphash, Nanoseconds};

use crate::memory::{load2, Entry, Shared};
use crate::{FourTuple, Refusal};

/// Given up by its client, or lost: a SYN without an answer is repeated for 127 s (tcp_syn_retries, tcp(7)).
pub(crate) const NOT_MADE: Nanoseconds = 130_000 * MILLISECOND;
/// Closed by its client, whose SYN is not repeated any more: the connection may be on its way.
pub(crate) const CLOSED: Nanoseconds = 1_000 * MILLISECOND;

/// Rows: of the other hosts, one in so many suffers from one that fills its own; all do from one with thousands of addresses.
const ROWS: usize = 256;
/// Reservations that a row remembers.
const RECORDS: usize = 64;

/// A reservation that is over; once `until` has come, there is none here.
#[repr(C)]
struct Record {
    /// Of the 4-tuple.
    key: AtomicU64,
    /// Its peer's: another peer at the same place has another one.
    tag: AtomicU64,
    /// Written last.
    until: AtomicU64,
}

/// Those of the hosts that fall here.
#[repr(C, align(64))]
struct Row {
    /// Until when some hold that found no room, and the tag of all of them; 0: they had several.
    full_until: AtomicU64,
    full_tag: AtomicU64,
    records: [Record; RECORDS],
}

/// All of them. The holder of the station's lock uses it.
#[repr(C)]
pub(crate) struct Spent {
    /// Until when any hold.
    until: AtomicU64,
    rows: [Row; ROWS],
}

/// The row of a connection's client, and what the connection is known by there.
fn place(secret: [u64; 2], four: &FourTuple) -> (usize, u64) {
    let ([a, b], [c, d]) = (four.client.words(), four.server.words());
    let ports = u64::from(four.client.port) | u64::from(four.server.port) << 16;
    (siphash(secret, &[a, b]) as usize % ROWS, siphash(secret, &[a, b, c, d, ports]))
}

impl Spent {
    fn spend(&self, secret: [u64; 2], four: &FourTuple, tag: u64, now: Nanoseconds, until: Nanoseconds) {
        let (row, key) = place(secret, four);
        let row = &self.rows[row];
        self.until.fetch_max(until, Relaxed);
        let holds = |record: &&Record| record.until.load(Relaxed) > now;
        let is_its = |record: &&Record| record.key.load(Relaxed) == key && record.tag.load(Relaxed) == tag;
        if let Some(record) = row.records.iter().filter(holds).find(is_its) {
            record.until.fetch_max(until, Relaxed);
        } else if let Some(record) = row.records.iter().find(|record| !holds(record)) {
            record.key.store(key, Relaxed);
            record.tag.store(tag, Relaxed);
            record.until.store(until, Relaxed);
        } else {
            let is_alone = row.full_until.load(Relaxed) <= now || row.full_tag.load(Relaxed) == tag;
            row.full_tag.store(if is_alone { tag } else { 0 }, Relaxed);
            row.full_until.fetch_max(until, Relaxed);
        }
    }

    fn refuses(&self, secret: [u64; 2], four: &FourTuple, tag: u64, now: Nanoseconds) -> Option<Refusal> {
        if now >= self.until.load(Relaxed) {
            return None;
        }
        let (row, key) = place(secret, four);
        let row = &self.rows[row];
        let is_anothers = |record: &Record| {
            record.until.load(Relaxed) > now && record.key.load(Relaxed) == key && record.tag.load(Relaxed) != tag
        };
        if row.records.iter().any(is_anothers) {
            return Some(Refusal::Source);
        }
        (row.full_until.load(Relaxed) > now && row.full_tag.load(Relaxed) != tag).then_some(Refusal::Full)
    }
}

impl Shared {
    /// This reservation is over, unclaimed: for so long its connection is no other station's.
    pub(crate) fn spend(&self, entry: &Entry, time: Nanoseconds) {
        let now = self.now.load(Relaxed);
        let tag = self.peer(entry.peer.load(Relaxed)).map_or(0, |peer| peer.receive.load(Relaxed));
        self.spent.spend(load2(&self.secret), &entry.four(), tag, now, now + time);
    }

    /// Why a peer with that tag may not reserve this connection: another one had, or may have.
    pub(crate) fn is_spent(&self, four: &FourTuple, tag: u64) -> Option<Refusal> {
        self.spent.refuses(load2(&self.secret), four, tag, self.now.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_segment::address::Address;

    const SECRET: [u64; 2] = [17, 18];
    const NOW: Nanoseconds = 1_000 * CLOSED;

    fn empty() -> Box<Spent> {
        let mut spent = Box::<Spent>::new_uninit();
        // SAFETY: atomic words, for which zeros are values.
        unsafe {
            spent.as_mut_ptr().write_bytes(0, 1);
            spent.assume_init()
        }
    }

    fn four(host: u32, port: u16) -> FourTuple {
        let [_, b, c, d] = host.to_be_bytes();
        FourTuple { client: Address::v4([10, b, c, d], port), server: Address::v4([10, 255, 0, 1], 80) }
    }

    fn row(host: u32) -> usize {
        place(SECRET, &four(host, 0)).0
    }

    #[test]
    fn a_host_that_gives_up_many_costs_its_row_alone() {
        let spent = empty();
        for port in 0..10_000 {
            spent.spend(SECRET, &four(1, port), 5, NOW, NOW + NOT_MADE);
        }
        let refused = |host, tag, now| spent.refuses(SECRET, &four(host, 20_000), tag, now);
        assert_eq!(refused(1, 6, NOW), Some(Refusal::Full), "what it gave up is not all remembered");
        assert_eq!(refused(1, 5, NOW), None, "nobody but this station gave anything up");
        assert_eq!(refused(1, 6, NOW + NOT_MADE), None);
        let others = (2..=10_001).filter(|host| refused(*host, 7, NOW).is_some()).count();
        assert_eq!(others, (2..=10_001).filter(|host| row(*host) == row(1)).count());
        assert!(others < 80, "{others} of 10,000 where 39 are expected");
        // Another station of that host: now no station's is known any more.
        spent.spend(SECRET, &four(1, 10_000), 6, NOW, NOW + NOT_MADE);
        assert_eq!([5, 6].map(|tag| refused(1, tag, NOW)), [Some(Refusal::Full); 2]);
    }

    /// Against all that ever happened: no peer has a connection that another one gave up, and one that is refused without that is of
    /// a row in which one found no room, and holds.
    #[test]
    fn any_sequence() {
        let mut dice = 0x1234_5678_9abc_def1_u64;
        let mut draw = |below: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            (dice >> 11) % below
        };
        let (mut exact, mut full) = (0, 0);
        for hosts in [3, 300] {
            let (spent, mut all, mut now) = (empty(), Vec::<(u32, u16, u64, Nanoseconds)>::new(), NOW);
            let rows: Vec<usize> = (0..hosts as u32).map(row).collect();
            let mut crowded = [0; ROWS];
            for _ in 0..30_000 {
                now += draw(20) * MILLISECOND;
                all.retain(|(.., until)| *until > now);
                let (host, port, tag) = (draw(hosts) as u32, draw(60) as u16, 1 + draw(3));
                let refused = spent.refuses(SECRET, &four(host, port), tag, now);
                let was_anothers = all.iter().any(|(h, p, t, _)| (*h, *p) == (host, port) && *t != tag);
                match refused {
                    None => assert!(!was_anothers, "{host} {port} {tag}"),
                    Some(Refusal::Source) => assert!(was_anothers, "{host} {port} {tag}"),
                    Some(_) => assert!(now < crowded[rows[host as usize]], "{host}"),
                }
                exact += usize::from(refused == Some(Refusal::Source));
                full += usize::from(refused == Some(Refusal::Full));
                if refused.is_none() {
                    let until = now + if draw(2) == 0 { NOT_MADE } else { CLOSED };
                    spent.spend(SECRET, &four(host, port), tag, now, until);
                    all.push((host, port, tag, until));
                    let row = rows[host as usize];
                    if all.iter().filter(|(h, ..)| rows[*h as usize] == row).count() > RECORDS {
                        crowded[row] = until.max(crowded[row]);
                    }
                }
            }
        }
        assert!(exact > 100 && full > 100, "{exact} {full}");
    }
}
