//! Preloaded into a program that tests a kernel's TCP (packetdrill): its connections are taken from the kernel and given back between its calls.
//!
//! ```text
//! program's call ──► give back ──► the kernel's call ──► take
//!                                                          │ until the next call: frames ⇄ engine, by a thread of this library's
//! send, receive  ──► the taken connection's rings, where these can do it
//! ```
//!
//! So every option, every end and every answer is the kernel's, of a connection that has been at user level in the meantime; and what the program sends
//! and receives, and what the peer sends between two calls, is the engine's. A program that cannot tell has found nothing.
//!
//! | variable | |
//! |---|---|
//! | `SHUNT_DRILL_INTERFACE` | the interface whose agent takes connections; without it, nothing happens |
//! | `SHUNT_DRILL_PORT` | connections that have this port at either end, and no others |
//! | `SHUNT_DRILL_EVERY` | one is taken behind each n-th call on it |
//! | `SHUNT_DRILL_FRAMES` | and given back, and taken again, behind each n-th frame; 0: never |
//! | `SHUNT_DRILL_REPORT` | the file that tells how often that happened, and why not |
//!
//! It is no part of shunt: a program of its own would do the same with `shunt_xdp::taken`. Calls that it does not know go to the kernel while a connection
//! is taken, and see a socket that nothing reaches; it knows those of packetdrill.

mod calls;
mod drill;
mod driver;
mod line;
mod report;
