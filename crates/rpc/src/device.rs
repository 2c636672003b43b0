//! The end of a binding: an endpoint of the address's device, with active messages on it.

use crate::address::Address as Place;
use crate::forks;
use crate::interface;
use crate::wire::Card;
use shunt_am::port::{config_for, memory, Port};
use shunt_am::{Config, Dispatch};
use shunt_endpoint::device::shm::{self, Shm};
use shunt_endpoint::device::udp::{self, Udp};
use shunt_endpoint::{
    Address, Area, Arrival, Backlog, Capabilities, Channel, Counters, Endpoint, Message, OpenError, PostError, Segment,
    SendError, Tag, Tags, Ticket, WORDS,
};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;
use std::io;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};

/// Shared memory, compiled into the code that polls; and every other device, behind a table.
pub enum Any {
    /// Of this host.
    Memory(Shm),
    /// Another.
    Other(Box<dyn Endpoint + Send>),
}

macro_rules! forward {
    ($self:ident, $end:ident => $call:expr) => {
        match $self {
            Any::Memory($end) => $call,
            Any::Other($end) => $call,
        }
    };
}

impl Endpoint for Any {
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        forward!(self, end => end.capabilities())
    }
    #[inline]
    fn segment(&self) -> Segment {
        forward!(self, end => end.segment())
    }
    fn address(&self) -> Address {
        forward!(self, end => end.address())
    }
    fn new_tag(&mut self) -> Result<Tag, shunt_sys::Errno> {
        forward!(self, end => end.new_tag())
    }
    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        forward!(self, end => end.open(remote, tags))
    }
    fn close(&mut self, channel: Channel) {
        forward!(self, end => end.close(channel))
    }
    #[inline]
    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        forward!(self, end => end.send(message))
    }
    #[inline(always)]
    fn send_words(&mut self, channel: Channel, words: &[u64; WORDS], count: usize) -> Result<Ticket, SendError> {
        forward!(self, end => end.send_words(channel, words, count))
    }
    #[inline]
    fn flush(&mut self) -> Result<bool, SendError> {
        forward!(self, end => end.flush())
    }
    fn injected(&mut self) -> Ticket {
        forward!(self, end => end.injected())
    }
    fn post(&mut self, buffer: Area) -> Result<(), PostError> {
        forward!(self, end => end.post(buffer))
    }
    #[inline(always)]
    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        forward!(self, end => end.receive(arrival))
    }
    #[inline(always)]
    fn release(&mut self, arrival: &mut Arrival) {
        forward!(self, end => end.release(arrival))
    }
    fn backlog(&mut self) -> Backlog {
        forward!(self, end => end.backlog())
    }
    fn descriptor(&self) -> i32 {
        forward!(self, end => end.descriptor())
    }
    fn arm(&mut self) -> bool {
        forward!(self, end => end.arm())
    }
    fn disarm(&mut self) {
        forward!(self, end => end.disarm())
    }
    fn counters(&self) -> &Counters {
        forward!(self, end => end.counters())
    }
}

/// The peer's number: each end has one.
pub(crate) const PEER: u32 = 0;

fn system(error: shunt_sys::Errno) -> io::Error {
    io::Error::from_raw_os_error(error.0)
}

/// A queue of the interface that has this address, if its agent lends one, or else an endpoint that the agent moves frames for.
fn attach(at: IpAddr) -> io::Result<Any> {
    let name = interface::name_of(at)?;
    let sizes = Sizes { channels: 1, ..Sizes::default() };
    let made = Xdp::attach(&name, Kind::Any, at.is_ipv6(), sizes).map_err(|errno| {
        let why = system(errno);
        let hint = match errno.0 {
            libc::ECONNREFUSED => format!("; no agent is there: shunt agent --interface {name}, as root"),
            _ => String::new(),
        };
        io::Error::new(why.kind(), format!("an endpoint of the device xdp on {name}: {why}{hint}"))
    })?;
    Ok(Any::Other(Box::new(made)))
}

#[cfg(feature = "fabric")]
fn fabric(provider: &str, at: IpAddr) -> io::Result<Any> {
    let node = at.to_string();
    // Providers for one host know no addresses of IP.
    let node = (provider != "shm").then_some(node.as_str());
    let made = shunt_fabric::Fabric::new(shunt_fabric::Options { provider, node, ..Default::default() });
    let made = made.map_err(|why| io::Error::other(format!("an endpoint of libfabric's provider {provider}: {why:?}")))?;
    Ok(Any::Other(Box::new(made)))
}

#[cfg(not(feature = "fabric"))]
fn fabric(provider: &str, _: IpAddr) -> io::Result<Any> {
    let text = format!("libfabric's provider {provider}: this was built without the feature fabric of shunt-rpc");
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// A port with the memory that its engine lies in.
pub(crate) struct End {
    port: Option<Port<'static, Any>>,
    memory: *mut [u64],
    tag: Tag,
    /// Forks before it was made.
    forks: u32,
}

// SAFETY: the memory is the value's own, and its port's borrow of it goes with it.
unsafe impl Send for End {}

impl End {
    /// An endpoint of the device of a server's address; between hosts at the address of this one that the binding's connection has.
    pub fn new(place: &Place, over: Option<IpAddr>) -> io::Result<Self> {
        let endpoint = match (place, over) {
            (Place::Xdp(_), Some(at)) => attach(at)?,
            (Place::Fabric(provider, _), Some(at)) => fabric(provider, at)?,
            (_, None) => Any::Memory(Shm::new(shm::Options { channels: 1, segment: 4096 }).map_err(system)?),
            (_, Some(IpAddr::V4(at))) => {
                let at = udp::ipv4(at.octets(), 0);
                Any::Other(Box::new(Udp::bind(&at, udp::Options::default()).map_err(system)?))
            }
            (_, Some(IpAddr::V6(at))) => {
                let at = udp::ipv6(at.octets(), 0, 0);
                Any::Other(Box::new(Udp::bind(&at, udp::Options::default()).map_err(system)?))
            }
        };
        Self::on(endpoint)
    }

    /// On an endpoint that is there.
    pub(crate) fn on(endpoint: Any) -> io::Result<Self> {
        let config = Config { channels: 0, window: 256, replies: 128, ..config_for(&endpoint, 1) };
        let memory = Box::into_raw(memory(&config).into_boxed_slice());
        let mut end = Self { port: None, memory, tag: Tag(0), forks: forks::watch() };
        // SAFETY: just made; freed after the port.
        let mut port = Port::new(endpoint, unsafe { &mut *memory }, &config).map_err(io::Error::other)?;
        end.tag = port.endpoint().new_tag().map_err(system)?;
        end.port = Some(port);
        Ok(end)
    }

    /// What to sleep on.
    pub fn endpoint_descriptor(&mut self) -> i32 {
        self.endpoint().descriptor()
    }

    /// Whether both sides have the same memory.
    pub fn is_direct(&mut self) -> bool {
        matches!(self.endpoint(), Any::Memory(_))
    }

    /// What the other side needs.
    pub fn card(&mut self) -> io::Result<Card> {
        let offer = self.engine().offer(PEER).map_err(|why| io::Error::other(why.to_string()))?;
        Ok(Card { address: self.endpoint().address(), tag: self.tag, offer })
    }

    /// Connected to the end that has this card, once it has ours.
    pub fn adopt(&mut self, card: &Card, program: &mut dyn Dispatch) -> io::Result<()> {
        let tags = Tags { receive: self.tag, send: card.tag };
        let broken = |why: &dyn std::fmt::Debug| io::Error::new(io::ErrorKind::InvalidData, format!("the peer's card: {why:?}"));
        self.open(&card.address, tags).map_err(|why| broken(&why))?;
        let now = self.now();
        self.engine().adopt(now, PEER, &card.offer, program).map_err(|why| broken(&why))
    }
}

impl Deref for End {
    type Target = Port<'static, Any>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        self.port.as_ref().expect("there until the end is dropped")
    }
}

impl DerefMut for End {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.port.as_mut().expect("there until the end is dropped")
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.forks != forks::number() {
            // A child's copy: what it would say to the peer, the parent would have said.
            return std::mem::forget(self.port.take());
        }
        self.port = None;
        // SAFETY: made by Box::into_raw; its only borrower is gone.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}
