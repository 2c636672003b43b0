//! Links: the segments that this process shares with others, as their maker (client) or guest (server).
//!
//! A link's address range is never unmapped while the process lives: a dropped link is replaced by blank memory and its
//! range serves the next one, so a thread that races with a close reads zeros, not a fault. All functions are called
//! under the set-up lock.
//!
//! ```
//! use shunt_segment::CHANNELS;
//! use shunt_table::global::SETUP;
//!
//! let listener = 4026; // the inode of a listening socket, as sock_diag(7) tells it
//! let _setup = SETUP.lock().unwrap();
//! // The first connection makes a link; the next one gets another channel of it.
//! let (first, second) = (shunt_link::offer(listener).unwrap(), shunt_link::offer(listener).unwrap());
//! assert_eq!(first.index, second.index);
//! assert_ne!(first.channel, second.channel);
//! assert!(first.channel < CHANNELS && shunt_link::is_segment(shunt_link::descriptor(first.index)));
//! ```
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

mod adopt;
mod bell;
pub mod bids;
mod channels;
pub mod companion_cache;
mod dedicated;
mod drop;
pub mod fd_reserve;
mod forking;
mod kept;
mod leave;
mod lend;
mod life;
mod list;
mod make;
mod narrow;
pub mod patience;
pub mod peers;
pub mod ports;
mod retired;
#[cfg(test)]
mod tests;
pub mod users;
pub mod window;

pub use adopt::{adopt, by_name, is_named, is_segment, is_segment_of, known, name_of, named, retire_if_shared, take_up};
pub use bell::{bell_known, end_offers, for_offers};
pub use channels::{clear_for_next, lends, lent_pages, note, reusable};
pub use companion_cache::forget_idle_pairs;
pub use dedicated::make_dedicated;
pub use drop::{client_left, drop_lasting, drop_owed, drop_unused, part_with, sweep};
pub use leave::{about_to_release, ending, enter, leave, let_go};
pub use lend::{offer, Offer};
pub use life::{end_offers_to, forget_all, forget_all_but, forked, moved, namespace_changed, not_sole};
pub use list::{any_guest, at, count, descriptor, descriptor_unlocked, entries_address, header, page, Link, MOST};
pub use make::{address_space, holds_range, make_lasting};
pub use narrow::{narrow, no_longer_lasting};
pub use retired::left_to_kernel;
