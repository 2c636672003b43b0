//! Stations: everything of streams to other hosts that is not a file descriptor of the program's.
//!
//! A *station* is what a process, and those it forks, has for other hosts: an endpoint, an engine of active messages, a
//! table of streams, and a lock that survives its owner, in sealed memory that all of them have mapped. This crate owns
//! how stations of two hosts find each other, how a stream is opened, reserved and claimed, whose turn it is to drive, and
//! what is done when a driver dies. It refuses to know sockets, rings, companions and how threads sleep: those stand above
//! it, in `shunt-sockets`, behind the trait [`Pump`].
//!
//! ```text
//! Station          one for each process; a copy after fork is as good. `try_lock` gives a
//!   └ Driver       the right to drive, for some microseconds: drive, send, finish, reset, grant, open, claim
//! Pump             what sockets give: where bytes that arrive go, which bytes are acknowledged
//! Inquiry          a client's question: which station serves the listener at this address? (descriptor and deadline; never blocks)
//! Discovery             a server's host: answers such questions at UDP port 29545
//! Ear              a station's own name for one listener, at which a gate asks
//! ```
//!
//! **A client's stream.** [`Station::known`] or an [`Inquiry`] gives a peer. [`Driver::open`] lends a stream and sends OPEN;
//! while others drive or this one does, [`Station::opening`] goes from `Pending` to `Opened`. Then the program's TCP
//! connection is made, the token comes by it, and [`Driver::bind`] lets bytes come. **A server's**: OPEN makes a reservation;
//! [`Driver::claim`] gives it to the process that accepted the TCP connection with the same addresses; then `bind`. **The end**:
//! each side calls [`Driver::release`] when it wants nothing more of the stream; its number is lent again when both have.
//!
//! **Bytes.** [`Driver::send`] copies bytes into packets; they are to be kept until [`Pump::acknowledged`] names them. What
//! arrives is given to [`Pump::bytes`], never more than [`Driver::grant`] allowed. A path that is lost is told by
//! [`Pump::lost`], once for each stream; nothing of the stream is believed after that.
//!
//! No call blocks, allocates, or enters the kernel but by `shunt-sys`; all may be made in signal handlers (holders of the lock
//! are in a [section](shunt_sys::section)). What lies in the station's memory is written by processes of one owner; what
//! comes from the network is judged before it is used, and counted when it is dropped.
//!
//! ```
//! use shunt_station::paths;
//! // Tools tell which way the bytes of a stream go by the words that the station keeps of it.
//! assert_eq!(paths::word(paths::FAST), "fast");
//! assert_eq!(paths::word(paths::TCP), "tcp");
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(test, feature = "std")), no_std)]

mod control;
mod device;
mod device_adapter;
mod discovery;
pub mod discovery_packet;
mod driver;
mod expired;
mod handlers;
mod housekeeping;
mod inquiry;
mod lock;
mod memory;
pub mod paths;
mod presence;
mod query_socket;
mod sockaddr;
mod station;
mod table;
mod types;
#[cfg(feature = "std")]
pub mod view;

pub use discovery::{Discovery, Judge, GATE};
pub use driver::Driver;
pub use inquiry::{Answer, Inquiry};
pub use memory::{Count, COUNTS, LISTENERS};
pub use station::Station;
pub use types::*;
