//! What an endpoint and the agent say to each other: one packet asked, one answered, over AF_UNIX (SOCK_SEQPACKET).
//!
//! ```text
//! endpoint                                                   agent of the interface
//!   connect to the abstract name shunt1-agent-INTERFACE ───►  SO_PEERCRED: who is it, what may it have?
//!   SO_PEERCRED: is it root's?                                 
//!   Attach {kind, sizes}                                 ───►  makes the memory, perhaps a socket on a queue
//!        ◄─── {address, sizes} + memory, bell, socket or doorbell and page
//!   NewTag, Open {channel, peer, tags}, Close {channel}  ───►  tag ─► queue, route, neighbour
//!   Hands                                                ───►  a thread for this client's connections with others
//!        ◄─── a connection to that thread, by which:
//!   Take + socket, escrow; Give {number}; Pass + frame   ───►  4-tuple ─► queue; the socket into repair and out of it
//! ```
//!
//! The connection is the endpoint's life: when its last descriptor is closed, however, the agent takes everything back.
//! Structures are integers in the machine's order: both ends are on one host.

use shunt_endpoint::{Address, Tag, Tags};
use shunt_sys::libc;

mod connection;

pub use connection::Connection;

pub use crate::decline::Decline;
use crate::socket::Shape as RingShape;

pub use shunt_wire::endpoint::AGENT_PORT as PORT;

/// First word of both structures.
const MAGIC: u32 = u32::from_ne_bytes(*b"shag");
/// Version of everything here, and of the memory that is shared.
pub const VERSION: u32 = 7;

/// Most descriptors in one answer.
pub const DESCRIPTORS: usize = 4;

/// Bytes of the longest request: with a frame behind it.
pub const LONGEST_REQUEST: usize = size_of::<Request>() + crate::tcp::LONGEST_FRAME;

/// The name, in the abstract name space, of a datagram socket that exists where agents run: to connect to it shows that, and no
/// agent hears of it.
pub const BEACON: &[u8] = b"shunt1-agents";

/// The agent's name in the abstract name space, without the leading zero byte.
pub fn name(interface: &str, buffer: &mut [u8; 48]) -> usize {
    let prefix = b"shunt1-agent-";
    let interface = &interface.as_bytes()[..interface.len().min(libc::IFNAMSIZ)];
    buffer[..prefix.len()].copy_from_slice(prefix);
    buffer[prefix.len()..][..interface.len()].copy_from_slice(interface);
    prefix.len() + interface.len()
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Make me an endpoint: `kind`, `version_6`, `sizes`.
    Attach = 1,
    /// A tag by which a peer may send to me.
    NewTag = 2,
    /// Register `channel` to the endpoint at `address` under `tags`.
    Open = 3,
    /// Forget `channel` and the tag by which it was reached.
    Close = 4,
    /// A memory file with a report in JSON.
    Status = 5,
    /// Does the host at `address`, a neighbour, run shunt? EHOSTUNREACH: not that the agent knew.
    Host = 6,
    /// A connection to ask the next three by, for an endpoint with a queue of its own. It ends with the endpoint; where it ends before, all is given
    /// back.
    Hands = 10,
    /// Take this connected socket (first descriptor) from the kernel, and hold this escrow (second) for it.
    Take = 7,
    /// Give the connection `channel` back.
    Give = 8,
    /// The bytes behind the request are a frame of a connection that was given back: it is the kernel's.
    Pass = 9,
}

/// How the frames of an endpoint travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Whatever the agent gives: a queue if one is free and the user may have it.
    Any = 0,
    /// A queue of the interface of its own.
    Own = 1,
    /// U-Net's emulated endpoint: the agent moves the frames of many.
    Multiplexed = 2,
}

impl Kind {
    /// Of a number that another process wrote.
    pub fn of(number: u32) -> Option<Kind> {
        [Kind::Any, Kind::Own, Kind::Multiplexed].into_iter().find(|kind| *kind as u32 == number)
    }

    /// The word of reports.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Any => "any",
            Kind::Own => "own-queue",
            Kind::Multiplexed => "multiplexed",
        }
    }
}

/// How large an endpoint shall be. The agent may refuse, never change.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Channels: a power of two.
    pub channels: u32,
    /// Entries of the queues, and of the rings of a queue of its own: a power of two.
    pub depth: u32,
    /// Bytes of the owner's part of the communication segment: a multiple of 4096.
    pub segment: u32,
}

impl Default for Sizes {
    /// 64 channels, queues of 256, and 1 MiB.
    fn default() -> Sizes {
        Sizes { channels: 64, depth: 256, segment: 1 << 20 }
    }
}

/// What is asked, with whatever the operation needs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    magic: u32,
    version: u32,
    /// [`Operation`] as a number.
    pub operation: u32,
    /// [`Kind`] as a number.
    pub kind: u32,
    /// 1: the endpoint's address shall be one of IPv6, where there is a choice.
    pub version_6: u32,
    /// The channel's number in the endpoint's registry.
    pub channel: u32,
    /// Sizes of the endpoint.
    pub sizes: Sizes,
    reserved: u32,
    /// Repeated in the answer, so that no client takes an answer that came too late for its own.
    pub number: u64,
    receive: u64,
    send: u64,
    address: [u64; 6],
}

/// The answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    magic: u32,
    version: u32,
    /// 0, or the error's number.
    pub errno: i32,
    /// What was given ([`Kind`]).
    pub kind: u32,
    /// 0 for zero-copy, 1 for copy, of the queue that carries the endpoint.
    pub mode: u32,
    /// Bytes of the largest datagram, header of shunt included.
    pub largest: u32,
    /// The shape of the rings.
    pub rings: RingShape,
    /// The queue.
    pub queue: u32,
    /// Where the endpoint is.
    pub address: [u64; 6],
    /// The tag.
    pub tag: u64,
    /// The request's.
    pub number: u64,
}

/// Structures of integers without padding, of which any bytes are a value.
///
/// # Safety
/// As said.
unsafe trait Bytes: Copy {}
// SAFETY: integers; 112 bytes without padding.
unsafe impl Bytes for Request {}
// SAFETY: integers; 104 bytes without padding.
unsafe impl Bytes for Reply {}
const _: () = assert!(size_of::<Request>() == 112 && size_of::<Reply>() == 104);

impl Request {
    /// A request that carries nothing.
    pub fn new(operation: Operation) -> Request {
        Request {
            magic: MAGIC,
            version: VERSION,
            operation: operation as u32,
            kind: 0,
            version_6: 0,
            channel: 0,
            sizes: Sizes::default(),
            reserved: 0,
            number: 0,
            receive: 0,
            send: 0,
            address: Address::NONE.to_words(),
        }
    }

    /// With a channel: its number, its peer and its tags.
    pub fn channel(mut self, channel: u32, remote: &Address, tags: Tags) -> Request {
        (self.channel, self.address, self.receive, self.send) = (channel, remote.to_words(), tags.receive.0, tags.send.0);
        self
    }

    /// The peer of a channel.
    pub fn remote(&self) -> Address {
        Address::from_words(self.address)
    }

    /// The tags of a channel.
    pub fn tags(&self) -> Tags {
        Tags { receive: Tag(self.receive), send: Tag(self.send) }
    }

    /// What another process sent, if it is a request of this version, and what follows it.
    pub fn of(bytes: &[u8]) -> Option<(Request, &[u8])> {
        let (head, rest) = bytes.split_at_checked(size_of::<Request>())?;
        let request = of::<Request>(head).filter(|request| request.magic == MAGIC && request.version == VERSION)?;
        (rest.is_empty() || request.operation == Operation::Pass as u32).then_some((request, rest))
    }
}

impl Reply {
    /// The answer "done", with nothing in it.
    pub fn done() -> Reply {
        let rings = RingShape { chunk: 0, receive: 0, transmit: 0 };
        let address = Address::NONE.to_words();
        Reply {
            magic: MAGIC,
            version: VERSION,
            errno: 0,
            kind: 0,
            mode: 0,
            largest: 0,
            rings,
            queue: 0,
            address,
            tag: 0,
            number: 0,
        }
    }

    /// The answer "no".
    pub fn refused(errno: i32) -> Reply {
        Reply { errno, ..Reply::done() }
    }

    /// The answer to [`Operation::Take`]: the connection's number, or why not.
    pub fn taken(outcome: Result<u32, Decline>) -> Reply {
        let (kind, queue) = match outcome {
            Ok(number) => (0, number),
            Err(decline) => (decline as u32, 0),
        };
        Reply { kind, queue, ..Reply::done() }
    }

    /// The bytes to be sent.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: integers without padding, alive as long as the reference.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Reply>()) }
    }
}

fn of<T: Bytes>(bytes: &[u8]) -> Option<T> {
    // SAFETY: as many bytes as the structure has; any are a value.
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
