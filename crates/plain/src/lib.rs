//! Streams to peers that have only a kernel: their TCP connections are taken from it, and driven by this process behind a local channel.
//!
//! This crate owns side 1 of such channels, and one queue of an interface. It knows nothing of hosts that run shunt, and nothing of how a connection
//! is read out of the kernel or written back, which is the agent's.
//!
//! ```text
//! local     what a process has for this: the queue, links, lines      line      one connection
//! pumping   how its rings are a view of what the engine has
//! driving   what threads of the program do while they wait            giving    back to the kernel, and what is shown of that
//! leaving   the program takes the socket; forks and their like        seat      companion, channel, socket of a stream
//! connect   at connect(2)                                             accept    at accept(2)
//! ```
//!
//! ```
//! // What start-up puts into the list of carriers. A process without such streams drives none.
//! let carrier = &shunt_plain::PLAIN_PEERS;
//! assert!(!(carrier.is_driving)());
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

mod accept;
mod connect;
mod driving;
mod giving;
mod leaving;
mod line;
mod local;
mod pumping;
mod seat;

use shunt_rendezvous::carriers::Carrier;

/// What connect and accept ask of this room, and what it hears of the process's life.
pub const PLAIN_PEERS: Carrier = Carrier {
    connect: connect::connect,
    listens: |_, _, _| {},
    listens_no_longer: |_| {},
    accepted: accept::accepted,
    sharing: leaving::all,
    moved: local::moved,
    forked: |_| local::forget(),
    forget: local::forget,
    left_namespace: || {},
    is_driving: local::is_driving,
    user_changed: || {},
    ending: giving::ending,
};
