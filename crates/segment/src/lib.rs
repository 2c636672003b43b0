//! Layouts of shared memory, and the names that lead to it.
//!
//! A *link* is one sealed memfd (named `shunt-link`) that a client process makes and hands to the process that accepts its
//! connections at one listener. It holds [`CHANNELS`] *channels*; a channel is the pair of byte streams of one connection. A
//! *process state* memfd (named `shunt-process`) tells tools what each descriptor of a process is and why. Both are read by other
//! processes, so: no pointers, no `usize`, no `bool`, no `enum`; every field is an atomic word, every reader treats what it finds
//! as hostile input, one cache line has one writer.
//!
//! This crate owns offsets, sizes and codes. It does not know how bytes are moved (`shunt-ring`) or when.
//!
//! ```text
//! link:    0        LinkHeader (one page)
//!          4 KiB    CHANNELS channel pages: addresses, two Sides, the two smallest rings
//!          then     for each larger ring class: CHANNELS x 2 rings, sparse
//! ```
//!
//! ```
//! use shunt_segment::name;
//! // Where a listener of this inode has its rendezvous: an abstract name of AF_UNIX.
//! assert_eq!(name::listener(4026).as_slice(), b"shunt1-listen-0000000000000fba");
//! // Whatever another process has bound is no hello unless it is one.
//! assert!(name::Hello::decode(b"shunt1-client-nonsense").is_none());
//! ```
#![cfg_attr(not(any(test, loom)), no_std)]

pub mod address;
pub mod area;
pub mod bid;
pub mod channel;
pub mod inbox;
pub mod link;
pub mod meeting;
pub mod name;
pub mod offers;
pub mod process;
pub mod reason;
pub mod settings;
pub mod sync;
pub mod tap;

/// Version of every layout and name in this crate. Two programs accelerate only when theirs are equal.
pub const VERSION: u32 = 20;

/// Channels in a link. More connections between two processes use more links.
pub const CHANNELS: usize = 32;
