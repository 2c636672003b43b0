//! Accelerated connections, joined from link segments, companions and /proc.
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use shunt_segment::address::Address;

use super::diagnosis::{self, Companion};
use super::link::{self, Channel, Link};
use super::processes::{self, Target};

/// A connection that shared memory carries.
#[derive(Clone, Debug, Serialize)]
pub struct Connection {
    /// Its state, as [`Channel::state`] tells it.
    pub state: &'static str,
    /// What carries its bytes.
    pub carrier: &'static str,
    /// Seconds since the client connected.
    pub seconds: u32,
    /// Whether both ends are closed or gone: only its memory is kept, for the next one.
    pub ended: bool,
    /// The end that connected.
    pub client: Party,
    /// The end that accepted.
    pub server: Party,
    /// Tells it from every other one, also from those that use its channel before and after it.
    #[serde(skip)]
    pub key: Key,
}

/// A connection's place, and which of the connections there it is.
pub type Key = (Place, u32);

/// One end of a connection.
#[derive(Clone, Debug, Serialize)]
pub struct Party {
    /// Its address.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// The process that uses it: the one that opened it, or one that inherited it. Null if that has ended, or is not visible here.
    pub pid: Option<u32>,
    /// The number by which the process that opened it knew itself, which in another PID namespace is another process's here. Null if
    /// it is not known yet.
    pub own_pid: Option<u32>,
    /// That process's program; where it is not visible, as it named itself.
    pub program: String,
    /// Every visible process that has a descriptor of it.
    pub pids: Vec<u32>,
    /// Bytes that it sent.
    pub sent_bytes: u64,
    /// Bytes that it sent and the other end has not received; null if the segment holds nonsense.
    pub in_flight_bytes: Option<u64>,
    /// Size of the ring that it sends into; null if the segment holds nonsense.
    pub ring_bytes: Option<u32>,
    /// How it last waited; null of a plain peer's end.
    pub waits: Option<&'static str>,
    /// How often it rang the other end's bell, which wakes a sleeper there; over all connections that used the same channel, modulo 2^32.
    pub bells_rung: u32,
    /// It is the end of a peer that has only a kernel: no process here.
    #[serde(skip)]
    pub is_plain: bool,
}

/// Which channel of which link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Names the link, with `sequence`.
    pub nonce: u64,
    /// Number of the link within its client process.
    pub sequence: u32,
    /// The channel.
    pub channel: u16,
    /// Which of the connections that used the channel.
    pub generation: u32,
}

impl Companion {
    /// The channel that its connection uses.
    pub fn place(&self) -> Place {
        Place {
            nonce: self.hello.nonce,
            sequence: self.hello.sequence,
            channel: self.hello.channel,
            generation: self.hello.generation,
        }
    }
}

/// The processes that have a link, with the numbers by which they know themselves.
type Holders = BTreeMap<u32, u32>;

/// The accelerated connections in the links that `pids` have, ordered by server and client address.
pub fn of_processes(pids: &[u32]) -> Vec<Connection> {
    let mut links: BTreeMap<(u64, u64), (Link, Holders)> = BTreeMap::new();
    let mut of_users: HashMap<u32, usize> = HashMap::new();
    let mut owners: HashMap<u64, Vec<u32>> = HashMap::new();
    let mut namespaces: BTreeMap<u64, u32> = BTreeMap::new();
    for &pid in pids {
        for descriptor in processes::descriptors(pid).unwrap_or_default() {
            match descriptor.target {
                Target::Socket(inode) => owners.entry(inode).or_default().push(pid),
                Target::Memory(name) if name == link::NAME => {
                    let Ok(memory) = processes::memory(pid, descriptor.number) else { continue };
                    // The link is in the hands of two processes at least, and is read once.
                    let holders = match links.entry(memory.key) {
                        Entry::Vacant(entry) => {
                            // Anybody can make files of this name; each is read and shown.
                            let count = of_users.entry(memory.owner).or_default();
                            *count += 1;
                            if *count > LINKS_OF_A_USER {
                                continue;
                            }
                            match memory.open(false).ok().and_then(|file| Link::read(&file)) {
                                Some(link) => &mut entry.insert((link, Holders::new())).1,
                                None => continue,
                            }
                        }
                        Entry::Occupied(entry) => &mut entry.into_mut().1,
                    };
                    holders.entry(pid).or_insert_with(|| processes::own_number(pid));
                    if let Some(namespace) = processes::network_namespace(pid) {
                        namespaces.entry(namespace).or_insert(pid);
                    }
                }
                _ => {}
            }
        }
    }
    let users = users_of_ends(&owners, namespaces.values().copied());
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec as u32;
    let of_link = |(link, holders): &(Link, Holders)| -> Vec<Connection> {
        link.channels.iter().map(|channel| connection(link, holders, channel, &users, now)).collect()
    };
    let false_ones = false_links(&links, &users);
    let true_ones = links.iter().filter(|(key, _)| !false_ones.contains(key)).map(|(_, link)| link);
    let mut connections: Vec<Connection> = true_ones.flat_map(of_link).collect();
    connections.sort_by(|a, b| {
        let key = |c: &Connection| (c.server.address.clone(), c.server.port, c.client.address.clone(), c.client.port);
        key(a).cmp(&key(b))
    });
    connections
}

/// Links of one user that are looked at.
const LINKS_OF_A_USER: usize = 4096;

/// Links that call themselves as others do, and whose holders have no end of a connection, while those of the others have: somebody's copy of what
/// the kernel shows of names.
fn false_links(
    links: &BTreeMap<(u64, u64), (Link, Holders)>,
    users: &HashMap<(Place, usize), BTreeSet<u32>>,
) -> BTreeSet<(u64, u64)> {
    let mut names: BTreeMap<(u64, u32), Vec<((u64, u64), bool)>> = BTreeMap::new();
    for (key, (link, holders)) in links {
        let used = |channel: &Channel, end: usize| {
            let place =
                Place { nonce: link.nonce, sequence: link.sequence, channel: channel.number, generation: channel.generation };
            users.get(&(place, end)).is_some_and(|pids| pids.iter().any(|pid| holders.contains_key(pid)))
        };
        let owned = link.channels.iter().any(|channel| used(channel, 0) || used(channel, 1));
        names.entry((link.nonce, link.sequence)).or_default().push((*key, owned));
    }
    let doubted = names.values().filter(|links| links.iter().any(|(_, owned)| *owned));
    doubted.flatten().filter(|(_, owned)| !owned).map(|(key, _)| *key).collect()
}

/// The processes that have a descriptor of each end. Where the kernel does not tell (another network namespace that this
/// user may not enter), it is empty, and the process that opened the end stands for its users.
fn users_of_ends(
    owners: &HashMap<u64, Vec<u32>>,
    namespaces: impl Iterator<Item = u32>,
) -> HashMap<(Place, usize), BTreeSet<u32>> {
    let mut users: HashMap<(Place, usize), BTreeSet<u32>> = HashMap::new();
    for pid in namespaces {
        for (inode, companion) in diagnosis::unix_sockets(pid).unwrap_or_default().companions {
            let pids = owners.get(&u64::from(inode)).into_iter().flatten();
            users.entry((companion.place(), companion.end)).or_default().extend(pids);
        }
    }
    users
}

/// Which process uses an end: of its visible users the one that opened it, if it is among them. Where none is visible, the one that opened it,
/// if that still has the link. The link tells its number as the process itself knows it, by which another process may go here.
fn user_of_end(users: &[u32], holders: &Holders, opener: Option<u32>) -> Option<u32> {
    let opened = |pid: &u32| opener.is_some() && holders.get(pid).copied() == opener;
    if let Some(first) = users.first() {
        return Some(*users.iter().find(|pid| opened(pid)).unwrap_or(first));
    }
    let mut openers = holders.keys().filter(|pid| opened(pid));
    // Two of one number are of different namespaces, and either may be it.
    openers.next().filter(|_| openers.next().is_none()).copied()
}

fn connection(
    link: &Link,
    holders: &Holders,
    channel: &Channel,
    users: &HashMap<(Place, usize), BTreeSet<u32>>,
    now: u32,
) -> Connection {
    let place = Place { nonce: link.nonce, sequence: link.sequence, channel: channel.number, generation: channel.generation };
    let party = |index: usize, address: &Address| {
        let end = &channel.ends[index];
        let is_plain = channel.own.is_some_and(|own| own != index);
        let pids: Vec<u32> = match is_plain {
            true => Vec::new(),
            false => users.get(&(place, channel.side(index))).into_iter().flatten().copied().collect(),
        };
        let own_pid = Some(end.pid).filter(|pid| *pid != 0 && !is_plain);
        let pid = user_of_end(&pids, holders, own_pid);
        let named = if is_plain { "" } else { &link.programs[channel.side(index)] };
        Party {
            address: ip_text(address),
            port: address.port,
            pid,
            own_pid,
            program: pid.and_then(processes::program).unwrap_or_else(|| named.to_owned()),
            pids,
            sent_bytes: end.sent,
            in_flight_bytes: channel.in_flight(index),
            ring_bytes: end.ring,
            waits: (!is_plain).then_some(end.waits),
            bells_rung: end.rung,
            is_plain,
        }
    };
    Connection {
        state: channel.state(),
        carrier: link.carrier,
        seconds: now.saturating_sub(channel.since),
        ended: channel.has_ended(),
        client: party(0, &channel.client),
        server: party(1, &channel.server),
        key: (place, channel.uses),
    }
}

/// An address without its port: IPv4-mapped ones as IPv4.
pub fn ip_text(address: &Address) -> String {
    match address.as_v4() {
        Some(bytes) => std::net::Ipv4Addr::from(bytes).to_string(),
        None if address.scope != 0 => format!("{}%{}", std::net::Ipv6Addr::from(address.ip), address.scope),
        None => std::net::Ipv6Addr::from(address.ip).to_string(),
    }
}

/// An address and port as people write them: `127.0.0.1:80`, `[::1]:80`.
pub fn socket_text(ip: &str, port: u16) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_other_namespaces_name_no_process_here() {
        // 5 and 6 are redis servers in containers, which know themselves as 7; 7 is something else.
        let holders = Holders::from([(5, 7), (9, 9)]);
        assert_eq!(user_of_end(&[], &holders, Some(7)), Some(5));
        assert_eq!(user_of_end(&[5, 9], &holders, Some(9)), Some(9));
        assert_eq!(user_of_end(&[5, 7], &holders, Some(8)), Some(5), "one that inherited it");
        assert_eq!(user_of_end(&[], &holders, Some(8)), None, "it has ended, or is not visible");
        assert_eq!(user_of_end(&[], &holders, None), None);
        assert_eq!(user_of_end(&[], &Holders::from([(5, 7), (6, 7)]), Some(7)), None, "one of two");
    }

    #[test]
    fn addresses_as_people_write_them() {
        let v4 = Address::v4([127, 0, 0, 1], 80);
        assert_eq!(socket_text(&ip_text(&v4), v4.port), "127.0.0.1:80");
        let mut v6 = Address::v6(std::net::Ipv6Addr::LOCALHOST.octets(), 80);
        assert_eq!(socket_text(&ip_text(&v6), v6.port), "[::1]:80");
        v6.scope = 2;
        assert_eq!(ip_text(&v6), "::1%2");
    }
}
