//! U-Net endpoints: a process's own view of a network interface.
//!
//! An *endpoint* has a *communication segment* (memory in which buffers are named by offset and length), queues of
//! descriptors (*send*, *receive*, *free*), *channels* registered under *tags*, and counters. The trait [`Endpoint`] is
//! what protocols are written against; *devices* implement it, and wrappers (faults, traces, captures) wrap a device.
//!
//! This crate owns the terms, the layout of an endpoint's shared memory ([`shared`]), the devices that need no privilege
//! and the suite by which every device is judged (`conformance`, with the feature `std`). It knows nothing of
//! reliability: messages are datagrams. It has no thread, takes no lock, allocates nothing, never blocks.
//!
//! What drives: an endpoint's state lies in memory that several processes of one owner may share (after `fork`, or by
//! passing descriptors). The thread that holds the endpoint's lock ([`shared::Memory::lock`]) makes calls; the trait's
//! `&mut self` is that claim within one process.
//!
//! ```
//! use shunt_endpoint::{device::local::Switch, join, Arrival, Endpoint, Message};
//! let switch = Switch::new().unwrap();
//! let (mut a, mut b) = (switch.plug().unwrap(), switch.plug().unwrap());
//! let (there, _) = join(&mut a, &mut b).unwrap();
//!
//! a.send(&Message::small(there, b"ping")).unwrap();
//! a.flush().unwrap();
//! let mut arrival = Arrival::empty();
//! assert!(b.receive(&mut arrival));
//! assert_eq!(arrival.head(), b"ping");
//! b.release(&mut arrival);
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(test, feature = "std")), no_std)]

mod address;
mod area;
mod capabilities;
#[cfg(feature = "std")]
pub mod conformance;
mod counters;
pub mod device;
pub mod direct;
mod error;
mod gather;
mod join;
mod message;
pub mod shared;
pub mod upcall;
pub mod wrapper;

pub use address::{Address, Channel, Family, Tag, Tags, ADDRESS};
pub use area::{Area, Bytes, Segment};
pub use capabilities::{Buffers, Capabilities};
pub use counters::{Counters, Drop};
pub use direct::{DirectAccess, DirectError, Import, Key, Notification, Rights};
pub use error::{AttachError, OpenError, PostError, SendError};
pub use gather::Gather;
pub use join::join;
pub use message::{Arrival, ArrivalKind, ArrivalParts, Body, Message, INLINE, SCATTER, WORDS};

/// A count of messages sent since the endpoint was made: names one of them. Wraps around.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket(pub u32);

impl Ticket {
    /// Whether this message comes before `bound`.
    #[inline(always)]
    pub fn is_before(self, bound: Ticket) -> bool {
        (self.0.wrapping_sub(bound.0) as i32) < 0
    }
}

/// How full the receive side is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backlog {
    /// Messages that wait, as far as the device can see them.
    pub waiting: u32,
    /// How many can wait before the next is dropped or its sender refused.
    pub capacity: u32,
}

/// An endpoint. Object-safe, so that one program can hold endpoints of several devices.
///
/// No call blocks. Calls may enter the kernel where the device says so; `send`, `receive`, `release` of a device in shared
/// memory do not while both sides are awake.
pub trait Endpoint {
    /// What the device can do.
    fn capabilities(&self) -> &Capabilities;

    /// The communication segment. On devices with buffers of their own it is longer than what the owner asked for: arrivals
    /// lie behind that.
    fn segment(&self) -> Segment;

    /// Where this endpoint is. To be told to peers, with a tag, by any way that both trust.
    fn address(&self) -> Address;

    /// A fresh tag by which a peer may send here: random, or from the process that hands out tags for this device.
    ///
    /// # Errors
    /// What the system answers.
    fn new_tag(&mut self) -> Result<Tag, shunt_sys::Errno> {
        Tag::random()
    }

    /// Registers a channel to the endpoint at `remote`. From now on messages to `tags.receive` that come from there are
    /// accepted. The other side may do so later: what arrives there before is dropped and counted, or waits.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is registered then.
    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError>;

    /// Forgets a channel. Messages that arrived by it stay in the receive queue; those sent go out, without a flush. What the
    /// device does not take at this moment is lost and counted as `unsent`: it is backed up, or does not know the way yet. An
    /// endpoint that is dropped sends nothing more: others may share it.
    fn close(&mut self, channel: Channel);

    /// Puts a message on the send queue. The head is copied; areas of the body stay the device's until the message is
    /// [`Endpoint::injected`].
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent then. `NoResource` is back-pressure, not a failure.
    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError>;

    /// As [`Endpoint::send`], of a message of whole words that the caller has at hand: the first `count` of `words`. A device in
    /// shared memory puts them where the receiver looks, without a copy between.
    ///
    /// # Errors
    /// As for [`Endpoint::send`].
    #[inline]
    fn send_words(&mut self, channel: Channel, words: &[u64; WORDS], count: usize) -> Result<Ticket, SendError> {
        let bytes = words.map(u64::to_ne_bytes);
        self.send(&Message::small(channel, &bytes.as_flattened()[..count.min(WORDS) * 8]))
    }

    /// Hands everything on the send queue to the device (the doorbell of a batch), and takes back what it has finished.
    /// True: the send queue is empty. False: the device is backed up; call again later.
    ///
    /// # Errors
    /// [`SendError::Device`], if the device will never work again. What one message met (its peer is gone) is counted as
    /// `unsent`, not told.
    fn flush(&mut self) -> Result<bool, SendError>;

    /// The bound of what has been injected into the network: the buffers of all messages before it may be reused.
    fn injected(&mut self) -> Ticket;

    /// Puts a buffer on the free queue.
    ///
    /// # Errors
    /// [`PostError`]; the buffer stays the caller's.
    fn post(&mut self, buffer: Area) -> Result<(), PostError>;

    /// Takes the next message from the receive queue; false: none waits, `arrival` is unchanged.
    /// Each arrival is to be [released](Endpoint::release), in any order, once.
    fn receive(&mut self, arrival: &mut Arrival) -> bool;

    /// Gives an arrival's buffers back to the device: they are on the free queue again. `arrival` has no areas after this.
    fn release(&mut self, arrival: &mut Arrival);

    /// How full the receive queue is, for the condition "almost full".
    fn backlog(&mut self) -> Backlog;

    /// A descriptor for poll, select and epoll: readable (POLLIN) when a message arrives after [`Endpoint::arm`] said true.
    /// Level-triggered: it stays readable until [`Endpoint::disarm`]. Read by this endpoint alone.
    fn descriptor(&self) -> i32;

    /// Before sleeping on the descriptor. True: armed, sleep; what waits unseen makes the descriptor readable at once. False:
    /// something waits, or the send queue can go on; not armed.
    fn arm(&mut self) -> bool;

    /// After sleeping: takes back the arming, and makes the descriptor unreadable until the next one.
    fn disarm(&mut self);

    /// What happened so far.
    fn counters(&self) -> &Counters;
}

macro_rules! delegate {
    () => {
        fn capabilities(&self) -> &Capabilities {
            (**self).capabilities()
        }
        fn segment(&self) -> Segment {
            (**self).segment()
        }
        fn address(&self) -> Address {
            (**self).address()
        }
        fn new_tag(&mut self) -> Result<Tag, shunt_sys::Errno> {
            (**self).new_tag()
        }
        fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
            (**self).open(remote, tags)
        }
        fn close(&mut self, channel: Channel) {
            (**self).close(channel)
        }
        fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
            (**self).send(message)
        }
        fn send_words(&mut self, channel: Channel, words: &[u64; WORDS], count: usize) -> Result<Ticket, SendError> {
            (**self).send_words(channel, words, count)
        }
        fn flush(&mut self) -> Result<bool, SendError> {
            (**self).flush()
        }
        fn injected(&mut self) -> Ticket {
            (**self).injected()
        }
        fn post(&mut self, buffer: Area) -> Result<(), PostError> {
            (**self).post(buffer)
        }
        fn receive(&mut self, arrival: &mut Arrival) -> bool {
            (**self).receive(arrival)
        }
        fn release(&mut self, arrival: &mut Arrival) {
            (**self).release(arrival)
        }
        fn backlog(&mut self) -> Backlog {
            (**self).backlog()
        }
        fn descriptor(&self) -> i32 {
            (**self).descriptor()
        }
        fn arm(&mut self) -> bool {
            (**self).arm()
        }
        fn disarm(&mut self) {
            (**self).disarm()
        }
        fn counters(&self) -> &Counters {
            (**self).counters()
        }
    };
}

/// Through a reference: what takes an endpoint by value can be lent one.
impl<E: Endpoint + ?Sized> Endpoint for &mut E {
    delegate!();
}

/// Boxed: what chooses its device at run time.
#[cfg(feature = "std")]
impl<E: Endpoint + ?Sized> Endpoint for Box<E> {
    delegate!();
}
