//! Ranks of other hosts: active messages to the *keeper* of their host.
//!
//! Each agent of a job on several hosts has a keeper ([`keeper`]): a thread that maps the memory of its host's ranks, serves what other
//! hosts ask for, and sleeps while nothing comes. So a rank that computes delays none, and atomic operations of near and far ranks
//! are instructions of one host's processors on the same word. A rank has one endpoint, and on it a peer for the keeper of each
//! other host ([`client`]).
//!
//! ```text
//!  rank 0, rank 1   host a              host b   rank 2, rank 3
//!      |  | stores, loads                    stores, loads |  |
//!    memory a  <---  keeper a          keeper b  --->  memory b
//!                        ^                 ^
//!      rank 0  -- put, get, atomic --------+      (active messages)
//! ```

pub(crate) mod client;
pub(crate) mod device;
pub(crate) mod hello;
pub mod hosts;
pub(crate) mod keeper;
pub(crate) mod shown;
pub(crate) mod wire;

pub use device::Device;

use shunt_am::port::config_for;
use shunt_am::Config;
use shunt_endpoint::Endpoint;

/// Milliseconds of silence after which an engine gives a connection up: practically never. A rank that computes acknowledges nothing
/// meanwhile; that a host or a rank is gone is the launcher's to say.
const NEVER: u32 = 1 << 30;

/// The ordered channel of puts, atomic operations, and what orders them.
pub(crate) const ORDERED: u16 = 1;

/// The engine of a rank or a keeper.
pub(crate) fn config<E: Endpoint>(endpoint: &E, peers: u32) -> Config {
    Config { channels: 1, replies: 128, lost_after: NEVER, ..config_for(endpoint, peers) }
}
