//! poll, select and epoll, over sockets in memory and descriptors of the kernel in one set.
//!
//! Streams and inboxes are looked at in memory; all else is asked of the kernel, whose own epoll set keeps whatever sleeps. This crate refuses
//! to know how a socket became what it is.
//!
//! ```text
//! epoll        sets of descriptors          poll, select: one call          fast_path: where one stream has bytes
//! ```
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

mod asking;
pub mod epoll;
pub mod fast_path;
pub mod poll;
pub mod select;
#[cfg(test)]
mod tests;
