//! Sockets with an inbox beside the kernel's socket: UDP, and AF_UNIX datagrams and streams.
//!
//! The kernel's socket keeps the name, the owner and the readiness; bytes of a peer under shunt come to an inbox in memory that the receiver
//! made and the sender maps. This crate refuses to know streams of TCP, listeners and sets.
//!
//! ```text
//! datagram     UDP sockets, and what all inboxes have in common            local: the same for AF_UNIX
//! ```
//!
//! ```
//! use shunt_inbox::datagram;
//! // A number of which nothing is known is the kernel's alone.
//! assert!(!datagram::is(903));
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod datagram;
pub mod local;
#[cfg(test)]
mod tests;
