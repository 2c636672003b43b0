//! Memory without malloc: what sockets, calls, and calls that a handler may leave by a jump are given; and the buffers of one call.

pub mod joint;
pub mod leased;
pub mod pieces;
pub mod scratch;
pub mod slab;
