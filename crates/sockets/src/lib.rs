//! The sockets engine: what a descriptor means when its bytes travel through shared memory.
//!
//! The preload library hands each intercepted call to this crate, which answers it in memory or says that the kernel
//! shall. It owns the descriptor table, the private half of sockets, listeners and epoll sets, rendezvous, waiting and
//! the fall-backs. It refuses to know how symbols are intercepted, and libc: it enters the kernel only through
//! `shunt-sys`, so nothing here can call our own hooks, and every function may run in a signal handler.
//!
//! ```text
//! table        one word per descriptor: what it is, and its socket
//! descriptor   close, dup, fcntl and ioctl  private: descriptors that the program does not see
//! socket       the private half of a socket      memory: for those, and for calls
//! rendezvous   how programs meet: listen, connect, accept, also without the kernel
//! link         segments and their channels
//! stream       send and receive             waiting: how a call waits, and what wakes it
//! epoll        sets of descriptors
//! options      get and setsockopt           sockaddr: the C library's addresses and ours
//! datagram     UDP: inboxes beside the kernel's sockets       local: the same for AF_UNIX
//! remote       streams to other hosts
//! handover     descriptors that other programs get: by exec, spawn, a message, with the library or without
//! process      start, fork, end             global: its state that is no socket's
//! ```
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `link` and `socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod datagram;
pub mod descriptor;
pub mod epoll;
pub mod global;
pub mod handover;
pub mod link;
pub mod local;
pub mod memory;
pub mod operations;
pub mod options;
pub mod private;
pub mod process;
mod remote;
pub mod rendezvous;
pub mod sockaddr;
pub mod socket;
pub mod stream;
pub mod table;
pub mod waiting;
#[doc(hidden)]
pub mod wiring;

#[cfg(feature = "alone")]
pub use remote::alone;
pub use shunt_segment as segment;
pub use shunt_sys as sys;
