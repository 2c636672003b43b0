//! `shunt hostd`: tells the two ends of a TCP connection of each other, whatever was translated between them.
//!
//! It owns the table of ends that wait, and how the kernel is asked which connection a socket is of. It refuses to know what the ends say to each
//! other, sees no byte of theirs, and keeps nothing of those that it has introduced.
//!
//! ```text
//! table         half-open claims: what matches, what is refused, what is too old
//! reading       a TCP socket's sequence numbers      batch         calls that a kill does not part
//! requests      the connections of ends              packets       descriptors over them
//! confinement   what the process can do              client        what it has counted
//! daemon        the name, and the loop                    turn          how long one of it takes
//! ```
//!
//! ```
//! use shunt_hostd::table::{Came, Limits, Numbers, Side, Table};
//!
//! // The client's numbers are the server's, crosswise.
//! let mut table = Table::new(Limits::default());
//! let (sends, expects) = (17, 99);
//! assert_eq!(table.claim(1, Side::Client, Numbers { sends, expects }), Came::Waits);
//! assert_eq!(table.claim(2, Side::Server, Numbers { sends: expects, expects: sends }), Came::Meets(1));
//! ```
//!
#![doc = include_str!("../README.md")]

mod batch;
pub mod client;
mod confinement;
pub mod daemon;
mod packets;
pub mod reading;
mod requests;
pub mod table;
mod turn;
