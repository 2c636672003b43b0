//! Streams to other hosts: the sockets' half.
//!
//! The program has side 0 of a local channel, in a link of the station's own, and does what it does on one host. Side 1 has no
//! process: the *pump* moves its bytes between the rings and the station's engine. The holder of the station's lock may
//! work it, in any process of the station's family: threads that wait, awake or asleep on the endpoint, and else the *keeper*.
//!
//! ```text
//! program ── near ring, side 0 ═══ side 1 ── pump ── engine ── endpoint ══ other host
//!    fd ═══ companion ═══ keeper ── shadow ═══ (TCP) ═══ other host's keeper
//! ```
//!
//! The keeper alone holds the far ends of companions, so its death is a hang-up for every program, and nothing waits for ever.
//! Rings of these links stop at 256 KiB, so no window has to be mapped, and a peer is granted as much as such a ring holds.
//!
//! ```
//! // What start-up puts into the list of carriers. A process without streams to other hosts drives none.
//! let carrier = &shunt_remote::OTHER_HOSTS;
//! assert!(!(carrier.is_driving)());
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]
// Addresses that are passed around here are links' and slabs': their types vouch for them, see `shunt_link` and `shunt_stream::socket`.
#![allow(clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

mod accept;
#[cfg(any(test, feature = "alone"))]
pub mod alone;
mod askers;
mod batching;
mod bulk;
mod connect;
mod driving;
mod fork;
mod keeper;
mod local_station;
mod making;
mod marks;
mod message;
mod posting;
mod pump;
mod reachability;
mod refusals;
mod settling;
mod station_owner;
mod stream_life;
mod stream_words;
mod switch_to_tcp;
mod tcp_fallback;
#[cfg(test)]
mod tests;

use shunt_rendezvous::carriers::Carrier;

/// The process, or a thread of it, has left its network namespace. Under the set-up lock.
fn left_namespace() {
    reachability::left_namespace();
    local_station::left_namespace();
}

/// What connect, listen and accept ask of this room, and what it hears of the process's life.
pub const OTHER_HOSTS: Carrier = Carrier {
    connect: connect::connect,
    listens: accept::listens,
    listens_no_longer: accept::listens_no_longer,
    accepted: accept::accepted,
    sharing: |_| {},
    moved: local_station::moved,
    forked: local_station::forked,
    forget: local_station::forget,
    left_namespace,
    is_driving: station_owner::is_driving,
    user_changed: station_owner::user_changed,
    ending: || {},
};
