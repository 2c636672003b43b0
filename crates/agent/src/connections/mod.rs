//! Connections that are taken from the kernel and given back to it, for programs that drive them by a queue of their own.
//!
//! A program hands its connected socket and an escrow ([`shunt_xdp::escrow`]) to the agent: *possession of the descriptor is the right to its
//! 4-tuple*, so no program can claim another's. Whatever ends what is between, the program's word, its death, the agent's end or death, the
//! connection goes back into the same socket, and Linux goes on.
//!
//! | step | in | out |
//! |---|---|---|
//! | 1 | is it one that can be taken ([`eligible`]), conntrack told ([`tracking`]) | the escrow is closed: what it says counts |
//! | 2 | the guard holds socket and escrow ([`guard`]) | the socket gets its state, filter off, repair off ([`repair`]) |
//! | 3 | frames of the 4-tuple go to the program's queue | frames are the kernel's |
//! | 4 | the socket gets a filter, is put into repair, and read ([`repair`]) | frames that lie in the queue still are handed on ([`live`]) |

mod diagnosis;
mod eligible;
mod guard;
mod live;
mod netlink;
mod repair;
mod tracking;
mod trial;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

use shunt_xdp::escrow::{Escrow, Manner};
use shunt_xdp::protocol::{Decline, Kind, Reply, Request};
use shunt_xdp::route::{neighbour, Route};
use shunt_xdp::tcp::{Envelope, Tuple};

use crate::agent::Agent;
use crate::ebpf::kernel::Attachment;
use crate::interface::Interface;
use crate::report;
use crate::requests::Answer;

pub(crate) use guard::Guard;
use live::Live;
use repair::{Held, Kept};
pub use trial::try_out;

/// So long a connection whose peer cannot be reached waits to be given back, before it is closed.
const PATIENCE: Duration = Duration::from_secs(300);
/// Connections that one user may have taken at a time.
const EACH: usize = 4096;
/// As many of those that a client had last may have frames in its queue still.
const REMEMBERED: usize = EACH;

/// All that are taken, and what it takes.
#[derive(Default)]
pub(crate) struct Connections {
    taken: HashMap<u32, Taken>,
    tuples: HashSet<Tuple>,
    last: u32,
    live: Live,
    /// Receive queues and queueing discipline of the interface, as they were when that was asked for last: a second ago at most.
    steering: Option<(u32, String)>,
    /// This network namespace.
    namespace: Option<eligible::Namespace>,
    /// Given back so far, and those that the kernel would not take; why not, the last time.
    given: [u64; 2],
    refused: Option<String>,
}

struct Taken {
    held: Held,
    client: u32,
    tuple: Tuple,
    route: Route,
    manner: Manner,
    /// Since when it is to be given back, if it is.
    since: Option<Instant>,
}

impl Connections {
    /// For a report: `guard` is the process that stands in.
    pub(crate) fn report(&self, guard: Option<&Guard>) -> report::Connections {
        let [given_back, lost] = self.given;
        let (guard, refused) = (guard.map(Guard::process), self.refused.clone());
        report::Connections { taken: self.taken.len(), given_back, lost, refused, guard }
    }
}

impl Agent {
    /// Takes the connection of the first descriptor, with the second one as its escrow.
    pub(crate) fn take(&mut self, client: u32, descriptors: Vec<OwnedFd>) -> Answer {
        let Ok([socket, escrow]) = <[OwnedFd; 2]>::try_from(descriptors) else { return Err(libc::EBADMSG) };
        // Of huge pages its owner could leave none behind those that are mapped here.
        // SAFETY: integers, for which zero is valid; the kernel fills them.
        let is_plain = unsafe {
            let mut kind: libc::statfs = std::mem::zeroed();
            libc::fstatfs(escrow.as_raw_fd(), &mut kind) == 0 && kind.f_type == libc::TMPFS_MAGIC
        };
        let escrow = Escrow::adopt(escrow.into_raw_fd()).map_err(|errno| errno.0)?;
        if escrow.is_open() || !is_plain {
            return Err(libc::EINVAL);
        }
        Ok((Reply::taken(self.try_take(client, socket, escrow)), Vec::new()))
    }

    fn try_take(&mut self, client: u32, socket: OwnedFd, escrow: Escrow) -> Result<u32, Decline> {
        let (queue, frame) = self.steering(client)?;
        let Agent { connections, interface, .. } = &mut *self;
        if connections.steering.is_none() {
            connections.steering = Interface::steering(&interface.name, interface.index);
        }
        let discipline = match &connections.steering {
            Some((1, discipline)) => discipline,
            _ => return Err(Decline::Steering),
        };
        let namespace = connections.namespace.get_or_insert_with(eligible::own_namespace);
        let candidate = eligible::look(socket.as_fd(), interface.index, discipline, namespace)?;
        let tuple = candidate.tuple;
        if self.connections.tuples.contains(&tuple) {
            return Err(Decline::Ended);
        }
        let owner = self.clients.get_mut(&client).ok_or(Decline::Steering)?;
        let pid = owner.who.pid;
        if *owner.accounted.get_or_insert_with(|| eligible::is_accounted(pid)) {
            return Err(Decline::Accounted);
        }
        tracking::make_liberal(&tuple)?;
        let kept = Kept::of(socket.as_fd(), candidate.names);
        let manner = Manner {
            from: self.interface.mac,
            to: candidate.next_hop,
            service: candidate.service,
            hops: candidate.hops,
            nagle: candidate.nagle,
        };
        escrow.set_manner(&manner);
        let number = self.connections.last.wrapping_add(1);
        self.connections.last = number;
        self.remember(client, tuple);
        let guard = self.guard.as_ref().ok_or(Decline::Guard)?;
        guard.hold(number, socket.as_raw_fd(), escrow.fd(), &kept).map_err(|_| Decline::Guard)?;
        let held = Held { socket, escrow, kept };
        let read = self.maps.set_tuple(&tuple, queue).map_err(|_| Decline::Limit).and_then(|()| {
            repair::shut(held.socket.as_fd()).map_err(|_| Decline::Kernel)?;
            let frame = candidate.route.mtu.map_or(frame, |mtu| frame.min(mtu + shunt_xdp::packet::ETHERNET as u32));
            repair::read_out(held.socket.as_fd(), &held.escrow, frame, shunt_sys::clock::monotonic_ns())
        });
        if let Err(decline) = read {
            // As it was: the filter first, so that nothing is dropped that is not steered any more.
            repair::unwind(held.socket.as_fd(), &held.kept);
            self.maps.remove_tuple(&tuple);
            guard.let_go(number, &held.kept);
            return Err(decline);
        }
        self.connections.tuples.insert(tuple);
        self.connections.taken.insert(number, Taken { held, client, tuple, route: candidate.route, manner, since: None });
        Ok(number)
    }

    /// The queue to which frames for a client can be steered, and bytes of the longest frame that it sends.
    fn steering(&self, client: u32) -> Result<(u32, u32), Decline> {
        let owner = self.clients.get(&client).ok_or(Decline::Steering)?;
        let endpoint = owner.endpoint.as_ref().filter(|endpoint| endpoint.kind == Kind::Own).ok_or(Decline::Steering)?;
        let attachment = self.sorter.as_ref().map(|sorter| sorter.attachment).ok_or(Decline::Steering)?;
        // In front of the stack packets come that are longer than a chunk.
        let takes = endpoint.socket.as_ref().is_some_and(|socket| socket.takes_pieces());
        if attachment == Attachment::Generic && !takes {
            return Err(Decline::Steering);
        }
        let of_user = |number: &u32| self.clients.get(number).is_some_and(|client| client.who.user == owner.who.user);
        if self.connections.taken.values().filter(|taken| of_user(&taken.client)).count() >= EACH {
            return Err(Decline::Limit);
        }
        Ok((endpoint.queue, endpoint.frame.min(self.frame)))
    }

    fn remember(&mut self, client: u32, tuple: Tuple) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        if !client.had.contains(&tuple) {
            client.had.truncate(REMEMBERED - 1);
            client.had.push_front(tuple);
        }
    }

    /// Gives a client's connection back, for its word.
    pub(crate) fn give(&mut self, client: u32, request: &Request) -> Answer {
        let number = request.channel;
        if self.connections.taken.get(&number).is_none_or(|taken| taken.client != client) {
            return Err(libc::ENOENT);
        }
        self.give_back(number);
        Ok((Reply::done(), Vec::new()))
    }

    fn give_back(&mut self, number: u32) {
        let Some(taken) = self.connections.taken.get_mut(&number) else { return };
        let is_last = *taken.since.get_or_insert_with(Instant::now) + PATIENCE <= Instant::now();
        let restored = taken.held.restore(is_last);
        if restored.is_err_and(|refused| refused.is_passing()) && !is_last {
            // There is no way to the peer now. It is tried again each second; its program waits for that, as on Linux for a way.
            return;
        }
        let Some(taken) = self.connections.taken.remove(&number) else { return };
        self.connections.tuples.remove(&taken.tuple);
        self.connections.given[usize::from(restored.is_err())] += 1;
        if let Err(refused) = restored {
            self.connections.refused = Some(format!("{}: {}", refused.step, io::Error::from_raw_os_error(refused.errno)));
        }
        // Behind the state: until now frames went to the queue, so that no socket was asked that had none.
        self.maps.remove_tuple(&taken.tuple);
        if let Some(guard) = &self.guard {
            guard.let_go(number, &taken.held.kept);
        }
    }

    /// Hands a frame of a client's on to the kernel.
    pub(crate) fn pass(&mut self, client: u32, frame: &[u8]) -> Answer {
        let envelope = Envelope::parse(frame).ok_or(libc::EINVAL)?;
        if !self.clients.get(&client).is_some_and(|client| client.had.contains(&envelope.tuple)) {
            return Err(libc::EPERM);
        }
        if self.connections.tuples.contains(&envelope.tuple) {
            // It would be steered to a queue again.
            return Err(libc::EBUSY);
        }
        self.connections
            .live
            .pass(self.interface.index, &envelope, frame)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        Ok((Reply::done(), Vec::new()))
    }

    /// Gives back all that a client has, and hands on what lies in its queue: it is gone.
    pub(crate) fn give_back_all(&mut self, client: u32) {
        let its = self.connections.taken.iter().filter(|(_, taken)| taken.client == client);
        let all: Vec<u32> = its.map(|(number, _)| *number).collect();
        all.into_iter().for_each(|number| self.give_back(number));
        let Agent { clients, connections, interface, .. } = self;
        let Some(client) = clients.get_mut(&client).filter(|client| !client.had.is_empty()) else { return };
        let Some(socket) = client.endpoint.as_mut().and_then(|endpoint| endpoint.socket.as_mut()) else { return };
        let mut frame = Vec::new();
        let mut bad = 0;
        // No more than the ring has, whatever another process does to it.
        for _ in 0..socket.shape().receive {
            let Some(descriptor) = socket.take(&mut bad) else { return };
            let bytes = socket.umem().at(descriptor.offset, descriptor.length as usize);
            if let Some(bytes) = bytes {
                let start = frame.len();
                frame.resize(start + descriptor.length as usize, 0);
                // SAFETY: inside the memory, as many bytes as said; another process may write there, and bytes are bytes.
                unsafe { std::ptr::copy_nonoverlapping(bytes, frame[start..].as_mut_ptr(), descriptor.length as usize) };
            }
            if !descriptor.goes_on() {
                if let Some(envelope) = Envelope::parse(&frame).filter(|envelope| client.had.contains(&envelope.tuple)) {
                    let _ = connections.live.pass(interface.index, &envelope, &frame);
                }
                frame.clear();
            }
        }
    }

    /// Neighbours and the interface may have other Ethernet addresses by now, and peers that could not be reached may be there.
    pub(crate) fn refresh_connections(&mut self) {
        self.connections.steering = None;
        self.clients.values_mut().for_each(|client| client.accounted = None);
        let late = self.connections.taken.iter().filter(|(_, taken)| taken.since.is_some());
        let late: Vec<u32> = late.map(|(number, _)| *number).collect();
        late.into_iter().for_each(|number| self.give_back(number));
        for taken in self.connections.taken.values_mut() {
            let to = neighbour(taken.route.interface, &taken.route.next_hop).unwrap_or(taken.manner.to);
            let manner = Manner { from: self.interface.mac, to, ..taken.manner };
            if manner != taken.manner {
                taken.manner = manner;
                taken.held.escrow.set_manner(&manner);
            }
        }
    }

    /// Gives back everything: the agent ends. What cannot be reached now is the guard's to try.
    pub(crate) fn give_back_everything(&mut self) {
        let clients: std::collections::BTreeSet<u32> = self.connections.taken.values().map(|taken| taken.client).collect();
        clients.into_iter().for_each(|client| self.give_back_all(client));
    }
}
