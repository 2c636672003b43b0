//! The atomics facade: the same code runs on the processor and in the model checker.

#[cfg(not(loom))]
pub use core::sync::atomic::{compiler_fence, fence, AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// The model checker does not reorder what the compiler could.
#[cfg(loom)]
pub fn compiler_fence(_: Ordering) {}
