//! Handles and transports of datagrams.
//!
//! A client's call is one send and one receive, with no poll(2) and no change of the signal mask around them while the answer comes soon; a server
//! looks for the next call where it has answered one. What is unusual is done by libtirpc's own functions, on its own handle: arguments that are
//! longer than a buffer, flavours of authentication that sign, calls that wait for nothing.

pub mod client;
pub mod server;
mod socket;
