//! The top of the sockets engine: what a call on a descriptor does that concerns more than one kind of it, and the life of the process.
//!
//! `libshunt.so` hands each intercepted call to one of the crates below, which answers it in memory or says that the kernel shall. This crate
//! closes, duplicates and asks descriptors of any kind ([`descriptor`]), tells a program about its own sockets ([`about`]), starts ([`start()`]), forks and ends the process in one order ([`process`]), and fills
//! in what the crates below let those above them do ([`wiring`]). No crate of the engine knows how symbols are intercepted, nor libc: they
//! enter the kernel only through `shunt-sys`, so nothing there can call our own hooks, and every function may run in a signal handler.
//!
//! ```text
//! table < link < stream < inbox, rendezvous < poll < remote < handover < sockets
//! ```
//!
//! ```
//! use shunt_sockets::descriptor;
//! // FIONBIO changes the open file that others share; FIONREAD only asks.
//! assert!(descriptor::changes(0x5421));
//! assert!(!descriptor::changes(0x541B));
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod about;
pub mod descriptor;
pub mod process;
mod start;
#[cfg(test)]
mod tests;
pub mod wiring;

pub use start::start;
