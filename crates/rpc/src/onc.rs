//! SunRPC: RFC 5531 over TCP and UDP, and rpcbind (RFC 1833), so that strangers can be called, and call.
//!
//! [`message`] and [`record`] are what goes over the wire, without input and output of their own; a caller and a server stand on
//! them, behind [`crate::Client`] and [`crate::Server`] with an address of the form `sunrpc+tcp://HOST[:PORT]`.

pub(crate) mod caller;
pub mod message;
pub mod record;
pub mod rpcbind;
pub(crate) mod server;

pub use message::{Claim, Credential};
