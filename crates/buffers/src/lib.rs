//! Semantics of buffers: what a program is promised of a message's memory, and what is done to keep it. Section numbers are those
//! of "Effects of Buffering Semantics on I/O Performance" (OSDI '96); `README.md` beside this has the design.
//!
//! This crate owns the taxonomy ([`Semantics`]), the tables ([`tables`]), the machines that walk them ([`output`], [`input`]), their
//! operations on Linux ([`linux`]), the handler of TCOW's faults ([`fault`]) and the choice between realisations ([`policy`]). It
//! refuses to know how a message travels, and whose descriptor is whose. With the feature `std` it has one transport, a
//! [`port::Port`] between two processes, and measures its machine ([`calibrate`]).
//!
//! ```
//! use shunt_buffers::{port::Port, Semantics};
//! use shunt_region::{Audience, Pages, Pool, Shape};
//! let (mut here, mut there) = Port::pair()?; // or connect and accept, between two processes
//!
//! let pool = Pool::create(Shape { unit: 64 << 10, units: 64 }, Pages::Small, Audience::Anyone)?;
//! here.offer(&pool)?;
//! let mut region = pool.allocate(1 << 20)?;
//! region.bytes_mut()[..5].copy_from_slice(b"hello");
//! let ticket = here.send_region(region, 1 << 20, Semantics::EMULATED_WEAK_MOVE)?; // nothing is copied
//!
//! let message = there.receive_reference()?;
//! assert_eq!((message.length(), &message.to_vec()[..5]), (1 << 20, &b"hello"[..]));
//! there.give_back(message)?;
//! assert!(here.completed(ticket)?);
//! # Ok::<(), shunt_buffers::port::Error>(())
//! ```
#![cfg_attr(not(any(test, feature = "std")), no_std)]

pub mod align;
#[cfg(feature = "std")]
pub mod calibrate;
pub mod costs;
pub mod fault;
pub mod input;
pub mod learned;
pub mod linux;
mod memory;
pub mod output;
pub mod policy;
#[cfg(feature = "std")]
pub mod port;
pub mod record;
mod semantics;
#[cfg(feature = "std")]
pub mod sockets;
pub mod tables;
mod threads;

pub use memory::{Memory, Work};
pub use semantics::{Allocation, Integrity, Level, Semantics};
pub use shunt_region as region;
