//! What moves the bytes of a message, as a device would.
//!
//! ```text
//! shm   the receiver copies out of the sender's region
//! udp   the kernel's sockets over loopback, one datagram
//! xdp   endpoints of two hosts (network namespaces and a veth): datagrams as long as the way takes, in their order
//! 1, 10 Gb/s   the kernel's sockets between two such hosts, of which the sender's interface has that rate (tc-tbf(8))
//! ```

use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use shunt_endpoint::{Arrival, Body, Bytes, Channel, Message, SendError};
use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{pair, Host, Joint};

use super::rig::LONGEST;
use crate::hosts::endpoints::{join, Boxed, Carrier as Device};

/// Bytes in front of a part: the message's number and where in it the part belongs.
const HEAD: usize = 16;
/// A message that is not there after this time has lost a part: these carriers repeat nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// How bytes go from one to the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// The receiver copies out of the sender's region.
    Shm,
    /// The kernel's UDP over loopback.
    Udp,
    /// AF_XDP between two hosts.
    Xdp,
    /// The kernel's UDP between two hosts, by a link of so many Gb/s.
    Shaped(u32),
}

/// Bytes that a link of a rate passes at once: three packets, or as many as go by in the time that a timer is late.
pub fn bucket(gigabits: u32) -> usize {
    (gigabits as usize * 1600).max(4000)
}

impl Carrier {
    pub const ALL: [Carrier; 3] = [Carrier::Shm, Carrier::Udp, Carrier::Xdp];

    pub fn word(self) -> &'static str {
        match self {
            Carrier::Shm => "shm",
            Carrier::Udp => "udp",
            Carrier::Xdp => "xdp",
            Carrier::Shaped(_) => "shaped",
        }
    }

    /// The longest message that it carries.
    pub fn longest(self) -> usize {
        match self {
            Carrier::Shm | Carrier::Xdp => LONGEST,
            Carrier::Udp | Carrier::Shaped(_) => 60 << 10,
        }
    }

    /// Makes both ends: the sender's, the receiver's, and what has to stay as long as they do. `shunt` is the agent of two hosts.
    ///
    /// # Errors
    /// `Unsupported`, with a sentence: this machine has no two hosts or no agent.
    pub fn ends(self, shunt: Option<&Path>) -> io::Result<(Link, Link, Kept)> {
        match self {
            Carrier::Shm => Ok((Link::Memory, Link::Memory, Kept::default())),
            Carrier::Udp => {
                let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
                join_sockets(one, two, Kept::default())
            }
            Carrier::Shaped(gigabits) => {
                let missing = |why: String| io::Error::new(io::ErrorKind::Unsupported, why);
                let hosts = pair(Joint::default()).map_err(missing)?;
                let mut shape = hosts[0].command("tc");
                let (rate, burst) = (format!("{gigabits}gbit"), bucket(gigabits).to_string());
                shape.args(["qdisc", "add", "dev", &hosts[0].interface, "root", "tbf", "rate", &rate, "burst", &burst]);
                shape.args(["limit", "1mb"]).stderr(std::process::Stdio::null());
                if !shape.status().is_ok_and(|status| status.success()) {
                    return Err(missing("the kernel or tc has no token bucket filter".into()));
                }
                let [one, two] = hosts.each_ref().map(|host| host.enter(|| UdpSocket::bind((host.addresses[0], 0))));
                join_sockets(one?, two?, Kept { _agents: Vec::new(), _hosts: Vec::from(hosts) })
            }
            Carrier::Xdp => {
                let missing = |why: String| io::Error::new(io::ErrorKind::Unsupported, why);
                let shunt = shunt.ok_or_else(|| missing("no shunt command beside this one or at --shunt PATH".into()))?;
                let hosts = pair(Joint::default()).map_err(missing)?;
                let joined = join(Device::Own, hosts.each_ref(), shunt).map_err(missing)?;
                let [one, two] = joined.ends.map(|(endpoint, channel)| Link::Endpoint(Box::new(End::new(endpoint, channel))));
                Ok((one, two, Kept { _agents: joined.agents, _hosts: Vec::from(hosts) }))
            }
        }
    }
}

fn join_sockets(one: UdpSocket, two: UdpSocket, kept: Kept) -> io::Result<(Link, Link, Kept)> {
    one.connect(two.local_addr()?)?;
    two.connect(one.local_addr()?)?;
    two.set_nonblocking(true)?;
    Ok((Link::Socket(one), Link::Socket(two), kept))
}

/// Agents and hosts; the agents go first.
#[derive(Default)]
pub struct Kept {
    _agents: Vec<Agent>,
    _hosts: Vec<Host>,
}

/// One side's end.
pub enum Link {
    Memory,
    Socket(UdpSocket),
    Endpoint(Box<End>),
}

/// An endpoint, and what has come of the next message.
pub struct End {
    endpoint: Boxed,
    channel: Channel,
    /// The longest part that the way to the other host takes; found out with the first message.
    part: usize,
    first: Option<Arrival>,
    sent: u64,
    received: u64,
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a part of a message was lost")
}

impl Link {
    /// Whether bytes travel: otherwise the receiver has to be told where they are.
    pub fn carries(&self) -> bool {
        !matches!(self, Link::Memory)
    }

    /// Sends a message.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Link::Memory => Ok(()),
            Link::Socket(socket) => socket.send(bytes).map(drop),
            Link::Endpoint(end) => end.send(bytes),
        }
    }

    /// Waits until something of the next message is there.
    pub fn wait(&mut self) -> io::Result<()> {
        match self {
            Link::Memory => Ok(()),
            Link::Socket(socket) => {
                let mut outside = [0u8; 1];
                let (mut turns, mut since) = (0u64, None);
                while socket.peek(&mut outside).is_err() {
                    turns += 1;
                    if turns.is_multiple_of(1 << 10) && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return Err(late());
                    }
                }
                Ok(())
            }
            Link::Endpoint(end) => {
                let first = end.arrival()?;
                end.first = Some(first);
                Ok(())
            }
        }
    }

    /// Takes the message that was waited for into `target`, which is as long.
    pub fn take(&mut self, target: &mut [u8]) -> io::Result<()> {
        match self {
            Link::Memory => Ok(()),
            Link::Socket(socket) => socket.recv(target).map(drop),
            Link::Endpoint(end) => end.take(target),
        }
    }
}

impl End {
    fn new(endpoint: Boxed, channel: Channel) -> End {
        let part = endpoint.capabilities().largest as usize - HEAD;
        End { endpoint, channel, part, first: None, sent: 0, received: 0 }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent += 1;
        let (mut at, mut turns, mut since) = (0, 0u64, None);
        while at < bytes.len() {
            let mut head = [0; HEAD];
            head[..8].copy_from_slice(&self.sent.to_le_bytes());
            head[8..].copy_from_slice(&(at as u64).to_le_bytes());
            let part = &bytes[at..bytes.len().min(at + self.part)];
            let message = Message { channel: self.channel, head: &head, body: Body::Bytes(Bytes::from(part)) };
            match self.endpoint.send(&message) {
                Ok(_) => at += part.len(),
                // What the interface takes is more than what the way does.
                Err(SendError::TooLarge) if self.part > 512 => self.part -= 1,
                Err(SendError::NoResource) => {
                    self.flush()?;
                    turns += 1;
                    if turns.is_multiple_of(1 << 10) && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return Err(io::Error::other("the endpoint takes no more"));
                    }
                }
                Err(error) => return Err(io::Error::other(format!("{error:?}"))),
            }
        }
        while !self.flush()? {}
        Ok(())
    }

    fn flush(&mut self) -> io::Result<bool> {
        self.endpoint.flush().map_err(|error| io::Error::other(format!("{error:?}")))
    }

    fn arrival(&mut self) -> io::Result<Arrival> {
        let mut arrival = Arrival::empty();
        let (mut turns, mut since) = (0u64, None);
        while !self.endpoint.receive(&mut arrival) {
            std::hint::spin_loop();
            turns += 1;
            if turns.is_multiple_of(1 << 16) && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(late());
            }
        }
        Ok(arrival)
    }

    fn take(&mut self, target: &mut [u8]) -> io::Result<()> {
        self.received += 1;
        let mut had = 0;
        while had < target.len() {
            let mut arrival = match self.first.take() {
                Some(first) => first,
                None => self.arrival()?,
            };
            let word =
                |at: usize| arrival.head().get(at..at + 8).map_or(u64::MAX, |word| u64::from_le_bytes(word.try_into().unwrap()));
            // Each part once, one behind the other: the device says that it keeps the order.
            if (word(0), word(8)) != (self.received, had as u64) {
                return Err(late());
            }
            let length = arrival.len() - HEAD;
            let place = target.get_mut(had..had + length).ok_or_else(late)?;
            had += arrival.copy_to(&self.endpoint.segment(), HEAD, place);
            self.endpoint.release(&mut arrival);
        }
        Ok(())
    }
}
