//! The life of the process: start-up, fork, and moving private descriptors.
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

pub use fork::{fork_had_failed, AWAITED};
pub use numbers::moved;

use shunt_options::Options;
use shunt_sys::clock;
use shunt_table::global;
use shunt_table::process::{report, user, users};
use shunt_table::receiver;

/// The start-up ladder, called once by the preload library's constructor. Until it is done, calls go to the kernel.
///
/// # Safety
/// No other thread exists; `single_threaded` is null or libc's `__libc_single_threaded`.
pub unsafe fn start(options: Options, single_threaded: *mut u8, inherited: Option<&[u8]>) {
    crate::wiring::fill(); // first: whatever follows may ask a crate above
    clock::start(); // before anything is timed
    shunt_sys::processor::find_vectors(); // before anything of the program's is copied
    ending::begin(); // the process may end from here on
                     // SAFETY: passed on.
    unsafe { global::set(options, single_threaded) }; // options decide on what follows
    fork::register_barriers(); // before peers rely on them
    user::start(); // before anything is shared under it
    if global::options().accelerate {
        report::start(); // before reasons are counted
        receiver::start(); // before this process receives descriptors
        users::start(); // before it listens
        if let Some(list) = inherited {
            shunt_handover::inherit::take_up(list); // last, as connections of the program before may be used at once
        }
    }
    global::set_ready(); // calls are ours from here on
}

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
