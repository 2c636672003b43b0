//! send and receive on an accelerated stream.
//!
//! `take` and `put` move bytes and never wait; `receive` and `send` are the calls around them, and `end` is what ends a stream
//! without closing it. What two ends that are awake do all day goes another way first ([`crate::fast_path`]).
//!
//! ```text
//! socket       the private half of a stream or listener         locks: one for each direction
//! waiting      what a stream is ready for, and waking the peer  sleep: what a call does until then         events: what poll tells
//! fast_path    short messages               window, room: space in a direction         send_pacing: rings that stay in the caches
//! life         what ends a stream, as a table                end: what this side does to end one
//! carried      calls under which a stream becomes the kernel's         flush_relays: before another owner sends
//! transfer, splice: vectors (their pieces: in table), files and pipes         corked: bytes that wait for more
//! control      control messages             error_queue: completions of MSG_ZEROCOPY      stamp: when bytes arrived
//! urgent       the marked byte (mark: where it is)
//! references   bytes that stay in their sender's pool until they are received (loans: what a stream keeps of them, pools: where they lie,
//!              views: those that the program reads there)
//! tap          what a tool captures
//! deadlines    when streams are looked after (due) to which nothing happens: stalled (TCP_USER_TIMEOUT), corked
//! ```
//!
//! ```
//! use shunt_stream::life::{Event, TABLE};
//! // What a reset by the peer leaves for the calls that follow, and the function of the kernel's that says so.
//! let row = &TABLE[Event::PeerReset as usize];
//! assert_eq!((row.event, row.because), (Event::PeerReset, "tcp_reset: ECONNRESET"));
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(test, feature = "pair")), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

pub mod beside;
mod carried;
pub mod control;
pub mod corked;
pub mod deadlines;
pub mod due;
pub mod edges;
pub mod error_queue;
pub mod events;
pub mod fast_path;
pub mod flush_relays;
pub mod life;
pub mod loans;
pub mod locks;
pub mod mark;
pub mod options;
#[cfg(any(test, feature = "pair"))]
#[path = "tests/pair.rs"]
pub mod pair;
pub mod pools;
pub mod progress;
pub mod references;
pub mod room;
pub mod send_file;
pub mod send_pacing;
pub mod sleep;
pub mod socket;
pub mod splice;
pub mod stalled;
pub mod stamp;
pub mod tap;
#[cfg(test)]
mod tests;
pub mod transfer;
pub mod urgent;
pub mod views;
pub mod waiting;
pub mod window;

mod end;
mod put;
mod receive;
pub mod seen;
mod send;
mod take;

pub use end::{announce_end, distrust, reset_from_outside, shutdown};
use put::put_filled;
pub use put::put_from;
pub use receive::{receive, receive_pieces};
pub use send::{send, send_vector};
pub use take::{peek, peek_within, space_came_free, take_within, taken, WANTS_SPACE};

/// A call that has moved bytes gives these when a signal comes, also with SA_RESTART, or a stop: it sleeps as one with a time limit,
/// which never goes on.
fn ends_for_signals(deadline: u64, flags: i32, done: usize) -> u64 {
    if done > 0 || flags & UNDER_WAY != 0 {
        deadline.min(u64::MAX - 1)
    } else {
        deadline
    }
}

/// Whether no program has such a range of addresses: the kernel finds that before it looks at anything else (access_ok).
pub fn is_no_range(data: *const u8, length: usize) -> bool {
    (length as isize) < 0 || (data as isize) < 0 || (data as usize).wrapping_add(length) as isize <= -1
}

/// A flag of ours, beside those of send and recv: the call is a part of one that has moved something. (The kernel's bit for a flag of
/// its own, MSG_CMSG_COMPAT.)
const UNDER_WAY: i32 = i32::MIN;
