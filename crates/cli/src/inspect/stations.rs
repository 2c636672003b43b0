//! Streams to other hosts, joined from stations, companions and /proc.
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use shunt_agent::report::{self, Report};
use shunt_segment::address::Address;
use shunt_station::view::{self, PeerView, StreamView, View};
use shunt_station::{paths, Count};

use super::connection::{ip_text, socket_text, Connection};
use super::processes::{self, Target};

/// A connection to another host that does not go by the kernel's TCP alone.
#[derive(Clone, Debug, Serialize)]
pub struct Stream {
    /// This host's address.
    pub local: String,
    /// Its port.
    pub local_port: u16,
    /// The other host's address.
    pub remote: String,
    /// Its port.
    pub remote_port: u16,
    /// Whether this host connected, "client", or accepted, "server".
    pub role: &'static str,
    /// What carries frames: "udp", "xdp".
    pub device: &'static str,
    /// Which way its bytes go: `provisional`, `beginning`, `claimed` (by TCP until both ends are there), `fast` (by frames),
    /// `resuming`, `tcp` (the path was lost, or the other end never came).
    pub way: &'static str,
    /// The processes that have a descriptor of it.
    pub pids: Vec<u32>,
    /// The program of one of them.
    pub program: String,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes that the other host has.
    pub acknowledged_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes that the other host has room for now.
    pub room_bytes: u64,
    /// Seconds since it was opened.
    pub seconds: u64,
    /// What is known of the way to the other program's station, which all streams between the two share; null if it is lost.
    pub path: Option<Path>,
    /// What the agent of the interface says of the endpoint; null if the device needs none, or none of this network namespace has
    /// it.
    pub agent: Option<Agent>,
}

/// The way to another station.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Path {
    /// Whether it is set up.
    pub up: bool,
    /// Smoothed round-trip time in microseconds; 0: not measured yet.
    pub round_trip_us: f64,
    /// Its mean deviation.
    pub variation_us: f64,
    /// After so long without a sign packets under way count as lost.
    pub timeout_us: f64,
    /// Packets that may be under way by the congestion control, and by what both stations keep.
    pub window_packets: u32,
    /// See `window_packets`.
    pub largest_window_packets: u32,
    /// Time between two packets in microseconds; 0: not paced.
    pub pace_us: f64,
    /// Packets that are under way, wait to be sent, are to be sent again.
    pub in_flight_packets: u32,
    /// See `in_flight_packets`.
    pub queued_packets: u32,
    /// See `in_flight_packets`.
    pub lost_packets: u32,
    /// Frames sent and received.
    pub frames_sent: u64,
    /// See `frames_sent`.
    pub frames_received: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
}

/// An endpoint, as its agent sees it.
#[derive(Clone, Debug, Serialize)]
pub struct Agent {
    /// The agent's interface.
    pub interface: String,
    /// Its process.
    pub pid: u32,
    /// Where its program runs: `native` or `generic`.
    pub attachment: String,
    /// What the endpoint has: `own-queue` or `multiplexed`.
    pub kind: String,
    /// Which queue.
    pub queue: u32,
    /// What copies its frames: `copy` (the kernel) or `zero-copy`.
    pub mode: String,
    /// The next hop on the way to the other host: `ready`, `resolving`, `unreachable`.
    pub next_hop: String,
    /// Messages of the endpoint that could not be sent, and frames for it that were dropped.
    pub unsent: u64,
    /// See `unsent`.
    pub dropped: u64,
}

/// All stations of some processes.
#[derive(Default)]
pub struct Stations {
    /// Their streams, those that no program has left out.
    pub streams: Vec<Stream>,
    /// Stations, whichever process has them.
    pub count: usize,
    /// Streams whose path was lost so far.
    pub lost: u64,
}

/// Bytes of one user's stations that are read.
const MOST_OF_A_USER: u64 = 1 << 30;

/// The stations that `pids` have. What of `connections` is a stream to another host is moved out of it.
pub fn of_processes(pids: &[u32], connections: &mut Vec<Connection>) -> Stations {
    let (mut views, mut looked_at) = (BTreeMap::new(), BTreeSet::new());
    let mut of_users: BTreeMap<u32, u64> = BTreeMap::new();
    for &pid in pids {
        for descriptor in processes::descriptors(pid).unwrap_or_default() {
            if descriptor.target != Target::Memory(view::NAME.to_owned()) {
                continue;
            }
            let Ok(memory) = processes::memory(pid, descriptor.number) else { continue };
            if !looked_at.insert(memory.key) {
                continue;
            }
            // Anybody can make such files; each is copied.
            let read = of_users.entry(memory.owner).or_default();
            *read = read.saturating_add(memory.length);
            if *read > MOST_OF_A_USER {
                continue;
            }
            if let Some(view) = memory.open(false).ok().and_then(|file| View::read(&file).ok()) {
                views.insert(memory.key, view);
            }
        }
    }
    let agents = match views.values().any(|view| view.device == "xdp") {
        true => asked(&report::interfaces()),
        false => Vec::new(),
    };
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec as u64;
    let mut stations = Stations { count: views.len(), ..Stations::default() };
    for view in views.values() {
        stations.lost += view.count(Count::Lost);
        let used = view.streams.iter().filter(|stream| !stream.reserved && !stream.closing && stream.words[paths::WAY] != 0);
        stations.streams.extend(used.map(|stream| {
            let agent = view.peer(stream.peer).and_then(|peer| agent(&agents, peer.tag));
            Stream { agent, ..joined(view, stream, now, connections) }
        }));
    }
    stations.streams.sort_by(|a, b| {
        (&a.local, a.local_port, &a.remote, a.remote_port).cmp(&(&b.local, b.local_port, &b.remote, b.remote_port))
    });
    stations
}

/// What agents say, asked at the same time: each may take its time, and names of agents are anybody's.
fn asked(interfaces: &[String]) -> Vec<Report> {
    std::thread::scope(|scope| {
        let ask = |interface: &String| {
            let interface = interface.clone();
            scope.spawn(move || report::ask(&interface).ok())
        };
        let asked: Vec<_> = interfaces.iter().take(AGENTS).map(ask).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok()?).collect()
    })
}

/// Agents that are asked.
const AGENTS: usize = 64;

fn joined(view: &View, stream: &StreamView, now: u64, connections: &mut Vec<Connection>) -> Stream {
    let ends = [stream.four.client, stream.four.server];
    let [own, other] = if stream.is_client { ends } else { [ends[1], ends[0]] };
    // The near end stands in its link as the client, whichever end connected.
    let is_it = |connection: &Connection| is(&connection.client, &own) && is(&connection.server, &other);
    let connection = connections.iter().position(is_it).map(|at| connections.remove(at));
    let (pids, program) = match connection {
        Some(Connection { client, .. }) if client.pids.is_empty() => (client.pid.into_iter().collect(), client.program),
        Some(Connection { client, .. }) => (client.pids, client.program),
        None => (Vec::new(), "-".to_owned()),
    };
    let word = |which: usize| stream.words[which];
    Stream {
        local: ip_text(&own),
        local_port: own.port,
        remote: ip_text(&other),
        remote_port: other.port,
        role: if stream.is_client { "client" } else { "server" },
        device: view.device,
        way: paths::word(word(paths::WAY)),
        pids,
        program,
        sent_bytes: word(paths::SENT),
        acknowledged_bytes: word(paths::ACKNOWLEDGED),
        received_bytes: word(paths::RECEIVED),
        room_bytes: stream.room,
        seconds: now.saturating_sub(stream.since / 1_000_000_000),
        path: view.peer(stream.peer).and_then(path),
        agent: None,
    }
}

/// The agent that has the endpoint with this tag.
fn agent(agents: &[Report], tag: u64) -> Option<Agent> {
    let tag = format!("{tag:016x}");
    let mut endpoints = agents.iter().flat_map(|agent| agent.endpoints.iter().map(move |endpoint| (agent, endpoint)));
    endpoints.find_map(|(agent, endpoint)| {
        let channel = endpoint.channels.iter().find(|channel| channel.tag == tag)?;
        Some(Agent {
            interface: agent.interface.clone(),
            pid: agent.pid,
            attachment: agent.attachment.clone(),
            kind: endpoint.kind.clone(),
            queue: endpoint.queue,
            mode: endpoint.mode.clone(),
            next_hop: channel.state.clone(),
            unsent: endpoint.unsent,
            dropped: endpoint.dropped.values().sum(),
        })
    })
}

fn is(party: &super::connection::Party, address: &Address) -> bool {
    party.port == address.port && party.address == ip_text(address)
}

fn path(peer: &PeerView) -> Option<Path> {
    let status = peer.status.as_ref()?;
    let microseconds = |time: u64| time as f64 / 1000.0;
    Some(Path {
        up: status.up,
        round_trip_us: microseconds(status.round_trip),
        variation_us: microseconds(status.variation),
        timeout_us: microseconds(status.timeout),
        window_packets: status.congestion_window,
        largest_window_packets: status.largest_window,
        pace_us: microseconds(status.pace),
        in_flight_packets: status.in_flight,
        queued_packets: status.queued,
        lost_packets: status.lost,
        frames_sent: status.counters.frames_sent,
        frames_received: status.counters.frames_received,
        retransmissions: status.counters.retransmissions,
        timeouts: status.counters.timeouts,
    })
}

impl Path {
    /// What it is like, for people.
    pub fn text(&self) -> String {
        let pace = match self.pace_us {
            0.0 => "not paced".to_owned(),
            pace => format!("one each {pace:.0}us"),
        };
        let mut text = format!(
            "round trip {:.0}us +-{:.0}, time-out {:.0}us; window {} of {} packets, {} under way, {} waiting, {pace}; \
             {} of {} frames sent again, {} time-outs",
            self.round_trip_us,
            self.variation_us,
            self.timeout_us,
            self.window_packets.min(self.largest_window_packets),
            self.largest_window_packets,
            self.in_flight_packets,
            self.queued_packets,
            self.retransmissions,
            self.frames_sent,
            self.timeouts,
        );
        if self.lost_packets > 0 {
            text.push_str(&format!(", {} to be sent again", self.lost_packets));
        }
        if !self.up {
            text.insert_str(0, "down; last: ");
        }
        text
    }
}

impl Agent {
    /// What it says, for people.
    pub fn text(&self) -> String {
        format!(
            "agent {} of {} ({}): {} {} ({}), next hop {}, {} unsent, {} dropped",
            self.pid, self.interface, self.attachment, self.kind, self.queue, self.mode, self.next_hop, self.unsent, self.dropped
        )
    }
}

impl Stream {
    /// How its path and its agent are, for people: a sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let path = match &self.path {
            Some(path) => path.text(),
            None => "the path is lost".to_owned(),
        };
        let room = format!("the other host has room for {} bytes, {} under way", self.room_bytes, self.under_way());
        let agent = match (&self.agent, self.device) {
            (Some(agent), _) => Some(agent.text()),
            (None, "xdp") => Some("no agent of this network namespace has its endpoint".to_owned()),
            _ => None,
        };
        [path, room].into_iter().chain(agent).collect()
    }

    /// Bytes sent that the other host may not have.
    pub fn under_way(&self) -> u64 {
        self.sent_bytes.saturating_sub(self.acknowledged_bytes)
    }

    /// The ends as people write them.
    pub fn ends(&self) -> [String; 2] {
        [socket_text(&self.local, self.local_port), socket_text(&self.remote, self.remote_port)]
    }

    /// What moves its bytes at this moment.
    pub fn carrier(&self) -> &'static str {
        match (self.way, self.device) {
            ("fast", device) => device,
            ("beginning" | "claimed" | "provisional", "xdp") => "tcp, then xdp",
            ("beginning" | "claimed" | "provisional", _) => "tcp, then udp",
            _ => "tcp",
        }
    }
}
