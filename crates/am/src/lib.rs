//! Active messages: GAM 1.1 in Rust's terms, exactly once over devices that lose, repeat and reorder frames.
//!
//! A *request* names a handler of its peer, with up to eight words and some data; the handler may *reply*, once, and the
//! reply's handler may not (it is given nothing to reply with). *Stores* and *gets* move bytes between memory that the
//! peers show each other. *Ordered channels* carry bytes for the sockets, with room granted by their receiver.
//!
//! [`Engine`] owns reliability: numbers, acknowledgements, retransmission, credits, congestion, the set-up and death of
//! connections. It refuses to know sockets, clocks, threads and memory: frames and the time go in, frames and a deadline
//! come out; its state is plain data in memory that the caller gave, which several processes may share under a lock of
//! the caller's. A thread that waits drives it. `docs/ARCHITECTURE.md` says why it is as it is, `docs/WIRE.md` what its frames
//! are.
//!
//! ```
//! use shunt_am::{Config, Dispatch, Engine, Link, Message, Replier};
//!
//! /// Frames on their way.
//! struct Wire(Vec<Vec<u8>>);
//! impl Link for Wire {
//!     fn send(&mut self, _peer: u32, head: &[u8], body: &[u8]) -> bool {
//!         self.0.push([head, body].concat());
//!         true
//!     }
//! }
//!
//! /// Adds the words of requests; prints what comes back.
//! struct Adder(Vec<u64>);
//! impl Dispatch for Adder {
//!     fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
//!         replier.reply(2, &[message.words.iter().sum()], &[]).unwrap();
//!     }
//!     fn reply(&mut self, message: Message<'_>) {
//!         self.0.push(message.words[0]);
//!     }
//! }
//!
//! let config = Config::lossy(1, 1472);
//! let (mut here, mut there) = (vec![0; config.words()], vec![0; config.words()]);
//! let mut a = Engine::format(&mut here, &config, [1, 2]).unwrap();
//! let mut b = Engine::format(&mut there, &config, [3, 4]).unwrap();
//! let (mut to_a, mut to_b) = (Wire(vec![]), Wire(vec![]));
//! let mut adder = Adder(vec![]);
//!
//! a.connect(0, 0, &mut to_b).unwrap();
//! for now in 1..9 {
//!     if now == 4 {
//!         a.request(now, 0, 0, 1, &[20, 22], &[], &mut to_b).unwrap();
//!     }
//!     for frame in std::mem::take(&mut to_b.0) {
//!         b.receive(now, 0, &frame, &mut to_a, &mut adder);
//!     }
//!     for frame in std::mem::take(&mut to_a.0) {
//!         a.receive(now, 0, &frame, &mut to_b, &mut adder);
//!     }
//! }
//! assert_eq!(adder.0, [42]);
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![forbid(unsafe_code)]

mod acknowledge;
mod check;
pub mod config;
mod connection;
mod dispatch;
mod engine;
pub mod frame;
mod handshake;
mod incoming;
mod lossless;
mod memory;
mod messages;
mod outgoing;
#[cfg(feature = "std")]
pub mod port;
mod reorder;
mod single_packet;
mod state;
mod transmit;

pub use config::{Config, Nanoseconds};
pub(crate) use connection::Side;
pub use dispatch::{within, Access, Body, Data, Dispatch, Event, Link, Message, Reason, Refused, Replier, LINE};
pub use engine::{Engine, Offer, Status};
pub use handshake::greeting_check;
pub use memory::{Layout, MemoryError};
pub use outgoing::{Fill, Get, Store};
pub use shunt_secret::siphash;
pub use state::Counters;
