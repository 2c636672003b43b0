//! What a sender knows of a path: its delay ([`RoundTrip`]) and how much may be under way ([`Congestion`]).
//!
//! Active messages and TCP at user level use the same two. They own no clock (`now` comes in), no sequence numbers and no
//! timers; which packet was lost is their caller's finding. Both are plain data, so that they can lie in memory that
//! processes of one owner share.
//!
//! ```
//! use shunt_path::{Congestion, Law, RoundTrip, MILLISECOND};
//! let mut path = RoundTrip::default();
//! path.measure(80 * MILLISECOND);
//! let mut window = Congestion::new(10, Law::Cubic);
//! assert_eq!(window.packets(), 10);
//! window.acknowledged(80 * MILLISECOND, 10, true, path.smoothed, 1000);
//! assert_eq!(window.packets(), 20);
//! assert!(window.lost(90 * MILLISECOND, 85 * MILLISECOND));
//! assert_eq!(window.packets(), 14);
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod congestion;
mod round_trip;

pub use congestion::{Congestion, Law};
pub use round_trip::{Bounds, RoundTrip};

/// Times are nanoseconds of a clock that never goes back; its zero is the caller's.
pub type Nanoseconds = u64;

/// Nanoseconds in a microsecond.
pub const MICROSECOND: Nanoseconds = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: Nanoseconds = 1_000_000;
