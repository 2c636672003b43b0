//! Bytes of a stream that stay in their sender's memory until they are received: sends with MSG_ZEROCOPY from a pool that the program
//! has shown to the peer (`SHUNT_SO_POOL`).
//!
//! The receiver copies them out of the pool, so one copy is made and not two. For the stream they are bytes as others
//! ([`shunt_ring::Pipe::referred`]); a record in the channel tells where they lie. That they were taken tells the receiver's position, which
//! completes the send: no message goes back.
//!
//! ```text
//! sender                                             receiver
//!   first send from a pool: 4 bytes stand in a         comes to them: maps the pool, and answers
//!     record that offers it; the rest is copied
//!   later ones: record, position                       comes to them: copies out of the pool
//!   position of the receiver behind them: complete     rings, if the sender sleeps
//! ```
//!
//! Whatever is in the way, bytes are copied into the ring as others are, and the completion says so. `lend` is the sender's half, `borrow`
//! the receiver's; `keep` is for sides that get other owners. Programs that read in place: [`crate::views`]. `emulated` is for plain sends, which
//! lend their bytes for as long as they last.

pub mod borrow;
pub mod emulated;
pub mod keep;
pub mod lend;

use crate::socket::Socket;
use core::sync::atomic::Ordering;
use shunt_ring::lent::{read, write};
use shunt_segment::channel::references::{place, References};

/// What `side` of the stream sends by reference.
fn of_side(socket: &Socket, side: usize) -> &'static References {
    &socket.page().head.references[side & 1]
}

/// The low half of the connection's generation: records of the channel's connections before are none of this one's.
fn generation(socket: &Socket) -> u64 {
    u64::from(socket.page().head.generation.load(Ordering::Relaxed) & 0xffff)
}

/// Whether the reader who has taken all before `taken` is behind the bytes of the record.
fn is_taken(word: u64, start: u64, taken: u64) -> bool {
    crate::loans::is_behind(taken, start.wrapping_add(place::length(word) as u64))
}
