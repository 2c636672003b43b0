//! What the laboratory does when it is called by hand.

pub mod compare;
pub mod jobs;
pub mod matrices;
pub mod seeds;
