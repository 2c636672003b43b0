//! What callers and stations tell each other.

use crate::Driver;
use shunt_am::{Data, Nanoseconds};
use shunt_segment::address::Address;

/// The number of a stream in its station's table: the lowest one that is free is lent first.
pub type Stream = u32;
/// The number of a peer, another station, in the station's table.
pub type Peer = u32;
/// What comes back by the TCP connection, from the process that accepted it: 128 random bits, the client's.
pub type Token = [u64; 2];

/// What the TCP connection of a stream shows from its first segment on: the largest segment that its client's SYN names
/// (TCP_MAXSEG, tcp(7)), which is odd; that of most interfaces is even. A user who reserves a connection of another's, whose port
/// that user guessed, cannot change its SYN. Every process on the client's host can read it as soon as there is a SYN, so a
/// reservation counts only if it is older than the connection, and no other station replaces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark(pub u16);

impl Mark {
    /// How many there are on an interface: each odd number of bytes less costs a connection that TCP carries after all.
    const CHOICE: u16 = 64;

    /// One for an interface whose largest segment has so many bytes, by a random number.
    pub fn below(largest: u16, random: u64) -> Mark {
        Mark((largest & !1).saturating_sub(1 + 2 * (random % u64::from(Mark::CHOICE)) as u16) | 1)
    }

    /// Whether it can be one.
    pub fn is_one(self) -> bool {
        self.0 & 1 == 1
    }

    /// Whether a connection shows it whose SYN named segments of so many bytes.
    pub fn is_shown_by(self, segment: u32) -> bool {
        self.is_one() && segment == u32::from(self.0)
    }
}

/// Streams of a station at most.
pub const STREAMS: u32 = 1024;
/// Other stations that one station may have to do with.
pub const PEERS: u32 = 64;
/// Words of a stream's entry that belong to the caller; 0 when it is lent.
pub const WORDS: usize = 16;
/// Descriptors of a station at most.
pub const DESCRIPTORS: usize = 8;

/// Which device a station is to have.
pub enum Choice<'a> {
    /// The kernel's UDP, at this address (port 0: any).
    Udp {
        /// Where: one of this host's own.
        local: Address,
        /// Bytes of a packet on the interface.
        mtu: u32,
    },
    /// An interface that has an agent: a queue of the station's own if one is free for its user, or else the kernel's UDP.
    Agent {
        /// The interface.
        interface: &'a str,
        /// Where, over UDP: one of the interface's own.
        local: Address,
        /// Bytes of a packet on it.
        mtu: u32,
    },
    /// Any endpoint: for tests.
    #[cfg(any(test, feature = "std"))]
    Other {
        /// It.
        endpoint: Box<dyn shunt_endpoint::Endpoint + Send>,
        /// Its frames arrive unchanged or not at all.
        checked: bool,
    },
}

/// Both ends of a TCP connection, as the client's side sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FourTuple {
    /// The end that connects.
    pub client: Address,
    /// The end that it connects to.
    pub server: Address,
}

/// Why there is no stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Refusal {
    /// No gate answers there; of a gate: no station serves that listener. Believed for a time.
    NoStation = 1,
    /// A table is full, here or there.
    Full = 2,
    /// The listener of this connection is not that station's, or no station's there.
    Elsewhere = 3,
    /// The 4-tuple's client is not where the question came from, or another station there has reserved it.
    Source = 4,
    /// The path was lost.
    Lost = 5,
    /// The device takes no such peer.
    Device = 6,
    /// [`Driver::cancel`] came before a process had claimed the reservation: the TCP connection carries no token.
    Cancelled = 7,
    /// No process claimed an earlier reservation at this server, or its connection did not show the mark; believed for a time.
    Unclaimed = 8,
}

/// How far a stream's opening is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Not answered yet.
    Pending,
    /// The server has a reservation: connect by TCP, and expect the token.
    Opened,
    /// It will not be.
    Refused(Refusal),
}

/// What sockets give: called by the driver, in the order of what happens.
pub trait Pump {
    /// The next bytes of a stream. Room was granted for them, so all are to be taken, before this returns.
    fn bytes(&mut self, stream: Stream, data: Data<'_>);
    /// The peer sends no more (FIN), after all its bytes.
    fn finished(&mut self, stream: Stream);
    /// The peer reset the stream.
    fn reset(&mut self, stream: Stream);
    /// The client sent its first `position` bytes by TCP; what comes here are those behind. Once, before anything else of the
    /// stream; at the server only.
    fn begin(&mut self, stream: Stream, position: u64);
    /// The server's answer ([`Driver::begun`]): at the client only.
    fn begun(&mut self, stream: Stream);
    /// The peer says nothing more of the stream here, and goes on by TCP when it is told, by that, what has come ([`Driver::say_leave`]).
    fn leave(&mut self, stream: Stream) {
        let _ = stream;
    }
    /// The peer knows nothing of [`Driver::say_leave`]: it was as if that had not been said.
    fn stays(&mut self, stream: Stream) {
        let _ = stream;
    }
    /// An urgent byte, behind `position` bytes of the stream.
    fn urgent(&mut self, stream: Stream, position: u64, byte: u8);
    /// The peer has all bytes before `upto`, counted from the stream's beginning, where its program will find them.
    fn acknowledged(&mut self, stream: Stream, upto: u64);
    /// [`Driver::send`], `finish`, `reset` or `urgent` did not do all that was asked, and may do more now.
    fn writable(&mut self, driver: &mut Driver<'_>, stream: Stream);
    /// Frames of one turn were taken: what follows from them may be said with what acknowledges them.
    fn taken(&mut self, driver: &mut Driver<'_>) {
        let _ = driver;
    }
    /// Whether the driver has what it waits for. What else is to be done may wait until it comes again, once.
    fn is_content(&self) -> bool {
        false
    }
    /// The path is lost, in both directions: what was not acknowledged may or may not have arrived.
    fn lost(&mut self, stream: Stream);
}

/// What a turn of driving did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Frames came.
    pub moved: bool,
    /// More may wait: there was an end to what one turn takes.
    pub more: bool,
    /// The turn ended early, since its driver is content ([`Pump::is_content`]): what follows from it is left to the next one.
    pub early: bool,
    /// When a thread is to drive again, if nothing happens before. Nanoseconds of the caller's clock.
    pub deadline: Option<Nanoseconds>,
}

/// The descriptors of a station; those that are not there are -1. The first one is the station's memory.
pub type Descriptors = [i32; DESCRIPTORS];
