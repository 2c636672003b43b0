//! Memory without malloc: what sockets, calls, and calls that a handler may leave by a jump are given.

pub(crate) mod joint;
pub(crate) mod leased;
pub(crate) mod scratch;
pub(crate) mod slab;
