//! Which processes run under shunt, and which role each has.

use crate::catalogue::Scenario;

/// Which end of the connection the scenario's own process is; solo scenarios have both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Role {
    /// One process makes both ends.
    Solo,
    /// Near connects, far accepts.
    Client,
    /// Near accepts, far connects.
    Server,
}

impl Role {
    /// The suffix of a trial's name, and the value of `LABORATORY_ROLE`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Solo => "solo",
            Role::Client => "client",
            Role::Server => "server",
        }
    }

    /// The role of that name.
    pub fn named(name: &str) -> Option<Role> {
        [Role::Solo, Role::Client, Role::Server].into_iter().find(|role| role.name() == name)
    }
}

/// A way to run a scenario under shunt: a column of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Arrangement {
    /// Both ends under shunt; in a duet they are two processes.
    Both,
    /// Only the connecting process is under shunt.
    ClientOnly,
    /// Only the accepting process is under shunt.
    ServerOnly,
    /// Both ends in one process, far being a thread.
    OneProcess,
    /// As `Both`, compiled with `_FORTIFY_SOURCE=2` and `_FILE_OFFSET_BITS=64`.
    Fortified,
    /// As `Both`, with `--raw trap`.
    Trapped,
    /// Each end under shunt on a host of its own, and streams to other hosts switched off: everything falls back.
    HostsNone,
    /// Each end under shunt on a host of its own, frames by UDP sockets: no agent.
    HostsUdp,
    /// Each end under shunt on a host of its own, each host with an agent that lends its queue: frames by AF_XDP.
    HostsXdp,
    /// Each end under shunt in a network namespace of its own, with a directory in common.
    HostsNear,
    /// Near on a host with an agent that takes connections (`--inet`), far on one without shunt; connections are given back after so many turns as a
    /// seed draws.
    HostsInet,
    /// The same with far on the host with the agent.
    HostsInetFar,
}

impl Arrangement {
    /// Every column, in the order of the matrix.
    pub const ALL: [Arrangement; 6] = [
        Arrangement::Both,
        Arrangement::ClientOnly,
        Arrangement::ServerOnly,
        Arrangement::OneProcess,
        Arrangement::Fortified,
        Arrangement::Trapped,
    ];

    /// Those with two hosts, network namespaces joined by a veth; columns of no matrix.
    pub const HOSTS: [Arrangement; 6] = [
        Arrangement::HostsNone,
        Arrangement::HostsUdp,
        Arrangement::HostsXdp,
        Arrangement::HostsNear,
        Arrangement::HostsInet,
        Arrangement::HostsInetFar,
    ];

    /// The arrangement of that name.
    pub fn named(name: &str) -> Option<Arrangement> {
        Arrangement::ALL.into_iter().chain(Arrangement::HOSTS).find(|arrangement| arrangement.name() == name)
    }

    /// The name used in trial names and in `deviations.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Arrangement::Both => "both",
            Arrangement::ClientOnly => "client-only",
            Arrangement::ServerOnly => "server-only",
            Arrangement::OneProcess => "one-process",
            Arrangement::Fortified => "fortified",
            Arrangement::Trapped => "trapped",
            Arrangement::HostsNone => "hosts-none",
            Arrangement::HostsUdp => "hosts-udp",
            Arrangement::HostsXdp => "hosts-xdp",
            Arrangement::HostsNear => "hosts-near",
            Arrangement::HostsInet => "hosts-inet",
            Arrangement::HostsInetFar => "hosts-inet-far",
        }
    }

    /// Whether the scenario has this column.
    pub fn applies_to(self, scenario: &Scenario) -> bool {
        match self {
            Arrangement::Trapped => scenario.may_be_trapped(),
            _ if scenario.must_be_trapped() => self == Arrangement::Both,
            Arrangement::Both | Arrangement::Fortified => true,
            Arrangement::ClientOnly | Arrangement::ServerOnly => !scenario.is_solo(),
            _ if self.has_two_hosts() => !scenario.is_solo(),
            _ => !scenario.is_solo() && !scenario.needs_two_processes(),
        }
    }

    /// Whether connections are expected to be accelerated: both ends must be under shunt, or one of them take those of a plain one.
    pub fn accelerates(self) -> bool {
        !matches!(self, Arrangement::ClientOnly | Arrangement::ServerOnly | Arrangement::HostsNone)
    }

    /// On which of two hosts, near's or far's, connections with the other are taken from the kernel.
    pub fn takes(self) -> Option<usize> {
        match self {
            Arrangement::HostsInet => Some(0),
            Arrangement::HostsInetFar => Some(1),
            _ => None,
        }
    }

    /// Whether near and far are on hosts of their own.
    pub fn has_two_hosts(self) -> bool {
        Arrangement::HOSTS.contains(&self)
    }

    /// Whether the near process runs under shunt in this arrangement.
    pub fn near_under_shunt(self, role: Role) -> bool {
        match self {
            Arrangement::ClientOnly => role != Role::Server,
            Arrangement::ServerOnly => role == Role::Server,
            _ => self.takes() != Some(1),
        }
    }

    /// Whether the far process, if there is one, runs under shunt.
    pub fn far_under_shunt(self, role: Role) -> bool {
        match self {
            Arrangement::ClientOnly => role == Role::Server,
            Arrangement::ServerOnly => role != Role::Server,
            _ => self.takes() != Some(0),
        }
    }
}
