//! How two programs meet: listening, connecting and accepting, and what of it can be had without the kernel.
//!
//! ```text
//! opening      socket(2)                     spare: TCP sockets for the next one
//! options      setsockopt and getsockopt on streams and listeners
//! attach       a socket becomes one end of a channel
//! listen       the rendezvous beside the shadow socket      sharing: the processes that have it      forward: clients given on to another      promise: before it listens
//! reconnect    connecting in memory, and accepting that      client, server: one acceptor      shared_*: several
//! accept       both queues      deferred: clients that it does not give out yet (TCP_DEFER_ACCEPT)      claimed: the number it gives
//! connect      tries the rendezvous          answers: what the kernel said of ports      carriers: the question to the crate above
//! close        the last owner's part         exchange: another carrier under the same numbers
//! shown        what an accepted connection shows of its SYN      bound_port: ports of connections that are named before their SYN
//! disconnect   connect(2) to AF_UNSPEC       twins: no two connections of one name      held: ports without a listener
//! ```
//!
//! ```
//! use shunt_rendezvous::carriers;
//! // Before start-up has filled the list in, each address that is not of this host is the kernel's.
//! assert_eq!(carriers::all().count(), 0);
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod accept;
pub mod accept_fd;
pub mod answers;
pub mod attach;
pub mod bound_port;
pub mod carriers;
pub mod close;
pub mod connect;
pub mod disconnect;
pub mod duplicate_names;
pub mod exchange;
pub mod held_ports;
pub mod listen;
pub mod opening;
pub mod options;
pub mod reconnect;
pub mod shown;
pub mod socket_cache;
#[cfg(test)]
mod tests;
