//! The TCP connection that stays beside a stream to another network namespace of this host.
//!
//! It owns two things: that the connection's end from outside is the stream's ([`ends`]), and how the stream goes back to it when an administrator asks
//! ([`cut`]). It refuses to know how such streams are made, which is `shunt_near`'s.
//!
//! ```
//! // What start-up puts beside the streams.
//! shunt_stream::beside::fill(&shunt_lifeline::BESIDE);
//! assert!(!shunt_lifeline::ends::any());
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]

mod cut;
pub mod ends;
mod obstacle;

pub use cut::{settle, to_share};
use shunt_stream::beside::Beside;

/// What the rooms below ask.
pub static BESIDE: Beside = Beside { keep: ends::keep, end: ends::end, asked: cut::asked, leave: cut::leave, drive: cut::drive };
