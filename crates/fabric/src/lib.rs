//! The fabric device: endpoints over libfabric (OpenFabrics Interfaces, <https://libfabric.org>).
//!
//! An endpoint is a *reliable datagram* endpoint (`FI_EP_RDM`) of one of libfabric's providers: `verbs`, `efa`, `cxi` and
//! others on the hardware they are made for, `tcp` between any two hosts, `shm` on one. The communication segment is
//! registered once; buffers of the free queue are posted to the provider, which puts messages straight into them; the
//! provider's completion queues are read into the receive queue.
//!
//! This crate owns the shim of C between libfabric's inline functions and Rust, and how a message becomes an operation. It
//! refuses to know which wires a provider uses. Its state lies in one process: what libfabric gives cannot be shared by
//! `fork`, and neither can these endpoints; so they are for programs, not for the sockets.
//!
//! Without the feature `libfabric` this crate is empty. With it, building needs libfabric's headers and a C compiler:
//!
//! ```text
//! apt-get install libfabric-dev
//! cargo add shunt-fabric --features libfabric
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(feature = "libfabric", doc = "```no_run")]
#![cfg_attr(not(feature = "libfabric"), doc = "```ignore")]
//! use shunt_endpoint::{Arrival, Endpoint};
//! use shunt_fabric::{Fabric, Options};
//! let mut end = Fabric::new(Options { provider: "tcp", node: Some("192.0.2.7"), ..Options::default() }).unwrap();
//! println!("{}", end.capabilities().sentence);
//! # let mut arrival = Arrival::empty();
//! # while !end.receive(&mut arrival) {}
//! ```
#![cfg(feature = "libfabric")]

mod address;
mod bells;
mod device;
mod foreign;
pub mod interface;
mod open;
mod peers;
mod receiving;
mod sending;

pub use device::{Fabric, Options, Progress};
pub use interface::providers;
