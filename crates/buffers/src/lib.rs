//! Semantics of buffers.
