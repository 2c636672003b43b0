//! What decides about packets in this network namespace beside routes, asked at most once a second: netlink's tables can be long.

use std::collections::HashMap;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

use shunt_sys::{calls, Errno};
use shunt_xdp::netlink::{attribute, word, Kept};
use shunt_xdp::protocol::Decline;
use shunt_xdp::route::{neighbour, route, Mac, Route, Unreachable};

use super::netlink::Message;
use super::rules;
use crate::ebpf::kernel::{cgroup_sees_packets, interface_sees_packets};
use crate::interface::Interface;

/// A network namespace, by the numbers of its file.
pub type Namespace = (u64, u64);

/// What was found.
pub struct Environment {
    /// This network namespace.
    pub namespace: Namespace,
    /// When.
    pub since: Instant,
    /// Receive queues and queueing discipline of the interface.
    steering: Option<(u32, String)>,
    /// IPsec decides about packets (ip-xfrm(8)), or routes depend on more than the destination (ip-rule(8)).
    policies: bool,
    /// Something beside the discipline at the interface's root decides what comes or leaves there.
    controlled: bool,
    /// Rules count or limit packets, once that was asked.
    counts: Option<bool>,
    /// Routes to peers by this interface.
    routes: HashMap<(IpAddr, u32), Route>,
    /// Their next hops' addresses, if they are known.
    hops: HashMap<IpAddr, Option<Mac>>,
    /// For questions about these.
    kept: Kept,
    /// Control groups whose programs were asked about: by the kernel's number, or by process.
    groups: HashMap<Group, bool>,
}

/// Disciplines that hold nothing up but for others that wait.
const HARMLESS: [&str; 5] = ["noqueue", "mq", "pfifo_fast", "fq", "fq_codel"];

/// Peers whose routes are remembered, and next hops.
const PEERS: usize = 1024;

/// A control group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// By the kernel's number of it.
    Number(u64),
    /// The one of a process.
    OfProcess(i32),
}

impl Environment {
    /// Looks at everything anew.
    pub fn look(index: u32) -> Environment {
        Environment {
            namespace: own_namespace(),
            since: Instant::now(),
            steering: Interface::named(index).and_then(|name| Interface::steering(&name, index)),
            policies: has_policies() || has_rules(),
            controlled: is_controlled(index),
            counts: None,
            routes: HashMap::new(),
            hops: HashMap::new(),
            kept: Kept::default(),
            groups: HashMap::new(),
        }
    }

    /// Whether rules of netfilter count or limit what comes or leaves.
    pub fn counts(&mut self) -> bool {
        *self.counts.get_or_insert_with(rules::count)
    }

    /// Whether frames can be steered, and leave as they would by the kernel.
    pub fn allows(&self) -> Result<(), Decline> {
        let Some((1, discipline)) = &self.steering else { return Err(Decline::Steering) };
        // Whatever else there is may hold up, mark or drop what leaves.
        if self.controlled || !HARMLESS.contains(&discipline.as_str()) {
            return Err(Decline::Discipline);
        }
        if self.policies {
            return Err(Decline::Policy);
        }
        Ok(())
    }

    /// How packets leave to a peer; `scope` is the interface of a link-local address, else 0. One that cannot be reached by `interface` is asked about each time.
    pub fn route(&mut self, interface: u32, peer: IpAddr, scope: u32) -> Result<Route, Unreachable> {
        if let Some(route) = self.routes.get(&(peer, scope)) {
            return Ok(*route);
        }
        let route = route(&mut self.kept, &peer, scope)?;
        if route.interface != interface {
            return Err(Unreachable::NotUnicast);
        }
        if self.routes.len() < PEERS {
            self.routes.insert((peer, scope), route);
        }
        Ok(route)
    }

    /// Whose frames leave by a route. `anew`: one that was not known is asked about once more, as it may have answered since.
    pub fn next_hop(&mut self, route: &Route, anew: bool) -> Option<Mac> {
        if let Some(hop) = self.hops.get(&route.next_hop).filter(|hop| hop.is_some() || !anew) {
            return *hop;
        }
        let hop = neighbour(&mut self.kept, route.interface, &route.next_hop).ok();
        if self.hops.len() < PEERS || self.hops.contains_key(&route.next_hop) {
            self.hops.insert(route.next_hop, hop);
        }
        hop
    }

    /// Whether programs of a control group see its packets. Where there are no groups of version 2, nothing is known of any.
    pub fn is_accounted(&mut self, group: Group) -> bool {
        *self.groups.entry(group).or_insert_with(|| match group {
            Group::Number(number) => sees_number(number),
            Group::OfProcess(pid) => sees_process(pid),
        })
    }
}

fn identity(fd: RawFd) -> Namespace {
    calls::status_of(fd).map_or((0, 0), |status| (status.st_dev, status.st_ino))
}

/// The one of this thread.
fn own_namespace() -> Namespace {
    File::open("/proc/thread-self/ns/net").map_or((0, 1), |file| identity(file.as_raw_fd()))
}

/// The one of a socket.
pub fn namespace_of(socket: RawFd) -> Namespace {
    const SIOCGSKNS: u64 = 0x894c;
    // SAFETY: made by the kernel for us just now.
    let file = calls::ioctl(socket, SIOCGSKNS, 0).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    file.map_or((0, 0), |file| identity(file.as_raw_fd()))
}

/// Whether disciplines at other places of the interface, those for what comes among them (`ingress`, `clsact`: their filters may mark, drop or redirect), or programs of
/// tcx decide.
fn is_controlled(interface: u32) -> bool {
    const GET_DISCIPLINE: u16 = 38;
    const KIND: u16 = 1;
    /// `struct tcmsg`, with the interface at 4.
    const FIXED: usize = 20;
    let mut any = false;
    let asked = Message::new(GET_DISCIPLINE, libc::NLM_F_DUMP as u16, &[0; FIXED]).dump(libc::NETLINK_ROUTE, |discipline| {
        let kind = attribute(discipline.get(FIXED..).unwrap_or_default(), KIND).unwrap_or_default();
        let kind = kind.split(|byte| *byte == 0).next().unwrap_or_default();
        any |= word(discipline, 4) == interface && !HARMLESS.iter().any(|harmless| harmless.as_bytes() == kind);
    });
    // A kernel without traffic control has no such table.
    any || !matches!(asked, Ok(()) | Err(Errno(libc::EOPNOTSUPP))) || interface_sees_packets(interface)
}

/// Whether there are policies of IPsec, those of sockets included.
fn has_policies() -> bool {
    const GET_INFORMATION: u16 = 0x25;
    const INFORMATION: u16 = 1;
    let asked = Message::new(GET_INFORMATION, 0, &[0; 4]).ask(libc::NETLINK_XFRM, |answer| {
        let counts = attribute(answer.get(4..).unwrap_or_default(), INFORMATION);
        // `struct xfrmu_spdinfo`: in, out and forwarded, and the same of sockets.
        counts.is_none_or(|counts| (0..6).any(|index| word(counts, 4 * index) != 0))
    });
    match asked {
        Ok(any) => any,
        // A kernel without IPsec.
        Err(Errno(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT)) => false,
        Err(_) => true,
    }
}

/// Whether routes depend on what is not asked for when one is looked up: the user, ports, the source.
fn has_rules() -> bool {
    const GET_RULE: u16 = 34;
    /// `struct fib_rule_hdr`, with the type of service at 3.
    const FIXED: usize = 12;
    /// Destination, incoming interface, goto, priority, mark, flow, suppressions, table, mask, padding, who made it.
    const HARMLESS: [u16; 12] = [1, 3, 4, 6, 10, 11, 13, 14, 15, 16, 18, 21];
    [libc::AF_INET, libc::AF_INET6].into_iter().any(|family| {
        let mut fixed = [0; FIXED];
        fixed[0] = family as u8;
        let mut any = false;
        let asked = Message::new(GET_RULE, libc::NLM_F_DUMP as u16, &fixed).dump(libc::NETLINK_ROUTE, |rule| {
            any |= rule.get(3).is_some_and(|service| *service != 0);
            let mut run = rule.get(FIXED..).unwrap_or_default();
            while run.len() >= 4 {
                let length = usize::from(u16::from_ne_bytes([run[0], run[1]])).max(4);
                any |= !HARMLESS.contains(&(u16::from_ne_bytes([run[2], run[3]]) & 0x3fff));
                run = run.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        });
        // A kernel without IPv6, or without rules.
        any || !matches!(asked, Ok(()) | Err(Errno(libc::EOPNOTSUPP | libc::EAFNOSUPPORT)))
    })
}

const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Of the group of a process, if it can be found.
fn sees_process(pid: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else { return false };
    let open = |root: &str| File::open(format!("{root}{path}")).ok();
    ROOTS.into_iter().filter_map(open).any(|cgroup| cgroup_sees_packets(cgroup.as_raw_fd()).unwrap_or(false))
}

/// Of the group with this number: one that is not found, where there are any, may have some.
fn sees_number(number: u64) -> bool {
    const CGROUP2: i64 = 0x6367_7270;
    /// FILEID_KERNFS (`include/linux/exportfs.h`).
    const BY_NUMBER: i32 = 0xfe;
    /// `struct file_handle` with the bytes that follow.
    #[repr(C)]
    struct Handle {
        length: u32,
        kind: i32,
        number: u64,
    }
    for root in ROOTS {
        let Ok(root) = File::open(root) else { continue };
        // SAFETY: integers, for which zero is valid; the kernel fills them.
        let is_one = unsafe {
            let mut kind: libc::statfs = std::mem::zeroed();
            libc::fstatfs(root.as_raw_fd(), &mut kind) == 0 && kind.f_type == CGROUP2
        };
        if !is_one {
            continue;
        }
        let handle = Handle { length: 8, kind: BY_NUMBER, number };
        // SAFETY: a handle of the length that it says.
        let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), &raw const handle, libc::O_RDONLY) };
        if fd < 0 {
            return true;
        }
        // SAFETY: made above, ours.
        let group = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        return cgroup_sees_packets(group.as_raw_fd()).unwrap_or(true);
    }
    false
}
