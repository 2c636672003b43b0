//! Endpoints over UDP: any host, no privilege. U-Net's kernel-emulated endpoint (section 3.5): the kernel multiplexes, by
//! port; the tag names the channel within it.
//!
//! One socket for each endpoint, not connected. [`Endpoint::flush`] hands the whole send queue over with sendmmsg(2); runs
//! of equally long messages for one channel become one entry that the kernel cuts (UDP_SEGMENT, "GSO"). `receive` takes
//! what has come with recvmmsg(2), straight into buffers of the free queue. With [`Options::coalesce`] (UDP_GRO) one
//! buffer of 64 KiB takes a run of messages; it is free again when all of them are released.

mod incoming;
mod outgoing;
mod socket_address;

pub use socket_address::{from_sockaddr, ipv4, ipv6};

use crate::direct::{Emulated, Exports};
use crate::gather::Gather;
use crate::shared::{Memory, SendDescriptor, Shape};
use crate::{
    Address, Area, Arrival, AttachError, Backlog, Buffers, Capabilities, Channel, Counters, Endpoint, Family, Message, OpenError,
    PostError, Segment, SendError, Tags, Ticket, INLINE, SCATTER,
};
use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;
use shunt_sys::{calls, libc, Errno};
use shunt_wire::endpoint::{Kind, Repr, HEADER};

const DEVICE: u32 = Family::Udp as u32;

/// Bytes of the largest UDP payload over IPv4.
const LARGEST_DATAGRAM: u32 = 65_507;
/// Bytes that a buffer must have where the kernel coalesces.
const COALESCED: u32 = 1 << 16;

/// How a UDP endpoint is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of the largest packet that travels uncut: the interface's MTU. Larger messages are refused.
    pub mtu: u32,
    /// Take runs of messages into one buffer (UDP_GRO): for streams. Buffers must have 64 KiB then.
    pub coalesce: bool,
    /// Bytes that the socket may hold (SO_RCVBUF, SO_SNDBUF); as many as the system allows.
    pub socket_buffer: u32,
    /// Queues and segment. `device` is overwritten.
    pub shape: Shape,
}

impl Default for Options {
    fn default() -> Options {
        Options { mtu: 1500, coalesce: false, socket_buffer: 4 << 20, shape: Shape::SMALL }
    }
}

/// An endpoint over UDP.
pub struct Udp {
    memory: Memory,
    socket: i32,
    capabilities: Capabilities,
    coalesce: bool,
    /// Messages that go one by one before the kernel is given runs of them again: it refused one, because the route's device cannot (EIO), or
    /// takes shorter packets only. That may change.
    single: u32,
    joined: Cell<u64>,
    /// Several datagrams came by the last call.
    many: Cell<bool>,
    /// The last call has seen that the kernel has no more: the next look need not ask.
    drained: Cell<bool>,
}

/// Bytes of the staging place that belongs to each entry of the send queue.
const fn stride(largest: u32) -> u32 {
    largest.next_multiple_of(64)
}

fn capabilities(v6: bool, mtu: u32, coalesce: bool) -> Capabilities {
    let headers = if v6 { 48 } else { 28 } + HEADER as u32;
    let largest = mtu.saturating_sub(headers).clamp(INLINE as u32, LARGEST_DATAGRAM - HEADER as u32);
    let (sentence, smallest) = match coalesce {
        true => ("datagrams of the kernel, in batches, cut and coalesced by it: some microseconds each way", COALESCED),
        false => (
            "datagrams of the kernel, in batches, cut by it: some microseconds each way",
            (largest + HEADER as u32).next_multiple_of(64),
        ),
    };
    Capabilities {
        device: "udp",
        sentence,
        largest,
        gather: SCATTER as u32,
        lossy: true,
        ordered: false,
        buffers: Buffers::Posted { smallest, alignment: 4 },
        direct: false,
        needs_flush: true,
    }
}

impl Udp {
    /// An endpoint at `local` (port 0: any), made by [`ipv4`] or [`ipv6`].
    ///
    /// # Errors
    /// EINVAL for another kind of address or a shape that is none; what bind(2) and the others answer.
    pub fn bind(local: &Address, options: Options) -> Result<Udp, Errno> {
        let v6 = socket_address::is_v6(local).ok_or(Errno(libc::EINVAL))?;
        let capabilities = capabilities(v6, options.mtu, options.coalesce);
        let staging = options.shape.send.checked_mul(stride(capabilities.largest)).ok_or(Errno(libc::EINVAL))?;
        let memory = Memory::create(DEVICE, Shape { device: staging.next_multiple_of(4096), ..options.shape })?;
        memory.header().device_words[0].store(options.mtu as u64, Relaxed);
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let socket = calls::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)?;
        let udp = Udp {
            memory,
            socket,
            capabilities,
            coalesce: options.coalesce,
            single: 0,
            joined: Cell::new(0),
            many: Cell::new(false),
            drained: Cell::new(false),
        };
        if v6 {
            calls::setsockopt_int(socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            let size = options.socket_buffer as i32;
            if calls::setsockopt_int(socket, libc::SOL_SOCKET, force, size).is_err() {
                let _ = calls::setsockopt_int(socket, libc::SOL_SOCKET, plain, size);
            }
        }
        if options.coalesce {
            calls::setsockopt_int(socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
        }
        calls::bind(socket, local.bytes().as_ptr().cast(), local.bytes().len() as u32)?;
        Ok(udp)
    }

    /// An endpoint that was inherited or handed over: its memory's memfd and its socket, both owned from now on (the
    /// socket also on failure).
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(memory_fd: i32, socket: i32) -> Result<Udp, AttachError> {
        let opened = Memory::attach(memory_fd, DEVICE).and_then(|memory| {
            let coalesce = calls::getsockopt_int(socket, libc::SOL_UDP, libc::UDP_GRO).map_err(AttachError::System)? != 0;
            let domain = calls::getsockopt_int(socket, libc::SOL_SOCKET, libc::SO_DOMAIN).map_err(AttachError::System)?;
            let v6 = domain == libc::AF_INET6;
            let mtu = memory.header().device_words[0].load(Relaxed) as u32;
            let capabilities = capabilities(v6, mtu, coalesce);
            let staging = memory.shape().send as u64 * stride(capabilities.largest) as u64;
            if staging > memory.shape().device as u64 {
                return Err(AttachError::Layout);
            }
            Ok((memory, capabilities, coalesce))
        });
        match opened {
            Ok((memory, capabilities, coalesce)) => {
                let [many, drained] = [const { Cell::new(false) }; 2];
                Ok(Udp { memory, socket, capabilities, coalesce, single: 0, joined: Cell::new(0), many, drained })
            }
            Err(error) => {
                let _ = calls::close(socket);
                Err(error)
            }
        }
    }

    /// Whether the kernel cuts runs of messages for us, at present.
    pub fn cuts(&self) -> bool {
        self.single == 0
    }

    /// Buffers in which the kernel has joined several messages, so far, by this handle.
    pub fn joined(&self) -> u64 {
        self.joined.get()
    }

    /// The memory, whose memfd goes to another owner together with [`Endpoint::descriptor`].
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A descriptor of this endpoint's got another number.
    pub fn renumber(&mut self, from: i32, to: i32) {
        if self.socket == from {
            self.socket = to;
        }
        self.memory.renumber(from, to);
    }

    /// Copies what cannot stay where it is into the place that belongs to the next entry of the send queue.
    fn staged(&self, gather: &Gather<'_>, descriptor: &mut SendDescriptor) -> Result<(), SendError> {
        let head = gather.len().min(INLINE);
        let rest = gather.len() - head;
        descriptor.head_length = head as u32;
        // SAFETY: at most INLINE bytes.
        if !unsafe { gather.copy_to(0, descriptor.head.as_mut_ptr(), head) } {
            return Err(SendError::Fault);
        }
        if rest > 0 {
            let queue = self.memory.send_queue();
            let entry = queue.tail() & (queue.capacity() - 1);
            let area = Area::new(entry * stride(self.capabilities.largest), rest as u32);
            // SAFETY: one stride for each entry, and the rest is no longer than one.
            if !unsafe { gather.copy_to(head, self.memory.device_part().add(area.offset as usize), rest) } {
                return Err(SendError::Fault);
            }
            descriptor.areas[0] = area;
            descriptor.count = 1;
            descriptor.kind = outgoing::STAGED;
        }
        Ok(())
    }

    /// Puts a frame on the send queue.
    #[inline]
    fn put(&self, channel: Channel, gather: &Gather<'_>, kind: Kind) -> Result<Ticket, SendError> {
        let memory = &self.memory;
        let entry = memory.registry().get(channel).ok_or(SendError::Channel)?;
        let queue = memory.send_queue();
        let counters = memory.counters();
        if queue.len() == queue.capacity() {
            Counters::add(&counters.refused, 1);
            return Err(SendError::NoResource);
        }
        let mut descriptor = match gather.descriptor(channel.0, 0) {
            Some(descriptor) => descriptor,
            None => {
                let mut descriptor = SendDescriptor::empty();
                descriptor.channel = channel.0;
                self.staged(gather, &mut descriptor)?;
                descriptor
            }
        };
        Repr { kind, tag: entry.tags().send.0, length: gather.len() as u32 }.emit(&mut descriptor.wire);
        let ticket = Ticket(queue.tail());
        queue.put(&descriptor).map_err(|_| SendError::NoResource)?;
        Counters::add(&counters.sent, 1);
        Counters::add(&counters.sent_bytes, gather.len() as u64);
        Ok(ticket)
    }
}

impl Endpoint for Udp {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn segment(&self) -> Segment {
        self.memory.segment()
    }

    fn address(&self) -> Address {
        socket_address::of_socket(self.socket)
    }

    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        let ours = socket_address::is_v6(&self.address());
        if ours.is_none() || socket_address::is_v6(remote) != ours {
            return Err(OpenError::Address);
        }
        self.memory.registry().insert(&socket_address::canonical(remote), tags)
    }

    fn close(&mut self, channel: Channel) {
        // A socket that fails tells the next flush.
        let _ = self.hand_over();
        if self.memory.registry().remove(channel).is_some() {
            Exports::of(&self.memory).forget(channel);
        }
    }

    #[inline]
    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        self.put_frame(message, Kind::Message)
    }

    fn flush(&mut self) -> Result<bool, SendError> {
        self.hand_over()
    }

    fn injected(&mut self) -> Ticket {
        Ticket(self.memory.send_queue().head())
    }

    fn post(&mut self, buffer: Area) -> Result<(), PostError> {
        let Buffers::Posted { smallest, alignment } = self.capabilities.buffers else { return Err(PostError::NotNeeded) };
        if buffer.length < smallest || !buffer.offset.is_multiple_of(alignment) || !self.segment().contains(buffer) {
            return Err(PostError::Area);
        }
        self.memory.free_queue().put(&buffer).map_err(|_| PostError::Full)
    }

    #[inline]
    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        let queue = self.memory.receive_queue();
        if queue.is_empty() && (self.drained.replace(false) || !self.take_in()) {
            return false;
        }
        let Some(next) = queue.take() else { return false };
        *arrival = next;
        let counters = self.memory.counters();
        Counters::add(&counters.received, 1);
        Counters::add(&counters.received_bytes, arrival.length as u64);
        true
    }

    #[inline]
    fn release(&mut self, arrival: &mut Arrival) {
        if let Some(buffer) = arrival.buffers().first() {
            self.give_back(*buffer);
        }
        arrival.count = 0;
    }

    fn backlog(&mut self) -> Backlog {
        self.take_in_all();
        let queue = self.memory.receive_queue();
        Backlog { waiting: queue.len(), capacity: queue.capacity() }
    }

    fn descriptor(&self) -> i32 {
        self.socket
    }

    fn arm(&mut self) -> bool {
        // The kernel's queue is level-triggered by itself: what has come there makes the socket readable, so no look is needed.
        let _ = self.hand_over();
        self.memory.receive_queue().is_empty()
    }

    fn disarm(&mut self) {
        Counters::add(&self.memory.counters().woken, 1);
        if self.memory.receive_queue().is_empty() {
            self.drained.set(false);
            self.take_in();
        }
    }

    fn counters(&self) -> &Counters {
        self.memory.counters()
    }
}

impl Emulated for Udp {
    fn exporting(&self) -> &Memory {
        &self.memory
    }

    #[inline]
    fn put_frame(&mut self, message: &Message<'_>, kind: Kind) -> Result<Ticket, SendError> {
        let gather = Gather::of(message, self.memory.segment(), &self.capabilities)?;
        self.put(message.channel, &gather, kind)
    }
}

impl core::ops::Drop for Udp {
    fn drop(&mut self) {
        let _ = calls::close(self.socket);
    }
}
