//! Rules of netfilter that count or limit what comes and leaves: they see nothing of a connection that is taken, so none is where there are any, unless the
//! administrator says so. Asked of the kernel by netlink (nft(8)), and of the older tables by their own interface (iptables-legacy(8)).
//!
//! A rule matters if packets of an established connection of this host meet its chain: from the hooks of a chain on, by jumps. Chains of
//! type nat see the first packet alone, and what is forwarded is no connection of this host. Of what a rule asks for only the states of connections are
//! looked at: one that names others than `established` does not matter, and none behind one that accepts those.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use shunt_sys::{calls, Errno};
use shunt_xdp::netlink::attribute;

use super::netlink::Message;

/// Whether there are any.
pub fn count() -> bool {
    tables_count() || OLDER.into_iter().any(|older| older_count(older).unwrap_or(true))
}

/// `include/uapi/linux/netfilter/nf_tables.h`: message types, with the subsystem in the upper byte.
const GET_CHAIN: u16 = 10 << 8 | 4;
const GET_RULE: u16 = 10 << 8 | 7;
const GET_SET: u16 = 10 << 8 | 10;
/// `struct nfgenmsg`, with the family at 0.
const FIXED: usize = 4;
const NETDEV: u8 = 5;
/// A chain of which packets of this host's connections come by: of any address family, or of both, or of an interface.
const FAMILIES: [u8; 4] = [1, 2, NETDEV, 10];

/// Expressions that count, limit, note, copy or hold up. A set that rules add to notes what comes; `objref` names a counter, a quota or a limit.
const COUNT: [&[u8]; 10] =
    [b"counter", b"quota", b"limit", b"log", b"connlimit", b"last", b"dynset", b"objref", b"queue", b"dup"];

/// Family, table and name, as sets have them too.
type Chain = (u8, Vec<u8>, Vec<u8>);

/// What rules do with packets of established connections: one, or those of a chain.
#[derive(Default)]
struct Rules {
    counts: bool,
    /// Sets they look into, which may count for each of their elements.
    sets: BTreeSet<Vec<u8>>,
    /// Chains they go on with; `None` among them: what a map says, which may be any of the table.
    next: BTreeSet<Option<Vec<u8>>>,
    /// No other rule of the chain sees them.
    ends: bool,
}

fn tables_count() -> bool {
    let (mut chains, mut rules, mut sets) = (Vec::new(), HashMap::<Chain, Rules>::new(), BTreeSet::new());
    let dump = |kind, read: &mut dyn FnMut(u8, &[u8])| {
        Message::new(kind, libc::NLM_F_DUMP as u16, &[0; FIXED]).dump(libc::NETLINK_NETFILTER, |answer| {
            if let (Some(family), Some(run)) = (answer.first(), answer.get(FIXED..)) {
                read(*family, run);
            }
        })
    };
    let asked = dump(GET_RULE, &mut |family, run| {
        let Some(chain) = named(family, run, 2) else { return };
        rules.entry(chain).or_default().add(attribute(run, 4).unwrap_or_default());
    });
    match asked {
        Ok(()) if rules.values().any(|rules| rules.counts || !rules.sets.is_empty()) => {}
        Ok(()) => return false,
        // A kernel without them.
        Err(Errno(libc::EINVAL | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT)) => return false,
        Err(_) => return true,
    }
    let asked = dump(GET_SET, &mut |family, run| {
        // NFTA_SET_EXPR, or NFTA_SET_EXPRESSIONS.
        sets.extend([17, 18].iter().find_map(|kind| attribute(run, *kind)).and_then(|_| named(family, run, 2)));
    });
    if asked.is_err() {
        return true;
    }
    for ((family, table, _), rules) in &mut rules {
        rules.counts |= rules.sets.iter().any(|set| sets.contains(&(*family, table.clone(), set.clone())));
    }
    let asked = dump(GET_CHAIN, &mut |family, run| {
        if let Some(chain) = named(family, run, 3) {
            chains.push((chain, begins(family, run)));
        }
    });
    asked.is_err() || is_met(&chains, &rules)
}

/// A chain or a set, by its table and the attribute of its name.
fn named(family: u8, run: &[u8], name: u16) -> Option<Chain> {
    Some((family, text(attribute(run, 1)?).to_vec(), text(attribute(run, name)?).to_vec()))
}

/// Without the zero byte behind it.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Whether packets of established connections begin with this chain.
fn begins(family: u8, run: &[u8]) -> bool {
    const FORWARD: u8 = 2;
    let Some(hook) = attribute(run, 4).and_then(|hook| attribute(hook, 1)).and_then(|number| number.last()) else { return false };
    FAMILIES.contains(&family) && (family == NETDEV || *hook != FORWARD) && attribute(run, 7).map(text) != Some(b"nat")
}

/// Gives the value of each attribute of a run.
fn each(mut run: &[u8], mut read: impl FnMut(&[u8])) {
    while run.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([run[0], run[1]]));
        let Some(value) = run.get(4..length) else { return };
        read(value);
        run = run.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

impl Rules {
    /// Adds a rule of these expressions behind the others.
    fn add(&mut self, expressions: &[u8]) {
        /// `NF_CT_STATE_BIT` of IP_CT_ESTABLISHED.
        const ESTABLISHED: u32 = 1 << 1;
        const ACCEPT: [u8; 4] = 1u32.to_be_bytes();
        let (mut rule, mut early) = (Rules::default(), BTreeSet::new());
        // `ct state NAMES`: the state is read, all but the names are masked out, and something is left.
        let (mut reads_state, mut masked, mut named, mut asks, mut accepts, mut before) =
            (false, None, None, false, false, false);
        each(expressions, |expression| {
            let name = attribute(expression, 1).map(text).unwrap_or_default();
            let data = attribute(expression, 2).unwrap_or_default();
            let value = |kind| attribute(data, kind).and_then(|value| attribute(value, 1));
            let number = |kind| attribute(data, kind).and_then(|bytes| bytes.first_chunk::<4>().copied());
            rule.counts |= COUNT.contains(&name);
            before |= rule.counts && named.is_none();
            match name {
                b"immediate" => {
                    let verdict = attribute(data, 2).and_then(|value| attribute(value, 2)).unwrap_or_default();
                    accepts |= attribute(verdict, 1) == Some(&ACCEPT);
                    rule.next.extend(attribute(verdict, 2).map(|chain| Some(text(chain).to_vec())));
                }
                b"ct" if number(2) == Some([0; 4]) && named.is_none() => reads_state = true,
                b"bitwise" if reads_state && value(5) == Some(&[0; 4]) => {
                    reads_state = false;
                    masked = value(4).and_then(|mask| mask.first_chunk::<4>().map(|mask| u32::from_ne_bytes(*mask)));
                }
                b"cmp" if masked.is_some() && number(2) == Some(1u32.to_be_bytes()) && value(3) == Some(&[0; 4]) => {
                    named = masked.take();
                }
                b"lookup" => {
                    let sets = if named.is_none() { &mut early } else { &mut rule.sets };
                    sets.extend(attribute(data, 1).map(|set| text(set).to_vec()));
                    // Into the register of verdicts, or none.
                    match number(3) {
                        Some([0, 0, 0, 0]) => _ = rule.next.insert(None),
                        _ => asks = true,
                    }
                }
                // Something else is in the register now.
                name if !COUNT.contains(&name) => (reads_state, masked, asks) = (false, None, true),
                _ => {}
            }
        });
        if self.ends {
            return;
        }
        self.counts |= before;
        self.sets.extend(early);
        if named.is_some_and(|states| states & ESTABLISHED == 0) {
            return;
        }
        self.counts |= rule.counts;
        self.sets.extend(rule.sets);
        self.next.extend(rule.next);
        self.ends |= named.is_some() && accepts && !asks;
    }
}

/// Whether packets come from the chains with which they begin to one whose rules count.
fn is_met(chains: &[(Chain, bool)], rules: &HashMap<Chain, Rules>) -> bool {
    let mut ahead: Vec<Chain> = chains.iter().filter(|(_, begins)| *begins).map(|(chain, _)| chain.clone()).collect();
    let mut met = BTreeSet::new();
    while let Some(chain) = ahead.pop() {
        let Some(found) = rules.get(&chain).filter(|_| met.insert(chain.clone())) else { continue };
        if found.counts {
            return true;
        }
        let (family, table, _) = &chain;
        for next in &found.next {
            let all = chains.iter().map(|(other, _)| other).filter(|other| (other.0, &other.1) == (*family, table));
            ahead.extend(all.filter(|other| next.as_ref().is_none_or(|name| *name == other.2)).cloned());
        }
    }
    false
}

/// Where the names of tables stand, and how they are asked about.
const OLDER: [(&str, i32, i32); 2] =
    [("ip_tables_names", libc::AF_INET, libc::IPPROTO_IP), ("ip6_tables_names", libc::AF_INET6, libc::IPPROTO_IPV6)];

/// Each of their rules counts. `None`: the kernel does not tell.
fn older_count((names, family, level): (&str, i32, i32)) -> Option<bool> {
    /// IPT_SO_GET_INFO, and the same of IPv6.
    const INFORMATION: i32 = 64;
    /// `struct ipt_getinfo`.
    #[repr(C)]
    struct Information {
        name: [u8; 32],
        hooks: u32,
        first: [u32; 5],
        policy: [u32; 5],
        entries: u32,
        size: u32,
    }
    /// All but FORWARD.
    const MET: [usize; 4] = [0, 1, 3, 4];
    let Ok(names) = std::fs::read_to_string(format!("/proc/thread-self/net/{names}")) else { return Some(false) };
    let mut any = false;
    for name in names.lines().filter(|name| *name != "nat" && name.len() < 32) {
        let fd = calls::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW).ok()?;
        // SAFETY: made above, ours.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut asked = Information { name: [0; 32], hooks: 0, first: [0; 5], policy: [0; 5], entries: 0, size: 0 };
        asked.name[..name.len()].copy_from_slice(name.as_bytes());
        let mut length = size_of_val(&asked) as u32;
        // SAFETY: the kernel reads the name and fills the structure, of the length said.
        let status = unsafe { libc::getsockopt(socket.as_raw_fd(), level, INFORMATION, (&raw mut asked).cast(), &mut length) };
        if status != 0 {
            return None;
        }
        // A chain with rules begins before its policy.
        any |= MET.iter().any(|hook| asked.hooks & 1 << hook != 0 && asked.first[*hook] != asked.policy[*hook]);
    }
    Some(any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::netlink::{append, nest};

    fn chain(name: &str) -> Chain {
        (2, b"filter".to_vec(), name.as_bytes().to_vec())
    }

    /// A rule under construction.
    #[derive(Default, Clone)]
    struct Rule(Vec<u8>);

    impl Rule {
        fn with(mut self, name: &str, data: &[u8]) -> Rule {
            let mut expression = Vec::new();
            append(&mut expression, 1, format!("{name}\0").as_bytes());
            nest(&mut expression, 2, data);
            nest(&mut self.0, 1, &expression);
            self
        }

        fn verdict(self, code: i32, chain: Option<&str>) -> Rule {
            let (mut verdict, mut value, mut data) = (Vec::new(), Vec::new(), Vec::new());
            append(&mut verdict, 1, &code.to_be_bytes());
            if let Some(chain) = chain {
                append(&mut verdict, 2, format!("{chain}\0").as_bytes());
            }
            nest(&mut value, 2, &verdict);
            nest(&mut data, 2, &value);
            self.with("immediate", &data)
        }

        fn jump(self, chain: &str) -> Rule {
            self.verdict(-3, Some(chain))
        }

        /// `ct state ...`.
        fn state(self, states: u32) -> Rule {
            let mut key = Vec::new();
            append(&mut key, 2, &[0; 4]);
            self.with("ct", &key).some_of(states)
        }

        /// `... & BITS != 0`.
        fn some_of(self, bits: u32) -> Rule {
            let (mut value, mut none, mut mask, mut zero) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            append(&mut value, 1, &bits.to_ne_bytes());
            append(&mut none, 1, &[0; 4]);
            nest(&mut mask, 4, &value);
            nest(&mut mask, 5, &none);
            append(&mut zero, 2, &1u32.to_be_bytes());
            nest(&mut zero, 3, &none);
            self.with("bitwise", &mask).with("cmp", &zero)
        }
    }

    fn rule() -> Rule {
        Rule::default()
    }

    /// As Docker has them: rules that count, of what is forwarded alone.
    #[test]
    fn a_rule_counts_where_packets_come_to_it() {
        let chains = [(chain("INPUT"), true), (chain("FORWARD"), false), (chain("DOCKER"), false)];
        let mut rules: HashMap<Chain, Rules> = HashMap::new();
        let mut add = |at: &str, rule: Rule| {
            rules.entry(chain(at)).or_default().add(&rule.0);
            is_met(&chains, &rules)
        };
        assert!(!add("FORWARD", rule().jump("DOCKER")));
        assert!(!add("DOCKER", rule().with("counter", &[])));
        assert!(!add("INPUT", rule().with("cmp", &[])));
        assert!(!add("INPUT", rule().jump("others")));
        assert!(add("INPUT", rule().jump("DOCKER")));
    }

    /// What a map says may be any chain.
    #[test]
    fn maps_of_verdicts_lead_anywhere() {
        let chains = [(chain("INPUT"), true), (chain("one"), false)];
        let mut data = Vec::new();
        append(&mut data, 3, &[0; 4]);
        let mut rules: HashMap<Chain, Rules> = HashMap::new();
        rules.entry(chain("one")).or_default().add(&rule().with("log", &[]).0);
        assert!(!is_met(&chains, &rules));
        rules.entry(chain("INPUT")).or_default().add(&rule().with("lookup", &data).0);
        assert!(is_met(&chains, &rules));
    }

    /// As most servers have them: what is invalid is counted and dropped, what is established accepted, and what is new counted.
    #[test]
    fn states_say_which_rules_matter() {
        let (invalid, established_or_related, new) = (1, 2 | 4, 8);
        let mut rules = Rules::default();
        rules.add(&rule().state(invalid).with("counter", &[]).verdict(0, None).0);
        rules.add(&rule().state(established_or_related).verdict(1, None).0);
        rules.add(&rule().with("counter", &[]).0);
        assert!(!rules.counts);
        let counts = |one: Rule, other: Rule| {
            let mut rules = Rules::default();
            [one, other].iter().for_each(|rule| rules.add(&rule.0));
            rules.counts
        };
        let counter = rule().with("counter", &[]);
        assert!(counts(rule().state(established_or_related).with("limit", &[]).verdict(1, None), rule()));
        assert!(counts(counter.clone().state(new), rule()), "it counts before it asks");
        assert!(counts(rule().state(new).verdict(1, None), counter.clone()));
        assert!(counts(rule().state(established_or_related).with("payload", &[]).verdict(1, None), counter.clone()));
        assert!(counts(rule().state(established_or_related).jump("other"), counter.clone()));
        let marked = rule().state(established_or_related).with("meta", &[]).some_of(1).with("counter", &[]);
        assert!(counts(marked, rule()), "bits of a mark are no states");
        assert!(!counts(rule().state(new).state(established_or_related).with("counter", &[]), rule()));
    }

    #[test]
    fn chains_begin_where_packets_of_connections_here_do() {
        let run = |hook: u32, kind: &str| {
            let (mut inner, mut run) = (Vec::new(), Vec::new());
            append(&mut inner, 1, &hook.to_be_bytes());
            nest(&mut run, 4, &inner);
            append(&mut run, 7, format!("{kind}\0").as_bytes());
            run
        };
        assert!(begins(2, &run(1, "filter")) && begins(1, &run(4, "filter")) && begins(NETDEV, &run(0, "filter")));
        assert!(!begins(2, &run(2, "filter")) && !begins(2, &run(0, "nat")) && !begins(7, &run(1, "filter")) && !begins(2, &[]));
    }
}
