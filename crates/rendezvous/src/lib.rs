//! How two programs meet: listening, connecting and accepting, and what of it can be had without the kernel.
//!
//! ```text
//! opening      socket(2)                     spare: TCP sockets for the next one
//! listen       the rendezvous beside the shadow socket      sharing: which processes have it      forward: before it is shared
//! attach       a socket becomes one end of a channel
//! connect      tries the rendezvous          route, diag: what the kernel knows      ports: local ports kept reserved
//! reconnect    connecting in memory, and accepting that      kept: companions that outlive a connection
//! accept       claimed, reserve: the number it gives      deferred: clients that it does not give out yet (TCP_DEFER_ACCEPT)
//! disconnect   connect(2) to AF_UNSPEC       twins: no two connections of one name      held: ports without a listener
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod accept;
pub mod answers;
pub mod attach;
pub mod claimed;
pub mod close;
pub mod connect;
pub mod disconnect;
pub mod exchange;
pub mod held;
pub mod listen;
pub mod opening;
pub mod options;
pub mod other_hosts;
pub mod reconnect;
pub mod spare;
pub mod twins;
