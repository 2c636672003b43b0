//! The endpoint.

use crate::bells::Bells;
use crate::interface::{Access, Interface};
use crate::open::{self, Open};
use crate::peers::Peers;
use crate::receiving::{self, Receiving};
use crate::sending::{self, stride, Sending};
use crate::{address, interface};
use shunt_endpoint::direct::{Emulated, Exports};
use shunt_endpoint::shared::{ChannelEntry, Memory, Shape};
use shunt_endpoint::{
    Address, Area, Arrival, Backlog, Buffers, Capabilities, Channel, Counters, Endpoint, Family, Gather, Message, OpenError,
    PostError, Segment, SendError, Tags, Ticket, SCATTER,
};
use shunt_sys::{libc, Errno};
use shunt_wire::endpoint::{Kind, HEADER};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

const DEVICE: u32 = Family::Fabric as u32;

/// What moves that which a provider does not move by itself: connections that are being set up, large messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The calls of this endpoint: a sender must go on calling until the message is [injected](Endpoint::injected).
    ByCalls,
    /// A thread of libfabric's (`FI_PROGRESS_AUTO`), where the provider has that; else the calls. That thread may also take in
    /// what comes when no call receives, into memory of the provider's, without a bound (`tcp`).
    ByThread,
}

/// How an endpoint is made.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// libfabric's provider: `tcp`, `shm`, `verbs`, `efa`, `cxi`; see [`crate::providers`].
    pub provider: &'a str,
    /// The endpoint's own address or host name; `None`: the provider's choice.
    pub node: Option<&'a str>,
    /// The endpoint's own port; `None`: any.
    pub service: Option<&'a str>,
    /// Bytes of the largest message; a receive buffer has 16 more.
    pub largest: u32,
    /// What moves things.
    pub progress: Progress,
    /// Queues and segment; the provider may make queues shorter. `device` is overwritten.
    pub shape: Shape,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let (provider, largest) = ("tcp", 8192 - HEADER as u32);
        Options { provider, node: None, service: None, largest, progress: Progress::ByCalls, shape: Shape::SMALL }
    }
}

/// An endpoint over libfabric. Of one process: a child of `fork` must not touch it.
pub struct Fabric {
    // Dropped in this order: the thread that looks, what keeps others open, what is open here.
    bells: Bells,
    peers: Peers,
    open: Arc<Open>,
    sending: Sending,
    receiving: Receiving,
    address: Address,
    pub(crate) capabilities: Capabilities,
    /// Why nothing will ever arrive again.
    over: Option<Errno>,
}

/// The place, among the peers, of the one that a channel leads to.
#[inline(always)]
pub(crate) fn peer_of(entry: &ChannelEntry) -> usize {
    entry.device[0].load(Relaxed) as usize
}

fn sentence(interface: &Interface) -> &'static str {
    let facts = interface.facts();
    match (facts.automatic != 0, facts.waits[0] >= 0) {
        (true, _) => "libfabric, its own thread moves what is under way; one sleeps on its descriptors",
        (false, true) => "libfabric, calls of the endpoint move what is under way; one sleeps on its descriptors",
        (false, false) => "libfabric, calls of the endpoint move what is under way; a thread looks while one sleeps",
    }
}

impl Fabric {
    /// A new endpoint.
    ///
    /// # Errors
    /// ENODATA: no such provider here, or not at that node. EINVAL: sizes. ENAMETOOLONG: an address of more than 36 bytes.
    /// What libfabric and the system answer.
    pub fn new(options: Options<'_>) -> Result<Fabric, Errno> {
        let Shape { send, receive, free, segment, .. } = options.shape;
        let wrong = |size: u32| !(64..=1 << 20).contains(&size);
        if wrong(options.largest)
            || [send, receive, free].iter().any(|entries| !entries.is_power_of_two())
            || segment == 0
            || (receive as usize) < interface::BATCH
        {
            return Err(Errno(libc::EINVAL));
        }
        let open =
            |automatic| Interface::open(options.provider, options.node, options.service, automatic, send, receive.min(free));
        let interface = match open(options.progress == Progress::ByThread) {
            Err(Errno(libc::ENODATA)) if options.progress == Progress::ByThread => open(false)?,
            opened => opened?,
        };
        let facts = interface.facts();
        if facts.largest < (options.largest as usize + HEADER) as u64 || facts.sends == 0 || facts.receives == 0 {
            return Err(Errno(libc::EMSGSIZE));
        }
        // Each entry of the send queue is an operation at most.
        let send = 1u32 << facts.sends.min(send).ilog2();
        let staging = send.checked_mul(stride(options.largest)).ok_or(Errno(libc::EINVAL))?;
        let memory = Memory::create(DEVICE, Shape { device: staging.next_multiple_of(4096), send, ..options.shape })?;
        let (name, length) = interface.name()?;
        let address = address::encode(facts.format, &name[..length])?;
        let (base, size) = memory.whole();
        // SAFETY: mapped until the endpoint is dropped, which forgets the registration first.
        let registered = unsafe { interface.register(base, size, Access::Local, 0) }?;
        let capabilities = Capabilities {
            device: "fabric",
            sentence: sentence(&interface),
            largest: options.largest,
            gather: SCATTER as u32,
            lossy: false,
            ordered: facts.ordered != 0,
            buffers: Buffers::Posted { smallest: (options.largest + HEADER as u32).next_multiple_of(64), alignment: 8 },
            direct: false,
            needs_flush: true,
        };
        let receives = facts.receives;
        if facts.source != 0 {
            // libfabric's shm (1.17) calls senders that it does not know 0, as the first address that was made known: that is
            // ourselves, and no peer.
            interface.insert(&name)?;
        }
        let open = Arc::new(Open::new(interface, memory, registered));
        open::announce(&address, &open);
        Ok(Fabric {
            bells: Bells::of(&open.interface)?,
            peers: Peers::new(options.shape.channels as usize),
            sending: Sending::new(send, options.largest),
            receiving: Receiving::new(receives, options.largest),
            open,
            address,
            capabilities,
            over: None,
        })
    }

    /// What libfabric gave.
    pub fn interface(&self) -> &Interface {
        &self.open.interface
    }

    /// The memory.
    pub fn memory(&self) -> &Memory {
        &self.open.memory
    }

    /// Receive buffers that are on the free queue, or with the provider.
    pub fn buffers(&self) -> u32 {
        self.open.memory.free_queue().len() + self.receiving.given()
    }

    /// What sending works with.
    #[inline(always)]
    pub(crate) fn sending(&mut self) -> (&mut Sending, sending::Means<'_>) {
        let Fabric { open, peers, sending, .. } = self;
        (sending, sending::Means { interface: &open.interface, memory: &open.memory, registered: open.registered(), peers })
    }

    #[inline(always)]
    fn receiving(&mut self) -> (&mut Receiving, receiving::Means<'_>) {
        let Fabric { open, peers, receiving, .. } = self;
        (receiving, receiving::Means { interface: &open.interface, memory: &open.memory, registered: open.registered(), peers })
    }

    /// Remembers the end.
    fn note(&mut self, outcome: Result<(), Errno>) {
        if let Err(errno) = outcome {
            self.over.get_or_insert(errno);
        }
    }

    fn take_in(&mut self) {
        let (receiving, means) = self.receiving();
        let outcome = receiving.take_in(&means);
        self.note(outcome);
    }

    /// Moves what is under way, both ways: a provider that is asked for what was sent also takes in what comes, and keeps what
    /// it has no buffer for. So nothing is moved while the owner does not receive: then senders are held up, and memory is not
    /// filled.
    fn drive(&mut self) {
        self.take_in();
        if self.receiving.has_room(&self.open.memory) {
            let (sending, mut means) = self.sending();
            if let Err(SendError::Device(errno)) = sending.hand_over(&mut means) {
                self.over.get_or_insert(errno);
            }
        }
    }

    fn replenish(&mut self) {
        let (receiving, means) = self.receiving();
        let outcome = receiving.replenish(&means);
        self.note(outcome);
    }
}

impl Endpoint for Fabric {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn segment(&self) -> Segment {
        self.open.memory.segment()
    }

    fn address(&self) -> Address {
        self.address
    }

    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        let name = address::decode(remote, &self.address).ok_or(OpenError::Address)?;
        let channel = self.open.memory.registry().insert(remote, tags)?;
        let opened = self.peers.open(&self.open.interface, remote, &name);
        let Some((entry, place)) = self.open.memory.registry().get(channel).zip(opened.ok()) else {
            self.open.memory.registry().remove(channel);
            return Err(opened.err().unwrap_or(OpenError::Full));
        };
        entry.device[0].store(place as u64, Relaxed);
        // The provider begins to set up the way now, while the other side is being told; and what others have begun goes on.
        self.drive();
        Ok(channel)
    }

    fn close(&mut self, channel: Channel) {
        if let Some(entry) = self.open.memory.registry().remove(channel) {
            self.peers.close(peer_of(entry));
            Exports::of(&self.open.memory).forget(channel);
        }
    }

    #[inline]
    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        self.put_frame(message, Kind::Message)
    }

    fn flush(&mut self) -> Result<bool, SendError> {
        if let Some(errno) = self.over {
            return Err(SendError::Device(errno));
        }
        if !self.sending.is_idle() || !self.peers.open_ways(&self.open.interface) {
            self.drive();
        }
        let done = self.peers.open_ways(&self.open.interface) && !self.sending.is_stuck();
        self.over.map_or(Ok(done), |errno| Err(SendError::Device(errno)))
    }

    fn injected(&mut self) -> Ticket {
        if !self.sending.is_idle() {
            self.drive();
        }
        Ticket(self.open.memory.send_queue().head())
    }

    fn post(&mut self, buffer: Area) -> Result<(), PostError> {
        let Buffers::Posted { smallest, alignment } = self.capabilities.buffers else { return Err(PostError::NotNeeded) };
        if buffer.length < smallest || !buffer.offset.is_multiple_of(alignment) || !self.segment().contains(buffer) {
            return Err(PostError::Area);
        }
        self.open.memory.free_queue().put(&buffer).map_err(|_| PostError::Full)?;
        self.replenish();
        Ok(())
    }

    #[inline]
    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        if self.open.memory.receive_queue().is_empty() {
            self.take_in();
            // A caller that waits for an answer may have a question that the provider did not take.
            if self.sending.is_stuck() && self.open.memory.receive_queue().is_empty() {
                self.drive();
            }
        }
        let Some(next) = self.open.memory.receive_queue().take() else { return false };
        *arrival = next;
        let counters = self.open.memory.counters();
        Counters::add(&counters.received, 1);
        Counters::add(&counters.received_bytes, arrival.len() as u64);
        true
    }

    #[inline]
    fn release(&mut self, arrival: &mut Arrival) {
        if !arrival.buffers().is_empty() {
            for buffer in arrival.buffers() {
                // There is room: it came from there.
                let _ = self.open.memory.free_queue().put(buffer);
            }
            self.replenish();
        }
        *arrival = Arrival::empty();
    }

    fn backlog(&mut self) -> Backlog {
        self.take_in();
        let queue = self.open.memory.receive_queue();
        Backlog { waiting: queue.len(), capacity: queue.capacity() }
    }

    fn descriptor(&self) -> i32 {
        self.bells.descriptor()
    }

    fn arm(&mut self) -> bool {
        if self.over.is_some() {
            return false;
        }
        self.peers.open_ways(&self.open.interface);
        self.drive();
        let stuck = self.sending.is_stuck();
        self.open.memory.receive_queue().is_empty() && self.bells.arm(&self.open.interface, stuck)
    }

    fn disarm(&mut self) {
        Counters::add(&self.open.memory.counters().woken, 1);
        self.bells.disarm();
    }

    fn counters(&self) -> &Counters {
        self.open.memory.counters()
    }
}

impl Emulated for Fabric {
    fn exporting(&self) -> &Memory {
        self.memory()
    }

    #[inline]
    fn put_frame(&mut self, message: &Message<'_>, kind: Kind) -> Result<Ticket, SendError> {
        let gather = Gather::of(message, self.open.memory.segment(), &self.capabilities)?;
        let (sending, mut means) = self.sending();
        sending.put(&mut means, message.channel, &gather, kind)
    }
}
