//! Which host has which ranks, and where its keeper listens: what the launcher tells each agent, and an agent its ranks.

use super::device::Device;
use std::net::{IpAddr, Ipv6Addr};

/// A host of a job whose ranks share an address space with those of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its first rank.
    pub first: usize,
    /// How many ranks it has.
    pub ranks: usize,
    /// Its address.
    pub address: IpAddr,
    /// Where its keeper listens.
    pub port: u16,
}

/// All hosts of a job, in order of their ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    /// Each.
    pub list: Vec<Host>,
    /// What ranks show keepers of other hosts.
    pub secret: [u64; 2],
    /// By what frames go.
    pub device: Device,
}

/// Words of a host in the job's memory.
const WORDS: usize = 4;
/// Hosts of a job at most: their words fit into the header's page.
pub const HOSTS: usize = 64;
/// Words of the table at most.
pub(crate) const TABLE: usize = 4 + HOSTS * WORDS;

fn number(of: IpAddr) -> u128 {
    match of {
        IpAddr::V4(four) => four.to_ipv6_mapped().to_bits(),
        IpAddr::V6(six) => six.to_bits(),
    }
}

impl Hosts {
    /// The host of a rank.
    #[inline]
    pub fn of(&self, rank: usize) -> usize {
        self.list.partition_point(|host| host.first <= rank).saturating_sub(1)
    }

    /// As words, for the job's memory and for frames.
    pub(crate) fn words(&self) -> Vec<u64> {
        let mut words = vec![self.list.len() as u64, self.device as u64, self.secret[0], self.secret[1]];
        for host in &self.list {
            let address = number(host.address);
            let ranks = host.first as u64 | (host.ranks as u64) << 16 | u64::from(host.port) << 32;
            words.extend([ranks, address as u64, (address >> 64) as u64, 0]);
        }
        words
    }

    /// The table that words are; none if they are no table of so many ranks.
    pub(crate) fn from_words(words: &[u64], ranks: usize) -> Option<Hosts> {
        let (&[count, device, high, low], rest) = words.split_first_chunk::<4>()?;
        let count = usize::try_from(count).ok().filter(|count| (2..=HOSTS).contains(count))?;
        let mut first = 0;
        let mut list = Vec::new();
        for words in rest.get(..count * WORDS)?.chunks_exact(WORDS) {
            let six = Ipv6Addr::from_bits(u128::from(words[1]) | u128::from(words[2]) << 64);
            let address = six.to_ipv4_mapped().map_or(IpAddr::V6(six), IpAddr::V4);
            let host = Host {
                first: words[0] as usize & 0xffff,
                ranks: words[0] as usize >> 16 & 0xffff,
                address,
                port: (words[0] >> 32) as u16,
            };
            if words[0] >> 48 != 0 || words[3] != 0 || host.first != first || host.ranks == 0 {
                return None;
            }
            first += host.ranks;
            list.push(host);
        }
        let device = Device::numbered(u32::try_from(device).ok()?)?;
        (first == ranks).then_some(Hosts { list, secret: [high, low], device })
    }
}

/// Whether both lie in the network of so many bits.
fn same_network(one: IpAddr, other: IpAddr, bits: u32) -> bool {
    let width = if one.is_ipv4() { 32 } else { 128 };
    let shift = width - bits.min(width);
    one.is_ipv4() == other.is_ipv4()
        && number(one).checked_shr(shift).unwrap_or(0) == number(other).checked_shr(shift).unwrap_or(0)
}

/// An address for each host, of those that it has: all of one network, if there is one that all are in.
pub(crate) fn choose(have: &[Vec<(IpAddr, u32)>]) -> Option<Vec<IpAddr>> {
    let within = |at: &(IpAddr, u32)| -> Option<Vec<IpAddr>> {
        have.iter().map(|host| host.iter().map(|(other, _)| *other).find(|other| same_network(at.0, *other, at.1))).collect()
    };
    // Two hosts with one address, of a bridge of containers say, do not reach each other there.
    let apart = |list: &Vec<IpAddr>| (1..list.len()).all(|at| !list[..at].contains(&list[at]));
    let shared = have.first()?.iter().filter_map(within).find(apart);
    shared.or_else(|| have.iter().map(|host| host.first().map(|(at, _)| *at)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> Hosts {
        let host = |first, ranks, address: &str, port| Host { first, ranks, address: address.parse().unwrap(), port };
        Hosts { list: vec![host(0, 4, "10.77.0.1", 7), host(4, 2, "fd00::2", 65535)], secret: [1, 2], device: Device::Xdp }
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let hosts = table();
        assert_eq!(Hosts::from_words(&hosts.words(), 6), Some(hosts.clone()));
        assert_eq!((hosts.of(0), hosts.of(3), hosts.of(4), hosts.of(5)), (0, 0, 1, 1));
        assert_eq!(Hosts::from_words(&hosts.words(), 7), None);
        assert!(hosts.words().len() <= TABLE);
    }

    proptest! {
        #[test]
        fn other_words_are_refused_or_a_table(at in 0usize..12, value in prop_oneof![0u64..70000, any::<u64>()]) {
            let mut words = table().words();
            words[at] = value;
            if let Some(hosts) = Hosts::from_words(&words, 6) {
                prop_assert_eq!(hosts.words(), words);
                prop_assert_eq!(hosts.list.iter().map(|host| host.ranks).sum::<usize>(), 6);
            }
        }
    }

    #[test]
    fn hosts_meet_in_a_network_that_all_have() {
        let of = |list: &[&str]| -> Vec<(IpAddr, u32)> {
            list.iter()
                .map(|one| one.split_once('/').map(|(at, bits)| (at.parse().unwrap(), bits.parse().unwrap())).unwrap())
                .collect()
        };
        let chosen = choose(&[of(&["172.17.0.1/16", "10.0.0.1/24"]), of(&["172.17.0.1/16", "10.0.0.2/24"])]).unwrap();
        assert_eq!(chosen, ["10.0.0.1", "10.0.0.2"].map(|at| at.parse::<IpAddr>().unwrap()));
        let chosen = choose(&[of(&["10.0.0.1/24"]), of(&["10.0.1.2/24"])]).unwrap();
        assert_eq!(chosen, ["10.0.0.1", "10.0.1.2"].map(|at| at.parse::<IpAddr>().unwrap()));
        let chosen = choose(&[of(&["10.0.0.1/0", "fd00::1/64"]), of(&["fd00::2/64"])]).unwrap();
        assert_eq!(chosen, ["fd00::1", "fd00::2"].map(|at| at.parse::<IpAddr>().unwrap()));
        assert_eq!(choose(&[of(&["10.0.0.1/24"]), of(&[])]), None);
    }
}
