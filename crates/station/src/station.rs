//! The public interface.

use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;
use shunt_am::{Data, Nanoseconds};
use shunt_segment::address::Address;
use shunt_sys::{Errno, Result};

/// The number of a stream in its station's table: the lowest one that is free is lent first.
pub type Stream = u32;
/// The number of a peer, another station, in the station's table.
pub type Peer = u32;
/// What comes back by the TCP connection, from who accepted it: 128 random bits, the client's.
pub type Token = [u64; 2];

/// Streams of a station at most.
pub const STREAMS: u32 = 1024;
/// Other stations that one station may have to do with.
pub const PEERS: u32 = 64;
/// Words of a stream's entry that belong to the caller; 0 when it is lent.
pub const WORDS: usize = 16;
/// Descriptors of a station at most.
pub const DESCRIPTORS: usize = 8;

/// Which device a station is to have.
#[derive(Clone, Copy, Debug)]
pub enum Choice<'a> {
    /// The kernel's UDP, at this address (port 0: any).
    Udp {
        /// Where: one of this host's own.
        local: Address,
        /// Bytes of a packet on the interface.
        mtu: u32,
    },
    /// The interface's agent: a queue of its own if one is free, or emulated.
    Xdp {
        /// The interface.
        interface: &'a str,
        /// An address of IPv6.
        version_6: bool,
    },
}

/// Both ends of a TCP connection, as the client's side sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FourTuple {
    /// Who connects.
    pub client: Address,
    /// Whom.
    pub server: Address,
}

/// Why there is no stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Refusal {
    /// Nobody answers there, or says that it knows no such listener; believed for a time.
    NoStation = 1,
    /// A table is full, here or there.
    Full = 2,
    /// The listener of this connection is not that station's.
    Elsewhere = 3,
    /// The 4-tuple's client is not where the question came from.
    Source = 4,
    /// The path was lost.
    Lost = 5,
    /// The device takes no such peer.
    Device = 6,
    /// [`Driver::cancel`] came before anybody had claimed the reservation: the TCP connection carries no token.
    Cancelled = 7,
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

/// What sockets give: called by whoever drives, in the order of what happens.
pub trait Pump {
    /// The next bytes of a stream. Room was granted for them, so all are to be taken, before this returns.
    fn bytes(&mut self, stream: Stream, data: Data<'_>);
    /// The peer sends no more (FIN), after all its bytes.
    fn finished(&mut self, stream: Stream);
    /// The peer reset the stream.
    fn reset(&mut self, stream: Stream);
    /// An urgent byte, behind `position` bytes of the stream.
    fn urgent(&mut self, stream: Stream, position: u64, byte: u8);
    /// The peer has all bytes before `upto`, counted from the stream's beginning, where its program will find them.
    fn acknowledged(&mut self, stream: Stream, upto: u64);
    /// [`Driver::send`], `finish`, `reset` or `urgent` did not do all that was asked, and may do more now.
    fn writable(&mut self, driver: &mut Driver<'_>, stream: Stream);
    /// The path is lost, in both directions: what was not acknowledged may or may not have arrived.
    fn lost(&mut self, stream: Stream);
}

/// What a turn of driving did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Frames came.
    pub moved: bool,
    /// When somebody is to drive again, if nothing happens before. Nanoseconds of the caller's clock.
    pub deadline: Option<Nanoseconds>,
}

/// A process's handle on its station.
pub struct Station {
    _private: (),
}

/// The descriptors of a station; those that are not there are -1.
pub type Descriptors = [i32; DESCRIPTORS];

impl Station {
    /// Makes a station.
    ///
    /// # Errors
    /// What the device, memfd_create(2) or mmap(2) answers.
    pub fn make(_choice: &Choice<'_>, _now: Nanoseconds) -> Result<Station> {
        Err(Errno(shunt_sys::libc::ENOSYS))
    }

    /// The station whose descriptors were inherited, by a program that was exec'd. They belong to the handle from now on.
    ///
    /// # Errors
    /// EINVAL: memory that is no station's; what the system answers.
    pub fn attach(_descriptors: Descriptors) -> Result<Station> {
        Err(Errno(shunt_sys::libc::ENOSYS))
    }

    /// What is to be kept open, and handed on. They may be renumbered by [`Station::renumber`].
    pub fn descriptors(&self) -> Descriptors {
        unimplemented!()
    }

    /// A descriptor got another number.
    pub fn renumber(&self, _from: i32, _to: i32) {
        unimplemented!()
    }

    /// The right to drive, if nobody has it. `None`: somebody has, and will look once more before it gives it up.
    pub fn try_lock(&self) -> Option<Driver<'_>> {
        unimplemented!()
    }

    /// As [`Station::try_lock`], and tries for some time (a holder needs microseconds; one that was stopped is not waited for).
    pub fn lock(&self) -> Option<Driver<'_>> {
        unimplemented!()
    }

    /// Takes the lock if it is free, drives, gives it back; again if somebody left a mark meanwhile. `None`: not free.
    pub fn drive(&self, _now: Nanoseconds, _pump: &mut dyn Pump) -> Option<Progress> {
        unimplemented!()
    }

    /// What is to be polled for POLLIN by who sleeps, between [`Station::arm`] and [`Station::disarm`].
    pub fn poll_fd(&self) -> i32 {
        unimplemented!()
    }

    /// Before sleeping on [`Station::poll_fd`]. False: something waits; drive. Several may sleep at once.
    pub fn arm(&self) -> bool {
        unimplemented!()
    }

    /// After sleeping.
    pub fn disarm(&self) {
        unimplemented!()
    }

    /// When somebody is to drive at the latest.
    pub fn deadline(&self) -> Option<Nanoseconds> {
        unimplemented!()
    }

    /// When somebody other than the keeper drove last.
    pub fn driven_at(&self) -> Nanoseconds {
        unimplemented!()
    }

    /// This process is the keeper: its driving is not counted by [`Station::driven_at`].
    pub fn set_keeper(&self) {
        unimplemented!()
    }

    /// The caller's words of a stream's entry, shared by all processes of the station.
    pub fn words(&self, _stream: Stream) -> &[AtomicU64; WORDS] {
        unimplemented!()
    }

    /// How far a stream's opening is.
    pub fn opening(&self, _stream: Stream) -> Opening {
        unimplemented!()
    }

    /// What is remembered of the server: `Some(Ok)`: its station; `Some(Err)`: it has none; `None`: ask, by an [`Inquiry`].
    pub fn known(&self, _four: &FourTuple, _now: Nanoseconds) -> Option<core::result::Result<Peer, Refusal>> {
        unimplemented!()
    }

    /// Tells the station of a listener of its own, with the inode of its TCP socket and the address it is bound to. The
    /// descriptor is an ear: to be polled for POLLIN by the keeper, and answered by [`Driver::hear`]; the caller closes it.
    ///
    /// # Errors
    /// EADDRINUSE: another station serves it. ENOSPC: too many.
    pub fn listen(&self, _inode: u64, _address: &Address) -> Result<i32> {
        unimplemented!()
    }

    /// The listener is closed.
    pub fn unlisten(&self, _inode: u64) {
        unimplemented!()
    }
}

/// The right to drive. Given back when it is dropped; [`Driver::leave`] tells whether to take it again.
pub struct Driver<'s> {
    _station: PhantomData<&'s Station>,
}

impl Driver<'_> {
    /// Gives the lock back. True: somebody tried to take it meanwhile, so drive once more.
    #[must_use]
    pub fn leave(self) -> bool {
        unimplemented!()
    }

    /// Takes what has arrived, runs timers, sends what may be sent.
    pub fn drive(&mut self, _now: Nanoseconds, _pump: &mut dyn Pump) -> Progress {
        unimplemented!()
    }

    /// Lends a stream to the peer for a connection that is to be made, with a token of its own ([`Driver::token`]).
    ///
    /// # Errors
    /// `Full`, `Lost`.
    pub fn open(&mut self, _now: Nanoseconds, _peer: Peer, _four: &FourTuple) -> core::result::Result<Stream, Refusal> {
        unimplemented!()
    }

    /// The token of a stream that was opened or claimed.
    pub fn token(&self, _stream: Stream) -> Token {
        unimplemented!()
    }

    /// A client gives up before it has seen the token. [`Station::opening`] tells what became of it: `Cancelled`, and the stream
    /// may be released; or `Opened`: too late, the token is on its way.
    pub fn cancel(&mut self, _now: Nanoseconds, _stream: Stream) {
        unimplemented!()
    }

    /// The reservation for the connection with these addresses, if there is one: it is the caller's now.
    pub fn claim(&mut self, _four: &FourTuple) -> Option<(Stream, Token)> {
        unimplemented!()
    }

    /// From now on the pump is told of the stream. Nothing comes before room is granted.
    pub fn bind(&mut self, _stream: Stream) {
        unimplemented!()
    }

    /// Sends up to `length` bytes, which `fill` copies, in order, into all of the slices it is given (false: they cannot be
    /// read). Gives how many were taken; if fewer, [`Pump::writable`] says when to go on.
    pub fn send(
        &mut self,
        _now: Nanoseconds,
        _stream: Stream,
        _length: usize,
        _fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> usize {
        unimplemented!()
    }

    /// The peer may send bytes up to `limit`, counted from the stream's beginning. Never taken back.
    pub fn grant(&mut self, _stream: Stream, _limit: u64) {
        unimplemented!()
    }

    /// No more bytes will be sent. False: not now, see [`Pump::writable`].
    pub fn finish(&mut self, _now: Nanoseconds, _stream: Stream) -> bool {
        unimplemented!()
    }

    /// Ends both directions. False: not now, see [`Pump::writable`].
    pub fn reset(&mut self, _now: Nanoseconds, _stream: Stream) -> bool {
        unimplemented!()
    }

    /// Sends an urgent byte, which stands behind what was sent so far. False: not now, see [`Pump::writable`].
    pub fn urgent(&mut self, _now: Nanoseconds, _stream: Stream, _byte: u8) -> bool {
        unimplemented!()
    }

    /// Bytes of the stream sent, acknowledged, received.
    pub fn positions(&self, _stream: Stream) -> [u64; 3] {
        unimplemented!()
    }

    /// Nothing more is wanted of the stream, in whatever state it is; the pump hears no more of it.
    pub fn release(&mut self, _now: Nanoseconds, _stream: Stream) {
        unimplemented!()
    }

    /// Answers what waits at an ear.
    pub fn hear(&mut self, _now: Nanoseconds, _ear: i32) {
        unimplemented!()
    }
}

/// A client's question. Its process asks, and nobody else; several may ask the same.
pub struct Inquiry {
    _private: (),
}

/// How far an inquiry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Poll [`Inquiry::descriptor`] until [`Inquiry::deadline`], then [`Inquiry::step`] again.
    Pending,
    /// This peer serves the listener.
    Peer(Peer),
    /// None does; remembered.
    None(Refusal),
}

impl Inquiry {
    /// Begins to ask which station serves the listener that would get this connection.
    ///
    /// # Errors
    /// The descriptor cannot be made; nothing is known then.
    pub fn begin(_station: &Station, _four: &FourTuple, _now: Nanoseconds) -> Result<Inquiry> {
        Err(Errno(shunt_sys::libc::ENOSYS))
    }

    /// What is to be polled (POLLIN).
    pub fn descriptor(&self) -> i32 {
        unimplemented!()
    }

    /// When to step at the latest.
    pub fn deadline(&self) -> Nanoseconds {
        unimplemented!()
    }

    /// Goes on.
    pub fn step(&mut self, _station: &Station, _now: Nanoseconds) -> Answer {
        unimplemented!()
    }
}

/// The UDP port at which gates are.
pub const GATE: u16 = 29545;

/// The gate of a host: a UDP socket that keepers of one user share.
pub struct Gate {
    _private: (),
}

impl Gate {
    /// Opens the gate in this network namespace, for one family.
    ///
    /// # Errors
    /// EADDRINUSE: another user's is there, and serves everybody; try again later.
    pub fn open(_version_6: bool) -> Result<Gate> {
        Err(Errno(shunt_sys::libc::ENOSYS))
    }

    /// What is to be polled (POLLIN).
    pub fn descriptor(&self) -> i32 {
        unimplemented!()
    }

    /// Answers what waits, a bounded number. `listener` gives the inode of the TCP listener that would get a connection.
    pub fn serve(&mut self, _now: Nanoseconds, _listener: &mut dyn FnMut(&FourTuple) -> Option<u64>) {
        unimplemented!()
    }
}
