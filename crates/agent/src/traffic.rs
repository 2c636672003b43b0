//! Frames between the agent's queues and the emulated endpoints.

use std::cell::OnceCell;
use std::io;
use std::net::SocketAddr;

use shunt_endpoint::{Counters, Drop as Reason, Gather};
use shunt_wire::endpoint::{Frame, Kind as FrameKind, Repr, HEADER};
use shunt_xdp::multiplexed::BOUNCED;
use shunt_xdp::own::reason_of;
use shunt_xdp::packet::{Envelope, Path, Sum, ETHERNET, LONGEST};
use shunt_xdp::protocol::Kind;
use shunt_xdp::runs;

use crate::agent::Agent;
use crate::aside::Kept;
use crate::client::{Attached, Fate, NextHop};
use crate::paths;
use crate::trunk::{NotSent, Trunk};

/// Messages of one endpoint, and frames of one queue, in one turn: so none waits long for the others.
const TURN: usize = 64;

impl Attached {
    /// Whether the owner has put something that the agent is to send.
    pub(crate) fn has_work(&self) -> bool {
        self.kind == Kind::Multiplexed && !self.memory.send_queue().is_empty()
    }
}

impl Agent {
    /// One turn for everybody; true: something moved.
    pub(crate) fn move_frames(&mut self) -> bool {
        let mut moved = false;
        for index in 0..self.trunks.len() {
            moved |= self.receive_frames(index);
        }
        moved |= self.send_messages();
        for trunk in &mut self.trunks {
            trunk.flush();
        }
        if moved {
            self.clients.values_mut().filter_map(|client| client.endpoint.as_mut()).for_each(Attached::ring);
        }
        moved
    }

    fn receive_frames(&mut self, index: usize) -> bool {
        // Taken out, so that the frame can be shown to the rest of the agent.
        let Agent { trunks, clients, by_tag, dropped, .. } = self;
        let mut deliver = |frame: &[u8]| {
            let envelope = match Envelope::parse(&frame[..frame.len().min(LONGEST)], frame.len()) {
                Ok(envelope) => envelope,
                Err(malformed) => return dropped[reason_of(malformed) as usize] += 1,
            };
            let datagram = &frame[envelope.at..][..envelope.length];
            let each = runs::each(datagram.len(), |at| std::array::from_fn(|byte| datagram[at + byte]));
            let intact = OnceCell::new();
            for run_frame in datagram.chunks(each.max(1)) {
                let intact = || *intact.get_or_init(|| envelope.is_intact(|| Sum::default().add(datagram)));
                if let Err(reason) = sort(clients, by_tag, &envelope.source, run_frame, intact) {
                    dropped[reason as usize] += 1;
                }
            }
        };
        (0..TURN).take_while(|_| trunks[index].receive(&mut deliver)).count() > 0
    }

    /// Datagrams that came on queues which are not ours, by the kernel's stack.
    pub(crate) fn receive_datagrams(&mut self) {
        let mut bytes = vec![0u8; 1 << 16];
        for index in 0..self.datagrams.len() {
            for _ in 0..TURN {
                match self.datagrams[index].recv_from(&mut bytes) {
                    Ok((length, source)) => {
                        let source = SocketAddr::new(source.ip().to_canonical(), source.port());
                        self.astray += 1;
                        let Agent { clients, by_tag, dropped, .. } = self;
                        if let Err(reason) = sort(clients, by_tag, &source, &bytes[..length], || true) {
                            dropped[reason as usize] += 1;
                        }
                    }
                    // Reports of unreachable peers are read and forgotten.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(_) => break,
                }
            }
        }
        self.clients.values_mut().filter_map(|client| client.endpoint.as_mut()).for_each(Attached::ring);
    }

    fn send_messages(&mut self) -> bool {
        let mut moved = false;
        let Agent { trunks, clients, interface, resolving, .. } = self;
        let Some(trunk) = trunks.first_mut() else { return false };
        for client in clients.values_mut() {
            let Some(endpoint) = client.endpoint.as_mut() else { continue };
            if !endpoint.aside.is_empty() && !send_aside(endpoint, trunk, interface.mac, &mut moved) {
                return moved;
            }
            if !endpoint.has_work() {
                continue;
            }
            for _ in 0..TURN {
                match send_one(endpoint, trunk, interface.mac) {
                    Sent::Nothing => break,
                    Sent::Aside => {
                        *resolving = true;
                        moved = true;
                    }
                    Sent::Full => return moved,
                    Sent::One => moved = true,
                }
            }
        }
        moved
    }

    /// Sends what an emulated endpoint's owner had put on its queue when it closed a channel, as far as the interface takes it now.
    pub(crate) fn send_waiting(&mut self, number: u32) {
        let Agent { trunks, clients, interface, resolving, .. } = self;
        let endpoint = clients.get_mut(&number).and_then(|client| client.endpoint.as_mut());
        let (Some(trunk), Some(endpoint)) = (trunks.first_mut(), endpoint.filter(|endpoint| endpoint.has_work())) else { return };
        let mut moved = false;
        if endpoint.aside.is_empty() || send_aside(endpoint, trunk, interface.mac, &mut moved) {
            // As much as the queue holds, whatever its owner says in it.
            for _ in 0..endpoint.memory.send_queue().capacity() {
                match send_one(endpoint, trunk, interface.mac) {
                    Sent::Nothing | Sent::Full => break,
                    Sent::Aside => *resolving = true,
                    Sent::One => {}
                }
            }
        }
        trunk.flush();
    }

    /// The interface's packets have another size: tells the owners of channels what they may send.
    pub(crate) fn measure_ways(&mut self) {
        for endpoint in self.clients.values_mut().filter_map(|client| client.endpoint.as_mut()) {
            // What an endpoint's buffers take was settled when it was made.
            let mtu = endpoint.frame.min(self.frame) - ETHERNET as u32;
            let ways: Vec<(usize, NextHop)> =
                endpoint.channels.iter().map(|(index, channel)| (*index, channel.next_hop)).collect();
            for (index, next_hop) in ways {
                if let Some(channel) = endpoint.channels.get_mut(&index) {
                    channel.largest = paths::largest_on(&channel.route, mtu, &channel.peer).max(HEADER as u32);
                }
                endpoint.set_next_hop(index, next_hop);
            }
        }
    }

    /// Asks about the neighbours that are not known, or about all.
    pub(crate) fn refresh_neighbours(&mut self, all: bool) {
        self.resolving = false;
        for client in self.clients.values_mut() {
            let Some(endpoint) = client.endpoint.as_mut() else { continue };
            let indices: Vec<usize> = endpoint.channels.keys().copied().collect();
            for index in indices {
                let Some(channel) = endpoint.channels.get(&index) else { continue };
                let mut next_hop = channel.next_hop;
                if !all && !matches!(next_hop, NextHop::Unknown(_)) {
                    continue;
                }
                if paths::advance(&channel.route, channel.scope, &mut next_hop) {
                    endpoint.set_next_hop(index, next_hop);
                }
                self.resolving |= matches!(next_hop, NextHop::Unknown(_));
            }
        }
    }
}

/// What became of the message at the front of a send queue.
enum Sent {
    /// There is none.
    Nothing,
    /// It waits for its neighbour, beside the queue.
    Aside,
    /// The interface is busy.
    Full,
    /// It is gone, sent or counted.
    One,
}

fn send_one(endpoint: &mut Attached, trunk: &mut Trunk, mac: [u8; 6]) -> Sent {
    let queue = endpoint.memory.send_queue();
    // A private copy: its owner may go on writing there.
    let Some(descriptor) = queue.peek(0) else { return Sent::Nothing };
    let index = shunt_endpoint::Channel(descriptor.channel).index();
    let channel = endpoint.channels.get(&index).filter(|channel| channel.number == descriptor.channel);
    let kind = FrameKind::from_code(u64::from(descriptor.kind & !BOUNCED));
    let outcome = channel.and_then(|channel| {
        let to = match channel.next_hop.fate() {
            Fate::Waits => return Some(Err(Sent::Aside)),
            Fate::Lost => return None,
            Fate::Goes(mac) => mac,
        };
        let (kind, gather) = (kind?, endpoint.gather(&descriptor, channel.largest)?);
        let path = Path { from: mac, to, source: endpoint.address, destination: channel.peer };
        match trunk.send(&path, channel.send, kind, &gather) {
            Ok(()) => Some(Ok(())),
            Err(NotSent::Full) => Some(Err(Sent::Full)),
            Err(NotSent::Fault) => None,
        }
    });
    match outcome {
        Some(Err(Sent::Aside)) => {
            let kept = channel.and_then(|channel| copy_of(&endpoint.gather(&descriptor, channel.largest)?));
            let kept = kept.zip(kind).map(|(bytes, kind)| Kept { channel: descriptor.channel, kind, bytes });
            if !kept.is_some_and(|kept| endpoint.aside.push(kept)) {
                Counters::add(&endpoint.memory.counters().unsent, 1);
            }
            queue.advance(1);
            return Sent::Aside;
        }
        Some(Err(full)) => return full,
        Some(Ok(())) => endpoint.moved[0] += 1,
        None => Counters::add(&endpoint.memory.counters().unsent, 1),
    }
    queue.advance(1);
    Sent::One
}

/// A private copy of a message.
fn copy_of(gather: &Gather<'_>) -> Option<Box<[u8]>> {
    let mut bytes = vec![0u8; gather.len()].into_boxed_slice();
    // SAFETY: as many bytes as the message has.
    unsafe { gather.copy_to(0, bytes.as_mut_ptr(), bytes.len()) }.then_some(bytes)
}

/// Sends those that waited for neighbours which are known now, and forgets those whose neighbours stayed silent; false: the
/// interface is busy.
fn send_aside(endpoint: &mut Attached, trunk: &mut Trunk, mac: [u8; 6], moved: &mut bool) -> bool {
    let Attached { aside, channels, memory, address, moved: counts, .. } = endpoint;
    let find = |number: u32| channels.get(&shunt_endpoint::Channel(number).index()).filter(|channel| channel.number == number);
    let fate = |number: u32| find(number).map_or(Fate::Lost, |channel| channel.next_hop.fate());
    while let Some((kept, fate)) = aside.next(fate) {
        *moved = true;
        let sent = match (fate, find(kept.channel)) {
            (Fate::Goes(to), Some(channel)) => {
                let path = Path { from: mac, to, source: *address, destination: channel.peer };
                trunk.send(&path, channel.send, kept.kind, &Gather::of_bytes(&kept.bytes, memory.segment()))
            }
            _ => Err(NotSent::Fault),
        };
        match sent {
            Ok(()) => counts[0] += 1,
            Err(NotSent::Full) => {
                aside.undo(kept);
                return false;
            }
            Err(NotSent::Fault) => Counters::add(&memory.counters().unsent, 1),
        }
    }
    true
}

/// Delivers a datagram to the endpoint whose tag it carries. Faults that an endpoint can be told of are counted there.
fn sort<S: std::hash::BuildHasher>(
    clients: &mut std::collections::HashMap<u32, crate::client::Client>,
    by_tag: &std::collections::HashMap<u64, (u32, u32), S>,
    source: &SocketAddr,
    datagram: &[u8],
    intact: impl FnOnce() -> bool,
) -> Result<(), Reason> {
    let repr = Repr::parse(&Frame::new(datagram))?;
    let (client, number) = *by_tag.get(&repr.tag).ok_or(Reason::Tag)?;
    let endpoint = clients.get_mut(&client).and_then(|client| client.endpoint.as_mut()).ok_or(Reason::Tag)?;
    let index = shunt_endpoint::Channel(number).index();
    let channel = endpoint.channels.get(&index).filter(|channel| channel.receive == repr.tag).ok_or(Reason::Tag)?;
    let judged = if channel.peer != *source {
        Err(Reason::Source)
    } else if !intact() {
        Err(Reason::Length)
    } else {
        endpoint.deliver(number, repr.kind, &datagram[HEADER..])
    };
    if let Err(reason) = judged {
        endpoint.memory.counters().drop(reason);
    }
    Ok(())
}
