//! Giving descriptors to a program that cannot take the library: an exec into one that is static, gains rights, or enters
//! the kernel without the C library.
//!
//! Each stream that stays open is replaced, under its own numbers, by an end of a kernel connection whose other end a
//! relay holds. A listener becomes the kernel's alone: its rendezvous refuses from then on, for every process that has
//! it, and clients that wait in it are carried to the kernel's queue. If the exec fails everything is as it was, but that
//! such a listener stays the kernel's, and its clients are carried all the same.
//!
//! ```text
//! exec               before a program without shunt is executed
//! inherit            what a program under shunt goes on with        rights: what a message to another process carries
//! image              whether a program can take the library
//! kernel_pair        what one that cannot gets                      relay: the process that carries a stream to it
//! convert_to_kernel  a stream of this process that becomes the kernel's; uring: io_uring, which needs that
//! waiting            clients of a listener that becomes the kernel's
//! ```
//!
//! ```
//! use shunt_handover::image::{judge, Start};
//! // SAFETY: C strings.
//! let start = |path: &core::ffi::CStr| unsafe { judge(-100 /* AT_FDCWD */, path.as_ptr()) };
//! assert_eq!(start(c"/bin/sh"), Start::Shunt);
//! assert_eq!(start(c"/no/such/program"), Start::Fails);
//! ```
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod convert_to_kernel;
mod exec;
pub mod image;
pub mod inherit;
pub mod kernel_pair;
pub mod relay;
pub mod rights;
#[cfg(test)]
mod tests;
pub mod uring;
pub mod waiting;

pub use exec::{before_exec, HandOver};
