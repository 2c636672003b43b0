//! Files of captured packets: pcapng, which Wireshark, tshark and tcpdump read.
//!
//! It owns the form of the blocks ([`block`]), how such a file is made and kept whole ([`Output`]), and wall time by the processor's counter of ticks
//! ([`Clock`]). It refuses to know whose packets they are, and what is in them.
//!
//! ```
//! use shunt_pcapng::block::{self, Interface, Packet};
//! let mut bytes = Vec::new();
//! block::section(&mut bytes);
//! block::interface(&mut bytes, &Interface { link: block::RAW, longest: 0, name: "lo", description: "an example" });
//! block::packet(&mut bytes, &Packet { interface: 0, time: 1, length: 20, parts: &[&[0x45; 20]], direction: None, comment: None });
//! assert!(bytes.len().is_multiple_of(4));
//! ```

pub mod block;
mod clock;
mod output;

pub use clock::Clock;
pub use output::{Opening, Output};
