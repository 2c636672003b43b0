//! Bare endpoints: messages without any protocol above.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::{Area, Arrival, Body, Buffers, Bytes, Channel, Endpoint, Message, SendError, Tags, INLINE};
use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::Host;
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

use super::contender::{side_by_side, thread_time, time_round_trips, Contender, Pattern, Streamed};
use super::Plan;

/// An endpoint of any device.
pub type Boxed = Box<dyn Endpoint + Send>;

/// Which device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// AF_XDP, a queue of its own.
    Own,
    /// AF_XDP, moved by the agents.
    Multiplexed,
    /// UDP sockets.
    Udp,
    /// Memory that both ends have.
    #[cfg(feature = "libfabric")]
    Shm,
    /// A provider of libfabric's, on this host.
    #[cfg(feature = "libfabric")]
    Fabric(&'static str),
}

impl Carrier {
    /// The device's name.
    pub fn word(self) -> &'static str {
        match self {
            Carrier::Own | Carrier::Multiplexed => "xdp",
            Carrier::Udp => "udp",
            #[cfg(feature = "libfabric")]
            Carrier::Shm => "shm",
            #[cfg(feature = "libfabric")]
            Carrier::Fabric(provider) => provider,
        }
    }

    /// The row of programs under shunt over this device.
    pub fn sockets(self) -> &'static str {
        match self {
            Carrier::Own | Carrier::Multiplexed => "sockets, xdp",
            _ => "sockets, udp",
        }
    }
}

/// Endpoints of one device.
pub struct Endpoints {
    /// The row's name.
    pub name: &'static str,
    /// The device.
    pub carrier: Carrier,
}

/// An agent that lends its queue for own endpoints, and none for others.
fn agent(host: &Host, shunt: &Path, carrier: Carrier) -> Result<Agent, String> {
    let lend = if carrier == Carrier::Own { "0" } else { "none" };
    Agent::start(host, shunt, &["--lend", lend])
}

/// Both ends and the channel between them.
pub struct Joined {
    pub ends: [(Boxed, Channel); 2],
    pub agents: Vec<Agent>,
}

/// An agent on either host, where the device wants one.
pub fn agents(carrier: Carrier, hosts: [&Host; 2], plan: &Plan<'_>) -> Result<Vec<Agent>, String> {
    agents_of(carrier, hosts, plan.shunt)
}

/// The same.
pub fn agents_of(carrier: Carrier, hosts: [&Host; 2], shunt: &Path) -> Result<Vec<Agent>, String> {
    match carrier {
        Carrier::Own | Carrier::Multiplexed => hosts.into_iter().map(|host| agent(host, shunt, carrier)).collect(),
        _ => Ok(Vec::new()),
    }
}

/// Endpoints of a device on two hosts, with a channel between them; `shunt` is the agent.
pub fn join(carrier: Carrier, hosts: [&Host; 2], shunt: &Path) -> Result<Joined, String> {
    let agents = agents_of(carrier, hosts, shunt)?;
    let mut a = end(carrier, hosts[0])?;
    let mut b = end(carrier, hosts[1])?;
    post(&mut a);
    post(&mut b);
    let wrong = |what: &dyn std::fmt::Debug| format!("{what:?}");
    let (for_a, for_b) = (a.new_tag().map_err(|error| wrong(&error))?, b.new_tag().map_err(|error| wrong(&error))?);
    let to_b = a.open(&b.address(), Tags { receive: for_a, send: for_b }).map_err(|error| wrong(&error))?;
    let to_a = b.open(&a.address(), Tags { receive: for_b, send: for_a }).map_err(|error| wrong(&error))?;
    Ok(Joined { ends: [(a, to_b), (b, to_a)], agents })
}

impl Endpoints {
    pub fn join(&self, hosts: &[Host; 2], plan: &Plan<'_>) -> Result<Joined, String> {
        join(self.carrier, hosts.each_ref(), plan.shunt)
    }
}

/// Posts receive buffers where the device wants them: as many as the free queue takes.
pub fn post(end: &mut Boxed) {
    if let Buffers::Posted { smallest, alignment } = end.capabilities().buffers {
        let size = smallest.max(2048).next_multiple_of(alignment);
        let all = (0..).map(|index| Area::new(index * size, size));
        let inside = all.take_while(|area| area.end() <= end.segment().size().into()).collect::<Vec<_>>();
        // The first stays for sending.
        let _ = inside.iter().skip(1).take_while(|area| end.post(**area).is_ok()).count();
    }
}

/// An endpoint of a device on a host.
pub fn end(carrier: Carrier, host: &Host) -> Result<Boxed, String> {
    let sizes = Sizes { channels: 64, depth: 1024, segment: 4 << 20 };
    let attach = |kind| {
        host.enter(|| Xdp::attach(&host.interface, kind, false, sizes))
            .map(|endpoint| Box::new(endpoint) as Boxed)
            .map_err(|errno| format!("the endpoint: {errno:?}"))
    };
    match carrier {
        Carrier::Own => attach(Kind::Own),
        Carrier::Multiplexed => attach(Kind::Multiplexed),
        Carrier::Udp => host.enter(|| {
            let std::net::IpAddr::V4(ip) = host.addresses[0] else { return Err("no IPv4 address".to_string()) };
            let mut options = Options::default();
            let shape = &mut options.shape;
            (shape.send, shape.receive, shape.free, shape.segment) = (1024, 1024, 1024, 4 << 20);
            let made = Udp::bind(&ipv4(ip.octets(), 0), options);
            made.map(|endpoint| Box::new(endpoint) as Boxed).map_err(|errno| format!("the endpoint: {errno:?}"))
        }),
        #[cfg(feature = "libfabric")]
        Carrier::Shm => shunt_endpoint::device::shm::Shm::new(Default::default())
            .map(|endpoint| Box::new(endpoint) as Boxed)
            .map_err(|errno| format!("the endpoint: {errno:?}")),
        // libfabric's tcp makes sockets whenever it connects, by whichever thread drives it: those are not of a host's namespace.
        #[cfg(feature = "libfabric")]
        Carrier::Fabric(provider) => {
            let node = (provider == "tcp").then_some("127.0.0.1");
            let made = shunt_fabric::Fabric::new(shunt_fabric::Options { provider, node, ..Default::default() });
            made.map(|endpoint| Box::new(endpoint) as Boxed).map_err(|error| format!("the endpoint: {error:?}"))
        }
    }
}

pub fn message(channel: Channel, bytes: &[u8]) -> Message<'_> {
    if bytes.len() <= INLINE {
        Message::small(channel, bytes)
    } else {
        Message { channel, head: &[], body: Body::Bytes(Bytes::from(bytes)) }
    }
}

pub fn send(end: &mut dyn Endpoint, channel: Channel, bytes: &[u8]) -> Result<(), String> {
    loop {
        match end.send(&message(channel, bytes)) {
            Ok(_) => break,
            Err(SendError::NoResource) => std::hint::spin_loop(),
            Err(error) => return Err(format!("{error:?}")),
        }
        end.flush().map_err(|error| format!("{error:?}"))?;
    }
    end.flush().map_err(|error| format!("{error:?}")).map(|_| ())
}

/// One message was lost if none comes for so long; it is sent again.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(50);

/// Bytes of the longest message of an endpoint whose interface carries packets of 1,500 bytes: without headers of IPv6, UDP and
/// endpoint.
pub const LONGEST: usize = 1500 - 40 - 8 - 16;

impl Contender for Endpoints {
    fn name(&self) -> &'static str {
        self.name
    }

    fn carries(&self, size: usize, _: Pattern) -> bool {
        size <= LONGEST
    }

    fn round_trip(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<f64, String> {
        let Joined { ends: [(mut a, to_b), (mut b, to_a)], agents } = self.join(hosts, plan)?;
        let mut bytes = vec![7u8; size.max(1)];
        // Agents need the processors that the ends spin on.
        let polite = self.carrier == Carrier::Multiplexed;
        let idle = || if polite { std::thread::yield_now() } else { std::hint::spin_loop() };
        let serve = |over: &AtomicBool, _: &AtomicU64| {
            let (mut arrival, mut copy) = (Arrival::empty(), vec![0; size.max(1)]);
            while !over.load(Relaxed) {
                if b.receive(&mut arrival) {
                    arrival.copy_to(&b.segment(), 0, &mut copy);
                    b.release(&mut arrival);
                    send(&mut *b, to_a, &copy)?;
                } else {
                    idle();
                }
            }
            Ok::<(), String>(())
        };
        let drive = |_: &AtomicU64| {
            let (mut arrival, mut copy) = (Arrival::empty(), vec![0; size.max(1)]);
            time_round_trips(plan.time, || {
                // The answer to a message that was sent twice, since it was late, is not the next one's.
                bytes[0] = bytes[0].wrapping_add(1);
                send(&mut *a, to_b, &bytes)?;
                let mut sent = Instant::now();
                loop {
                    if a.receive(&mut arrival) {
                        arrival.copy_to(&a.segment(), 0, &mut copy);
                        a.release(&mut arrival);
                        if copy[0] == bytes[0] {
                            return Ok(());
                        }
                    }
                    idle();
                    if sent.elapsed() > PATIENCE {
                        send(&mut *a, to_b, &bytes)?;
                        sent = Instant::now();
                    }
                }
            })
        };
        let (served, driven) = side_by_side(serve, drive);
        drop(agents);
        served?;
        driven
    }

    fn stream(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<Streamed, String> {
        let Joined { ends: [(mut a, to_b), (mut b, _)], agents } = self.join(hosts, plan)?;
        let bytes = vec![7u8; size];
        let before: f64 = agents.iter().map(Agent::time).sum();
        let polite = self.carrier == Carrier::Multiplexed;
        let serve = |over: &AtomicBool, count: &AtomicU64| {
            let (mut arrival, mut copy) = (Arrival::empty(), vec![0; size]);
            while !over.load(Relaxed) {
                if b.receive(&mut arrival) {
                    arrival.copy_to(&b.segment(), 0, &mut copy);
                    b.release(&mut arrival);
                    count.store(count.load(Relaxed) + 1, Relaxed);
                } else if polite {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
            thread_time()
        };
        let drive = |count: &AtomicU64| {
            let began = Instant::now();
            let mut sent = 0u64;
            while began.elapsed() < plan.time {
                // Thirty-two messages are what one system call takes.
                for _ in 0..32 {
                    match a.send(&message(to_b, &bytes)) {
                        Ok(_) => sent += 1,
                        Err(SendError::NoResource) => {
                            if polite {
                                std::thread::yield_now();
                            }
                            break;
                        }
                        Err(error) => return Err(format!("{error:?}")),
                    }
                }
                a.flush().map_err(|error| format!("{error:?}"))?;
            }
            // What is on its way arrives.
            let mut last = (count.load(Relaxed), Instant::now());
            let seconds = began.elapsed().as_secs_f64();
            while last.1.elapsed().as_millis() < 20 {
                let _ = a.flush();
                std::thread::yield_now();
                if count.load(Relaxed) != last.0 {
                    last = (count.load(Relaxed), Instant::now());
                }
            }
            Ok((sent, last.0, seconds, thread_time()))
        };
        let (server, driven) = side_by_side(serve, drive);
        let (sent, received, seconds, driver) = driven?;
        let agents: f64 = agents.iter().map(Agent::time).sum::<f64>() - before;
        let lost = 1.0 - received as f64 / sent.max(1) as f64;
        Ok(Streamed { messages: received as f64, seconds, processor: server + driver + agents, lost })
    }
}
