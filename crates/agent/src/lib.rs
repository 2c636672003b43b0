//! The agent: U-Net's kernel agent and operating system service (section 3.2) for one interface.
//!
//! It owns what needs privilege: the program that sorts frames by tag, AF_XDP sockets, the questions of who may have what
//! and how much. It moves the frames of *emulated* endpoints (U-Net, section 3.1), which share its queue. It refuses to
//! know what messages mean, and touches no interface but the one it was given.
//!
//! ```no_run
//! let mut agent = shunt_agent::Agent::start(shunt_agent::Configuration::new("veth0"))?;
//! agent.run().map_err(|error| error.to_string())?;
//! # Ok::<(), String>(())
//! ```
//!
//! Everything that it sets up is a descriptor of its process: program (a `bpf_link`), maps, sockets, names. So nothing is
//! left when it ends, also by SIGKILL, and a restart has nothing to clean.
mod agent;
mod aside;
mod capture;
mod client;
mod configuration;
pub mod connections;
mod cutter;
pub mod ebpf;
mod hosts;
mod interface;
mod paths;
pub mod report;
mod requests;
mod sorting;
mod start;
mod traffic;
mod trunk;

pub use agent::{Agent, End};
pub use configuration::{Configuration, Limits};
pub use interface::Interface;
pub use shunt_xdp::socket::Mode;
