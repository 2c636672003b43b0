//! What the crates below let the crates above do: tables of functions, which start-up fills in.

pub mod forks;
pub mod operations;

use core::sync::atomic::AtomicPtr;
use forks::Forks;
use operations::Operations;

/// Null: not filled in yet.
struct Upcalls {
    operations: AtomicPtr<Operations>,
    forks: AtomicPtr<Forks>,
}

static UPCALLS: Upcalls =
    Upcalls { operations: AtomicPtr::new(core::ptr::null_mut()), forks: AtomicPtr::new(core::ptr::null_mut()) };
