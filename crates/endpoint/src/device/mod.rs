//! The devices that need no privilege.

pub mod local;
pub mod shm;
pub mod udp;
