//! TCP of established connections at user level, for peers that have only a kernel (U-Net, section 7).
//!
//! **The kernel makes and ends each connection; this engine carries what is between, and gives it back at any moment.** So
//! there is no handshake here, no listener, no TIME_WAIT, no answer to a reset: what is doubtful ([`Leave`]) is the kernel's,
//! with the segment that caused it, of which nothing was taken.
//!
//! ```text
//!            State                                State
//!  kernel ─────────────►  ┌──────────────┐  ────────────────► kernel
//!                         │  Connection  │
//!  segment, now ────────► │              │ ──► Verdict: bytes' places, or Leave
//!  offer, set_room ─────► │ Sender       │
//!  now ─────────────────► │ Receiver     │ ──► Outgoing: header, bytes' places; a deadline
//!                         └──────────────┘
//! ```
//!
//! It owns neither socket nor clock, allocates nothing, and touches no payload: bytes lie in the caller's rings, and the
//! engine names their places. Whether a connection puts packets in order and repairs losses itself is a setting
//! ([`Recovery`]). It refuses to know: IP, checksums, devices, descriptors, who may have which connection.
//!
//! ```
//! use shunt_inet::{Clock, Connection, Seq, Settings, State, Verdict};
//! let state = |sent, expected| State {
//!     unacknowledged: Seq(sent), sent: Seq(sent), expected: Seq(expected), segment: 1448, window_told: Seq(expected), window: 65536,
//!     largest_window: 65536, promised: 65536, promised_from: Seq(expected), scale: 7, own_scale: 7, selective: true,
//!     timestamps: Some((Clock { value: 1, at: 0 }, None)), round_trip: (0, 0),
//! };
//! let mut here = Connection::<64>::new(&state(1000, 5000), (80, 4000), Settings::default(), 0);
//! let mut there = Connection::<64>::new(&state(5000, 1000), (4000, 80), Settings::default(), 0);
//! here.offer(5);
//! let segment = here.outgoing(10).unwrap();
//! assert_eq!((segment.from, segment.length, segment.header.sequence), (0, 5, Seq(1000)));
//! let Verdict::Taken(arrival) = there.segment(&segment.header, segment.length, 20) else { panic!() };
//! assert_eq!((arrival.wanted.at, arrival.wanted.ready), (0, 5));
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod connection;
mod flights;
pub mod header;
mod leave;
mod rack;
mod ranges;
mod receive;
mod send;
mod sequence;
mod settings;

pub use connection::{Arrival, Connection, Outgoing, Verdict};
pub use header::Header;
pub use leave::Leave;
pub use receive::Wanted;
pub use sequence::Seq;
pub use settings::{Clock, Recovery, Settings, State};
pub use shunt_path::Law;
