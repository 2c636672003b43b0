//! The device below a station: one of a few, known by a comparison rather than a call through a table.

use shunt_endpoint::device::udp::{ipv4, ipv6, Options, Udp};
use shunt_endpoint::shared::Shape;
use shunt_endpoint::{
    Address as At, Area, Arrival, Backlog, Buffers, Capabilities, Channel, Counters, Endpoint, Message, OpenError, PostError,
    Segment, SendError, Tag, Tags, Ticket,
};
use shunt_segment::address::Address;
use shunt_sys::{libc, Errno, Result};
use shunt_xdp::protocol::{Kind as XdpKind, Sizes};
use shunt_xdp::Xdp;

use crate::memory::REGISTRY;
use crate::{Choice, Descriptors};

/// Entries of queues, and buffers posted.
const DEPTH: u32 = 256;

/// Buffers over UDP, of which each takes a run of messages that the kernel joins, and their bytes.
const RUNS: u32 = 32;
const RUN: u32 = 1 << 16;

/// Devices, as numbers in memory.
pub(crate) mod kind {
    pub const UDP: u32 = 1;
    pub const XDP: u32 = 2;
    #[cfg(any(test, feature = "std"))]
    pub const OTHER: u32 = 3;
}

/// A device's name, for people.
#[cfg(feature = "std")]
pub(crate) fn name(kind: u32) -> &'static str {
    match kind {
        kind::UDP => "udp",
        kind::XDP => "xdp",
        _ => "other",
    }
}

/// One of the devices.
pub(crate) enum Device {
    Udp(Udp),
    Xdp(Xdp),
    /// Of the tests'.
    #[cfg(any(test, feature = "std"))]
    Other(Box<dyn Endpoint + Send>),
}

macro_rules! each {
    ($self:expr, $device:ident => $result:expr) => {
        match $self {
            Device::Udp($device) => $result,
            Device::Xdp($device) => $result,
            #[cfg(any(test, feature = "std"))]
            Device::Other($device) => $result,
        }
    };
}

impl Device {
    pub(crate) fn make(choice: Choice<'_>) -> Result<Device> {
        let mut device = match choice {
            Choice::Udp { local, mtu } => Device::Udp(bind(&local, mtu)?),
            // An emulated endpoint would have a third process between any two: two more hand-overs for each message one way than the
            // kernel, which moves UDP's in the processes' own calls.
            Choice::Agent { interface, local, mtu } => match lent(interface, local.as_v4().is_none())? {
                Some(xdp) => Device::Xdp(xdp),
                None => Device::Udp(bind(&local, mtu)?),
            },
            #[cfg(any(test, feature = "std"))]
            Choice::Other { endpoint, .. } => Device::Other(endpoint),
        };
        device.post_all();
        Ok(device)
    }

    pub(crate) fn attach(kind: u32, descriptors: &Descriptors) -> Result<Device> {
        let [_, a, b, c, d, e, ..] = *descriptors;
        match kind {
            kind::UDP => Udp::attach(a, b).map(Device::Udp).map_err(|_| Errno(libc::EINVAL)),
            kind::XDP => {
                Xdp::adopt(shunt_xdp::Descriptors { memory: a, connection: b, bell: c, way: d, page: e }).map(Device::Xdp)
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    pub(crate) fn kind(&self) -> u32 {
        match self {
            Device::Udp(_) => kind::UDP,
            Device::Xdp(_) => kind::XDP,
            #[cfg(any(test, feature = "std"))]
            Device::Other(_) => kind::OTHER,
        }
    }

    /// The descriptors that [`Device::attach`] takes, from place 1 on.
    pub(crate) fn descriptors(&self, into: &mut Descriptors) {
        match self {
            Device::Udp(udp) => [into[1], into[2]] = [udp.memory().fd(), udp.descriptor()],
            Device::Xdp(xdp) => {
                let shunt_xdp::Descriptors { memory, connection, bell, way, page } = xdp.descriptors();
                into[1..6].copy_from_slice(&[memory, connection, bell, way, page]);
                into[6] = xdp.descriptor();
            }
            #[cfg(any(test, feature = "std"))]
            Device::Other(_) => {}
        }
    }

    /// Whether nothing can ever arrive or leave again.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Device::Xdp(xdp) => xdp.agent_is_gone(),
            _ => false,
        }
    }

    /// What the device gave to root is let go.
    pub(crate) fn is_not_roots(&self) {
        if let Device::Xdp(xdp) = self {
            xdp.give_up_runs();
        }
    }

    pub(crate) fn renumber(&mut self, from: i32, to: i32) {
        match self {
            Device::Udp(udp) => udp.renumber(from, to),
            Device::Xdp(xdp) => xdp.renumber(from, to),
            #[cfg(any(test, feature = "std"))]
            Device::Other(_) => {}
        }
    }

    /// Unmaps and closes what this process has of it. No thread uses it any more, but to read the numbers of its descriptors.
    ///
    /// # Safety
    /// It is never dropped.
    pub(crate) unsafe fn let_go(&mut self) {
        // SAFETY: what is left are plain numbers.
        unsafe { core::ptr::drop_in_place(self) };
    }

    /// Posts buffers over all of the segment.
    fn post_all(&mut self) {
        let Buffers::Posted { smallest, alignment } = self.capabilities().buffers else { return };
        let size = smallest.next_multiple_of(alignment.max(64)).max(if smallest < 256 { 4096 } else { 0 });
        let mut offset = 0;
        while offset + size <= self.segment().size() && self.post(Area::new(offset, size)).is_ok() {
            offset += size;
        }
    }

    /// Closes all channels.
    pub(crate) fn close_all(&mut self) {
        for _ in 0..REGISTRY {
            let open = match self {
                Device::Udp(udp) => udp.memory().registry().iter().next().map(|(channel, _)| channel),
                Device::Xdp(xdp) => xdp.memory().registry().iter().next().map(|(channel, _)| channel),
                #[cfg(any(test, feature = "std"))]
                Device::Other(_) => None,
            };
            match open {
                Some(channel) => self.close(channel),
                None => return,
            }
        }
    }

    /// After a driver died: what its queues and buffers hold may be half-done.
    pub(crate) fn recover(&mut self) {
        match self {
            Device::Udp(udp) => {
                let memory = udp.memory();
                memory.send_queue().advance(memory.send_queue().len());
                memory.receive_queue().advance(memory.receive_queue().len());
                memory.free_queue().advance(memory.free_queue().len());
                self.post_all();
            }
            Device::Xdp(xdp) => xdp.recover(),
            #[cfg(any(test, feature = "std"))]
            Device::Other(_) => {}
        }
    }
}

fn bind(local: &Address, mtu: u32) -> Result<Udp> {
    let shape = Shape { channels: REGISTRY as u32, send: DEPTH, receive: DEPTH, free: RUNS, segment: RUNS * RUN, device: 0 };
    // What the sender's kernel was given as one packet stays one where no wire cuts it.
    Udp::bind(&at(local), Options { mtu, coalesce: true, shape, ..Options::default() })
}

/// A queue of the interface, which its agent has lent; `None`: it has none for this user.
fn lent(interface: &str, version_6: bool) -> Result<Option<Xdp>> {
    let sizes = Sizes { channels: REGISTRY as u32, depth: DEPTH, segment: 1 << 20 };
    match Xdp::attach(interface, XdpKind::Own, version_6, sizes) {
        Ok(xdp) => Ok(Some(xdp)),
        // No agent that serves: gone, stopped, not root's, of another version.
        Err(Errno(
            gone @ (libc::ECONNREFUSED
            | libc::ECONNRESET
            | libc::EPIPE
            | libc::EAGAIN
            | libc::EINTR
            | libc::EPERM
            | libc::EPROTO
            | libc::ENODEV),
        )) => Err(Errno(gone)),
        // Users who have no queues, queues that are taken, or that the kernel does not give.
        Err(_) => Ok(None),
    }
}

/// An address of ours as UDP's.
pub(crate) fn at(address: &Address) -> At {
    match address.as_v4() {
        Some(ip) => ipv4(ip, address.port),
        None => ipv6(address.ip, address.port, address.scope),
    }
}

/// An address of UDP's as ours.
pub(crate) fn of(at: &At) -> Option<Address> {
    let (address, scope) = shunt_xdp::address::decode(at)?;
    Some(match address.ip() {
        core::net::IpAddr::V4(ip) => Address::v4(ip.octets(), address.port()),
        core::net::IpAddr::V6(ip) => Address { scope, ..Address::v6(ip.octets(), address.port()) },
    })
}

impl Endpoint for Device {
    fn capabilities(&self) -> &Capabilities {
        each!(self, device => device.capabilities())
    }
    fn segment(&self) -> Segment {
        each!(self, device => device.segment())
    }
    fn address(&self) -> At {
        each!(self, device => device.address())
    }
    fn new_tag(&mut self) -> Result<Tag> {
        each!(self, device => device.new_tag())
    }
    fn open(&mut self, remote: &At, tags: Tags) -> core::result::Result<Channel, OpenError> {
        each!(self, device => device.open(remote, tags))
    }
    fn close(&mut self, channel: Channel) {
        each!(self, device => device.close(channel))
    }
    #[inline]
    fn send(&mut self, message: &Message<'_>) -> core::result::Result<Ticket, SendError> {
        each!(self, device => device.send(message))
    }
    #[inline]
    fn flush(&mut self) -> core::result::Result<bool, SendError> {
        each!(self, device => device.flush())
    }
    fn injected(&mut self) -> Ticket {
        each!(self, device => device.injected())
    }
    fn post(&mut self, buffer: Area) -> core::result::Result<(), PostError> {
        each!(self, device => device.post(buffer))
    }
    #[inline]
    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        each!(self, device => device.receive(arrival))
    }
    #[inline]
    fn release(&mut self, arrival: &mut Arrival) {
        each!(self, device => device.release(arrival))
    }
    fn backlog(&mut self) -> Backlog {
        each!(self, device => device.backlog())
    }
    fn descriptor(&self) -> i32 {
        each!(self, device => device.descriptor())
    }
    fn arm(&mut self) -> bool {
        each!(self, device => device.arm())
    }
    fn disarm(&mut self) {
        each!(self, device => device.disarm())
    }
    fn counters(&self) -> &Counters {
        each!(self, device => device.counters())
    }
}
