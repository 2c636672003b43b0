//! The sockets engine: what a descriptor means when its bytes travel through shared memory.
//!
//! The preload library hands each intercepted call to this crate, which answers it in memory or says that the kernel
//! shall. It owns the descriptor table, the private half of sockets, listeners and epoll sets, rendezvous, waiting and
//! the fall-backs. It refuses to know how symbols are intercepted, and libc: it enters the kernel only through
//! `shunt-sys`, so nothing here can call our own hooks, and every function may run in a signal handler.
//!
//! ```text
//! table        one word per descriptor: what it is, and its socket
//! socket       the private half of a socket       slab: memory for those, never unmapped
//! rendezvous   listen, connect, accept      diag, route: what the kernel knows    ports: local ports kept reserved
//! again        connecting in memory: offered (accepting that), kept (companions), spare (TCP sockets)
//! deferred     clients that accept does not give out yet (TCP_DEFER_ACCEPT)
//! link         segments and their channels
//! stream       send and receive             wait: spin, arm, sleep                readiness: poll masks
//! datagram     UDP: inboxes beside the kernel's sockets       local: the same for AF_UNIX
//! poll, epoll  sets of descriptors
//! descriptor   close, dup, fcntl, ioctl     options: get and setsockopt           process: start, fork
//!              earlier: options that a listener had when a client connected
//! ending       what is said when the process ends by itself
//! inherit      what an exec'd program takes up   rights: what a message to another process carries
//! handover     streams and listeners given to programs that cannot take the library
//! image        whether a program can take the library   plain: what one that cannot gets
//! carrier      the process that carries a stream to it     settle: what carriers owe other owners
//! receiver     who will receive a message
//! report       what tools see
//! ```
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `link` and `socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod accept;
pub mod again;
pub mod apart;
pub mod bells;
pub mod carried;
pub mod carrier;
mod claimed;
pub mod confinement;
pub mod connect;
pub mod control;
pub mod datagram;
mod deferred;
pub mod descriptor;
pub mod diag;
pub mod disconnect;
pub mod earlier;
pub mod ending;
pub mod epoll;
pub mod error_queue;
pub mod foreign;
pub mod global;
pub mod handover;
pub mod holding;
pub mod image;
pub mod information;
pub mod inherit;
pub mod judge;
pub mod kept;
mod leased;
pub mod link;
pub mod listen;
pub mod local;
pub mod names;
pub mod namespace;
pub mod nudge;
pub mod offered;
pub mod opening;
pub mod options;
pub mod owner;
pub mod parcel;
pub mod passing;
pub mod patience;
pub mod pieces;
pub mod plain;
pub mod poll;
pub mod polled;
pub mod ports;
pub mod private;
pub mod process;
pub mod readiness;
pub mod receiver;
mod relatives;
mod remote;
pub mod report;
mod reserve;
pub mod rights;
pub mod room;
pub mod route;
mod scratch;
pub mod select;
pub mod settle;
pub mod signals;
mod slab;
pub mod sockaddr;
pub mod socket;
pub mod spare;
pub mod spin;
pub mod splice;
pub mod stamp;
pub mod stream;
pub mod swift;
pub mod table;
pub mod transfer;
pub mod urgent;
pub mod uring;
pub mod wait;
pub mod window;

#[cfg(feature = "alone")]
pub use remote::alone;
pub use shunt_segment as segment;
pub use shunt_sys as sys;
