//! Memory without malloc: what sockets, calls, and calls that a handler may leave by a jump are given.

pub mod joint;
pub mod leased;
pub mod scratch;
pub mod slab;
