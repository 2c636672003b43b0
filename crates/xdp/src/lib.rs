//! The AF_XDP device.
//!
//! It owns the rings and the segment that an AF_XDP socket shares with the kernel, and how a message becomes a frame on an
//! Ethernet. It refuses to know who may have a socket, which program sorts the frames, and what the messages mean: the
//! first two are the agent's. Nothing here allocates or enters the kernel but through `shunt-sys`.
//!
//! ```
//! use shunt_xdp::address::{decode, encode};
//! // A peer is named as the `udp` device names it: an address, a port, and the interface of one that is link-local.
//! let peer = "[fe80::1]:29544".parse().unwrap();
//! assert_eq!(decode(&encode(&peer, 3)), Some((peer, 3)));
//! ```
//!
//! A device is asked of the interface's agent:
//!
//! ```no_run
//! use shunt_xdp::protocol::{Kind, Sizes};
//! let device = shunt_xdp::Xdp::attach("eth0", Kind::Any, false, Sizes::default())?;
//! # Ok::<(), shunt_sys::Errno>(())
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]

pub mod address;
pub mod answers;
pub mod attempts;
pub mod cause;
pub mod chains;
pub mod course;
pub mod decline;
mod device;
pub mod escrow;
mod frames;
pub mod learned;
pub mod multiplexed;
pub mod netlink;
pub mod notes;
pub mod own;
pub mod packet;
pub mod played;
pub mod protocol;
pub mod restored;
pub mod ring;
pub mod route;
pub mod runs;
pub mod socket;
pub mod state;
pub mod taken;
pub mod tcp;

pub use device::{Descriptors, Xdp};
pub use frames::Frames;
