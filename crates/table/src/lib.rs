//! What one process knows of itself and of its descriptors, before there is any socket.
//!
//! One word a descriptor number ([`table`]), descriptors that the program does not see ([`private`]) and the limit above them ([`limits`]), the memory that
//! objects live in ([`memory`]), options and locks of slow paths ([`global`]), what this process is and under which user ([`process`]), what the kernel says of
//! addresses, routes, owners and processes ([`route`], [`interfaces`], [`diag`], [`procfs`]), urgent bytes of its connections ([`tcp_oob`]), and why a connection is not accelerated ([`process::status_page`]). It
//! refuses to know what a socket is: an object is an address and a kind, and what is done with it is a row of [`upcalls::operations`] that
//! the crates above fill in.
//!
//! ```
//! use shunt_table::table::{self, Kind};
//! assert_eq!(table::get(903).kind(), Kind::Foreign);
//! // A descriptor that the library keeps for itself: the program hears EBADF.
//! table::set_private(903);
//! assert_eq!(table::get(903).kind(), Kind::Private);
//! table::take(903);
//! assert_eq!(table::get(903).kind(), Kind::Foreign);
//! ```
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod diag;
pub mod fd_passing;
pub mod global;
pub mod interfaces;
pub mod limits;
pub mod memory;
pub mod poll_set;
pub mod private;
pub mod process;
pub mod procfs;
pub mod receiver;
pub mod route;
pub mod sockaddr;
mod status_rows;
pub mod table;
pub mod tcp_oob;
#[cfg(test)]
mod tests;
pub mod upcalls;
