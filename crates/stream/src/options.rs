//! Options that a socket keeps, as far as a stream's calls look at them.

pub mod effects;
pub mod judge;
pub mod limits;
pub mod owners;
