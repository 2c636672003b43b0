//! Remote procedure calls that cost what a message costs.
//!
//! Programs are defined in the XDR language of RFC 4506 and RFC 5531 (rpcgen's `.x` files); `shunt-rpcgen` makes typed callers and
//! servers of them, in Rust and in C, which stand on what is here: a [`Client`], a [`Server`], [`xdr`], and what both say to each
//! other ([`wire`]).
//!
//! ```
//! use shunt_rpc::xdr::{Decoder, Encoder};
//! let mut room = [0; 16];
//! let mut encoder = Encoder::new(&mut room);
//! encoder.unsigned(7);
//! encoder.variable(b"hello");
//! assert_eq!((encoder.needed(), encoder.fits()), (16, true));
//! let mut decoder = Decoder::new(&room);
//! assert_eq!(decoder.unsigned(), Ok(7));
//! // More than the definition allows is an error with a place.
//! assert_eq!(decoder.variable(4).unwrap_err().at, 4);
//! ```
//!
#![doc = include_str!("../README.md")]

mod address;
mod calls;
mod client;
mod clock;
mod device;
mod error;
mod forks;
mod interface;
pub mod onc;
mod raw;
mod readable;
mod reference;
mod rendezvous;
mod server;
mod service;
pub mod trace;
mod user;
pub(crate) mod value;
mod window;
pub mod wire;
pub mod xdr;

pub use address::{Address, AddressError, Place, Transport};
pub use client::{describe, list, look, watch, Buffer, Client, Options, Pending, Seen};
pub use error::{Error, Fault, Kind, Ran, Side};
pub use onc::Claim;
pub use raw::Raw;
pub use reference::{How, Lent, Reference, Scalar, Shared};
pub use rendezvous::{names, Process};
pub use server::{Options as ServerOptions, Running, Server, Stopper};
pub use service::{serve, Answer, Context, Interface, Listed, Procedure, Refusal, Service, Services};
pub use window::PLACES;
