//! Options that a socket keeps, as far as a stream's calls look at them.

pub mod effects;
pub mod limits;
pub mod option_probe;
pub mod owners;
