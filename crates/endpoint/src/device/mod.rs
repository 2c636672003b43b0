//! The devices that need no privilege.

pub mod local;
pub mod udp;
