//! epoll sets that hold accelerated sockets.
//!
//! The set is a real epoll descriptor. Foreign descriptors go into it as the program says. A stream's companion goes in
//! edge-triggered, under a tag of ours: a doorbell is an edge. What a stream is ready for is then computed in memory. This crate refuses
//! to know how a socket became what it is, and what poll and select are asked.
//!
//! Each set has two queues of entries that may be ready without a doorbell: *watched* ones, and those found *ready*.
//! [`wait`] looks at them, spins over them while that pays, and before sleeping arms them all: from then on a stream that
//! does nothing costs nothing, and the kernel says which one rang. So cost grows with active sockets, not with registered
//! ones.
//!
//! ```text
//! set, entry, list    what a set is                         control      epoll_ctl              change     the socket becomes another
//! wait, fast_path     epoll_wait                            scan, events, order   what an answer tells
//! arming              before and after a sleep              kernel       the kernel's half      frames     what wakes it for other hosts
//! nested, fork, datagrams, local_event, all_in_kernel       sets inside sets, of several processes, of sockets of other kinds
//! ```
//!
//! ```
//! // A process that has no set has none that a fork would give to another.
//! assert!(!shunt_epoll::any_unshared());
//! ```
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

mod sets;

pub use sets::{
    added, any_unshared, arm_all, before_exec, before_fork, control, created, end, foreign, forked, hears_by_itself, in_memory,
    is_all_in_kernel, look_in_kernel, moved, readable, release, rest_if_noisy, retain, share, spin_in_kernel, wait,
    wait_in_kernel, wait_swiftly, Entry, Set, BRIEF, DATAGRAMS, KERNEL_EVERY, SOCKETS,
};
