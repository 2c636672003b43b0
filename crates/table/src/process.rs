//! process

pub mod apart;
pub mod filtered;
pub mod forks;
pub mod helper;
pub mod identity;
pub mod kernel_only;
pub mod report;
pub mod uring;
pub mod user;
pub mod users;
