//! The life of the process: fork, its end, and moving private descriptors.
//!
//! ```text
//! life         what is done at each moment, in order             fork: steps of a fork          numbers: private ones that move
//! ending       it ends by itself            confinement: it gives up files and descriptors
//! namespace    it goes into another network namespace            user_change: it becomes another user
//! ```

pub mod confinement;
pub mod ending;
pub mod namespace;
pub mod user_change;

mod fork;
mod life;
mod numbers;

pub(crate) use fork::register_barriers;
pub use fork::{awaited, fork_had_failed};
#[cfg(test)]
pub(crate) use life::run;
pub use numbers::moved;

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};

/// What is known of this process itself.
struct Process {
    /// The process that this memory belongs to. A child that shares it (clone with CLONE_VM, or a fork past us) is another.
    own: AtomicU32,
    /// It ends.
    ending: AtomicBool,
    /// In a child that is to become another program: the private end of a pipe at which its parent waits for that; -1: none.
    awaited: AtomicI32,
}

static PROCESS: Process = Process { own: AtomicU32::new(0), ending: AtomicBool::new(false), awaited: AtomicI32::new(-1) };

/// Before fork, in the parent.
pub fn before_fork() {
    life::run(&life::BEFORE_FORK);
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    life::run(&life::PARENT);
}

/// The fork failed.
pub fn fork_failed() {
    life::run(&life::FAILED);
}

/// After fork, in the child.
pub fn after_fork_child() {
    life::run(&life::CHILD);
}

/// Before a fork of ours whose child takes nothing of the program's ([`after_own_fork_child`]). The caller waits until the child has closed
/// what it inherited.
pub fn before_own_fork() {
    life::run(&life::BEFORE_OWN_FORK);
}

/// After it, in the parent, whether it failed or not.
pub fn after_own_fork_parent() {
    life::run(&life::PARENT_OF_OWN);
}

/// After it, in the child.
pub fn after_own_fork_child() {
    life::run(&life::CHILD_OF_OWN);
    life::run(&life::CHILD);
}
