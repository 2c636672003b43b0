//! SunRPC programs of libtirpc with their layers collapsed: `libshunt_tirpc.so` (SHRIMP's vRPC, "Client-Server Computing on SHRIMP",
//! section 4.2).
//!
//! libtirpc's handles are tables of functions. The library stands before the functions by which they come into being,
//! clnt_vc_create(3), clnt_dg_create(3) and xprt_register(3), and replaces in their handles the functions that move calls and answers: one send and one
//! receive for each, headers in one piece, long arguments from and to the program's own memory. It speaks ordinary ONC RPC, so the other
//! end may be anything. What it owns: records, buffers, whose turn it is. What it refuses to know: names, rpcbind, authentication,
//! listening; those stay libtirpc's, and what it cannot serve it leaves as it was, and tells why ([`reason`], [`told`]).
//!
//! ```
//! use shunt_tirpc::record::{Ended, Output, Sink};
//! struct Sent(Vec<u8>);
//! impl Sink for Sent {
//!     fn write(&mut self, parts: [&[u8]; 2]) -> Result<(), Ended> {
//!         parts.iter().for_each(|part| self.0.extend_from_slice(part));
//!         Ok(())
//!     }
//! }
//! let (mut output, mut sent) = (Output::new(64), Sent(vec![]));
//! output.word(7, &mut sent).unwrap();
//! output.end_record(true, &mut sent).unwrap();
//! assert_eq!(sent.0, [0x80, 0, 0, 4, 0, 0, 0, 7]);
//! ```

mod accelerated;
mod client;
mod datagram;
pub mod layout;
mod real;
pub mod reason;
pub mod record;
pub mod reply;
mod server;
mod socket;
mod stream;
mod symbols;
pub mod told;
mod turn;
