//! Where a trial takes place: on one host, which is the calling thread's network namespace, or on two that a veth joins.

use crate::arrangement::Arrangement;
use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{self, Host, Joint};
use shunt_testkit::Scratch;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The hosts of one trial; two of them are gone with it.
pub struct Site {
    hosts: Option<[Host; 2]>,
    /// What the programs find of the option `hosts`; `None`: nothing, and the default holds.
    option: Option<&'static str>,
    /// The directory in which programs of the two meet.
    near: Option<Scratch>,
    agents: Vec<Agent>,
}

/// How long what shunt keeps for other hosts may outlive the programs.
const PATIENCE: Duration = Duration::from_secs(3);

/// Names that may be left: of programs that were killed while they connected, which the next one removes.
const MOST_LEFT: usize = 1;

impl Site {
    /// The namespace that the thread is in.
    pub fn one_host() -> Site {
        Site { hosts: None, option: None, near: None, agents: Vec::new() }
    }

    /// Two hosts; with an agent each where the arrangement asks for it and `shunt` names the command.
    ///
    /// # Errors
    /// What keeps the hosts from being made, or the agents from starting.
    pub fn two_hosts(arrangement: Arrangement, shunt: Option<&Path>) -> io::Result<Site> {
        let hosts = hosts::pair(Joint::default()).map_err(io::Error::other)?;
        let mut agents = Vec::new();
        if let (Arrangement::HostsXdp, Some(shunt)) = (arrangement, shunt) {
            for host in &hosts {
                // The first program of a host has the queue; those beside it go by UDP.
                agents.push(Agent::start(host, shunt, &["--lend", "0"]).map_err(io::Error::other)?);
            }
        }
        if let (Some(takes), Some(shunt)) = (arrangement.takes(), shunt) {
            agents.push(Agent::start(&hosts[takes], shunt, &["--lend", "0", "--take"]).map_err(io::Error::other)?);
        }
        let option = match (arrangement, shunt) {
            // A list makes no condition of an agent; without one, it is UDP.
            (Arrangement::HostsUdp, Some(_)) => Some("10.77.0.0/24,fd77::/64"),
            (Arrangement::HostsXdp, Some(_)) => None,
            // Of the kernel it is not expected that a gate opens.
            _ => Some("none"),
        };
        let near = (arrangement == Arrangement::HostsNear && shunt.is_some()).then(|| Scratch::new("near"));
        if let Some(directory) = &near {
            // Of programs of all users, as docs/CONTAINERS.md has it.
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o1777))?;
        }
        Ok(Site { hosts: Some(hosts), option, near, agents })
    }

    /// Lets `command` run on host `number` and know the addresses: its own first, then the other host's.
    pub fn enter(&self, command: &mut Command, number: usize) {
        let Some(hosts) = &self.hosts else { return };
        let (own, other) = (&hosts[number], &hosts[1 - number]);
        let addresses: Vec<String> = own.addresses.iter().chain(&other.addresses).map(ToString::to_string).collect();
        command.env("LABORATORY_HOSTS", addresses.join(" "));
        match self.option {
            Some(option) => command.env("SHUNT_HOSTS", option),
            None => command.env_remove("SHUNT_HOSTS"),
        };
        match &self.near {
            Some(directory) => command.env("SHUNT_NEAR", directory.path()),
            None => command.env("SHUNT_NEAR", "off"),
        };
        let namespace = own.namespace();
        // SAFETY: one system call between fork and exec, on a descriptor that this process keeps open meanwhile.
        unsafe {
            command.pre_exec(move || match libc::setns(namespace, libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
    }

    /// A line for the transcript if names stay in the directory, of connections of programs that ended in good order or long ago.
    fn names_left(&self) -> Option<String> {
        let directory = self.near.as_ref()?;
        let left = std::fs::read_dir(directory.path()).map_or(0, Iterator::count);
        (left > MOST_LEFT).then(|| format!("{left} names are left in the directory"))
    }

    /// A line for the transcript if processes stay on the hosts although the programs are gone; it ends them.
    pub fn left_behind(&self) -> Option<String> {
        let hosts = self.hosts.as_ref()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let agents: Vec<u32> = self.agents.iter().map(Agent::id).collect();
            let is_agents =
                |process: &u32| agents.contains(process) || parent(*process).is_some_and(|parent| agents.contains(&parent));
            let left: Vec<u32> = hosts.iter().flat_map(Host::processes).filter(|process| !is_agents(process)).collect();
            if left.is_empty() {
                return self.names_left();
            }
            if Instant::now() > deadline {
                let names =
                    left.iter().map(|process| std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default());
                let names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
                for process in left {
                    // SAFETY: takes no pointer. The process was seen in a namespace of this trial just now.
                    unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
                }
                return Some(format!("still on the hosts: {}", names.join(", ")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The process that started this one: an agent's guard is its agent's.
fn parent(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
