//! Random sequences: operations drawn from a seed, performed one at a time by actors in several processes and threads, on the
//! kernel and under shunt.
//!
//! Determinism is by construction. The [`stage`] lets one actor act, and goes on when it has answered or sleeps in its call; so
//! what the kernel answers depends on the sequence alone, and "this call blocks, and that one wakes it" can be compared like any
//! other answer. What the kernel nevertheless does not do the same way twice is thrown away ([`hunt`]).
//!
//! The sequence is drawn while the kernel performs it ([`draw`]), because only a drawer that knows what happened can choose what
//! is interesting next; from then on it is a list of lines ([`sequence`]) that a developer can read, replay and shorten. One that
//! shows a difference is shortened ([`shrink`]) and belongs into `sequences/`, whose files the tests replay.

pub mod draw;
pub mod hunt;
pub mod model;
pub mod sequence;
pub mod shrink;
pub mod stage;
