//! The headers of frames between hosts.
//!
//! Each header is two types, as in smoltcp: a *view* (`Frame<'_>`) that reads any bytes and never panics, and a
//! *representation* (`Repr`) that is always a valid header. Parsing goes from the one to the other and says which field is
//! wrong; emitting goes back. Field offsets are named once, in the view. Integers are little-endian.
//!
//! This crate knows no sockets, no channels and no state: whether a tag exists is its caller's question.
//!
//! ```
//! use shunt_wire::endpoint::{Frame, Kind, Repr, HEADER};
//! let mut bytes = [0u8; HEADER + 5];
//! bytes[HEADER..].copy_from_slice(b"hello");
//! Repr { kind: Kind::Message, tag: 0x1234_5678_9abc_def0, length: 5 }.emit(&mut bytes);
//! let frame = Frame::new(&bytes);
//! assert_eq!(Repr::parse(&frame).unwrap().tag, 0x1234_5678_9abc_def0);
//! assert_eq!(frame.payload(), b"hello");
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod endpoint;
pub mod field;
