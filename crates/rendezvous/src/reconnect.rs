//! Connecting in memory, without the kernel: what an ended connection left at both ends serves the next one.
//!
//! ```text
//!                     the client's side    the server's side
//! one acceptor        client               server
//! several acceptors   shared_client        shared_server
//! ```

pub mod client;
pub mod server;
pub mod shared_client;
pub mod shared_server;
