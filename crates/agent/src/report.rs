//! What `shunt agent status`, `shunt ss` and `shunt doctor` show.

use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::Ordering::Relaxed;

use serde::{Deserialize, Serialize};
use shunt_endpoint::Drop as Reason;
use shunt_sys::calls;
use shunt_xdp::protocol::{Connection, Operation, Reply, Request};

use crate::agent::Agent;
use crate::client::{Attached, Client};
use crate::ebpf::program::Counter;
use crate::interface::Interface;
use crate::requests::Answer;

/// In place of where the program runs, while no endpoint has needed it.
pub const NO_PROGRAM: &str = "none yet";

/// An agent and its interface.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// The interface.
    pub interface: String,
    /// The agent's process.
    pub pid: u32,
    /// Seconds since it started.
    pub seconds: u64,
    /// The UDP port of its endpoints.
    pub port: u16,
    /// The interface's addresses.
    pub addresses: Vec<String>,
    /// Bytes of the largest frame.
    pub largest_frame: u32,
    /// Where the program runs: `native` or `generic`; or [`NO_PROGRAM`].
    pub attachment: String,
    /// Why not in the driver.
    pub native_error: Option<String>,
    /// The agent's own queues.
    pub queues: Vec<Queue>,
    /// The queues that can be lent, and which endpoint has them (its index in `endpoints`, if it may be seen).
    pub lent: Vec<u32>,
    /// What the program counted.
    pub sorted: BTreeMap<String, u64>,
    /// Frames that belonged to no endpoint, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Datagrams that came the kernel's way, from queues that are not the agent's.
    pub astray: u64,
    /// The users that have something: how many endpoints, and bytes.
    pub users: BTreeMap<u32, (usize, u64)>,
    /// The endpoints: of the user who asks, or all for root.
    pub endpoints: Vec<Endpoint>,
    /// Connections taken from the kernel.
    pub connections: Connections,
    /// The capture, if there is one; told to root.
    pub capture: Option<Capture>,
}

/// A file that gets every frame.
#[derive(Debug, Serialize, Deserialize)]
pub struct Capture {
    /// Its path, or `-`.
    pub file: String,
    /// Frames in it.
    pub frames: u64,
    /// Frames that are missing: there was no room for them.
    pub lost: u64,
    /// Why it has ended, if it has.
    pub failure: Option<String>,
}

/// Connections of all programs that were taken from the kernel.
#[derive(Debug, Serialize, Deserialize)]
pub struct Connections {
    /// How many are taken now.
    pub taken: usize,
    /// How many were given back.
    pub given_back: u64,
    /// How many the kernel did not take back, and which were closed therefore.
    pub lost: u64,
    /// The step, and what the kernel said, of the last of those.
    pub refused: Option<String>,
    /// The process that gives back what is taken if the agent is killed; none where none are taken.
    pub guard: Option<i32>,
}

impl Connections {
    /// Of an agent that takes none.
    fn none() -> Connections {
        Connections { taken: 0, given_back: 0, lost: 0, refused: None, guard: None }
    }
}

/// A queue of the agent's.
#[derive(Debug, Serialize, Deserialize)]
pub struct Queue {
    /// Its number.
    pub queue: u32,
    /// `zero-copy` or `copy`.
    pub mode: String,
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames that the kernel dropped because we had no room.
    pub overrun: u64,
}

/// An endpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its process.
    pub pid: i32,
    /// Its user.
    pub user: u32,
    /// `own-queue` or `multiplexed`.
    pub kind: String,
    /// Its queue.
    pub queue: u32,
    /// `zero-copy` or `copy`.
    pub mode: String,
    /// Its address.
    pub address: String,
    /// Bytes of its memory.
    pub bytes: u64,
    /// How many tags it has.
    pub tags: usize,
    /// Messages sent, by its own count.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Messages that could not be sent.
    pub unsent: u64,
    /// Frames dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Its channels.
    pub channels: Vec<Channel>,
}

/// A channel.
#[derive(Debug, Serialize, Deserialize)]
pub struct Channel {
    /// The peer.
    pub peer: String,
    /// The tag by which the peer reaches it.
    pub tag: String,
    /// `ready`, `resolving` or `unreachable`.
    pub state: String,
}

fn reasons(count: impl Fn(Reason) -> u64) -> BTreeMap<String, u64> {
    let all = Reason::ALL.iter().map(|reason| (reason.name().to_string(), count(*reason)));
    all.filter(|(_, count)| *count > 0).collect()
}

impl Agent {
    pub(crate) fn status(&mut self, number: u32) -> Answer {
        let who = self.clients.get(&number).ok_or(libc::ENOTCONN)?.who;
        let text = serde_json::to_vec(&self.report(who.user)).map_err(|_| libc::ENOMEM)?;
        let fd = calls::memfd_create(b"shunt-agent-status\0", libc::MFD_CLOEXEC).map_err(|errno| errno.0)?;
        // SAFETY: made above.
        let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
        file.write_all(&text).and_then(|()| file.rewind()).map_err(|_| libc::ENOMEM)?;
        Ok((Reply::done(), vec![file.into()]))
    }

    /// What user `user` may see.
    pub fn report(&self, user: u32) -> Report {
        let visible = |client: &&Client| user == 0 || client.who.user == user;
        let users: std::collections::BTreeSet<u32> =
            self.clients.values().filter(|client| client.endpoint.is_some()).map(|client| client.who.user).collect();
        let mut clients: Vec<_> = self.clients.iter().collect();
        clients.sort_by_key(|(number, _)| **number);
        let queues = self.trunks.iter().map(|trunk| {
            let statistics = trunk.statistics();
            Queue {
                queue: trunk.queue,
                mode: trunk.mode.word().to_string(),
                sent: trunk.sent,
                received: trunk.received,
                overrun: statistics.dropped + statistics.receive_full + statistics.fill_empty,
            }
        });
        // It may have got others since.
        let addresses = Interface::find(&self.interface.name).map(|now| now.addresses);
        let addresses = addresses.as_ref().unwrap_or(&self.interface.addresses);
        let sorts = self.sorting.told();
        let attached = |client: &Client| client.endpoint.as_ref().map(|endpoint| describe(client, endpoint));
        Report {
            interface: self.interface.name.clone(),
            pid: std::process::id(),
            seconds: self.began.elapsed().as_secs(),
            port: self.configuration.port,
            addresses: addresses.iter().map(ToString::to_string).collect(),
            largest_frame: self.frame,
            attachment: sorts.as_ref().map_or(NO_PROGRAM, |(attachment, _)| attachment.word()).to_string(),
            native_error: sorts.and_then(|(_, native_error)| native_error),
            queues: queues.collect(),
            lent: self.lend.clone(),
            sorted: Counter::ALL
                .iter()
                .map(|(counter, name)| (name.to_string(), self.maps.count(*counter).unwrap_or(0)))
                .collect(),
            dropped: reasons(|reason| self.dropped[reason as usize]),
            astray: self.astray,
            connections: self.connections.as_ref().map_or_else(Connections::none, |shared| shared.report()),
            capture: self.capture.as_ref().filter(|_| user == 0).map(|capture| capture.report()),
            users: users
                .into_iter()
                .filter(|other| user == 0 || *other == user)
                .map(|user| (user, self.accounted(user)))
                .collect(),
            endpoints: clients.into_iter().map(|(_, client)| client).filter(visible).filter_map(attached).collect(),
        }
    }
}

fn describe(client: &Client, endpoint: &Attached) -> Endpoint {
    let counters = endpoint.memory.counters();
    let mut channels: Vec<_> = endpoint.channels.iter().collect();
    channels.sort_by_key(|(index, _)| **index);
    Endpoint {
        pid: client.who.pid,
        user: client.who.user,
        kind: endpoint.kind.word().to_string(),
        queue: endpoint.queue,
        mode: endpoint.mode.word().to_string(),
        address: endpoint.address.to_string(),
        bytes: endpoint.bytes,
        tags: endpoint.tags.len(),
        sent: counters.sent.load(Relaxed),
        received: counters.received.load(Relaxed),
        unsent: counters.unsent.load(Relaxed),
        dropped: reasons(|reason| counters.dropped(reason)),
        channels: channels
            .into_iter()
            .map(|(_, channel)| Channel {
                peer: channel.peer.to_string(),
                tag: format!("{:016x}", channel.receive),
                state: channel.next_hop.word().to_string(),
            })
            .collect(),
    }
}

/// Asks the agent of `interface` in this network namespace.
///
/// # Errors
/// A sentence: none serves it, or it does not answer.
pub fn ask(interface: &str) -> Result<Report, String> {
    let wrong = |errno: shunt_sys::Errno| match errno.0 {
        libc::ECONNREFUSED => format!("no agent serves {interface} here: `shunt agent --interface {interface}`, as root"),
        libc::EPERM => format!("what answers for {interface} is not root's, so it is no agent"),
        errno => format!("the agent of {interface}: {}", std::io::Error::from_raw_os_error(errno)),
    };
    let connection = Connection::connect(interface).map_err(wrong)?;
    let (_, [fd]) = connection.ask::<1>(&Request::new(Operation::Status)).map_err(wrong)?;
    // SAFETY: it came for us.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(|error| error.to_string())?;
    let _ = file.as_raw_fd();
    serde_json::from_str(&text).map_err(|error| format!("the agent of {interface} answers strangely: {error}"))
}

/// The interfaces of this network namespace that have an agent, as the names of sockets show (proc_net(5)).
pub fn interfaces() -> Vec<String> {
    // Other sockets' names may hold any bytes.
    let table = std::fs::read("/proc/thread-self/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let names = table.lines().filter_map(|line| line.rsplit_once("@shunt1-agent-")).map(|(_, name)| name.to_string());
    // Anybody may bind such a name; an interface is called like this.
    let plain = |name: &String| {
        let allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        (1..16).contains(&name.len()) && name.chars().all(allowed)
    };
    names.filter(plain).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}
