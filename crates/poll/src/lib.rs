//! poll and select, over sockets in memory and descriptors of the kernel in one set.
//!
//! Streams and inboxes are looked at in memory; all else is asked of the kernel. Sets of epoll(7) are a crate below. This crate refuses
//! to know how a socket became what it is.
//!
//! ```text
//! poll         the call                     select    the same by sets of bits          asking    how often the kernel is asked
//! fast_path    where one stream has bytes   in_kernel    where nothing is ours
//! ```
//!
//! ```
//! use shunt_poll::select::Sets;
//! let mut reads = [0b1000u64; 16];
//! let mut sets = Sets::new([reads.as_mut_ptr(), core::ptr::null_mut(), core::ptr::null_mut()]);
//! // SAFETY: a set of FD_SETSIZE bits.
//! assert!(unsafe { sets.read(4) });
//! // No descriptor in it is a stream of ours: the call is the kernel's.
//! assert!(!sets.concern_us());
//! ```
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

mod asking;
pub mod fast_path;
pub mod in_kernel;
pub mod poll;
pub mod select;
#[cfg(test)]
mod tests;
