//! Remote procedure calls that cost what a message costs.
//!
//! Programs are defined in the XDR language of RFC 4506 and RFC 5531 (rpcgen's `.x` files); `shunt-rpcgen` makes typed callers and
//! servers of them, in Rust and in C, which stand on what is here: a [`Client`], a [`Server`], [`xdr`], and what both say to each
//! other ([`wire`]).
//!
#![doc = include_str!("../README.md")]

mod address;
mod calls;
mod client;
mod device;
mod error;
mod raw;
mod rendezvous;
mod server;
mod service;
pub mod trace;
mod window;
pub mod wire;
pub mod xdr;

pub use address::{Address, AddressError};
pub use client::{describe, list, look, watch, Buffer, Client, How, Lent, Options, Pending, Reference, Scalar, Seen, Shared};
pub use error::{Error, Fault, Kind, Ran, Side};
pub use raw::Raw;
pub use rendezvous::{names, Process};
pub use server::{Options as ServerOptions, Running, Server, Stopper};
pub use service::{serve, Answer, Context, Interface, Listed, Procedure, Refusal, Service, Services};
pub use window::PLACES;
