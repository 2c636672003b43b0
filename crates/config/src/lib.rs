//! Every option of shunt.
//!
//! This layer owns the names, units, ranges, defaults and texts of the options: [`TABLE`] has one row per option, and
//! the flags of `shunt run`, the `SHUNT_*` variables, the help, the man page and the documentation are all made from
//! those rows. It refuses to know what reads the options, where variables are kept or what a program does with them.
//!
//! The preload library reads its options inside a process of another program's, before that program's `main`: so nothing here
//! allocates, enters the kernel or needs the standard library, and every type is `Copy`.
//!
//! ```
//! use shunt_config::Options;
//!
//! let options = Options::from_environment(|name| match name {
//!     "SHUNT_RING" => Some(b"200K"),
//!     "SHUNT_PORTS" => Some(b"6379,8000-8999"),
//!     _ => None,
//! })
//! .unwrap();
//! assert_eq!(options.ring, 256 * 1024); // rounded up to a power of two
//! assert!(options.ports.contains(8080) && !options.ports.contains(5432));
//!
//! let error = Options::from_environment(|name| (name == "SHUNT_RING").then_some(&b"12q"[..])).unwrap_err();
//! assert_eq!(error.to_string(), "SHUNT_RING: \"12q\" is not a size; example: 256K");
//! ```
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod error;
mod hosts;
mod near;
mod options;
mod ports;
mod problem;
mod profiles;
mod reading;
mod render;
mod setters;
mod table;
mod values;

pub use error::{OptionError, Source};
pub use hosts::{Hosts, Subnet, Subnets, SUBNETS};
pub use near::{Near, NEAR_LONGEST};
pub use options::{Log, Options, Raw, Udp, Unix};
pub use ports::{PortRange, Ports, PORT_RANGES};
pub use problem::Problem;
pub use profiles::{Profile, PROFILES};
pub use render::{Markdown, Roff};
pub use table::{Entry, Reader, TABLE};
